"""How a schedule is declared: the options of its timing, the decorator, and what is kept until a worker stores it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from pgqueue.app.context import Context
from pgqueue.app.task import Task
from pgqueue.errors import Duration, InvalidOption
from pgqueue.values.nearest import remedy
from pgqueue.values.schedules.rule import Gap, Repeat
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Overlap, Timing

P = ParamSpec("P")
R = TypeVar("R")


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
    grace: Duration
    overlap: Overlap


class ScheduleDecorator(Protocol):
    """The decorator that :meth:`pgqueue.PgQueue.schedule` returns: of a task, or of a function that becomes one."""

    @overload
    def __call__(self, function: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


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
