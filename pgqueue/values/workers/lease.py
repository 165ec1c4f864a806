"""How long a worker's lease is, how often it is renewed, and how lengths of time and amounts of memory are said.

Workers, takes, drains and the command use these defaults. A worker that dies holds its jobs for one lease and one sweep.
"""

from datetime import timedelta

LEASE = timedelta(seconds=30)
"""How soon other workers may have the jobs of a process that dies."""
POLL = timedelta(seconds=1)
"""How often a worker looks for jobs that no notification announced."""
SWEEP = timedelta(seconds=5)
"""How often a worker looks for lost workers."""
BLOCKED_AFTER = timedelta(seconds=1)
"""How long an event loop may not answer until it counts as blocked."""
CANCEL_EVERY = 0.8
"""Seconds until a worker without notifications, or a take, asks again which of its jobs are to be cancelled."""
GRACE = timedelta(seconds=30)
"""How long running jobs may go on after their worker was told to stop."""


def renew_every(lease: timedelta) -> float:
    """Seconds between two renewals: a third of the lease, so that one may fail."""
    return lease.total_seconds() / 3


def spoken_bytes(number: int) -> str:
    """An amount of memory, like ``512 MB``, ``49 kB`` or ``2.1 MB``."""
    if number < 10**6:
        return f"{number / 10**3:,.0f} kB" if number >= 10**3 else f"{number} B"
    if number < 10**10:
        return f"{number / 10**6:,.0f} MB" if number >= 10**7 else f"{number / 10**6:.3g} MB"
    return f"{number / 10**9:,.1f} GB"


def duration_text(seconds: float) -> str:
    """A length of time with its unit, with about three digits."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            number = seconds / length
            return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"  # noqa: PLR2004
    return f"{round(seconds, 1):g} s"
