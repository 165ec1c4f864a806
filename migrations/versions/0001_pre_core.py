"""The core: jobs, history, dead jobs, workers, queues, and the SQL function ``enqueue``."""

from pgqueue.store.schema import run_revision_file

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Install it."""
    run_revision_file("0001_core.up")


def downgrade() -> None:
    """Take it away, with every job in it."""
    run_revision_file("0001_core.down")
