"""What the recorded jobs had: which workers ran them, and what a start and an end cost these workers.

A worker measures how long an attempt runs, and the database dates its start back from the instant at which the end is recorded. So
recorded run times are exact, and a recorded wait holds everything else: the wake-up, the claim, and the recording of the end.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pgqueue.errors import LakeError
from pgqueue.spark.lake.columns import WORKER_SCHEMA, WORKERS
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.course import Course, busy, levels
from pgqueue.spark.whatif.jobs import NONE, SECOND, EndedJobs, Numbers
from pgqueue.spark.whatif.replay import Slots
from pgqueue.values.queues.served_queues import is_served

MOST_IDLE = 0.25
"""The share of the slots' time that may pass between jobs that wait. Where more does, something else holds the jobs back."""
LEAST = SECOND
"""What passes between two jobs is measured while jobs wait for slots for as long as this, and not where slots fill up just then."""
LONGEST_START = SECOND
"""A worker with a free slot starts a job sooner: it looks each second, even where nothing wakes it up."""
MEASURED_KEYS = 20
"""Keys of a limit, those with the most jobs."""
ENOUGH = 20
"""Jobs that found a free slot. The times of fewer are not used."""


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """What a start and an end cost, in microseconds.

    Attributes:
        gap: from the end of a job to the start of the next one on its slot, while jobs wait.
        recorded_in: from the end of a job to the start of the next one on its place of a limit, while jobs of the key wait.
        between: the share of the time of slots, or of places, that passed so; where jobs did not wait for long enough to measure it,
            the share that it would be if each start took as long as one on a free slot.
        starts: the recorded waits of jobs that found a free slot; empty: too few did.
    """

    gap: int = 0
    recorded_in: int = 0
    between: float = 0.0
    starts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def drawn(self, count: int) -> Numbers:
        """The times of this many starts, at random; the same ones at each call."""
        if not self.starts.size:
            return np.zeros(count, np.int64)
        return self.starts[np.random.default_rng(1).integers(0, self.starts.size, count)]


NO_TIMES = WorkerTimes()


def slots_of(lake: Lake, jobs: EndedJobs) -> Slots | None:
    """How many slots the workers of these jobs had, and when; None: the lake knows no worker of their time.

    Raises:
        LakeError: a file cannot be read.
    """
    begin, end = int(jobs.started.min()), int(jobs.ended.max())
    steps: dict[int, tuple[int, int]] = {}
    for row in _workers(lake):
        since, until = row["since"], end + 1 if row["until"] is None else row["until"]
        queues = None if row["queues"] is None else msgspec.json.decode(row["queues"])
        if since > end or until < begin or not any(is_served(queues, name) for name in jobs.queues):
            continue
        for at, sign in ((since, 1), (until, -1)):
            count, workers = steps.get(at, (0, 0))
            steps[at] = count + sign * row["concurrency"], workers + sign
    instants = sorted(steps)
    counts, workers = np.cumsum([steps[at] for at in instants] or [(0, 0)], axis=0).T
    if not counts.any():
        return None
    # What waits when the last worker goes is replayed on its slots.
    last = int(np.flatnonzero(counts)[-1]) + 1
    return Slots(np.array(instants[:last]), counts[:last], workers[:last])


def _workers(lake: Lake) -> list[dict[str, Any]]:
    try:
        if not lake.table(WORKERS).exists():
            return []
        rows = lake.rows(WORKERS, WORKER_SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise LakeError(f"{lake.uri} cannot be read: {' '.join(str(error).split())}") from error
    times = [rows[name].cast(pa.int64()) for name in ("started_at", "ended_at")]
    names = ("since", "until", "concurrency", "queues")
    found: list[dict[str, Any]] = pa.table([*times, rows["concurrency"], rows["queues"]], names).to_pylist()
    return found


def gap_of(was: Course, unlimited: NDArray[np.bool_], slots: Slots) -> tuple[int, float | None]:
    """What passes on a slot between two jobs, while more jobs wait than there are slots; and its share of the slots' time.

    None: they did not wait for long enough.

    Args:
        was: the recorded course.
        unlimited: which jobs are under no limit.
        slots: what ran them.
    """
    free, begun, offered = _free_while_full(was, unlimited, slots)
    share = free / offered if offered else None
    return (int(free / max(1, begun)) if (share or 0) <= MOST_IDLE else 0), share


def recorded_in(was: Course, keys: Numbers, most: int) -> tuple[int, float | None]:
    """The same on a place of a limit, while more jobs of the key wait than it has places.

    Args:
        was: the recorded course.
        keys: of the jobs.
        most: the places of a key.
    """
    found, counts = np.unique(keys[keys != NONE], return_counts=True)
    sums = np.zeros(3)
    for key in found[np.argsort(-counts)][:MEASURED_KEYS].tolist():
        of_key = keys == key
        its = Course(was.ready[of_key], was.started[of_key], was.lasts[of_key])
        sums += _free_while_full(its, np.ones(its.ready.size, np.bool_), Slots.always(most))
    free, begun, offered = (float(one) for one in sums)
    return min(LONGEST_START, int(free / max(1, begun))), free / offered if offered else None


def _free_while_full(was: Course, waiting: NDArray[np.bool_], slots: Slots) -> tuple[float, int, float]:
    """While more of the waiting jobs wait than there are slots: how long slots were free, how many jobs began, how long slots were."""
    if not waiting.any():
        return 0.0, 0, 0.0
    instants, counts = levels(was.ready[waiting], was.started[waiting])
    edges = np.union1d(instants, np.clip(slots.at, instants[0], instants[-1]))
    counts, offers = counts[np.searchsorted(instants, edges, side="right") - 1], slots.since(edges)
    full, lengths = (counts > offers)[:-1], np.diff(edges)
    stretches = np.cumsum(np.diff(full, prepend=False))
    full &= np.bincount(stretches, lengths)[stretches] >= LEAST
    offered = float((lengths * offers[:-1])[full].sum())
    ran = float(np.diff(busy(was, edges))[full].sum())
    begun = int(np.diff(np.searchsorted(np.sort(was.started), edges))[full].sum())
    return max(0.0, offered - ran), begun, offered


def starts_of(was: Course, replayed: Course, unlimited: NDArray[np.bool_], slots: Slots) -> Numbers:
    """The recorded waits of jobs that found a free slot in the replay, as half of the slots were free.

    Args:
        was: the recorded course.
        replayed: the jobs in the same order, on the same slots.
        unlimited: which jobs are under no limit.
        slots: what ran them.
    """
    begun = np.searchsorted(np.sort(replayed.started), was.ready)
    taken = begun - np.searchsorted(np.sort(replayed.ended), was.ready, side="right")
    free = unlimited & (replayed.waits == 0) & (taken <= slots.since(was.ready) // 2)
    free &= was.waits <= LONGEST_START
    return was.waits[free] if free.sum() >= ENOUGH else was.waits[:0]
