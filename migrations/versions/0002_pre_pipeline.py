"""The data pipeline: what it reads by, where its sink gathers jobs, and its roll-ups."""

from pgqueue.store.schema import run_revision_file

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PARTS = ("pipeline", "sink", "rollups")
FIRST = ("locks", "large")
"""The locks; then what is done before the revision where the tables are large (:mod:`pgqueue.store.ahead`)."""


def upgrade() -> None:
    """Install it."""
    for part in (*FIRST, *PARTS):
        run_revision_file(f"0002_{part}.up")


def downgrade() -> None:
    """Take it away; the roll-ups and the list of writes with it."""
    for part in reversed(PARTS):
        run_revision_file(f"0002_{part}.down")
