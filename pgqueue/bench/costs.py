"""Loads W, M and D: what a job costs the server, what a worker costs with many jobs or none, what a held snapshot costs.

D: while another session holds a snapshot, vacuum cannot remove dead tuples. Rounds of jobs are enqueued and drained, each by a
fresh worker, and every dead tuple of the rounds before stays. Meanwhile jobs become ready *behind* where the worker is: each round
opens transactions that enqueue a job, then enqueues its jobs, and commits the open transactions one by one while the worker runs
the jobs. Other jobs fail once and are requeued. Neither kind counts in the rate.
"""

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pgqueue.app.task import Task
from pgqueue.bench.bench_schema import COMMAND, SCHEMA
from pgqueue.bench.contract import ContenderSettings, Meter
from pgqueue.bench.figures import Pair
from pgqueue.bench.own_schema import Connection
from pgqueue.bench.peer import register
from pgqueue.bench.stage import FLOOR, OURS, BenchFailed, BenchStage, Contender, Process, Sizes, rate
from pgqueue.store.connections.database import Database
from pgqueue.worker.service import JITTER
from pgqueue.worker.signals import IDLE_AFTER
from pgqueue.worker.upkeep import LONG_READS_FIRST

COUNTERS = """
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8,
       (select xact_commit from pg_stat_database where datname = current_database()),
       (select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables where schemaname = %s)"""
AT_WORK = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = %s and pid <> pg_backend_pid()"""
GONE_WITHIN = 10.0
SETTLE = max(IDLE_AFTER, LONG_READS_FIRST * (1 + JITTER)) + 2.0
"""Seconds until a worker that had a job has done what it does once an hour, and is as idle as it gets."""
QUERY = re.compile(rb"\tF\t\d+\t(?:Query|Execute)\t")
"""A message of libpq's trace that has the server run something: sent by the client (F), simple or extended."""

LATE = 5
FLAKY = 20
PAUSE = 0.02
WITHIN = 120.0
LOOK_EVERY = 0.1
WAITING = f"select count(*) from {SCHEMA}.all_jobs where id = any(%s) and ended_at is null"
STARTED = f"select started_at from {SCHEMA}.all_jobs where id = %s"


class Counters(NamedTuple):
    """What the server has counted.

    Attributes:
        wal: bytes of write-ahead log.
        commits: in this database.
        dead: tuples that were updated or deleted, and are dead once no snapshot sees them. (``n_dead_tup`` is less
            reliable: autovacuum may run in between.)
    """

    wal: float
    commits: int
    dead: int


