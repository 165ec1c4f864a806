"""What happened to jobs over time, as people look at it: a part of ``queue.insight``.

What is read is decided in :mod:`pgqueue.store.insight.over_time`.
"""

from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from pgqueue.app.registry import Registry
from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.store.insight import ended, over_time
from pgqueue.store.insight import series as deep
from pgqueue.store.plan import Plan
from pgqueue.values.insight.comparison import Comparison
from pgqueue.values.insight.ended import EndedJobs
from pgqueue.values.insight.now import Which
from pgqueue.values.insight.series import Depths, Series, Totals


class FigureOptions(TypedDict):
    """Of which jobs figures are, and by what they are told apart."""

    by: Which | None
    queue: str | None
    task: str | None


class OverTime:
    """What workers have measured, and for how long it is kept."""

    def __init__(self, queue: Registry) -> None:
        self._queue = queue

    def series(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        step: Duration | None = None,
        by: Which | None = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> Series:
        """What happened to jobs over time, step by step: counts, wait times and run times.

        Args:
            since: an instant, or how long before ``until``.
            until: an instant; None: the present, on the database's clock.
            step: how long a step is, in whole minutes; steps of hours reach further back. None: about 60 steps.
            by: ``queue`` or ``task``: a line for each; None: one line.
            queue: only jobs of this queue.
            task: only jobs of this task.

        Raises:
            InvalidOption: an instant has no time zone, or there are more than 1,500 steps.
        """
        return self._queue.database.run(_series(since, until, step, by=by, queue=queue, task=task))

    async def aseries(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        step: Duration | None = None,
        by: Which | None = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> Series:
        """As :meth:`series`, awaited."""
        return await self._queue.database.arun(_series(since, until, step, by=by, queue=queue, task=task))

    def totals(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        by: Which = "task",
        queue: str | None = None,
        task: str | None = None,
    ) -> Totals:
        """What happened to jobs in a window, by task or by queue, those with the most attempts first.

        Args:
            since: an instant, or how long before ``until``.
            until: an instant; None: the present, on the database's clock.
            by: ``task`` or ``queue``.
            queue: only jobs of this queue.
            task: only jobs of this task.

        Raises:
            InvalidOption: an instant has no time zone.
        """
        return self._queue.database.run(_totals(since, until, by=by, queue=queue, task=task))

    async def atotals(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        by: Which = "task",
        queue: str | None = None,
        task: str | None = None,
    ) -> Totals:
        """As :meth:`totals`, awaited."""
        return await self._queue.database.arun(_totals(since, until, by=by, queue=queue, task=task))

    def depths(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        step: Duration | None = None,
        queue: str | None = None,
    ) -> Depths:
        """How deep a queue was, step by step: the highest numbers of jobs by state, and the age of the oldest ready one.

        Once a minute one worker counts the jobs of all queues, up to 100 of them one by one. So there is nothing of times in
        which no worker ran, and of more queues there is only what they have together.

        Args:
            since: an instant, or how long before ``until``.
            until: an instant; None: the present, on the database's clock.
            step: how long a step is, in whole minutes; steps of hours reach further back. None: about 60 steps.
            queue: which; None: all queues together.

        Raises:
            InvalidOption: an instant has no time zone, or there are more than 1,500 steps.
        """
        return self._queue.database.run(_depths(since, until, step, queue))

    async def adepths(
        self,
        since: datetime | Duration = timedelta(hours=1),
        until: datetime | None = None,
        *,
        step: Duration | None = None,
        queue: str | None = None,
    ) -> Depths:
        """As :meth:`depths`, awaited."""
        return await self._queue.database.arun(_depths(since, until, step, queue))

    def ended(
        self,
        since: Duration = timedelta(minutes=10),
        step: Duration = timedelta(seconds=5),
        *,
        queue: str | None = None,
        task: str | None = None,
    ) -> EndedJobs:
        """The jobs that ended in the last minutes, in steps of seconds, as the history and the dead jobs tell it.

        :meth:`series` is told by the minute, some two minutes late. Here up to some 100,000 jobs are read; of more, the first steps
        are missing, and the answer is not ``complete``. Jobs whose records are not kept are not counted.

        Args:
            since: how long before now, up to a day.
            step: how long a step is.
            queue: only jobs of this queue.
            task: only jobs of this task.

        Raises:
            InvalidOption: a length is not positive, or there are more than 1,500 steps.
        """
        return self._queue.database.run(_ended(since, step, queue, task))

    async def aended(
        self,
        since: Duration = timedelta(minutes=10),
        step: Duration = timedelta(seconds=5),
        *,
        queue: str | None = None,
        task: str | None = None,
    ) -> EndedJobs:
        """As :meth:`ended`, awaited."""
        return await self._queue.database.arun(_ended(since, step, queue, task))

    def compare(
        self,
        at: datetime | Duration,
        length: Duration = timedelta(hours=1),
        *,
        by: Which = "task",
        queue: str | None = None,
        task: str | None = None,
    ) -> Comparison:
        """What changed at an instant, such as a deploy: what became slower or fails more, the worst first.

        A window before the instant is compared with one after it that is as long; the answer says where they begin and end. The
        minute of the instant belongs to neither. Minutes that are no longer kept are told by hours, and so are windows of
        more than 12 hours.

        Args:
            at: the instant, or how long ago it was.
            length: of each window; both are shorter where less time has passed since.
            by: ``task`` or ``queue``.
            queue: only jobs of this queue.
            task: only jobs of this task.

        Raises:
            InvalidOption: the instant has no time zone, or no whole minute has passed since.
        """
        return self._queue.database.run(_compare_plan(at, length, by=by, queue=queue, task=task))

    async def acompare(
        self,
        at: datetime | Duration,
        length: Duration = timedelta(hours=1),
        *,
        by: Which = "task",
        queue: str | None = None,
        task: str | None = None,
    ) -> Comparison:
        """As :meth:`compare`, awaited."""
        return await self._queue.database.arun(_compare_plan(at, length, by=by, queue=queue, task=task))


def _series(
    since: datetime | Duration, until: datetime | None, step: Duration | None, **of: Unpack[FigureOptions]
) -> Plan[Series]:
    length = None if step is None else as_limit("step", step)
    return over_time.series(*_window(since, until), length, **_check_options(of, None))


def _depths(
    since: datetime | Duration, until: datetime | None, step: Duration | None, queue: str | None
) -> Plan[Depths]:
    length = None if step is None else as_limit("step", step)
    return deep.depths(*_window(since, until), length, queue=queue)


def _ended(since: Duration, step: Duration, queue: str | None, task: str | None) -> Plan[EndedJobs]:
    return ended.ended(as_limit("since", since), as_limit("step", step), queue=queue, task=task)


def _totals(since: datetime | Duration, until: datetime | None, **of: Unpack[FigureOptions]) -> Plan[Totals]:
    return over_time.totals(*_window(since, until), **_check_options(of))


def _compare_plan(at: datetime | Duration, length: Duration, **of: Unpack[FigureOptions]) -> Plan[Comparison]:
    instant = _instant("at", at) if isinstance(at, datetime) else as_limit("at", at)
    return over_time.compare(instant, as_limit("length", length), **_check_options(of))


def _check_options(of: FigureOptions, *others: object) -> Any:  # noqa: ANN401 - the same options
    if of["by"] not in ("queue", "task", *others):
        raise InvalidOption(f"by={of['by']!r:.80}: use 'queue' or 'task'")
    return of


def _window(
    since: datetime | Duration, until: datetime | None
) -> tuple[datetime | timedelta, datetime | None]:
    start = _instant("since", since) if isinstance(since, datetime) else as_limit("since", since)
    return start, None if until is None else _instant("until", until)


def _instant(name: str, instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise InvalidOption(f"{name}={instant!r}: use a datetime with a time zone")
    return instant
