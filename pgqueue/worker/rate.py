"""How fast a worker's attempts end: what the fetcher computes its prefetch from."""

import math
import time
from collections.abc import Callable

FADING = 0.1
"""Seconds in which a former rate fades to 1/e."""
SHORTEST_SAMPLE = 0.01
"""Seconds. Samples closer than this are ignored: jobs that end in one batch would look like a high rate."""


class EndRate:
    """How many attempts end each second: quick to rise, slow to fall, so that a pause of some milliseconds is ignored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._at = clock()
        self._rate = 0.0

    def at(self, count: int) -> float:
        """The rate per second, now that ``count`` attempts have ended in all."""
        now = self._clock()
        elapsed = now - self._at
        if elapsed >= SHORTEST_SAMPLE:
            faded = self._rate * math.exp(-elapsed / FADING)
            self._rate = max((count - self._count) / elapsed, faded)
            self._count, self._at = count, now
        return self._rate
