"""What workers say of their health; what the history keeps; schedules and their ticks."""

from pgqueue.store.schema import run_revision_file

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PARTS = ("health", "history", "schedules")


def upgrade() -> None:
    """Install it."""
    for part in PARTS:
        run_revision_file(f"0005_{part}.up")


def downgrade() -> None:
    """Take it away."""
    for part in reversed(PARTS):
        run_revision_file(f"0005_{part}.down")
