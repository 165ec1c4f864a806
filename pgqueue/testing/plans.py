"""The plan by which a drain claims, which decides the order in which queues are served."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pgqueue.store import claim, upkeep
from pgqueue.store.plan import Steps, plan
from pgqueue.values.job import Claim

LEASE = timedelta(seconds=30)
"""How long a job whose worker died in a test stays that worker's; as with a real one."""


@plan(transaction=True)
def next_claim(
    worker: claim.WorkerInfo, queues: Sequence[str] | None, *, now: datetime | None = None
) -> Steps[Claim | None]:
    """All that a worker does between two jobs, in one plan.

    It registers the worker or renews its lease, makes due jobs ready, and claims the next job: from the first queue
    that has one, in the order of the names or in the order that is given.

    Args:
        worker: who claims.
        queues: from these, in this order; None: from all.
        now: the instant; the database's own by default.
    """
    if not (yield from claim.renew(worker.id, LEASE, now=now)):
        yield from claim.register(worker, LEASE, now=now)
    yield from upkeep.tick(now=now)
    names = sorted((yield from claim.new_queues())) if queues is None else queues
    claims = yield from claim.fill(worker.id, names, 1, now=now)
    return claims[0] if claims else None
