"""Loads W and M: what a job costs the server, and what a worker costs while it holds many jobs or none."""

import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pgqueue.bench.bench_schema import APPLICATION, SCHEMA
from pgqueue.bench.figures import Pair
from pgqueue.bench.processes import FLOOR, OURS, Contender
from pgqueue.bench.stage import BenchFailed, BenchStage, Sizes
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
    while stage.place.one(AT_WORK, APPLICATION):
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
