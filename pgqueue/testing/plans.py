"""The plan by which a drain claims."""

from collections.abc import Sequence
from datetime import datetime

from pgqueue.store import claim, finish, following, signals, upkeep
from pgqueue.store.plan import Steps, plan
from pgqueue.store.portions import Portions
from pgqueue.values.job import Claim
from pgqueue.values.lease import LEASE


@plan(transaction=True)
def next_claim(
    worker: claim.WorkerInfo, queues: Sequence[str] | None, *, now: datetime | None = None
) -> Steps[Claim | None]:
    """All that a worker does between two jobs, in one plan.

    It ends the jobs that have expired, registers the worker or renews its lease, makes due jobs ready, and claims the next job: from the first queue
    that has one, in the order of the names or in the order that is given.

    Args:
        worker: who claims.
        queues: from these, in this order; None: from all.
        now: the instant; the database's own by default.
    """
    while (yield from finish.expire(now=now)):
        pass
    polled = yield from upkeep.arrive(worker, LEASE, now=now)
    while polled.wait_in == 0 and (yield from signals.admit_due(now=now)).handled:
        pass
    while polled.flow_work and (yield from following.work(now=now)):
        pass
    claims = yield from claim.look(worker.id, queues, 1, portions=Portions(), now=now)
    return claims[0] if claims else None
