"""The stored schedules as an app sees them: ``queue.schedules``.

When ticks are is decided in :mod:`pgqueue.values.schedules.rule`, which of them fire in :mod:`pgqueue.values.schedules.due_ticks`, how a tick fires once in
:mod:`pgqueue.store.schedules.ticks`, what is stored of a schedule in :mod:`pgqueue.app.schedules.declared_schedules`. A worker that starts applies what its
app declares.
"""

import logging
from collections.abc import Collection
from datetime import datetime
from typing import Any, Unpack

from pgqueue.app.handle import JobHandle
from pgqueue.app.operator import operator_name
from pgqueue.app.schedules.declared_schedules import ScheduleEncoder, TimingOptions, require_stored
from pgqueue.app.task import Call
from pgqueue.errors import InvalidOption
from pgqueue.store import audit
from pgqueue.store.plan import Plan
from pgqueue.store.schedules import schedules, ticks
from pgqueue.values.jobs.job import EnqueueAnswer
from pgqueue.values.jobs.options import check_page, check_text
from pgqueue.values.schedules.rule import Tick
from pgqueue.values.schedules.schedule import Applied, Schedule, ScheduleChange, ScheduleRun

log = logging.getLogger("pgqueue")


class Schedules(ScheduleEncoder):
    """The stored schedules of a queue. Each method runs one plan; the awaited one has an ``a`` before its name."""

    def apply(self) -> Applied:
        """Store what the app's code declares, all or none, and remove what its modules no longer declare.

        Returns:
            The names of those that were added, changed and removed, and of those whose name is taken.
        """
        return log_applied(self._queue.database.run(self.application()))

    async def aapply(self) -> Applied:
        """As :meth:`apply`, awaited."""
        return log_applied(await self._queue.database.arun(self.application()))

    def add(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        /,
        *,
        by: str | None = None,
        connection: object = None,
        **timing: Unpack[TimingOptions],
    ) -> None:
        """Add a schedule at run time.

        Args:
            name: what it is called, such as ``report of customer 42``.
            call: what each tick enqueues: ``task.call(...)`` or ``task.using(...).call(...)``.
            cron: as for :meth:`pgqueue.PgQueue.schedule`.
            by: which person does it, for the audit; None: the app itself, which the audit does not note.
            connection: add it on this connection, in its current transaction.

        Raises:
            InvalidOption: an option makes no sense, there is no tick to come, or the name is taken.
        """
        done = self._queue.database.run(self._adding(name, call, cron, timing, by), connection)
        require_stored(name, done)

    async def aadd(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        /,
        *,
        by: str | None = None,
        connection: object = None,
        **timing: Unpack[TimingOptions],
    ) -> None:
        """As :meth:`add`, awaited."""
        plan = self._adding(name, call, cron, timing, by)
        require_stored(name, await self._queue.database.arun(plan, connection))

    def put(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        /,
        *,
        by: str | None = None,
        connection: object = None,
        **timing: Unpack[TimingOptions],
    ) -> ScheduleChange:
        """Add a schedule at run time, or change the one of this name. Another rule does not invent ticks of the past.

        Args:
            name: what it is called.
            call: what each tick enqueues.
            cron: as for :meth:`pgqueue.PgQueue.schedule`.
            by: which person does it, for the audit; None: the app itself, which the audit does not note.
            connection: store it on this connection, in its current transaction.

        Returns:
            ``added``, ``changed`` or ``unchanged``.

        Raises:
            InvalidOption: an option makes no sense, there is no tick to come, or code declares this name.
        """
        done = self._queue.database.run(self._putting(name, call, cron, timing, by), connection)
        return require_stored(name, done)

    async def aput(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        /,
        *,
        by: str | None = None,
        connection: object = None,
        **timing: Unpack[TimingOptions],
    ) -> ScheduleChange:
        """As :meth:`put`, awaited."""
        plan = self._putting(name, call, cron, timing, by)
        return require_stored(name, await self._queue.database.arun(plan, connection))

    def get(self, name: str) -> Schedule:
        """All that is recorded of a schedule.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        return self._decode(self._queue.database.run(schedules.dated(name))[0])

    async def aget(self, name: str) -> Schedule:
        """As :meth:`get`, awaited."""
        return self._decode((await self._queue.database.arun(schedules.dated(name)))[0])

    def find(self, *, task: str | None = None, after: str = "", limit: int = 100) -> list[Schedule]:
        """Schedules in the order of their names.

        Args:
            task: only those of this task.
            after: only those behind this name; give the last name of a page to get the next.
            limit: at most how many, up to 10,000.
        """
        found = self._queue.database.run(schedules.listed(task=task, after=after, limit=check_page(limit)))
        return [self._decode(one) for one in found]

    async def afind(self, *, task: str | None = None, after: str = "", limit: int = 100) -> list[Schedule]:
        """As :meth:`find`, awaited."""
        found = await self._queue.database.arun(
            schedules.listed(task=task, after=after, limit=check_page(limit))
        )
        return [self._decode(one) for one in found]

    def next(self, name: str, *, count: int = 10) -> list[Tick]:
        """The next ticks of a schedule, and those that a clock change drops, which are marked.

        Args:
            name: of which schedule.
            count: how many, up to 10,000. Those that a clock change drops are listed, and not counted.

        Raises:
            UnknownSchedule: there is none of this name.
            InvalidOption: the schedule makes no sense.
        """
        return next_ticks(*self._queue.database.run(schedules.dated(name)), check_page(count))

    async def anext(self, name: str, *, count: int = 10) -> list[Tick]:
        """As :meth:`next`, awaited."""
        return next_ticks(*await self._queue.database.arun(schedules.dated(name)), check_page(count))

    def pause(self, name: str, *, by: str | None = None) -> bool:
        """Fire no tick of a schedule until it is resumed.

        Args:
            name: which.
            by: who does it, for people to read; by default the user and host of this process.

        Returns:
            False if it was paused already.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        return self._queue.database.run(_pause_plan(name, by))

    async def apause(self, name: str, *, by: str | None = None) -> bool:
        """As :meth:`pause`, awaited."""
        return await self._queue.database.arun(_pause_plan(name, by))

    def resume(self, name: str, *, by: str | None = None) -> bool:
        """Fire the ticks of a paused schedule again, or of one that was set aside; what became due meanwhile is missed.

        Args:
            name: which.
            by: who, as for :meth:`pause`.

        Returns:
            False if it was neither.
        """
        return self._queue.database.run(_resume_plan(name, by))

    async def aresume(self, name: str, *, by: str | None = None) -> bool:
        """As :meth:`resume`, awaited."""
        return await self._queue.database.arun(_resume_plan(name, by))

    def remove(self, name: str, *, by: str | None = None) -> bool:
        """Delete a schedule; its jobs stay.

        Args:
            name: which.
            by: who, as for :meth:`pause`.

        Returns:
            False: there was none of this name.
        """
        return self._queue.database.run(_remove_plan(name, by))

    async def aremove(self, name: str, *, by: str | None = None) -> bool:
        """As :meth:`remove`, awaited."""
        return await self._queue.database.arun(_remove_plan(name, by))

    def fire(self, name: str, *, by: str | None = None) -> JobHandle[Any] | None:
        """Enqueue a job of a schedule now; its next tick stays.

        Args:
            name: which.
            by: who, as for :meth:`pause`.

        Returns:
            A handle of the job; None: a live job has its unique key.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        return self._handle(self._queue.database.run(_fire_plan(name, by)))

    async def afire(self, name: str, *, by: str | None = None) -> JobHandle[Any] | None:
        """As :meth:`fire`, awaited."""
        return self._handle(await self._queue.database.arun(_fire_plan(name, by)))

    def backfill(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None
    ) -> list[ScheduleRun]:
        """Fire the ticks of a stretch of the past that have not fired, in order. Ticks are remembered for 30 days.

        Args:
            name: of which schedule.
            start: the first instant.
            end: the last instant, included.
            by: who, as for :meth:`pause`.

        Returns:
            The ticks that it fired.

        Raises:
            UnknownSchedule: there is none of this name.
            InvalidOption: the stretch does not end by now, or has more than 10,000 ticks.
        """
        return self._queue.database.run(_backfill_plan(name, start, end, by))

    async def abackfill(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None
    ) -> list[ScheduleRun]:
        """As :meth:`backfill`, awaited."""
        return await self._queue.database.arun(_backfill_plan(name, start, end, by))

    def runs(self, name: str, *, before: datetime | None = None, limit: int = 100) -> list[ScheduleRun]:
        """The ticks of a schedule that were decided on in the last 30 days, the latest first, and their jobs.

        Args:
            name: of which schedule.
            before: only those before this instant; give the last tick of a page to get the next.
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(ticks.runs(name, before=_page_from(before), limit=check_page(limit)))

    async def aruns(
        self, name: str, *, before: datetime | None = None, limit: int = 100
    ) -> list[ScheduleRun]:
        """As :meth:`runs`, awaited."""
        return await self._queue.database.arun(
            ticks.runs(name, before=_page_from(before), limit=check_page(limit))
        )

    def last_runs(self, names: Collection[str], *, limit: int = 10) -> dict[str, list[ScheduleRun]]:
        """The last ticks of several schedules, the latest first, by the schedule's name; as :meth:`runs` for each of them.

        Args:
            names: of which schedules.
            limit: at most how many of each, up to 10,000.
        """
        return self._queue.database.run(_last_runs_plan(names, limit))

    async def alast_runs(self, names: Collection[str], *, limit: int = 10) -> dict[str, list[ScheduleRun]]:
        """As :meth:`last_runs`, awaited."""
        return await self._queue.database.arun(_last_runs_plan(names, limit))

    def _handle(self, job_id: int | None) -> JobHandle[Any] | None:
        return None if job_id is None else JobHandle(EnqueueAnswer(job_id), self._queue)


