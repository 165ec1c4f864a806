"""How fast jobs end: quick to rise, slow to fall, so that a pause of a few milliseconds is no standstill."""

import math
import time
from collections.abc import Callable

HORIZON = 0.1
"""Seconds to look ahead, and to remember."""
SHORTEST = 0.01
"""Two looks within so many seconds say nothing about a pace: jobs that end together are no crowd."""


class Pace:
    """Jobs per second of late, told from a counter."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at a standstill.

        Args:
            clock: seconds, from any beginning.
        """
        self._clock = clock
        self._count = 0
        self._at = clock()
        self._rate = 0.0

    def at(self, count: int) -> float:
        """The pace, now that so many have ended in all."""
        now = self._clock()
        elapsed = now - self._at
        if elapsed >= SHORTEST:
            faded = self._rate * math.exp(-elapsed / HORIZON)
            self._rate = max((count - self._count) / elapsed, faded)
            self._count, self._at = count, now
        return self._rate
