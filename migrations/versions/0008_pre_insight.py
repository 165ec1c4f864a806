"""What workers measure, kept as time series; alerts; what workers say of their claims; stacks of running jobs."""

from pgqueue.store.schema import run_revision_file

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

PARTS = ("flows", "lanes", "insight", "limits", "health", "alerts", "stacks")
LOCKS = "locks"
"""The tables that the parts change are locked before the first of them, on the way up and on the way down."""
LARGE = "large"
"""What is done before the revision where the tables are large (:mod:`pgqueue.store.ahead`)."""


def upgrade() -> None:
    """Install it."""
    for part in (LOCKS, LARGE, *PARTS):
        run_revision_file(f"0008_{part}.up")


def downgrade() -> None:
    """Take it away."""
    for part in (LOCKS, *reversed(PARTS)):
        run_revision_file(f"0008_{part}.down")
