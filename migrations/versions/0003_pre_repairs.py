"""Bounds on what a job may hold, and what keeps one job, row or connection from holding up the others."""

from pgqueue.store.schema import run_revision_file

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

PARTS = ("bounds", "claims", "upkeep")


def upgrade() -> None:
    """Install it."""
    for part in PARTS:
        run_revision_file(f"0003_{part}.up")


def downgrade() -> None:
    """Take it away."""
    for part in reversed(PARTS):
        run_revision_file(f"0003_{part}.down")
