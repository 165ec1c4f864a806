"""The whole schema of the first release."""

from pgqueue.store.schema.schema import run_revision

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Install it."""
    run_revision(revision, "up")


def downgrade() -> None:
    """Take it away, with every job in it."""
    run_revision(revision, "down")
