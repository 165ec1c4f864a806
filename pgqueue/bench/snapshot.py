"""Load D: draining while another session holds a snapshot, so that vacuum cannot remove dead tuples.

Rounds of jobs are enqueued and drained, each by a fresh worker, and every dead tuple of the rounds before stays.
Meanwhile jobs become ready *behind* where the worker is: each round opens transactions that enqueue a job,
then enqueues its jobs, and commits the open transactions one by one while the worker runs the jobs. Other jobs fail once
and are requeued. Neither kind counts in the rate.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from statistics import median

import psycopg

from pgqueue.app.task import Task
from pgqueue.bench.bench_schema import SCHEMA, Connection
from pgqueue.bench.contract import ContenderSettings, Meter
from pgqueue.bench.figures import Pair
from pgqueue.bench.processes import FLOOR, OURS, Process
from pgqueue.bench.stage import BenchFailed, BenchStage, Sizes, rate
from pgqueue.bench.tasks import register

LATE = 5
FLAKY = 20
PAUSE = 0.02
WITHIN = 120.0
LOOK_EVERY = 0.1
WAITING = f"select count(*) from {SCHEMA}.all_jobs where id = any(%s) and ended_at is null"
STARTED = f"select started_at from {SCHEMA}.all_jobs where id = %s"


def measure(stage: BenchStage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """Drain round after round under one snapshot; compare the last ones with the first."""
    floor = ends(_floor_rates(stage, sizes))[1] if stage.floor else None
    rates, waits = _rates_and_waits(stage, sizes)
    first, last = ends(rates)
    return {
        "D": Pair(last, first),
        "D floor": Pair(last, floor),
        "D behind": Pair(max(waits)),
    }


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
    connection = opened.enter_context(psycopg.connect(stage.place.dsn))
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
