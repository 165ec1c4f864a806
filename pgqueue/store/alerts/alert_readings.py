"""How the conditions of alerts are read: one or a few bounded statements for each, however many jobs wait.

What the conditions mean is decided in :mod:`pgqueue.values.alerts.alert`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.store.insight import over_time
from pgqueue.store.jobs import control
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.queues import queues
from pgqueue.values.alerts.alert import (
    MOST_DEAD,
    AlertCondition,
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    OldestReady,
    Reading,
    SaturatedLimit,
    StalledWorkers,
)
from pgqueue.values.limits.status import LaneCount, LimitStatus, keys_counted
from pgqueue.values.workers.health import WorkerProblem


@plan
def read(rule: AlertCondition, now: datetime | None) -> Steps[Reading]:
    """What a condition is now.

    Args:
        rule: the condition.
        now: the instant; None: the database's own.

    Raises:
        InvalidOption: it names a limit that does not exist, or that is a rate.
    """
    return (yield from _READERS[type(rule)](rule, now))


def of_workers(rule: StalledWorkers, problems: list[WorkerProblem]) -> Reading:
    """How many of the live workers with a problem do not serve."""
    stalled = [one for one in problems if not one.serves]
    return Reading.over(rule, len(stalled), worker=f"{stalled[0].host}:{stalled[0].pid}" if stalled else None)


def of_limit(rule: SaturatedLimit, limit: LimitStatus, running: list[LaneCount]) -> Reading:
    """How many places of a limit are taken, of its fullest key.

    Raises:
        InvalidOption: it is a rate.
    """
    most = limit.numbers.most
    if most is None:
        raise InvalidOption(f"limit {rule.limit!r} is a rate: SaturatedLimit is for limits of concurrency")
    taken = max((key.running for key in keys_counted(rule.limit, running, {})), default=0)
    return Reading(float(taken), float(most), taken >= most, rule.about)


def _oldest_ready(rule: OldestReady, now: datetime | None) -> Steps[Reading]:
    rows = yield Statement("alerts/oldest_ready", {"queue": rule.queue, "now": now})
    return Reading.over(rule, rows[0][1], queue=rows[0][0]) if rows else Reading.over(rule, None)


def _backlog(rule: Backlog, now: datetime | None) -> Steps[Reading]:
    found = yield from queues.queue_standings(now=now)
    return Reading.over(rule, sum(one.ready for one in found if rule.queue in {None, one.queue}))


def _failures(rule: Failures, now: datetime | None) -> Steps[Reading]:
    within = as_duration("within", rule.within)
    totals = yield from over_time.totals(within, by="task", queue=rule.queue, task=rule.task, now=now)
    return Reading.over(rule, sum(one.figures.failed for one in totals.lines))


def _dead_jobs(rule: DeadJobs, now: datetime | None) -> Steps[Reading]:
    of = {"queue": rule.queue, "task": rule.task, "within": rule.within}
    ((dead,),) = yield Statement("alerts/dead", {**of, "looked_at": MOST_DEAD, "now": now})
    return Reading.over(rule, dead)


def _late_schedule(rule: LateSchedule, now: datetime | None) -> Steps[Reading]:
    rows = yield Statement("alerts/late_schedule", {"schedule": rule.schedule, "now": now})
    if not rows:
        return Reading.over(rule, None)
    name, task, seconds = rows[0]
    return Reading.over(rule, seconds, schedule=name, task=task)


def _stalled_workers(rule: StalledWorkers, now: datetime | None) -> Steps[Reading]:
    return of_workers(rule, (yield from control.worker_problems(now=now)))


def _saturated_limit(rule: SaturatedLimit, now: datetime | None) -> Steps[Reading]:  # noqa: ARG001 - as all of them
    limit = limit_control.require_limit(rule.limit, (yield from limit_control.stored()))
    rows = yield Statement("limits/running", {"keys": []})  # places that are kept for a retry are not counted
    return of_limit(rule, limit, [LaneCount(queue, lane, running, 0, 0) for queue, lane, running in rows])


_READERS: dict[type[AlertCondition], Callable[[Any, datetime | None], Steps[Reading]]] = {
    OldestReady: _oldest_ready,
    Backlog: _backlog,
    Failures: _failures,
    DeadJobs: _dead_jobs,
    LateSchedule: _late_schedule,
    StalledWorkers: _stalled_workers,
    SaturatedLimit: _saturated_limit,
}
