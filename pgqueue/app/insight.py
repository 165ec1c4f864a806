"""The queue as people look at it: ``queue.insight``. One module behind every door: dashboards, the command, metrics.

What is read is decided in :mod:`pgqueue.store.insight` and its neighbours; nothing is changed here.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.store import insight, limit_control, searching, series, standings
from pgqueue.store import story as stories
from pgqueue.store.database import Database
from pgqueue.store.plan import Plan
from pgqueue.values.codec import Codec, encoded_key, opened
from pgqueue.values.insight import Errors, Found, Running, ScheduleLag, StoreHealth, Which
from pgqueue.values.job import JobState, states_of
from pgqueue.values.job_filter import JobFilter
from pgqueue.values.limit import Numbers
from pgqueue.values.limit_status import LimitStatus
from pgqueue.values.options import check_page, check_text
from pgqueue.values.series import Series, Totals
from pgqueue.values.standing import QueueStanding
from pgqueue.values.story import Story


class Of(TypedDict):
    """Of which jobs figures are, and by what they are told apart."""

    by: Which | None
    queue: str | None
    task: str | None


class Criteria(TypedDict, total=False):
    """Which jobs a search finds.

    Attributes:
        state: in this state or one of several.
        queue: in this queue; a pattern such as ``mail-*`` is allowed.
        task: of this task; a pattern is allowed.
        unique_key: with this unique key.
        args: whose arguments contain these, as jsonb containment has it: ``{"customer_id": 7}``.
        enqueued_after: enqueued at this instant or later.
        enqueued_before: enqueued before this instant.
        error: whose last error is of this type; with the module or without.
        before: with a lower id than this: the last id of the page before, or ``looked_to``.
        limit: at most how many jobs, up to 10,000; 100 where nothing is said.
    """

    state: JobState | str | Collection[JobState | str] | None
    queue: str | None
    task: str | None
    unique_key: str | None
    args: Mapping[str, Any] | None
    enqueued_after: datetime | None
    enqueued_before: datetime | None
    error: str | None
    before: int | None
    limit: int


class Seen(Protocol):
    """A queue."""

    @property
    def database(self) -> Database:
        """Where its jobs are."""

    @property
    def limits(self) -> Mapping[str, Numbers]:
        """What its tasks declare."""

    @property
    def codec(self) -> Codec | None:
        """What encodes arguments and keys."""


class Insight:
    """Looks at the queue as a whole. Each method takes milliseconds however many jobs wait, and has an awaited twin with an ``a``.

    The answers are frozen values; ``msgspec.to_builtins`` makes JSON of each. Instants are of the database's clock.
    """

    def __init__(self, queue: Seen) -> None:
        """Look at this queue."""
        self._queue = queue

    def queues(self) -> Sequence[QueueStanding]:
        """How every queue stands: how many jobs in which state, the age of the oldest ready one, the rate, in the order of names.

        Where tables are large, numbers are estimates from a sample, and say so (``estimated``).
        """
        return self._queue.database.run(standings.queue_standings())

    async def aqueues(self) -> Sequence[QueueStanding]:
        """As :meth:`queues`, awaited."""
        return await self._queue.database.arun(standings.queue_standings())

    def running(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Running:
        """Which worker holds which job, and since when; those that were claimed first at the front.

        Args:
            queue: only jobs of this queue.
            task: only jobs of this task.
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(insight.running(queue=queue, task=task, limit=check_page(limit)))

    async def arunning(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 100
    ) -> Running:
        """As :meth:`running`, awaited."""
        plan = insight.running(queue=queue, task=task, limit=check_page(limit))
        return await self._queue.database.arun(plan)

    def search(self, **criteria: Unpack[Criteria]) -> Found:
        """Jobs in any state that match every criterion given (:class:`Criteria`), newest first.

        Up to 100,000 jobs are looked at; 10,000 where each one's arguments must be read. The answer says where it stopped.

        Raises:
            InvalidOption: a criterion is out of its range, or the queue's codec encodes what it looks into.
        """
        return _opened(self._queue, self._queue.database.run(_searching(self._queue, criteria)))

    async def asearch(self, **criteria: Unpack[Criteria]) -> Found:
        """As :meth:`search`, awaited."""
        return _opened(self._queue, await self._queue.database.arun(_searching(self._queue, criteria)))

    def story(self, job_id: int) -> Story:
        """What surrounds a job: its place in a flow, the steps that it has done, its checkpoint. ``queue.job`` is its record.

        Args:
            job_id: which. Of a job that does not exist, there is nothing.
        """
        return self._queue.database.run(stories.story(job_id))

    async def astory(self, job_id: int) -> Story:
        """As :meth:`story`, awaited."""
        return await self._queue.database.arun(stories.story(job_id))

    def errors(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Errors:
        """Why jobs died: the dead jobs by task and error, with counts, first and last seen; the most frequent first.

        Of more than 2,000 dead jobs that match, the last 2,000 are counted, and the answer says so (``complete``).

        Args:
            queue: only jobs of this queue.
            task: only jobs of this task.
            limit: at most how many groups, up to 10,000.
        """
        return self._queue.database.run(insight.errors(queue=queue, task=task, limit=check_page(limit)))

    async def aerrors(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Errors:
        """As :meth:`errors`, awaited."""
        plan = insight.errors(queue=queue, task=task, limit=check_page(limit))
        return await self._queue.database.arun(plan)

    def schedules(self, *, limit: int = 100) -> Sequence[ScheduleLag]:
        """How late schedules are, the latest first.

        Args:
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(insight.schedules(limit=check_page(limit)))

    async def aschedules(self, *, limit: int = 100) -> Sequence[ScheduleLag]:
        """As :meth:`schedules`, awaited."""
        return await self._queue.database.arun(insight.schedules(limit=check_page(limit)))

    def limits(self) -> Sequence[LimitStatus]:
        """Every limit, and how many jobs run and wait under it; ``queue.control.limits.get`` names the jobs that hold one.

        Where the table is large, ``waiting`` is an estimate from a sample, and says so (``estimated``).
        """
        return self._queue.database.run(limit_control.glanced(self._queue.limits))

    async def alimits(self) -> Sequence[LimitStatus]:
        """As :meth:`limits`, awaited."""
        return await self._queue.database.arun(limit_control.glanced(self._queue.limits))

    def store(self) -> StoreHealth:
        """How the tables stand: sizes, dead rows, what holds vacuum back, partitions of the history."""
        return self._queue.database.run(insight.store())

    async def astore(self) -> StoreHealth:
        """As :meth:`store`, awaited."""
        return await self._queue.database.arun(insight.store())

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

    def keep(
        self, *, minutes: Duration | None = None, hours: Duration | None = None
    ) -> tuple[timedelta, timedelta]:
        """Say for how long the figures of minutes and of hours are kept; at first 48 hours and 400 days.

        Args:
            minutes: 3 hours or longer; None: as before.
            hours: None: as before.

        Returns:
            What holds now.

        Raises:
            InvalidOption: neither is given, or one is out of its range.
        """
        return self._queue.database.run(_keeping(minutes, hours))

    async def akeep(
        self, *, minutes: Duration | None = None, hours: Duration | None = None
    ) -> tuple[timedelta, timedelta]:
        """As :meth:`keep`, awaited."""
        return await self._queue.database.arun(_keeping(minutes, hours))


def _keeping(minutes: Duration | None, hours: Duration | None) -> Plan[tuple[timedelta, timedelta]]:
    if minutes is None and hours is None:
        raise InvalidOption("keep(): say minutes=timedelta(...), hours=timedelta(...) or both")
    kept = None if minutes is None else as_limit("minutes", minutes)
    if kept is not None and kept < timedelta(hours=3):
        raise InvalidOption(
            f"minutes={minutes!r}: hours are made of minutes, so keep them for 3 hours or longer"
        )
    return series.keep(kept, None if hours is None else as_limit("hours", hours))


def _searching(queue: Seen, criteria: Criteria) -> Plan[Found]:
    given: dict[str, Any] = {name: value for name, value in criteria.items() if value is not None}
    state, key = given.pop("state", None), given.pop("unique_key", None)
    before, limit = given.pop("before", None), given.pop("limit", 100)
    if queue.codec is not None and "args" in given:
        raise InvalidOption("args: the queue's codec encodes them, so the database cannot look into them")
    if key is not None:
        check_text("unique_key", key)
    return searching.search(
        JobFilter.checked(given or {"everything": True}),
        states=states_of(state),
        unique_key=encoded_key(queue.codec, key),
        before=before,
        limit=check_page(limit),
    )


def _opened(queue: Seen, found: Found) -> Found:
    return msgspec.structs.replace(found, jobs=tuple(opened(queue.codec, job) for job in found.jobs))


def _series(
    since: datetime | Duration, until: datetime | None, step: Duration | None, **of: Unpack[Of]
) -> Plan[Series]:
    length = None if step is None else as_limit("step", step)
    return series.series(*_window(since, until), length, **_checked(of, None))


def _totals(since: datetime | Duration, until: datetime | None, **of: Unpack[Of]) -> Plan[Totals]:
    return series.totals(*_window(since, until), **_checked(of))


def _checked(of: Of, *others: object) -> Any:  # noqa: ANN401 - the same options
    if of["by"] not in ("queue", "task", *others):
        raise InvalidOption(f"by={of['by']!r:.80}: use 'queue' or 'task'")
    return of


def _window(
    since: datetime | Duration, until: datetime | None
) -> tuple[datetime | timedelta, datetime | None]:
    start = since if isinstance(since, datetime) else as_limit("since", since)
    for name, instant in (("since", start), ("until", until)):
        if isinstance(instant, datetime) and instant.utcoffset() is None:
            raise InvalidOption(f"{name}={instant!r}: use a datetime with a time zone")
    return start, until