def next_ticks(schedule: Schedule, now: datetime, count: int) -> list[Tick]:
    """The next ticks of a schedule after an instant, ``count`` of them, and beside them those that a clock change drops.

    Raises:
        InvalidOption: the schedule makes no sense.
    """
    if schedule.timing is None:
        raise InvalidOption(f"schedule {schedule.name!r}: {schedule.error}")
    found: list[Tick] = []
    for tick in schedule.timing.after(now):
        found.append(tick)
        count -= tick.runs
        if not count:
            break
    return found


def log_applied(applied: Applied) -> Applied:
    """Log what became of declared schedules."""
    for what in ("added", "changed", "removed"):
        if names := getattr(applied, what):
            log.info("schedules %s", what, extra={"schedules": names})
    if applied.taken:
        log.error(
            "schedules not stored: another module or a schedule made at run time has the name",
            extra={"schedules": applied.taken},
        )
    return applied


def _pause_plan(name: str, by: str | None) -> Plan[bool]:
    by = operator_name(by)
    return audit.audited(schedules.pause(name, by), "schedule pause", name, by=by)


def _resume_plan(name: str, by: str | None) -> Plan[bool]:
    return audit.audited(schedules.resume(name), "schedule resume", name, by=operator_name(by))


def _remove_plan(name: str, by: str | None) -> Plan[bool]:
    return audit.audited(schedules.remove(name), "schedule remove", name, by=operator_name(by))


def _fire_plan(name: str, by: str | None) -> Plan[int | None]:
    return audit.audited(ticks.fire(name), "schedule fire", name, by=operator_name(by), jobs=lambda _: 1)


def _backfill_plan(name: str, start: datetime, end: datetime, by: str | None) -> Plan[list[ScheduleRun]]:
    done = ticks.backfill(name, _aware("start", start), _aware("end", end))
    given: dict[str, Any] = {"from": start.isoformat(), "to": end.isoformat()}
    return audit.audited(done, "schedule backfill", name, by=operator_name(by), jobs=len, **given)


def _last_runs_plan(names: Collection[str], limit: int) -> Plan[dict[str, list[ScheduleRun]]]:
    return ticks.last_runs([check_text("name", name) for name in names], limit=check_page(limit))


def _aware(what: str, instant: datetime) -> datetime:
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise InvalidOption(f"{what}={instant!r}: use a datetime with a time zone")
    return instant


def _page_from(before: datetime | None) -> datetime | None:
    return None if before is None else _aware("before", before)
