"""What a job's end concerns; notes of attempts, signals, flows."""

from pgqueue.store.schema import run_revision_file

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

PARTS = (
    "ends",
    "notes",
    "signals",
    "flows",
    "schedules",
)  # the first takes the locks, on the way down the last


def upgrade() -> None:
    """Install it."""
    for part in PARTS:
        run_revision_file(f"0006_{part}.up")


def downgrade() -> None:
    """Take it away."""
    for part in reversed(PARTS):
        run_revision_file(f"0006_{part}.down")
