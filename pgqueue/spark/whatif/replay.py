"""Replays jobs on a number of slots: when would each have started? Pure: no clock, no files.

Time goes from one event to the next: a job becomes ready, or an attempt ends. At each, the workers do as
:mod:`pgqueue.worker.fetcher` does: if few claims wait for a slot, they claim as many as will start soon, and a free slot takes
the claim that waits longest. All workers are one: they have all slots, and hold as many claims ahead as all of them would.
Slots may come and go: what runs on a slot that goes, ends there, and no other job starts on it.

What a claim finds is decided as the workers decide it. Of one queue: by priority, ``run_at`` and id. Between queues: shares by
their weights. Limited jobs wait in lanes, which take turns; queues and lanes are first in turn.
A place of a limit is taken from the claim until the end of the attempt.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush

import numpy as np

from pgqueue.errors import InvalidOption
from pgqueue.spark.report import words
from pgqueue.spark.whatif.jobs import EPOCH, NONE, SECOND, Numbers
from pgqueue.values.jobs.options import LAST_TIME
from pgqueue.values.queues.shares import Shares, in_turn
from pgqueue.worker.fetcher import LARGEST_CLAIM
from pgqueue.worker.pace import LARGEST_PREFETCH, Pace

END = (LAST_TIME - EPOCH) // timedelta(microseconds=1)
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Slots:
    """How many jobs run at once, from each of these instants on; none before the first.

    Attributes:
        at: in order, in microseconds.
        counts: how many slots all workers have.
        workers: how many workers have them.
    """

    at: Numbers
    counts: Numbers
    workers: Numbers

    @classmethod
    def always(cls, count: int, workers: int = 1) -> "Slots":
        """The same number at all times."""
        return cls(*(np.array([one], np.int64) for one in (-END, count, workers)))

    def since(self, instants: Numbers) -> Numbers:
        """How many there are at each instant."""
        found: Numbers = np.append(0, self.counts)[np.searchsorted(self.at, instants, side="right")]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWork:
    """Jobs in claim order. Times are in microseconds.

    Attributes:
        ready: when each is ready.
        lasts: for how long each runs.
        queue: the number of its queue.
        weights: of the queues.
        keys: for each limit its jobs' keys, counted from 0; NONE: the limit does not concern the job.
        most: for each limit how many jobs of a key run at once.
        gap: how long a slot stays free after a job.
        recorded_in: how long the places of limits stay taken after a job.
    """

    ready: Numbers
    lasts: Numbers
    queue: Numbers
    weights: Sequence[int]
    keys: tuple[Numbers, ...] = ()
    most: Sequence[int] = ()
    gap: int = 0
    recorded_in: int = 0


def starts(work: ReplayWork, slots: Slots) -> Numbers:
    """When each job starts.

    Args:
        work: the jobs.
        slots: where they run; the last number is not 0.

    Raises:
        InvalidOption: no calendar has the end of the last job.
    """
    return _Replay(work, slots).run()


class _Replay:
    def __init__(self, work: ReplayWork, slots: Slots) -> None:
        self._lasts = work.lasts.tolist()
        self._gap, self._held_for = work.gap, max(0, work.recorded_in - work.gap)
        self._held: deque[tuple[int, int]] = deque()
        self._changes = np.stack((slots.at, slots.counts, slots.workers), axis=1)[::-1].tolist()
        self._slots = self._most_ahead = self._most_claimed = 0
        self._queue = work.queue.tolist()
        self._queues = _ReplayQueues(work.weights, self._queue)
        self._lanes = _ReplayLanes.of(work.queue, work.keys, work.most)
        self._lane = self._lanes.lane_of.tolist()
        self._arrivals = np.argsort(work.ready, kind="stable")
        self._ready_at = work.ready[self._arrivals].tolist()
        self._claimed: deque[int] = deque()
        self._ends: list[tuple[int, int]] = []
        self._starts = [0] * len(self._lasts)
        self._lanes_first = False
        self._now = self._ready_at[0] if self._ready_at else 0
        self._ended = self._ran = 0
        self._pace = Pace(lambda: self._now / SECOND)

    def run(self) -> Numbers:
        arrivals, ready_at = self._arrivals.tolist(), self._ready_at
        ends, count, arrived = self._ends, len(ready_at), 0
        ready_at.append(NEVER)
        while ends or arrived < count or self._held or (self._changes and self._waiting):
            now = self._now = min(
                ends[0][0] if ends else NEVER,
                ready_at[arrived],
                self._held[0][0] if self._held else NEVER,
                self._changes[-1][0] if self._changes else NEVER,
            )
            if now >= END:
                raise InvalidOption(
                    f"{words.some(self._slots, 'slot')}: these jobs would run until after the year {LAST_TIME.year - 1}: give more "
                    "workers, more concurrency or higher limits"
                )
            while self._changes and self._changes[-1][0] <= now:
                self._change(*self._changes.pop())
            while ends and ends[0][0] <= now:
                self._end(*heappop(ends))
            while self._held and self._held[0][0] <= now:
                self._lanes.end(self._held.popleft()[1])
            while arrived < count and ready_at[arrived] <= now:
                self._add(arrivals[arrived])
                arrived += 1
            self._start()
            while self._claim():
                self._start()
        return np.array(self._starts, np.int64)

    @property
    def _waiting(self) -> bool:
        return bool(self._claimed or self._queues.waiting or self._lanes.waiting)

    def _change(self, _: int, slots: int, workers: int) -> None:
        self._slots = slots
        self._most_ahead, self._most_claimed = LARGEST_PREFETCH * workers, LARGEST_CLAIM * workers

    def _add(self, job: int) -> None:
        lane = self._lane[job]
        if lane == NONE:
            self._queues.add(self._queue[job], job)
        else:
            self._lanes.add(lane, job)

    def _end(self, at: int, job: int) -> None:
        self._ended += 1
        self._ran += self._lasts[job]
        if self._lane[job] != NONE:
            self._held.append((at + self._held_for, self._lane[job]))

    def _start(self) -> None:
        while self._claimed and len(self._ends) < self._slots:
            job = self._claimed.popleft()
            self._starts[job] = self._now
            heappush(self._ends, (self._now + self._lasts[job] + self._gap, job))

    def _claim(self) -> bool:
        """Claim as many jobs as there is room for; return False if none was claimed."""
        if not (self._queues.waiting or self._lanes.waiting):
            return False
        ahead = self._pace.ahead(self._slots, self._ended, self._ran / SECOND, most=self._most_ahead)
        if len(self._claimed) > ahead // 2:
            return False
        before = len(self._claimed)
        room = min(self._most_claimed, self._slots + ahead - len(self._ends) - before)
        if room <= 0:
            return False
        self._lanes_first = not self._lanes_first
        sides = (self._lanes, self._queues) if self._lanes_first else (self._queues, self._lanes)
        for side in sides:
            if side.waiting and room > 0:
                found = side.take(room)
                self._claimed.extend(found)
                room -= len(found)
        return len(self._claimed) > before


class _ReplayQueues:
    """Ready jobs. Queues of equal weights take turns; others have their shares, for which each known queue is asked, as by a worker."""

    def __init__(self, weights: Sequence[int], queue_of: Sequence[int]) -> None:
        """``weights``: of the queues. ``queue_of``: the queue of each job."""
        self.waiting = 0
        self._queue_of = lambda job: str(queue_of[job])
        self._jobs: dict[str, list[int]] = {str(number): [] for number in range(len(weights))}
        self._asked: dict[str, None] = {}  # in turn
        is_plain = len({*weights}) <= 1
        self._shares = None if is_plain else Shares(lambda queue: max(1, weights[int(queue)]))

    def add(self, queue: int, job: int) -> None:
        name = str(queue)
        heappush(self._jobs[name], job)
        self._asked.setdefault(name)
        self.waiting += 1

    def take(self, room: int) -> list[int]:
        """Take up to ``room`` jobs: from each queue its share, in claim order where all weights are equal.

        As :func:`pgqueue.store.jobs.claim.fill` does: what a queue has no jobs for goes to the others.
        """
        found: list[int] = []
        unfilled = [*self._asked]
        while unfilled and len(found) < room:
            left = room - len(found)
            if self._shares is None and len(unfilled) == 1:
                found += self._pop(unfilled[0], left)
                self._learn({}, {unfilled[0]: left}, left)
                break
            quotas = (
                dict.fromkeys(unfilled, max(1, left // len(unfilled)))
                if self._shares is None
                else self._shares.quotas(unfilled, left)
            )
            served: dict[str, int] = {}
            for queue, quota in quotas.items():
                jobs = self._pop(queue, min(quota, room - len(found)))
                if jobs:
                    served[queue] = len(jobs)
                    found += jobs
            self._learn(quotas, served, left)
            unfilled = [queue for queue in unfilled if self._jobs[queue]]
        self.waiting -= len(found)
        return sorted(found) if self._shares is None else in_turn(self._shares, found, self._queue_of)

    def _learn(self, quotas: Mapping[str, int], served: Mapping[str, int], room: int) -> None:
        if self._shares is not None:
            self._shares.learn(quotas, served, room)
            return
        for queue in served:  # those that had their turn go to the end
            del self._asked[queue]
            if self._jobs[queue]:
                self._asked[queue] = None

    def _pop(self, queue: str, most: int) -> list[int]:
        jobs = self._jobs[queue]
        if most < len(jobs):
            return [heappop(jobs) for _ in range(most)]
        found = sorted(jobs)
        jobs.clear()
        return found


class _ReplayLanes:
    """Limited jobs that wait in lanes until each of their keys has a free place.

    A lane is the jobs of one queue with the same keys. Lanes that may give a job take turns; in a lane, jobs keep their claim
    order. A lane whose next job finds a key without a free place is *parked* at that key, and comes back when a place of it is
    free. So a claim looks only at lanes that may have a job to give, however many wait.

    Attributes:
        lane_of: the lane of each job; NONE: it is not limited.
        waiting: how many jobs wait.
    """

    def __init__(self, lane_of: Numbers, keys: Sequence[tuple[int, ...]], free: Sequence[int]) -> None:
        """``lane_of``: the lane of each job. ``keys``: the keys of each lane. ``free``: how many places each key has."""
        self.lane_of = lane_of
        self.waiting = 0
        self._keys = keys
        self._free = [*free]
        self._jobs: list[list[int]] = [[] for _ in keys]
        self._turns: deque[int] = deque()
        self._parked: dict[int, deque[int]] = {}

    @classmethod
    def of(cls, queue: Numbers, keys: Sequence[Numbers], most: Sequence[int]) -> "_ReplayLanes":
        """The lanes of jobs.

        Args:
            queue: the queue of each job.
            keys: for each limit its jobs' keys, counted from 0; NONE: the limit does not concern the job.
            most: for each limit how many places a key has.
        """
        lane_of = np.full(queue.size, NONE, np.int64)
        limited = (
            np.logical_or.reduce([one != NONE for one in keys]) if keys else np.zeros(queue.size, np.bool_)
        )
        if not limited.any():
            return cls(lane_of, (), ())
        numbered: list[Numbers] = []
        free: list[int] = []
        for one, count in zip(keys, most, strict=True):
            numbered.append(np.where(one == NONE, NONE, one + len(free)))
            free += [count] * (int(one.max()) + 1)
        rows = np.stack([queue, *numbered])[:, limited]
        found, lane_of[limited] = np.unique(rows, axis=1, return_inverse=True)
        named = [tuple(key for key in row if key != NONE) for row in found[1:].T.tolist()]
        return cls(lane_of, named, free)

    def add(self, lane: int, job: int) -> None:
        """A job is ready."""
        if not self._jobs[lane]:
            self._turns.append(lane)
        heappush(self._jobs[lane], job)
        self.waiting += 1

    def take(self, room: int) -> list[int]:
        """Up to a number of jobs whose keys have free places; the jobs take these places."""
        found: list[int] = []
        while self._turns and len(found) < room:
            lane = self._turns.popleft()
            full = self._full_key(lane)
            if full is not None:
                self._park(lane, full)
                continue
            found.append(heappop(self._jobs[lane]))
            for key in self._keys[lane]:
                self._free[key] -= 1
            if self._jobs[lane]:
                self._turns.append(lane)
        self.waiting -= len(found)
        return found

    def end(self, lane: int) -> None:
        """A job of this lane has ended: its places are free."""
        for key in self._keys[lane]:
            self._free[key] += 1
            self._unpark(key)

    def _full_key(self, lane: int) -> int | None:
        for key in self._keys[lane]:
            if self._free[key] <= 0:
                return key
        return None

    def _park(self, lane: int, full: int) -> None:
        """Let a lane wait at a key. If another key of it has free places, a lane that is parked at that one has its turn."""
        self._parked.setdefault(full, deque()).append(lane)
        for key in self._keys[lane]:
            if self._free[key] > 0:
                self._unpark(key)

    def _unpark(self, key: int) -> None:
        parked = self._parked.get(key)
        if parked:
            self._turns.append(parked.popleft())
