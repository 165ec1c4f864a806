"""What later features need of a job: what is sent along with it, and what it waits for."""

from pgqueue.store.schema import run_revision_file

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

PARTS = ("meta", "admission")


def upgrade() -> None:
    """Install it."""
    for part in PARTS:
        run_revision_file(f"0004_{part}.up")


def downgrade() -> None:
    """Take it away."""
    for part in reversed(PARTS):
        run_revision_file(f"0004_{part}.down")
