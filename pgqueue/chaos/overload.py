"""Ten times as much work as the workers can do: memory stays bounded, the rate holds, and the backlog is run afterwards.

First the run measures what the workers can do, with jobs that take a fixed time. Then orders arrive at ten times that rate.
When they cease, the jobs take no time any more, so that the backlog is gone soon.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pgqueue.chaos import tasks
from pgqueue.chaos.load import OrderLoad
from pgqueue.chaos.stage import ChaosStage, FleetProcess
from pgqueue.worker.memory import resident_memory

JOB_SECONDS = 0.05
TIMES = 10
MEASURED = 10.0
"""Seconds for which the workers' rate is measured before."""
SAMPLE_EVERY = 1.0
MB = 1 << 20
MOST_GROWTH = 64 * MB
"""Bytes by which a worker may grow under the overload."""
LEAST_SHARE = 0.5
"""Of the rate before, in the last third of the overload: less is a collapse."""


@dataclass(frozen=True)
class Overload:
    """What became of it.

    Attributes:
        capacity: jobs a second before, with more work than the workers could do.
        offered: orders a second under the overload.
        rates: jobs a second under the overload, in its thirds.
        memory: the most resident memory of a worker before, and under the overload, in bytes; None: the system does not say.
        backlog: jobs that waited at the end of it.
    """

    capacity: float
    offered: float
    rates: Sequence[float]
    memory: tuple[int, int] | None
    backlog: int

    def complaints(self) -> list[str]:
        """What must not be."""
        found = []
        if self.rates[-1] < self.capacity * LEAST_SHARE:
            found.append(
                f"the rate collapsed under the overload: {self.rates[-1]:.0f} jobs/s after {self.capacity:.0f} jobs/s"
            )
        if self.memory is not None and self.memory[1] - self.memory[0] > MOST_GROWTH:
            before, after = (size // MB for size in self.memory)
            found.append(f"a worker grew from {before} MB to {after} MB under the overload")
        return found

    def told(self) -> str:
        """A line for people."""
        rates = ", ".join(f"{rate:.0f}" for rate in self.rates)
        memory = ""
        if self.memory is not None:
            memory = f"; a worker took {self.memory[0] // MB} MB before and at most {self.memory[1] // MB} MB"
        return (
            f"overload: {self.offered:.0f} orders/s for workers that run {self.capacity:.0f} jobs/s; they ran {rates} jobs/s in "
            f"its thirds, and {self.backlog:,} jobs waited at its end{memory}"
        )


def overload(stage: ChaosStage, seconds: float, tell: Callable[[str], object]) -> Overload:
    """Offer ten times as much as the workers can do.

    Args:
        stage: with workers that work.
        seconds: for how long.
        tell: is called with each thing that happens.
    """
    slow = stage.folder / tasks.SLOW
    slow.write_text(str(JOB_SECONDS))
    try:
        most = len(stage.fleet.workers) * stage.concurrency / JOB_SECONDS
        saturating = _enqueuer(stage, most * 1.5, first=1)
        stage.hold(MEASURED / 2)
        capacity = _rate(stage, MEASURED / 2)
        saturating.end()
        before = _memory(stage)
        tell(f"the workers run {capacity:.0f} jobs/s; {capacity * TIMES:.0f} orders/s come now")
        flood = _enqueuer(stage, capacity * TIMES, first=2)
        rates, after = [], before
        for _ in range(3):
            rate, seen = _third(stage, seconds / 3)
            rates.append(rate)
            after = max(after, seen)
        flood.end()
        stage.watch.look()
    finally:
        slow.unlink(missing_ok=True)
    memory = (before, after) if before else None
    return Overload(capacity, capacity * TIMES, rates, memory, stage.watch.enqueued - stage.watch.ended)


def _third(stage: ChaosStage, seconds: float) -> tuple[float, int]:
    """Return the jobs per second, and the most memory of a worker in bytes, in a third of the overload."""
    began, ended, most = time.monotonic(), stage.watch.ended, 0
    while time.monotonic() - began < seconds:
        stage.hold(min(SAMPLE_EVERY, seconds))
        most = max(most, _memory(stage))
    return (stage.watch.ended - ended) / (time.monotonic() - began), most


def _rate(stage: ChaosStage, seconds: float) -> float:
    began, ended = time.monotonic(), stage.watch.ended
    stage.hold(seconds)
    return max((stage.watch.ended - ended) / (time.monotonic() - began), 1.0)


def _memory(stage: ChaosStage) -> int:
    """Return the most resident memory of a worker, in bytes; 0: the system does not say it."""
    return max(resident_memory(worker.pid) or 0 for worker in stage.fleet.workers)


def _enqueuer(stage: ChaosStage, rate: float, *, first: int) -> FleetProcess:
    load = OrderLoad(first=first, step=2, rate=rate, batch=max(1, int(rate / 10)), only="plain")
    return stage.fleet.run(["-m", "pgqueue.chaos.load", msgspec.json.encode(load).decode()])
