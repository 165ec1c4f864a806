"""Runs the made-up jobs of a day on the slots of the made-up workers: so their waits follow from the workers, and nothing else.

A day begins with free slots. A free slot takes a job as soon as one is ready. If several wait, the queues take turns, and each gives
its jobs by priority, the time at which they were ready, and id: as workers do, but for what is claimed ahead. At a deploy the slots of
the new workers replace the others, and what runs on those ends there.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgqueue.spark.demo.days import CROWD_MINUTES, LAST_HOUR, LONGEST_RUN, Cell, MadeUpDay, Shift

SECOND = 1_000_000
DAY = 86_400 * SECOND
START = 4_000
"""Microseconds from the instant at which a job has a slot to its start: the wake-up and the claim."""
LAST_PART = 0.8
"""The part of the last hour in which its jobs become ready: they end on the same day."""

Numbers = NDArray[np.int64]


class DayCourse(NamedTuple):
    """A value for each job of a day, in the order of their ids.

    Attributes:
        ended: when it ended, in microseconds of the day.
        ran: for how long it ran, in microseconds.
        waited: for how long it waited, in microseconds.
        worker: its worker's place in the list of all, from 0.
    """

    ended: list[int]
    ran: list[int]
    waited: list[int]
    worker: list[int]


def course_of(day: MadeUpDay, seed: int) -> DayCourse:
    """How the jobs of a day run; the same for the same day and seed."""
    chance = np.random.default_rng([seed, day.day.toordinal()])
    ready = np.concatenate([_ready(cell, chance) for cell in day.cells])
    lasts = np.concatenate([_lasts(cell, chance) for cell in day.cells])
    queues = {name: number for number, name in enumerate(dict.fromkeys(cell.queue for cell in day.cells))}
    sizes = [cell.rows for cell in day.cells]
    queue = np.repeat([queues[cell.queue] for cell in day.cells], sizes)
    place = np.repeat([-cell.priority for cell in day.cells], sizes)
    running = _DayRun(day.shifts, ready, lasts, _Waiting(queue, place))
    running.run(np.lexsort((place, ready)))
    started = np.array(running.started, np.int64) + START
    # What would end on the next day ends at midnight: few jobs, of a last hour with more load than its slots take.
    ended = np.minimum(started + lasts, DAY - 1)
    started = np.minimum(started, ended - 1)
    waited = np.maximum(started - ready, 0)
    return DayCourse(ended.tolist(), (ended - started).tolist(), waited.tolist(), running.worker)


def _ready(cell: Cell, chance: np.random.Generator) -> Numbers:
    """When the jobs of a cell are ready: at any time, or at the ticks of its schedule; those of a crowd at the beginning."""
    part = LAST_PART if cell.hour == LAST_HOUR else 1.0
    crowd = np.sort(chance.random(cell.crowd)) * CROWD_MINUTES / 60
    others = (np.arange(cell.rows - cell.crowd) + chance.random(cell.rows - cell.crowd)) / max(
        1, cell.rows - cell.crowd
    )
    if cell.ticks:
        others = np.floor(others * cell.ticks) / cell.ticks
    hours = cell.hour + np.concatenate((crowd, others)) * part
    return (hours * 3_600 * SECOND).astype(np.int64)


def _lasts(cell: Cell, chance: np.random.Generator) -> Numbers:
    """For how long they run: log-normal."""
    medians = np.repeat([cell.crowd_run, cell.run], [cell.crowd, cell.rows - cell.crowd])
    seconds = np.minimum(medians * np.exp(cell.spread * chance.standard_normal(cell.rows)), LONGEST_RUN)
    found: Numbers = np.maximum((seconds * SECOND).astype(np.int64), 1)
    return found


class _DayRun:
    """Runs the jobs of a day.

    Attributes:
        started: when each started.
        worker: the place of each one's worker.
    """

    def __init__(self, shifts: Sequence[Shift], ready: Numbers, lasts: Numbers, waiting: "_Waiting") -> None:
        """``shifts``: in order; the first begins with the day. ``ready``: when each job is. ``lasts``: for how long it runs."""
        self._ready, self._lasts = ready.tolist(), lasts.tolist()
        self.started, self.worker = [0] * ready.size, [0] * ready.size
        self._waiting = waiting
        self._coming = [*reversed(shifts)]
        self._free: deque[int] = deque()
        self._ends: list[tuple[int, int, int]] = []  # the instant, the number of shifts to come, the worker

    def run(self, order: Numbers) -> None:
        """Run all jobs; ``order`` is that in which they are ready."""
        ready, free, waiting, ahead = self._ready, self._free, self._waiting, order[1:].tolist()
        for job, following in zip(order.tolist(), [*ahead, -1], strict=True):
            at = ready[job]
            while self._coming and self._coming[-1].begins <= at:
                self._change()
            self._pass_until(at)
            is_last = following < 0 or ready[following] != at
            if free and is_last and not waiting.count:
                self._begin(job, at, free.popleft())
                continue
            waiting.add(job, at)
            while is_last and free and waiting.count:
                self._begin(waiting.take(), at, free.popleft())
        while self._waiting.count:
            if self._coming:
                self._change()
            else:
                self._pass_until(self._ends[0][0])

    def _begin(self, job: int, at: int, worker: int) -> None:
        self.started[job], self.worker[job] = at, worker
        heappush(self._ends, (at + self._lasts[job], len(self._coming), worker))

    def _pass_until(self, at: int) -> None:
        """Let slots become free up to an instant, and take what waits."""
        ends, shift = self._ends, len(self._coming)
        while ends and ends[0][0] <= at:
            now, of, worker = heappop(ends)
            if of != shift:
                continue  # the worker has gone
            if self._waiting.count:
                self._begin(self._waiting.take(), now, worker)
            else:
                self._free.append(worker)

    def _change(self) -> None:
        """Replace the slots."""
        begins = self._coming[-1].begins
        self._pass_until(begins)
        self._free.clear()
        self._free.extend(self._coming.pop().workers)
        while self._waiting.count and self._free:
            self._begin(self._waiting.take(), begins, self._free.popleft())


class _Waiting:
    """Jobs that wait: the queues take turns, each gives its first job."""

    def __init__(self, queue: Numbers, place: Numbers) -> None:
        """``queue``: the number of each job's. ``place``: in it, the first ones first."""
        self.count = 0
        self._queue, self._place = queue.tolist(), place.tolist()
        self._jobs: list[list[tuple[int, int, int]]] = [[] for _ in range(1 + int(queue.max(initial=0)))]
        self._turn = 0

    def add(self, job: int, ready: int) -> None:
        heappush(self._jobs[self._queue[job]], (self._place[job], ready, job))
        self.count += 1

    def take(self) -> int:
        while True:
            self._turn = (self._turn + 1) % len(self._jobs)
            if self._jobs[self._turn]:
                self.count -= 1
                return heappop(self._jobs[self._turn])[2]
