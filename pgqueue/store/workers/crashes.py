"""Attempts of jobs that a lost worker had claimed: their start is noted before they run.

What counts as a crash is decided in :mod:`pgqueue.values.workers.crashes`; :mod:`pgqueue.store.workers.lost` reads what is noted here.
"""

from datetime import datetime

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import Claim
from pgqueue.values.workers.crashes import CrashCount


@plan
def start(claim: Claim, *, now: datetime | None = None) -> Steps[CrashCount | None]:
    """Note that an attempt starts; None: it no longer holds its job.

    Args:
        claim: the attempt.
        now: the instant; the database's own by default.
    """
    params = {"id": claim.id, "worker": claim.worker_id, "fence": claim.fence, "now": now}
    rows = yield Statement("crashes/start", params)
    return CrashCount(*rows[0]) if rows else None
