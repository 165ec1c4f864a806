"""Attempts of jobs that a lost worker had claimed: their start is noted before they run.

What counts as a crash is decided in :mod:`pgqueue.values.crashes`; :mod:`pgqueue.store.lost` reads what is noted here.
"""

from datetime import datetime

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.crashes import Begun
from pgqueue.values.job import Claim


@plan
def start(claim: Claim, *, now: datetime | None = None) -> Steps[Begun | None]:
    """Note that an attempt starts; None: it no longer holds its job.

    Args:
        claim: the attempt.
        now: the instant; the database's own by default.
    """
    params = {"id": claim.id, "worker": claim.worker_id, "fence": claim.fence, "now": now}
    rows = yield Statement("crashes/start", params)
    return Begun(*rows[0]) if rows else None
