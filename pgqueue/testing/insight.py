"""What runs, why jobs died and how late schedules are, of a queue in memory. Figures over time and of tables it has none."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

import msgspec

from pgqueue.testing.row import JobRow
from pgqueue.testing.schedules import Calendar
from pgqueue.testing.table import JobTable
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.insight.now import ErrorGroup, Errors, Running, RunningJob, ScheduleLag, SearchPage
from pgqueue.values.jobs.job import JobState
from pgqueue.values.schedules.schedule import Schedule

_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")


class InsightAnswers:
    """Answers plans of :mod:`pgqueue.store.insight.insight`."""

    def __init__(self, table: JobTable, calendar: Calendar) -> None:
        self._table = table
        self._calendar = calendar

    def running(self, *, queue: str | None, task: str | None, limit: int, now: datetime) -> Running:
        """The jobs that workers hold."""
        rows = [row for row in self._table.rows() if row.is_running and row.matches(task, queue)]
        rows.sort(key=lambda row: (row.started_at or now, row.id))
        return Running(tuple(_running_job(row, now) for row in rows[:limit]), complete=True)

    def search(
        self,
        wanted: JobFilter,
        *,
        states: Collection[JobState] | None,
        unique_key: str | None,
        before: int | None,
        limit: int,
    ) -> SearchPage:
        """The jobs that match."""
        jobs = [row.shown() for row in self._table.rows()]
        found = [
            job
            for job in sorted(jobs, key=lambda one: -one.id)
            if (states is None or job.state in states)
            and unique_key in (None, job.unique_key)
            and (before is None or job.id < before)
            and wanted.matches(job)
        ]
        return SearchPage(
            tuple(msgspec.structs.replace(job, errors=job.errors[-1:], result=None) for job in found[:limit])
        )

    def errors(self, *, queue: str | None, task: str | None, limit: int) -> Errors:
        """The dead jobs by task and error."""
        dead = [row for row in self._table.rows() if row.state is JobState.DEAD and row.matches(task, queue)]
        dead.sort(key=lambda row: (_died_at(row), row.id))
        found = defaultdict[tuple[object, ...], list[JobRow]](list)
        for row in dead:
            kind, line = _error(row)
            found[row.new.task, kind, row.reason, line and line.translate(_WITHOUT_DIGITS)].append(row)
        groups = sorted(
            (_group(rows) for rows in found.values()), key=lambda one: (-one.jobs, one.task, one.type or "")
        )
        return Errors(tuple(groups[:limit]), len(dead), complete=True)

    def schedules(self, *, limit: int, now: datetime) -> list[ScheduleLag]:
        """How late schedules are."""
        found = self._calendar.listed(name=None, task=None, after="", limit=limit)
        lags = [self._lag(one, now) for one in found]
        return sorted(lags, key=lambda one: (-one.lag, one.name))

    def _lag(self, schedule: Schedule, now: datetime) -> ScheduleLag:
        runs = self._calendar.runs(schedule.name, before=None, limit=1_000)
        last = next((run for run in runs if run.kind == "tick" and run.state == "fired"), None)
        return ScheduleLag(
            name=schedule.name,
            task=schedule.task,
            queue=schedule.queue,
            state=schedule.state,
            next_at=schedule.next,
            lag=0.0 if schedule.next is None else max(0.0, (now - schedule.next).total_seconds()),
            last_at=None if last is None else last.at,
            last_lag=None if last is None else (last.fired_at - last.at).total_seconds(),
            error=schedule.error,
        )


def _running_job(row: JobRow, now: datetime) -> RunningJob:
    assert row.worker_id is not None  # noqa: S101 - it runs
    since = row.started_at or now
    return RunningJob(
        job_id=row.id,
        queue=row.new.queue,
        task=row.new.task,
        attempt=row.attempts,
        max_attempts=row.max_attempts,
        since=since,
        seconds=(now - since).total_seconds(),
        worker_id=row.worker_id,
        worker=None,
        lost=False,
        cancel_requested=row.cancel_requested,
    )


def _error(row: JobRow) -> tuple[str | None, str | None]:
    """Return the type of the last error, and its first line, unless a codec has encoded it."""
    if not row.errors:
        return None, None
    last = row.errors[-1]
    return last.type, None if last.encoded is not None else last.message.partition("\n")[0][:500]


def _group(rows: list[JobRow]) -> ErrorGroup:
    """Return the group of dead jobs; ``rows`` begins with those that died first."""
    last = rows[-1]
    kind, line = _error(last)
    queues = tuple(sorted({row.new.queue for row in rows})[:10])
    return ErrorGroup(
        last.new.task,
        kind,
        last.reason or "",
        line,
        len(rows),
        queues,
        _died_at(rows[0]),
        _died_at(last),
        last.id,
    )


def _died_at(row: JobRow) -> datetime:
    assert row.ended_at is not None  # noqa: S101 - it is dead
    return row.ended_at
