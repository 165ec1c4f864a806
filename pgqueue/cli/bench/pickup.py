"""Load C: how long a job that comes by itself waits for an idle worker."""

import time
from collections.abc import Mapping

from pgqueue.cli.bench.figures import Pair
from pgqueue.cli.bench.processes import FLOOR, OURS, Contender, Process
from pgqueue.cli.bench.sizes import Sizes
from pgqueue.cli.bench.stage import BenchFailed, Stage

GAP = 0.05
SHARES = {"C p50": 0.50, "C p95": 0.95, "C p99": 0.99}
WITHIN = 10.0
LOOK_EVERY = 0.1


def measure(stage: Stage, sizes: Sizes, _: object) -> Mapping[str, Pair]:
    """Enqueue 20 jobs a second, one by one, for an idle worker."""
    beside = _waits(stage, sizes, FLOOR) if stage.floor else None
    ours = _waits(stage, sizes, OURS)
    return {
        name: Pair(percentile(ours, share), percentile(beside, share) if beside else None)
        for name, share in SHARES.items()
    }


def percentile(ascending: list[float], share: float) -> float:
    """The value that this share of all lie below."""
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def _waits(stage: Stage, sizes: Sizes, contender: Contender) -> list[float]:
    """How long each job waited, in milliseconds, the shortest first."""
    stage.begin(contender)
    worker = stage.crew.start(contender, "worker", "--latency", IDLE=0, CONC=stage.concurrency)
    stage.fill(contender, 1)  # it carries no time, so it is not among the waits
    worker.until_busy()
    stage.crew.call(contender, "enqueue1", sizes.pickups, GAP=GAP)
    waits = _gathered(worker, sizes.pickups)
    worker.stop()
    return sorted(waits)


def _gathered(worker: Process, wanted: int) -> list[float]:
    waits: list[float] = []
    deadline = time.monotonic() + WITHIN
    while True:
        waits += worker.ask().get("lat_ms", [])
        if len(waits) == wanted:
            return waits
        if time.monotonic() > deadline:
            raise BenchFailed(
                f"an idle worker started {len(waits):,} of {wanted:,} jobs within {WITHIN:.0f} s"
            )
        time.sleep(LOOK_EVERY)
