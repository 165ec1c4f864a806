"""Lanes of a replay: limited jobs wait there until each of their keys has a free place. Pure.

A lane is the jobs of one queue with the same keys. Lanes that may give a job take turns; in a lane, jobs keep their claim order.
A lane whose next job finds a key without a free place is *parked* at that key, and comes back when a place of it is free. So a
claim looks only at lanes that may have a job to give, however many wait.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from pgqueue.spark.whatif.jobs import NONE, Numbers


class ReplayLanes:
    """Limited jobs that wait, and the places of their keys.

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
    def of(cls, queue: Numbers, keys: Sequence[Numbers], most: Sequence[int]) -> "ReplayLanes":
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
        """Up to so many jobs whose keys have free places; they take these places."""
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
