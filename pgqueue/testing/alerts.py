"""The alerts of a queue in memory, with the rules of the real ones: :mod:`pgqueue.values.alerts.state` decides.

There are no workers in memory, so none is stalled; failed attempts are counted from the errors of the jobs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgqueue.errors import JobError, PgQueueError, as_duration
from pgqueue.store.alerts import alerts
from pgqueue.store.alerts.alert_readings import of_limit, of_workers
from pgqueue.store.alerts.alerts import AlertLook, DueAlerts, alert_to_tell, job_of, no_alert, storable_error
from pgqueue.store.connections.database import Database
from pgqueue.store.limits.limit_control import require_limit
from pgqueue.testing.limits import LimitBook
from pgqueue.testing.row import JobRow
from pgqueue.testing.schedules import Calendar
from pgqueue.testing.table import JobTable
from pgqueue.values.alerts.alert import (
    AlertCondition,
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    OldestReady,
    Reading,
    SaturatedLimit,
    StalledWorkers,
    encode_condition,
    summary,
)
from pgqueue.values.alerts.state import EVERY, FAILED_AGAIN, OK, AlertState, AlertStatus, NewAlert, judge
from pgqueue.values.jobs.job import JobState
from pgqueue.values.schedules.schedule import Applied, ScheduleChange


@dataclass(slots=True)
class AlertEntry:
    """One alert."""

    new: NewAlert
    next_at: datetime
    looked_at: datetime | None = None
    reading: Reading | None = None
    state: AlertState = OK
    job_id: int | None = None
    silenced_until: datetime | None = None
    silenced_by: str | None = None
    failed_at: datetime | None = None
    error: str | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether it is to be looked at; also after the clock was set back."""
        return self.next_at <= now or (
            self.looked_at is not None and self.looked_at > now + timedelta(minutes=1)
        )


class AlertBook:
    """Alerts and how they stand. Each method answers the plan of its name, with the same arguments."""

    def __init__(self, table: JobTable, calendar: Calendar, limits: LimitBook) -> None:
        self._table = table
        self._entries: dict[str, AlertEntry] = {}
        self._readings = Readings(table, calendar, limits)

    def apply(self, declared: Sequence[NewAlert], modules: Sequence[str], *, now: datetime) -> Applied:
        """Store what code declares."""
        names = {one.name for one in declared}
        gone = [
            name for name, one in self._entries.items() if one.new.module in modules and name not in names
        ]
        for name in gone:
            del self._entries[name]
        return Applied.of({one.name: self._put(one, now) for one in declared}, gone)

    def remove(self, name: str, *, by: str | None) -> bool:  # noqa: ARG002 - for the audit
        """Delete it."""
        return self._entries.pop(name, None) is not None

    def listed(self, *, now: datetime) -> list[AlertStatus]:
        """Every alert by name."""
        return [_status(one, now) for _, one in sorted(self._entries.items())]

    def silence(
        self, name: str, length: timedelta | None, *, by: str | None, now: datetime
    ) -> datetime | None:
        """Have its task told nothing for a time."""
        if name not in self._entries:
            raise no_alert(name, [*self._entries])
        entry = self._entries[name]
        entry.silenced_until, entry.silenced_by = None if length is None else now + length, by
        return entry.silenced_until

    def due(self, *, now: datetime) -> DueAlerts:
        """Which are to be looked at."""
        found = [name for name, one in sorted(self._entries.items()) if one.is_due(now)]
        later = [(one.next_at - now).total_seconds() for one in self._entries.values() if one.next_at > now]
        return DueAlerts(found, min(later, default=None))

    def look(self, name: str, *, answers: object = None, now: datetime) -> AlertLook:  # noqa: ARG002 - reading costs nothing here
        """Look at one."""
        entry = self._entries.get(name)
        if entry is None or not entry.is_due(now):
            return AlertLook()
        reading = self._readings.read(entry.new.rule, now)
        silenced = entry.silenced_until is not None and entry.silenced_until > now
        judged = judge(entry.new.terms, entry.state, holds=reading.holds, now=now, silenced=silenced)
        alert, error = alert_to_tell(entry.new, reading, judged, now), None
        if alert is not None:
            try:
                entry.job_id = self._table.adding.enqueue(job_of(alert, entry.new), now=now).id
            except JobError as refused:
                alert, error = None, storable_error(f"its task is not told: {refused}")
        entry.state = judged.state if error is None else judged.untold
        entry.reading, entry.looked_at, entry.next_at = reading, now, now + EVERY
        new = error != entry.error
        entry.error, entry.failed_at = error, None if error is None else entry.failed_at or now
        return AlertLook(alert, error if new else None)

    def fail(self, name: str, error: str, *, now: datetime) -> bool:
        """Note why a look failed."""
        entry = self._entries[name]
        new = entry.error != error
        entry.error, entry.failed_at = error, entry.failed_at or now
        entry.looked_at, entry.next_at = now, now + FAILED_AGAIN
        return new

    def _put(self, new: NewAlert, now: datetime) -> ScheduleChange:
        known = self._entries.get(new.name)
        if known is None:
            self._entries[new.name] = AlertEntry(new, now)
            return ScheduleChange.ADDED
        if known.new.module != new.module:
            return ScheduleChange.TAKEN
        if known.new == new:
            return ScheduleChange.UNCHANGED
        known.new, known.next_at = new, now
        return ScheduleChange.CHANGED


