"""The plan that reads whether all is right with the queue: a few bounded statements, however many jobs wait.

Which of these facts are a problem is decided in :mod:`pgqueue.values.insight.problems`. The primary answers, since to a replica
that is behind, live workers look lost.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pgqueue.store.alerts import alerts
from pgqueue.store.insight import insight, over_time
from pgqueue.store.jobs import control
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.workers import workers
from pgqueue.values.insight.health_facts import HealthFacts, HeldLimit, LaneHead, LostWorker, holding_limits
from pgqueue.values.insight.problems import LOST_WITHIN
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.status import LaneCount

SCHEDULES: Final = 100
"""The latest ones are read."""
LOST: Final = 1_000
"""Of the lost workers, the last ones are counted."""


@plan
def facts(declared: Mapping[str, LimitNumbers], *, now: datetime | None = None) -> Steps[HealthFacts]:
    """What says whether all is right, beside how the queues stand.

    Args:
        declared: the limits that the app's code has, by name.
        now: the instant; the database's own by default.
    """
    ((at,),) = yield Statement("connections/clock", {"now": now})
    lost = yield Statement("workers/lost_lately", {"within": LOST_WITHIN, "limit": LOST, "now": now})
    heads = [LaneHead(*row) for row in (yield Statement("insight/lane_heads", {}))]
    return HealthFacts(
        now=at,
        workers=(yield from workers.listed(now=now)),
        troubles=(yield from control.worker_problems(now=now)),
        lost=[LostWorker(*row) for row in lost],
        heads=heads,
        held=(yield from _held(heads, at, declared)) if heads else [],
        schedules=(yield from insight.schedules(limit=SCHEDULES, now=now)),
        alerts=(yield from alerts.listed(now=now)),
        failures=(yield from over_time.recent_failures(now=now)),
    )


def _held(
    heads: Sequence[LaneHead], at: datetime, declared: Mapping[str, LimitNumbers]
) -> Steps[list[HeldLimit]]:
    """The limits that hold jobs back for long. How many jobs wait for each is counted only if there is one."""
    known = yield from limit_control.stored()
    rows = yield Statement("limits/running", {"keys": [], "since": 0})
    running = [LaneCount(queue, lane, count, 0, 0) for queue, lane, count, _ in rows]
    found = holding_limits(heads, running, known, at)
    if not found:
        return []
    counted = {one.name: one for one in (yield from limit_control.listed(declared, now=at))}
    return [HeldLimit(counted.get(name, known[name]), since) for name, since in sorted(found.items())]
