"""How many claims a worker holds ahead of its slots: as many as will start within :data:`HORIZON`, and none of long jobs.

Two measures bound it. By Little's law it is how many attempts end each second, times the horizon. But attempts that end together
look like a high rate, so it is also at most the number of slots, times the horizon, divided by how long an attempt takes. Where
an attempt takes :data:`LONG`, a claim takes little beside it, so nothing is held: other workers may have free slots.
"""

import math
import time
from collections.abc import Callable
from typing import Final

HORIZON = 0.1
"""Seconds. As many claims are held as would start within this."""
LONG: Final = 0.5
"""Seconds of an attempt. A slot that waits for a claim loses about 1 % of it."""
LARGEST_PREFETCH: Final = 1_000
FADING = 0.1
"""Seconds in which a former rate fades to 1/e."""
SHORTEST_SAMPLE = 0.01
"""Seconds. Samples closer than this are ignored: jobs that end in one batch would look like a high rate."""
REMEMBERED: Final = 1_000
"""Attempts. How long one takes is the average of about as many, the latest ones counting most."""


class Pace:
    """How fast the attempts of one worker end, and how long one takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count, self._seconds = 0, 0.0
        self._at = clock()
        self._rate = 0.0
        self._ended, self._took = 0.0, 0.0

    def ahead(self, slots: int, ended: int, seconds: float, *, most: int = LARGEST_PREFETCH) -> int:
        """How many claims to hold.

        Args:
            slots: how many attempts run at a time.
            ended: how many have ended, in all.
            seconds: for how long they ran, all together.
            most: no more than this.
        """
        rate = self.rate(ended, seconds)
        if self._took > 0.0:
            takes = self._took / self._ended
            if takes >= LONG:
                return 0
            most = min(most, int(slots * HORIZON / takes))
        return min(most, int(rate * HORIZON))

    def rate(self, ended: int, seconds: float) -> float:
        """How many attempts end each second: quick to rise, slow to fall, so that a pause of some milliseconds is ignored."""
        now = self._clock()
        elapsed = now - self._at
        if elapsed >= SHORTEST_SAMPLE:
            new = ended - self._count
            kept = max(0.0, 1 - new / REMEMBERED)
            self._ended, self._took = self._ended * kept + new, self._took * kept + seconds - self._seconds
            self._rate = max(new / elapsed, self._rate * math.exp(-elapsed / FADING))
            self._count, self._seconds, self._at = ended, seconds, now
        return self._rate
