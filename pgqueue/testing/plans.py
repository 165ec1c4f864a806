"""The plan by which a drain claims, and what it finds."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from pgqueue.store import signals
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import claim, finish
from pgqueue.store.jobs.portions import Portions
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.queues.shares import Split
from pgqueue.values.workers.lease import LEASE


class DrainClaim(msgspec.Struct, frozen=True):
    """What a drain finds.

    Attributes:
        claim: the next job; None: none is due.
        timeouts: how long an attempt may take whose task names no timeout, by queue.
    """

    claim: Claim | None
    timeouts: Mapping[str, timedelta]


@plan(transaction=True)
def next_claim(
    worker: leases.WorkerInfo,
    served: ServedQueues,
    split: Split | None,
    lanes: ServedLanes,
    *,
    now: datetime | None = None,
) -> Steps[DrainClaim]:
    """All that a worker does between two jobs, in one plan.

    It ends the jobs that have expired, registers the worker or renews its lease, makes due jobs ready, and claims the next
    job: from the first queue that has one, in the order of the names, in the order that is given, or as the split says; where no queue has one, from
    the lanes of limited jobs, those that may start at this instant.

    Args:
        worker: who claims.
        served: from which queues.
        split: whose turn it is, where queues have weights or a strict order; it learns what was claimed.
        lanes: which lanes it serves.
        now: the instant; the database's own by default.
    """
    while (yield from finish.expire(now=now)):
        pass
    polled = yield from upkeep.arrive(worker, LEASE, seldom=True, now=now)
    while polled.wait_in == 0 and (yield from signals.admit_due(now=now)).handled:
        pass
    while polled.flow_work and (yield from flow_progress.work(now=now)):
        pass
    if "age" in polled.seldom:
        yield from queues.age(now=now)
    claims = yield from claim.look(worker.id, served, 1, portions=Portions(), split=split, now=now)
    lanes.learn(limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
    if not claims and (polled.in_lanes or polled.limited):
        claims = [*(yield from lanes.claim(worker.id, 1, horizon=0, now=now)).claims]
    timeouts = {queue: timedelta(seconds=seconds) for queue, seconds in polled.timeouts.items()}
    return DrainClaim(claims[0] if claims else None, timeouts)
