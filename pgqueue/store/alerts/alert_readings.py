"""How the conditions of alerts are read: one or a few bounded statements for each, however many jobs wait.

What the conditions mean is decided in :mod:`pgqueue.values.alerts.alert`.
"""

from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar, assert_never

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.store.insight import over_time
from pgqueue.store.jobs import control
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Plan, Statement, Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.workers import workers
from pgqueue.values.alerts.alert import (
    MOST_DEAD,
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    OldestReady,
    Reading,
    Rule,
    SaturatedLimit,
    StalledWorkers,
    UnservedTask,
)
from pgqueue.values.limits.status import LaneCount, LimitStatus, keys_counted
from pgqueue.values.workers.health import WorkerProblem

T = TypeVar("T")
Answers: TypeAlias = dict[str, Any]
"""What was read for one alert and is true for others, by the name of its plan: of all queues, workers or limits."""


class Moment(NamedTuple):
    """When an alert is looked at.

    Attributes:
        now: the instant; None: the database's own.
        answers: what looks at about this instant have read; each adds to it.
    """

    now: datetime | None
    answers: Answers

    def once(self, asked: Plan[T]) -> Steps[T]:
        """Ask, unless another look has."""
        if asked.name not in self.answers:
            self.answers[asked.name] = yield from asked
        answer: T = self.answers[asked.name]
        return answer


@plan
def read(rule: Rule, moment: Moment) -> Steps[Reading]:
    """What a condition is.

    Args:
        rule: the condition.
        moment: when.

    Raises:
        InvalidOption: it names a limit that does not exist, or that is a rate.
    """
    match rule:
        case OldestReady():
            reading = _oldest_ready(rule, moment)
        case Backlog():
            reading = _backlog(rule, moment)
        case Failures():
            reading = _failures(rule, moment)
        case DeadJobs():
            reading = _dead_jobs(rule, moment)
        case LateSchedule():
            reading = _late_schedule(rule, moment)
        case StalledWorkers():
            reading = _stalled_workers(rule, moment)
        case UnservedTask():
            reading = _unserved_task(rule, moment)
        case SaturatedLimit():
            reading = _saturated_limit(rule, moment)
        case _:
            assert_never(rule)
    return (yield from reading)


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


def _oldest_ready(rule: OldestReady, moment: Moment) -> Steps[Reading]:
    rows = yield Statement("alerts/oldest_ready", {"queue": rule.queue, "now": moment.now})
    return Reading.over(rule, rows[0][1], queue=rows[0][0]) if rows else Reading.over(rule, None)


def _backlog(rule: Backlog, moment: Moment) -> Steps[Reading]:
    found = yield from moment.once(queues.queue_standings(now=moment.now))
    return Reading.over(rule, sum(one.ready for one in found if rule.queue in {None, one.queue}))


def _failures(rule: Failures, moment: Moment) -> Steps[Reading]:
    within = as_duration("within", rule.within)
    totals = yield from over_time.totals(within, by="task", queue=rule.queue, task=rule.task, now=moment.now)
    return Reading.over(rule, sum(one.figures.failed for one in totals.lines))


def _dead_jobs(rule: DeadJobs, moment: Moment) -> Steps[Reading]:
    of = {"queue": rule.queue, "task": rule.task, "within": rule.within}
    ((dead,),) = yield Statement("alerts/dead", {**of, "looked_at": MOST_DEAD, "now": moment.now})
    return Reading.over(rule, dead)


def _late_schedule(rule: LateSchedule, moment: Moment) -> Steps[Reading]:
    rows = yield Statement("alerts/late_schedule", {"schedule": rule.schedule, "now": moment.now})
    if not rows:
        return Reading.over(rule, None)
    name, task, seconds = rows[0]
    return Reading.over(rule, seconds, schedule=name, task=task)


def _stalled_workers(rule: StalledWorkers, moment: Moment) -> Steps[Reading]:
    return of_workers(rule, (yield from moment.once(control.worker_problems(now=moment.now))))


def _unserved_task(rule: UnservedTask, moment: Moment) -> Steps[Reading]:
    found = yield from moment.once(workers.unknown_tasks(now=moment.now))
    for one in found:  # the one for which it is longest comes first
        if rule.queue in {None, one.queue}:
            return Reading.over(rule, one.seconds, queue=one.queue, task=one.task)
    return Reading.over(rule, None)


def _saturated_limit(rule: SaturatedLimit, moment: Moment) -> Steps[Reading]:
    limit = limit_control.require_limit(rule.limit, (yield from moment.once(limit_control.stored())))
    return of_limit(rule, limit, (yield from moment.once(_lanes())))


@plan
def _lanes() -> Steps[list[LaneCount]]:
    params = {"keys": [], "since": 0}  # places that are kept for a retry are not counted
    rows = yield Statement("limits/running", params)
    return [LaneCount(queue, lane, running, 0, 0) for queue, lane, running, _ in rows]
