"""Where a claim starts to look: at the head of each line, or where the last claim ended.

While somebody holds a snapshot open (a long report, pg_dump), the entries of jobs that are gone pile up at the
head of the index, and every claim wades through them. A *mark* is the position of the last job claimed from a
queue; starting behind it costs nothing. But jobs can become ready before the mark: retries, late commits,
higher priorities. So marks are used only while looking from the head is slow, and even then every line is
looked at from its head again and again, as often as a small share of the time allows.
"""

import math
import time
from collections.abc import Callable, Iterable

from pgqueue.values.job import HEAD, Claim, Mark

SHARE = 20
"""After a slow look from the head, marks are used for so many times its length …"""
LONGEST = 4.5
"""… but for so many seconds at most: a job before its mark starts within five."""
SLOW_LOOK, SLOW_CLAIM = 0.005, 20e-6
"""A look is slow if it takes longer than this, and this for every claim …"""
SLOWER = 1.3
"""… or so many times what a claim has cost at its best."""
ASKING = 20e-6
"""Seconds that it takes to ask one more queue; that is no sign of a slow look."""
ENOUGH = 100
"""Claims in a look from which on its cost per claim says something."""


class Marks:
    """Decides where each look starts, from how long the last ones took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at the head.

        Args:
            clock: seconds, from any beginning.
        """
        self._clock = clock
        self._marks: dict[str, Mark] = {}
        self._head_at = 0.0
        self._best = SLOW_CLAIM

    def starts(self) -> dict[str, Mark]:
        """Where to start in each queue; queues that are not named: at the head."""
        return {} if self._clock() >= self._head_at else self._marks

    def head_in(self) -> float:
        """In how many seconds the head is to be looked at again; infinity while every look starts there."""
        left = self._head_at - self._clock()
        return left if left > 0 else math.inf

    def learn(
        self, starts: dict[str, Mark], claims: Iterable[Claim], seconds: float, *, queues: int = 1
    ) -> None:
        """Take note of a look.

        Args:
            starts: where it started.
            claims: what it found, in order.
            seconds: how long it took.
            queues: in how many queues it looked.
        """
        found = list(claims)
        seconds = max(0.0, seconds - ASKING * (queues - 1))
        if not starts:
            slow = self._is_slow(len(found), seconds)
            self._head_at = self._clock() + min(SHARE * seconds, LONGEST) if slow else 0.0
            self._marks = {}
        if len(found) >= ENOUGH:
            self._best = min(self._best * 1.01, seconds / len(found))
        for claim in {claim.queue: claim for claim in found}.values():  # the last one of each queue
            position = Mark(-claim.priority, claim.run_at, claim.id)
            self._marks[claim.queue] = max(self._marks.get(claim.queue, HEAD), position)

    def _is_slow(self, count: int, seconds: float) -> bool:
        if seconds > SLOW_LOOK + SLOW_CLAIM * count:
            return True
        return count >= ENOUGH and seconds > SLOWER * self._best * count