class Readings:
    """What the conditions of alerts are."""

    def __init__(self, table: JobTable, calendar: Calendar, limits: LimitBook) -> None:
        self._table = table
        self._calendar = calendar
        self._limits = limits

    def read(self, rule: AlertCondition, now: datetime) -> Reading:
        """What a condition is at an instant."""
        readers: dict[type[AlertCondition], Callable[..., Reading]] = {
            OldestReady: self._oldest_ready,
            Backlog: self._backlog,
            Failures: self._failures,
            DeadJobs: self._dead_jobs,
            LateSchedule: self._late_schedule,
            StalledWorkers: lambda rule, _: of_workers(rule, []),
            SaturatedLimit: self._saturated_limit,
        }
        return readers[type(rule)](rule, now)

    def _rows(self, state: JobState, queue: str | None, task: str | None = None) -> list[JobRow]:
        return [row for row in self._table.rows() if row.shown_state is state and row.matches(task, queue)]

    def _oldest_ready(self, rule: OldestReady, now: datetime) -> Reading:
        paused = {one.queue for one in self._table.queues.known() if one.paused_at is not None}
        rows = [row for row in self._rows(JobState.READY, rule.queue) if row.new.queue not in paused]
        oldest = min(rows, key=lambda row: row.run_at, default=None)
        if oldest is None:
            return Reading.over(rule, None)
        return Reading.over(rule, (now - oldest.run_at).total_seconds(), queue=oldest.new.queue)

    def _backlog(self, rule: Backlog, now: datetime) -> Reading:  # noqa: ARG002 - as all of them
        return Reading.over(rule, len(self._rows(JobState.READY, rule.queue)))

    def _failures(self, rule: Failures, now: datetime) -> Reading:
        since = now - as_duration("within", rule.within)
        rows = [row for row in self._table.rows() if row.matches(rule.task, rule.queue)]
        failed = sum(1 for row in rows for error in row.errors if error.at is not None and error.at > since)
        return Reading.over(rule, failed)

    def _dead_jobs(self, rule: DeadJobs, now: datetime) -> Reading:
        rows = self._rows(JobState.DEAD, rule.queue, rule.task)
        if rule.within is not None:
            since = now - as_duration("within", rule.within)
            rows = [row for row in rows if row.ended_at is not None and row.ended_at > since]
        return Reading.over(rule, len(rows))

    def _late_schedule(self, rule: LateSchedule, now: datetime) -> Reading:
        found = [
            one
            for one in self._calendar.listed(name=rule.schedule, task=None, after="", limit=10_000)
            if one.next is not None and one.next <= now
        ]
        if not found:
            return Reading.over(rule, None)
        late = min(found, key=lambda one: one.next or now)
        return Reading.over(
            rule, (now - (late.next or now)).total_seconds(), schedule=late.name, task=late.task
        )

    def _saturated_limit(self, rule: SaturatedLimit, now: datetime) -> Reading:
        known, counts = self._limits.places(now)
        return of_limit(rule, require_limit(rule.limit, known), counts)


def look_at_due(database: Database) -> None:
    """Look at the alerts that are due, as a worker does: one that makes no sense is noted, and the others are looked at."""
    for name in database.run(alerts.due()).names:
        try:
            database.run(alerts.look(name))
        except PgQueueError as error:
            database.run(alerts.fail(name, f"{type(error).__name__}: {error}"))


async def alook_at_due(database: Database) -> None:
    """As :func:`look_at_due`, awaited."""
    for name in (await database.arun(alerts.due())).names:
        try:
            await database.arun(alerts.look(name))
        except PgQueueError as error:
            await database.arun(alerts.fail(name, f"{type(error).__name__}: {error}"))


def _status(entry: AlertEntry, now: datetime) -> AlertStatus:
    new, state, reading = entry.new, entry.state, entry.reading
    silenced = entry.silenced_until is not None and entry.silenced_until > now
    return AlertStatus(
        name=new.name,
        module=new.module,
        kind=new.rule.kind,
        rule=encode_condition(new.rule),
        task=new.task,
        queue=new.queue,
        state=state.name,
        summary=None if reading is None else summary(new.rule, reading),
        value=None if reading is None else reading.value,
        threshold=None if reading is None else reading.threshold,
        since=state.held_at,
        looked_at=entry.looked_at,
        told_at=state.told_at,
        told=state.told,
        job_id=entry.job_id,
        silenced_until=entry.silenced_until if silenced else None,
        silenced_by=entry.silenced_by if silenced else None,
        failed_at=entry.failed_at,
        error=entry.error,
    )
