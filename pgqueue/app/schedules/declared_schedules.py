"""How a schedule is declared: the options of its timing, the decorator, what a worker stores of it, checked and encoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from msgspec import structs

from pgqueue.app.adding import checked_job
from pgqueue.app.registry import Registry
from pgqueue.app.task import Call, Task
from pgqueue.errors import Duration, InvalidOption
from pgqueue.store import audit
from pgqueue.store.plan import Plan
from pgqueue.store.schedules import schedules
from pgqueue.values.hints import remedy
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import check_text
from pgqueue.values.payloads.codec import JobPart, opened_value, same_args
from pgqueue.values.schedules.rule import Gap, Repeat
from pgqueue.values.schedules.schedule import (
    Applied,
    Missed,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleChange,
    Timing,
)


class TimingOptions(TypedDict, total=False):
    """The options of a schedule's timing; see :class:`pgqueue.values.schedules.schedule.Timing`."""

    every: Duration | None
    at: datetime | None
    timezone: str
    anchor: datetime | None
    start: datetime | None
    end: datetime | None
    gap: Gap | None
    repeat: Repeat | None
    jitter: Duration
    missed: Missed
    missed_limit: int
    tolerance: Duration
    overlap: Overlap


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule that the app's code declares."""

    name: str
    task: Task[..., Any]
    arguments: Mapping[str, Any]
    timing: Timing

    def stored(self) -> NewSchedule:
        """The schedule to store. Arguments are encoded now: their annotations may name what follows the declaration."""
        job = self.task.call(**self.arguments).job
        return NewSchedule(name=self.name, job=job, timing=self.timing, module=self.task.function.__module__)


def timing_of(cron: str | None, options: Mapping[str, Any]) -> Timing:
    """The timing that options describe.

    Raises:
        InvalidOption: one of them is unknown, or makes no sense.
    """
    known = TimingOptions.__annotations__
    for name in options:
        if name not in known:
            raise InvalidOption(f"unknown option {name}= of a schedule: {remedy(name, known)}")
    return Timing(cron=cron, **options)


SCRIPT = "__main__"
"""Many programs have a module of this name, so it owns nothing."""
_STORED = frozenset({ScheduleChange.ADDED, ScheduleChange.CHANGED})


def modules_of(tasks: Mapping[str, Task[..., Any]]) -> list[str]:
    """The modules of tasks, whose declarations a worker stores and removes; not the program's own, of which each program has one.

    A function that was made by ``exec`` may have no module.
    """
    found = {task.function.__module__ for task in tasks.values()}
    return sorted(module for module in found if module and module != SCRIPT)


class ScheduleEncoder:
    """The schedules of an app on their way into the database."""

    def __init__(self, queue: Registry, declared: Mapping[str, DeclaredSchedule]) -> None:
        """Made by the queue; see :attr:`pgqueue.PgQueue.schedules`."""
        self._queue = queue
        self._declared = declared

    def declared(self) -> list[NewSchedule]:
        """What the app's code declares, ready to be stored.

        Raises:
            PayloadNotEncodable: the arguments of one do not fit its task.
        """
        return [self._check_job(one.stored()) for one in self._declared.values()]

    def application(self) -> Plan[Applied]:
        """The plan of :meth:`apply`, for workers."""
        clear = [one.stored() for one in self._declared.values()]
        return schedules.apply(
            [*map(self._check_job, clear)], modules_of(self._queue.tasks), same=self._same(clear)
        )

    def edition(
        self, name: str, job: NewJob, timing: Timing, *, by: str, replace: bool = True
    ) -> Plan[ScheduleChange]:
        """The plan of a page on which people add and edit schedules.

        What they do not see stays: a unique key, and for how long jobs may wait.

        Args:
            name: which.
            job: what each tick enqueues.
            timing: when its ticks are.
            by: who edits it, for the audit.
            replace: whether to change the one of this name; if not, it must be new.
        """
        new = NewSchedule(name=name, job=job, timing=timing)
        done = schedules.put(
            self._check_job(new), replace=replace, keep_unseen=replace, same=self._same([new])
        )
        return _audited_change(done, new, "schedule put" if replace else "schedule add", by)

    def _adding(
        self, name: str, call: Call[Any], cron: str | None, timing: TimingOptions, by: str | None
    ) -> Plan[ScheduleChange]:
        new = _new_schedule(name, call, cron, timing)
        done = schedules.put(self._check_job(new), replace=False, same=self._same([new]))
        return _audited_change(done, new, "schedule add", by)

    def _putting(
        self, name: str, call: Call[Any], cron: str | None, timing: TimingOptions, by: str | None
    ) -> Plan[ScheduleChange]:
        new = _new_schedule(name, call, cron, timing)
        done = schedules.put(self._check_job(new), replace=True, same=self._same([new]))
        return _audited_change(done, new, "schedule put", by)

    def _check_job(self, new: NewSchedule) -> NewSchedule:
        return replace(new, job=checked_job(self._queue, new.job))

    def _same(self, clear: Sequence[NewSchedule]) -> schedules.Same | None:
        """Return what tells whether stored arguments are those of these schedules, which are in clear. None: there is no codec."""
        codec, jobs = self._queue.codec, {one.name: one.job for one in clear}
        if codec is None:
            return None
        return lambda name, stored: same_args(codec, stored, jobs[name])

    def _decode(self, schedule: Schedule) -> Schedule:
        if self._queue.codec is None:
            return schedule
        part = JobPart("args", schedule.task, schedule.meta)
        return structs.replace(schedule, args=opened_value(self._queue.codec, schedule.args, part))


def _new_schedule(name: str, call: Call[Any], cron: str | None, timing: TimingOptions) -> NewSchedule:
    job = getattr(call, "job", None)
    if not isinstance(job, NewJob):
        raise InvalidOption(f"schedule {name!r}: {call!r:.80} is no call of a task; give task.call(...)")
    return NewSchedule(name=name, job=job, timing=timing_of(cron, timing))


def _audited_change(
    done: Plan[ScheduleChange], new: NewSchedule, action: str, by: str | None
) -> Plan[ScheduleChange]:
    """Note the change in the audit if a person makes it. What the app does itself is not noted: it needs no right to the audit."""
    if by is None:
        return done
    said: dict[str, Any] = {"task": new.job.task, "queue": new.job.queue, "rule": str(new.timing)}
    return audit.audited(
        done, action, new.name, by=check_text("by", by), changed=_STORED.__contains__, **said
    )


def require_stored(name: str, change: ScheduleChange) -> ScheduleChange:
    """Refuse a schedule whose name is taken.

    Raises:
        InvalidOption: it is.
    """
    if change is ScheduleChange.TAKEN:
        raise InvalidOption(
            f"schedule {name!r} exists already; use another name, or put(...) to change one that was made at run time"
        )
    return change
