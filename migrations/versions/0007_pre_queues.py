"""Settings of queues; what workers are asked to do; limits; jobs whose workers died."""

from pgqueue.store.schema import run_revision_file

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

PARTS = ("queues", "workers", "expiry", "bulk", "limits", "crashes", "ageing")
LOCKS = "locks"
"""The tables that the parts change are locked before the first of them, on the way up and on the way down."""
LARGE = "large"
"""What is done before the revision where the tables are large (:mod:`pgqueue.store.ahead`)."""


def upgrade() -> None:
    """Install it."""
    for part in (LOCKS, LARGE, *PARTS):
        run_revision_file(f"0007_{part}.up")


def downgrade() -> None:
    """Take it away; of a shard its guard, too, which reads the lanes of jobs."""
    run_revision_file(f"0007_{LOCKS}.down")
    run_revision_file("shard_guard.down")
    for part in reversed(PARTS):
        run_revision_file(f"0007_{part}.down")
