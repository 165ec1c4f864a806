"""The loads: what each is in words, and how it is measured, once. Rounds and medians are the caller's."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TypeAlias

from pgqueue.bench import costs
from pgqueue.bench.bench_schema import SCHEMA
from pgqueue.bench.figures import Figure, Pair
from pgqueue.bench.stage import FLOOR, OURS, BenchFailed, BenchStage, Contender, Process, Sizes, rate

Measured: TypeAlias = Mapping[str, Pair]
"""Pairs by figure."""

FUTURE = {"DELAY": 86_400, "PRIORITY": 100}
ENQUEUERS = 16
NO_WAKE_UP = f"alter table {SCHEMA}.jobs disable trigger jobs_wake_idle_workers"
PICKUP_GAP = 0.05
"""Seconds between two enqueues of load C."""
SHARES = {"C p50": 0.50, "C p95": 0.95, "C p99": 0.99}
PICKED_UP_WITHIN = 10.0
"""Seconds within which an idle worker has started all jobs of load C."""
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """A load.

    Attributes:
        name: on the command line.
        figures: what it finds; ``{jobs}`` in the words stands for a size.
        measure: measures it once; is told what this round has found so far.
    """

    name: str
    figures: Sequence[Figure]
    measure: Callable[[BenchStage, Sizes, Measured], Measured]

    def described(self, sizes: Sizes) -> list[Figure]:
        """The figures, the sizes in their words."""
        named = asdict(sizes)
        return [Figure(one.name, one.what.format(**named), one.unit, one.beside) for one in self.figures]


def in_turn(stage: BenchStage, name: str, measure: Callable[[Contender], float]) -> Measured:
    """Measure the floor, then pgqueue, one right after the other."""
    beside = measure(FLOOR) if stage.floor else None
    return {name: Pair(measure(OURS), beside)}


def enqueue(
    name: str, verb: str, count: Callable[[Sizes], int]
) -> Callable[[BenchStage, Sizes, Measured], Measured]:
    """A1, A2: each job in a transaction of its own, or all jobs in one call."""

    def measure_both(stage: BenchStage, sizes: Sizes, _: Measured) -> Measured:
        def measure(contender: Contender) -> float:
            stage.begin(contender)
            told = stage.crew.call(contender, verb, count(sizes))
            return rate(told["n"], told["seconds"])

        return in_turn(stage, name, measure)

    return measure_both


def drain(
    name: str, *, processes: int = 1, **settings: object
) -> Callable[[BenchStage, Sizes, Measured], Measured]:
    """B, Bs, B2: run what waits."""

    def measure_both(stage: BenchStage, sizes: Sizes, _: Measured) -> Measured:
        def measure(contender: Contender) -> float:
            stage.begin(contender)
            stage.fill(contender, sizes.jobs)
            stage.place.settle()
            return stage.work(contender, sizes.jobs, processes=processes, **settings)

        return in_turn(stage, name, measure)

    return measure_both


def crowded(stage: BenchStage, sizes: Sizes, so_far: Measured) -> Measured:
    """E: run the first jobs, with many others in the table."""
    plain = so_far.get("B") or drain("B")(stage, sizes, so_far)["B"]
    return {
        "E behind": Pair(_among(stage, sizes, sizes.behind), plain.ours),
        "E future": Pair(_among(stage, sizes, sizes.future, **FUTURE), plain.ours),
        "E other": Pair(_among(stage, sizes, sizes.other, QUEUE="other"), plain.ours),
    }


def _among(stage: BenchStage, sizes: Sizes, others: int, **settings: object) -> float:
    """Return the rate at which the jobs that were enqueued first run, with others behind them."""
    stage.begin(OURS)
    stage.fill(OURS, sizes.jobs)
    stage.fill(OURS, others, **settings)
    stage.place.settle()
    worker = stage.crew.start(OURS, "worker", STOP_AFTER=sizes.jobs, QUEUES="default", CONC=stage.concurrency)
    told = worker.result()
    return rate(told["count"], told["last"] - told["first"])


def tenants(stage: BenchStage, sizes: Sizes, so_far: Measured) -> Measured:
    """Q: run one job of each of many queues."""
    plain = so_far.get("B") or drain("B")(stage, sizes, so_far)["B"]
    return {
        "Q": Pair(_tenants(stage, sizes, stage.concurrency), plain.ours),
        "Q one": Pair(_tenants(stage, sizes, 1), plain.ours),
    }


def _tenants(stage: BenchStage, sizes: Sizes, concurrency: int) -> float:
    stage.begin(OURS)
    stage.fill(OURS, sizes.names, NAMES=sizes.names)
    stage.place.settle()
    return stage.work(OURS, sizes.names, CONC=concurrency)


def crowd(stage: BenchStage, sizes: Sizes, _: Measured) -> Measured:
    """F: many enqueue at a time while a worker listens, with and without the trigger that wakes it."""
    without = _crowd(stage, sizes, NO_WAKE_UP)
    return {"F": Pair(_crowd(stage, sizes), without)}


def _crowd(stage: BenchStage, sizes: Sizes, *statements: str) -> float:
    stage.begin(OURS)
    for statement in statements:
        stage.place.connection.execute(statement.encode())
    worker = stage.crew.start(OURS, "worker", IDLE=0, CONC=stage.concurrency)
    stage.fill(OURS, 1)
    worker.until_busy()
    told = stage.crew.call(OURS, "enqueue1", sizes.crowd, THREADS=ENQUEUERS)
    worker.stop()
    return rate(told["n"], told["seconds"])


def pickups(stage: BenchStage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """C: enqueue 20 jobs a second, one by one, for an idle worker."""
    beside = _waits(stage, sizes, FLOOR) if stage.floor else None
    ours = _waits(stage, sizes, OURS)
    return {
        name: Pair(percentile(ours, share), percentile(beside, share) if beside else None)
        for name, share in SHARES.items()
    }


def percentile(ascending: list[float], share: float) -> float:
    """The value that this share of all lie below."""
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def _waits(stage: BenchStage, sizes: Sizes, contender: Contender) -> list[float]:
    """Return how long each job waited, in milliseconds, the shortest first."""
    stage.begin(contender)
    worker = stage.crew.start(contender, "worker", "--latency", IDLE=0, CONC=stage.concurrency)
    stage.fill(contender, 1)  # it carries no time, so it is not among the waits
    worker.until_busy()
    stage.crew.call(contender, "enqueue1", sizes.pickups, GAP=PICKUP_GAP)
    waits = _gathered(worker, sizes.pickups)
    worker.stop()
    return sorted(waits)


def _gathered(worker: Process, wanted: int) -> list[float]:
    waits: list[float] = []
    deadline = time.monotonic() + PICKED_UP_WITHIN
    while True:
        waits += worker.ask().get("lat_ms", [])
        if len(waits) == wanted:
            return waits
        if time.monotonic() > deadline:
            raise BenchFailed(
                f"an idle worker started {len(waits):,} of {wanted:,} jobs within {PICKED_UP_WITHIN:.0f} s"
            )
        time.sleep(LOOK_EVERY)


LOADS = {
    load.name: load
    for load in (
        BenchLoad(
            "A1",
            [Figure("A1", "enqueue, one per transaction", "jobs/s", "floor")],
            enqueue("A1", "enqueue1", attrgetter("singles")),
        ),
        BenchLoad(
            "A2",
            [Figure("A2", "enqueue {jobs:,} in one call", "jobs/s", "floor")],
            enqueue("A2", "bulk", attrgetter("jobs")),
        ),
        BenchLoad(
            "B", [Figure("B", "drain {jobs:,} async jobs, one worker process", "jobs/s", "floor")], drain("B")
        ),
        BenchLoad(
            "Bs",
            [Figure("Bs", "the same, plain functions in threads", "jobs/s", "floor")],
            drain("Bs", SYNC=1),
        ),
        BenchLoad(
            "B2",
            [Figure("B2", "the same, two worker processes", "jobs/s", "floor")],
            drain("B2", processes=2),
        ),
        BenchLoad(
            "C",
            [
                Figure("C p50", "from enqueue to start in an idle worker, median", "ms", "floor"),
                Figure("C p95", "the same, 95 of 100 are faster", "ms", "floor"),
                Figure("C p99", "the same, 99 of 100 are faster", "ms", "floor"),
            ],
            pickups,
        ),
        BenchLoad(
            "D",
            [
                Figure("D", "drain under a held snapshot, the last of {churn:,} jobs", "jobs/s", "own first"),
                Figure("D floor", "the same", "jobs/s", "floor's last"),
                Figure("D behind", "longest wait of a job committed behind others", "s"),
            ],
            costs.under_snapshot,
        ),
        BenchLoad(
            "E",
            [
                Figure("E behind", "drain with {behind:,} ready jobs behind", "jobs/s", "own B"),
                Figure("E future", "drain with {future:,} urgent jobs not due", "jobs/s", "own B"),
                Figure("E other", "drain with {other:,} jobs in another queue", "jobs/s", "own B"),
            ],
            crowded,
        ),
        BenchLoad(
            "Q",
            [
                Figure("Q", "drain {names:,} queues of one job each", "jobs/s", "own B"),
                Figure("Q one", "the same, one job at a time", "jobs/s", "own B"),
            ],
            tenants,
        ),
        BenchLoad(
            "F", [Figure("F", f"{ENQUEUERS} enqueue while a worker listens", "jobs/s", "no wake-up")], crowd
        ),
        BenchLoad(
            "W",
            [
                Figure("W wal", "write-ahead log per job drained", "bytes", "floor"),
                Figure("W commits", "commits per 1,000 jobs drained", "commits", "floor"),
                Figure("W dead", "dead tuples per job drained", "tuples", "floor"),
            ],
            costs.writes,
        ),
        BenchLoad(
            "M",
            [
                Figure("M rss", "worker's memory, {in_flight:,} jobs in flight", "MB"),
                Figure("M queries", "idle worker's queries a minute", "queries"),
                Figure("M cpu", "idle worker's CPU seconds a minute", "s"),
            ],
            costs.idling,
        ),
    )
}
