"""Which claims wait for their instant, in the worker's memory: those of rates, which say when each job starts.

:class:`pgqueue.worker.claims.Claims` calls this under its lock, and starts the claims that are due.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count

from pgqueue.values.jobs.job import Claim


class DelayedStarts:
    """Claims, each with the instant at which it starts, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Claim]] = []
        self._count = count()  # claims of one instant start in the order in which they came

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._heap)

    @property
    def due(self) -> float:
        """When the next one starts; infinity: none waits."""
        return self._heap[0][0] if self._heap else math.inf

    def claims(self) -> list[Claim]:
        """All that wait."""
        return [claim for _, _, claim in sorted(self._heap)]

    def add(self, claim: Claim, due: float) -> None:
        """Have a claim wait until then."""
        heapq.heappush(self._heap, (due, next(self._count), claim))

    def take_due(self, now: float) -> list[Claim]:
        """The claims whose instant has come, in order."""
        due: list[Claim] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def drop(self, is_meant: Callable[[Claim], bool]) -> list[Claim]:
        """Take out these claims."""
        dropped = [claim for claim in self.claims() if is_meant(claim)]
        if dropped:
            self._heap = [one for one in self._heap if not is_meant(one[2])]
            heapq.heapify(self._heap)
        return dropped
