"""What a worker measures is written by the minute, on the database's clock, and costs jobs nothing."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from running import Running
from store.samples import error_of
from worker.helping import beat, ended

from pgqueue import Dead, PgQueue
from pgqueue.store.insight import series
from pgqueue.values.insight.series import Figures
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Unknown, Verdict, Waits
from pgqueue.values.signals import SignalWait
from pgqueue.worker import measures as measuring
from pgqueue.worker.measures import Measures
from pgqueue.worker.series import SeriesWriter

MINUTE = timedelta(minutes=1)
HOSTILE = """'; drop schema pgqueue; -- {} "null" \\ , : \N{SNOWMAN}"""
NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def a_claim(number: int = 1, **changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "id": number,
        "worker_id": uuid4(),
        "fence": 1,
        "attempt": 1,
        "max_attempts": 3,
        "priority": 0,
        "queue": "mail",
        "task": "send",
        "args": "{}",
        "run_at": NOON - timedelta(seconds=2),
        "created_at": NOON - timedelta(seconds=2),
        "failing_seconds": 0.0,
    } | changes
    for name in ("run_at", "created_at"):
        fields[f"{name}_epoch"] = fields.pop(name).timestamp()
    return Claim(**fields)


class At:
    """The monotonic clock, as measures see it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    clock = At()
    monkeypatch.setattr(measuring, "time", clock)
    return clock


@pytest.fixture
def measured(at: At) -> Measures:
    """Measures whose database has noon now."""
    made = Measures()
    made.set_clock(NOON, at.now - 0.1, at.now + 0.1)
    return made


def rows(measured: Measures, *, everything: bool = True) -> list[dict[str, Any]]:
    return [tally.row(key) for key, tally in measured.take(everything=everything).items()]


def test_a_minute_is_one_of_the_databases_clock_and_is_written_when_it_is_over(
    measured: Measures, at: At
) -> None:
    measured.claimed([a_claim(created_at=NOON)])
    assert measured.left == pytest.approx(60)
    assert rows(measured, everything=False) == []
    at.now += 60
    measured.claimed([a_claim(created_at=NOON + MINUTE)])

    (row,) = rows(measured, everything=False)
    assert (row["at"], row["queue"], row["task"], row["started"]) == (NOON.isoformat(), "mail", "send", 1)
    (row,) = rows(measured)
    assert row["at"] == (NOON + MINUTE).isoformat()


def test_each_verdict_is_counted_as_what_it_is(measured: Measures) -> None:
    claim = a_claim(created_at=NOON)
    error = error_of(claim)
    verdicts: list[Verdict] = [
        Succeeded(claim, 2.0),
        Again(claim, MINUTE, error),
        Died(claim, 3.0, "exhausted", error),
        Died(claim, None, "expired", error),
        Cancelled(claim),
    ]
    measured.claimed([claim] * 5)
    measured.ended(verdicts)
    measured.reclaimed([Again(claim, None, error)])

    (row,) = rows(measured)
    found = {name: row[name] for name in ("enqueued", "started", "succeeded", "failed", "retried", "dead")}
    assert found == {"enqueued": 5, "started": 5, "succeeded": 1, "failed": 3, "retried": 2, "dead": 2}
    assert (row["cancelled"], row["expired"], row["reclaimed"]) == (1, 1, 1)
    assert sum(row["run_counts"]) == 2
    assert row["wait_counts"] == [5]


def test_a_job_is_counted_as_enqueued_once_in_the_minute_of_its_enqueue(measured: Measures) -> None:
    earlier = a_claim(created_at=NOON - 3 * MINUTE)
    measured.claimed([earlier, a_claim(2, created_at=NOON), a_claim(3, attempt=2)])
    unspent: list[Verdict] = [
        Returned(earlier),
        Unknown(earlier, MINUTE, MINUTE),
        Waits(earlier, SignalWait(1, "go", "job:1", None)),
    ]
    for verdict in unspent:
        measured.ended([verdict])
        measured.claimed([earlier])

    enqueued = {row["at"]: row["enqueued"] for row in rows(measured)}
    assert enqueued == {(NOON - 3 * MINUTE).isoformat(): 1, NOON.isoformat(): 1}


@pytest.mark.parametrize("named", [{"task": "x" * 501}, {"queue": "x" * 501}])
def test_a_name_that_is_too_long_is_not_written(measured: Measures, named: dict[str, Any]) -> None:
    measured.claimed([a_claim(created_at=NOON, **named)])

    assert [(row["queue"], row["task"], row["started"]) for row in rows(measured)] == [(None, None, 1)]


def test_pairs_beyond_the_bound_are_counted_together(
    measured: Measures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "PAIRS", 2)
    measured.claimed([a_claim(n, queue=f"tenant-{n}", created_at=NOON) for n in range(5)])
    found = {row["queue"]: row["started"] for row in rows(measured)}
    assert found == {"tenant-0": 1, "tenant-1": 1, None: 3}


def test_what_could_not_be_written_is_kept_and_added_to_within_bounds(
    measured: Measures, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.claimed([a_claim(created_at=NOON)])
    taken = measured.take(everything=True)
    measured.claimed([a_claim(created_at=NOON)])
    assert measured.put_back(taken) == 0
    (row,) = rows(measured)
    assert (row["started"], row["wait_counts"]) == (2, [2])

    monkeypatch.setattr(measuring, "KEPT", 1)
    measured.claimed([a_claim(n, queue=f"tenant-{n}", created_at=NOON) for n in range(3)])
    assert measured.put_back(measured.take(everything=True)) == 2
    assert len(rows(measured)) == 1


@pytest.mark.parametrize("instant", ["1900-01-01T00:00:00+00:00", "9000-01-01T00:00:00+00:00"])
def test_an_enqueue_of_an_impossible_time_costs_nothing(measured: Measures, instant: str) -> None:
    odd = datetime.fromisoformat(instant)
    measured.claimed([a_claim(created_at=odd, run_at=odd), a_claim(2, created_at=NOON)])

    written = rows(measured)
    assert sum(row["enqueued"] for row in written) == 2
    assert {row["at"] for row in written} <= {NOON.isoformat(), "1970-01-01T00:00:00+00:00"}


async def test_a_worker_that_stops_has_written_what_it_measured_whatever_the_names(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    @queue.task(name="fail", queue="mail")
    async def fail() -> None:
        raise Dead("no")

    @queue.task(name="odd")
    async def odd() -> None: ...

    jobs = [fail.enqueue(), *queue.enqueue_many(odd.call() for _ in range(3))]
    connection.execute("update pgqueue.jobs set queue = %s where task = 'odd'", [HOSTILE])
    connection.commit()
    async with running(queue):
        await ended(queue, *jobs)

    found = {line.name: line.figures for line in queue.insight.totals(by="task").lines}
    assert found["fail"] == Figures(
        enqueued=1, started=1, failed=1, dead=1, wait=found["fail"].wait, run=found["fail"].run
    )
    figures = found["odd"]
    assert (figures.enqueued, figures.started, figures.succeeded) == (3, 3, 3)
    assert figures.wait is not None
    assert figures.wait.count == 3
    assert [line.name for line in queue.insight.totals(by="queue").lines] == [HOSTILE, "mail"]
    (line,) = queue.insight.series().lines
    assert sum(point.figures.started for point in line.points) == 4


async def test_two_workers_write_the_same_minute_and_one_of_them_joins_it(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    for _ in range(2):
        job = note.enqueue()
        async with running(queue):
            await ended(queue, job)
    now = datetime.now(UTC)
    queue.database.run(series.move(now=now + 3 * MINUTE))

    (line,) = queue.insight.totals().lines
    assert (line.figures.enqueued, line.figures.succeeded) == (2, 2)


async def test_an_idle_worker_notes_how_deep_queues_are_and_writes_no_figures(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    queue.enqueue_many(note.call() for _ in range(3))
    async with running(queue, queues=["other"]) as worker:
        await worker.parts.series.write()

    assert [one.depth.ready for one in queue.insight.depths(step=60).points if one.depth] == [3]
    assert connection.execute("select count(*) from pgqueue.series_written").fetchall() == [(0,)]


async def test_a_worker_that_starts_waits_for_the_end_of_the_minute(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    """So it counts no jobs while all workers of a deploy start."""
    async with running(queue) as worker:
        (service,) = [one for one in worker.parts.services if one.name == "write what was measured"]
        assert service.run_once == worker.parts.series.run_once
        writer = SeriesWriter(worker.parts.connections, Measures())
        first = await writer.run_once()
        assert first is not None
        assert 0 < first <= 62
        assert connection.execute("select count(*) from pgqueue.series_depths").fetchall() == [(0,)]
        await writer.run_once()
        connection.rollback()
        assert connection.execute("select count(*) from pgqueue.series_depths").fetchall() == [(1,)]


async def test_a_worker_without_series_writes_nothing(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    job = note.enqueue()
    async with running(queue, series=False) as worker:
        await ended(queue, job)
        assert await worker.parts.series.write() is None

    for table in ("series_written", "series_depths"):
        counted = sql.SQL("select count(*) from pgqueue.{}").format(sql.Identifier(table))
        assert connection.execute(counted).fetchall() == [(0,)], table


async def test_a_failure_to_write_is_tried_again_and_costs_jobs_nothing(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    connection.execute("alter table pgqueue.series_written add constraint broken check (started < 0)")
    connection.commit()
    job = note.enqueue()
    async with running(queue) as worker:
        await ended(queue, job)
        await worker.parts.series.write(everything=True)
        assert "time series could not be written" in caplog.text
        connection.execute("alter table pgqueue.series_written drop constraint broken")
        connection.commit()

    (line,) = queue.insight.totals().lines
    assert line.figures.succeeded == 1


async def test_a_lost_connection_loses_no_minute(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    job = note.enqueue()
    async with running(queue) as worker:
        await ended(queue, job)
        connection.execute("lock table pgqueue.series_written in access exclusive mode")
        writing = asyncio.create_task(worker.parts.series.write(everything=True))
        killed: list[Any] = []
        with psycopg.connect(queue.database.dsn, autocommit=True) as other:
            while not killed:
                killed = other.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' "
                    "and query like '%insert into pgqueue.series_written%'"
                ).fetchall()
                await asyncio.sleep(0)
        await writing
        connection.rollback()

    (line,) = queue.insight.totals().lines
    assert line.figures.succeeded == 1


async def test_a_heartbeat_names_the_jobs_that_run(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.worker.heartbeat.MOST_SAID", 2)
    started, go_on = asyncio.Event(), asyncio.Event()

    @queue.task(name="wait")
    async def wait(number: int) -> None:
        if number == 2:
            started.set()
        await go_on.wait()

    jobs = queue.enqueue_many(wait.call(number) for number in range(3))
    async with running(queue, concurrency=3) as worker:
        await started.wait()
        await beat(worker)
        said = connection.execute("select running from pgqueue.workers").fetchall()
        go_on.set()
        await ended(queue, *jobs)

    assert said == [([job.id for job in jobs[:2]],)]