def writes(stage: BenchStage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """W: drain, and see what the server has written."""
    floor = _measure_writes(stage, sizes, FLOOR) if stage.floor else {}
    ours = _measure_writes(stage, sizes, OURS)
    return {name: Pair(value, floor.get(name)) for name, value in ours.items()}


def _measure_writes(stage: BenchStage, sizes: Sizes, contender: Contender) -> dict[str, float]:
    """Return what one drain adds to the counters, by figure.

    The looks at the counters share a transaction, so that they add no commits of their own.
    """
    stage.begin(contender)
    stage.fill(contender, sizes.jobs)
    stage.place.vacuum()
    _until_gone(stage)
    with stage.place.connection.transaction():
        before = _counters(stage)
        stage.work(contender, sizes.jobs)
        _until_gone(stage)
        after = _counters(stage)
    return {
        "W wal": (after.wal - before.wal) / sizes.jobs,
        "W commits": (after.commits - before.commits) / sizes.jobs * 1_000,
        "W dead": (after.dead - before.dead) / sizes.jobs,
    }


def _counters(stage: BenchStage) -> Counters:
    """Return the counters. The workers must have ended: a connection reports all of its work only when it closes."""
    stage.place.one("select pg_stat_clear_snapshot()")
    ((wal, commits, dead),) = stage.place.connection.execute(COUNTERS, [SCHEMA]).fetchall()
    return Counters(wal, commits, dead)


def _until_gone(stage: BenchStage) -> None:
    """Wait until the server has closed the connections of all workers."""
    deadline = time.monotonic() + GONE_WITHIN
    while stage.place.one(AT_WORK, COMMAND):
        stage.place.one("select pg_stat_clear_snapshot()")
        if time.monotonic() > deadline:
            raise BenchFailed(f"a worker's connections are still there after {GONE_WITHIN:.0f} s")
        time.sleep(0.01)


def idling(stage: BenchStage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """M: a worker with many jobs in flight, and one that has nothing to do."""
    held = _resident_mb(stage, sizes)
    with tempfile.TemporaryDirectory(prefix="pgqueue-bench-") as folder:
        queries, cpu_seconds = _idle(stage, sizes, Path(folder) / "trace")
    per_minute = 60 / sizes.idle_seconds
    found = {"M rss": Pair(held), "M cpu": Pair(cpu_seconds * per_minute)}
    return found if queries is None else found | {"M queries": Pair(queries * per_minute)}


def _resident_mb(stage: BenchStage, sizes: Sizes) -> float:
    stage.begin(OURS)
    worker = stage.crew.start(OURS, "worker", IDLE=0, CONC=sizes.in_flight)
    stage.crew.call(OURS, "hold", sizes.in_flight)
    told = worker.answer()
    worker.stop()
    return float(told["rss_now_mb"])


def _idle(stage: BenchStage, sizes: Sizes, trace: Path) -> tuple[int | None, float]:
    """Return an idle worker's queries and seconds of CPU; None where libpq cannot trace what is sent."""
    stage.begin(OURS)
    worker = stage.crew.start(OURS, "worker", IDLE=0, CONC=stage.concurrency, TRACE=trace)
    stage.fill(OURS, 1)
    worker.until_busy()
    time.sleep(min(SETTLE, 2 * sizes.idle_seconds))  # a short look does not wait for that
    before, at_first = worker.ask(), _queries(trace)
    time.sleep(sizes.idle_seconds)
    after, at_last = worker.ask(), _queries(trace)
    worker.stop()
    counted = None if at_first is None or at_last is None else at_last - at_first
    return counted, after["cpu_seconds"] - before["cpu_seconds"]


def _queries(trace: Path) -> int | None:
    return len(QUERY.findall(trace.read_bytes())) if trace.exists() else None


def under_snapshot(stage: BenchStage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """D: drain round after round under one snapshot; compare the last ones with the first."""
    floor = ends(_floor_rates(stage, sizes))[1] if stage.floor else None
    rates, waits = _rates_and_waits(stage, sizes)
    first, last = ends(rates)
    return {"D": Pair(last, first), "D floor": Pair(last, floor), "D behind": Pair(max(waits))}


def ends(rates: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and of the last tenth: with many rounds, a single round varies too much."""
    tenth = max(1, len(rates) // 10)
    return median(rates[:tenth]), median(rates[-tenth:])


def _floor_rates(stage: BenchStage, sizes: Sizes) -> list[float]:
    stage.begin(FLOOR)
    rates = []
    with stage.place.snapshot():
        for _ in range(sizes.drains):
            stage.fill(FLOOR, sizes.jobs)
            rates.append(stage.work(FLOOR, sizes.jobs))
    return rates


def _rates_and_waits(stage: BenchStage, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Return the jobs per second of each round, and how many seconds each late job waited from its commit to its start."""
    stage.begin(OURS)
    committed: dict[int, datetime] = {}
    with stage.place.snapshot(), _late_task(stage) as late:
        rates = [_round(stage, sizes, late, committed) for _ in range(sizes.drains)]
    return rates, [_wait(stage, job_id, since) for job_id, since in committed.items()]


def _round(stage: BenchStage, sizes: Sizes, late: Task[[], None], committed: dict[int, datetime]) -> float:
    with ExitStack() as opened:
        latecomers = [_enqueued(stage, late, opened) for _ in range(LATE)]
        stage.fill(OURS, sizes.jobs, FLAKY=FLAKY)
        worker = stage.crew.start(OURS, "worker", IDLE=0, CONC=stage.concurrency)
        worker.until_busy()
        for job_id, connection in latecomers:
            committed[job_id] = _commit(connection)
            time.sleep(PAUSE)
        _until_done(stage, worker, sizes.jobs, [job_id for job_id, _ in latecomers])
        told = worker.stop()
    return rate(told["count"], told["last"] - told["first"])


def _until_done(stage: BenchStage, worker: Process, jobs: int, late: list[int]) -> None:
    """Wait until the worker has run its jobs, the late ones too: a job that is only claimed goes back when the worker stops."""
    deadline = time.monotonic() + WITHIN
    while (ran := worker.ask()["count"]) < jobs or stage.place.one(WAITING, late):
        if time.monotonic() > deadline:
            raise BenchFailed(
                f"under a snapshot, {ran:,} of {jobs:,} jobs were run within {WITHIN:.0f} s, or a late one was not"
            )
        time.sleep(LOOK_EVERY)


@contextmanager
def _late_task(stage: BenchStage) -> Iterator[Task[[], None]]:
    queue = stage.queue()
    try:
        yield register(queue, ContenderSettings.read({}), Meter()).late
    finally:
        queue.close()


def _enqueued(stage: BenchStage, late: Task[[], None], opened: ExitStack) -> tuple[int, Connection]:
    """Enqueue a job in a transaction that stays open; return its id, and the connection."""
    connection = opened.enter_context(Database(stage.place.dsn).connect())
    connection.autocommit = False
    return late.using(connection=connection).enqueue().id, connection


def _commit(connection: Connection) -> datetime:
    """Commit; return the time just before, by the database's clock."""
    ((now,),) = connection.execute("select clock_timestamp()").fetchall()
    connection.commit()
    found: datetime = now
    return found


def _wait(stage: BenchStage, job_id: int, since: datetime) -> float:
    started: datetime = stage.place.one(STARTED, job_id)
    return max(0.0, (started - since).total_seconds())
