"""How long a worker's lease is, how often it is renewed, and the other lengths of time that follow from it.

Workers, takes, drains and the command use these defaults. A worker that dies holds its jobs for one lease and one sweep.
"""

from datetime import timedelta

LEASE = timedelta(seconds=30)
"""How soon other workers may have the jobs of a process that dies."""
POLL = timedelta(seconds=1)
"""How often a worker looks for jobs that no notification announced."""
SWEEP = timedelta(seconds=5)
"""How often a worker looks for lost workers."""
GRACE = timedelta(seconds=30)
"""How long running jobs may go on after their worker was told to stop."""


def renew_every(lease: timedelta) -> float:
    """Seconds between two renewals: a third of the lease, so that one may fail."""
    return lease.total_seconds() / 3
