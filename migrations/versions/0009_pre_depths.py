"""How deep queues are, over time."""

from pgqueue.store.schema import run_revision_file

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Install it."""
    run_revision_file("0009_depths.up")


def downgrade() -> None:
    """Take it away."""
    run_revision_file("0009_depths.down")
