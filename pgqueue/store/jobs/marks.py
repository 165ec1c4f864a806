"""Where a worker starts to look for jobs in a line: at the head of a queue or a lane, or at its mark.

While a snapshot is held open (a long report, pg_dump), the index entries of jobs that have gone pile up at the head, and every
claim reads them. A *mark* is the position of the last job claimed from a line; a look that starts behind it costs nothing. But
jobs can become ready before the mark: retries, late commits, higher priorities. So marks are used only while a look from the head
is slow, and even then every head is looked at again and again, as often as a small share of the time allows.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from pgqueue.values.jobs.job import HEAD, Claim, Mark

K = TypeVar("K")

SHARE = 20
"""After a slow look from the head, marks are used for this many times as long as it took …"""
LONGEST = 4.5
"""… and for this many seconds at most: a job before its mark starts within 5 s."""
SLOW_LOOK, SLOW_CLAIM = 0.005, 20e-6
"""Seconds. A look is slow if it takes longer than the first, and the second for every claim …"""
SLOWER = 1.3
"""… or this many times what a claim has cost at its best, in looks with about as many claims."""
ASKING = 20e-6
"""Seconds to ask one more line; they do not count as a slow look."""
ENOUGH = 100
"""A look with fewer claims says nothing about the cost of one; of lanes, which have few places, a tenth of that does."""
FIRST_BEST = 0.001
"""Seconds. What a look is taken to cost at its best before it was seen, and :data:`SLOW_CLAIM` for every claim."""


def not_before(seconds: float) -> float:
    """For how many seconds a look that took this long is not repeated."""
    return min(SHARE * seconds, LONGEST)


class Marks(Generic[K]):
    """The marks of the queues, or of the lanes, that one worker serves.

    Attributes:
        clock: in seconds, for how long a look takes, too.
        from_heads: whether the last look started at the heads.
    """

    def __init__(
        self,
        line_of: Callable[[Claim], K | None],
        clock: Callable[[], float] = time.monotonic,
        *,
        enough: int = ENOUGH,
    ) -> None:
        """``line_of`` returns the queue, or the lane, that a claim came from; None: it has no mark. ``enough`` is as :data:`ENOUGH`."""
        self._line_of = line_of
        self.clock = clock
        self._enough = enough
        self._marks: dict[K, Mark] = {}
        self._head_at = 0.0
        self.from_heads = True
        self._best: dict[int, float] = {}  # seconds per claim, by the length in bits of their number

    def starts(self) -> dict[K, Mark]:
        """Where to start in each line; lines that are not named: at the head."""
        return {} if self.clock() >= self._head_at else self._marks

    def head_in(self) -> float:
        """Seconds until the head is to be looked at again; infinity if the last look started there.

        The moment may pass between a look behind the marks and this call: then it is now, not never.
        """
        return max(0.0, self._head_at - self.clock()) if self._head_at else math.inf

    def learn(
        self, starts: Mapping[K, Mark], claims: Iterable[Claim], seconds: float, *, lines: int = 1
    ) -> None:
        """Take note of a look.

        Args:
            starts: where it started.
            claims: what it found, in order.
            seconds: how long it took.
            lines: in how many it looked.
        """
        found = list(claims)
        seconds = max(0.0, seconds - ASKING * (lines - 1))
        self.from_heads = not starts
        if not starts:
            slow = self._is_slow(len(found), seconds)
            self._head_at = self.clock() + not_before(seconds) if slow else 0.0
            self._marks = {}
        if len(found) >= self._enough:
            self._best[len(found).bit_length()] = min(self._best_of(len(found)) * 1.01, seconds / len(found))
        for line, one in {self._line_of(one): one for one in found}.items():  # the last one of each line
            if line is not None:
                position = Mark(-one.priority, one.run_at, one.id)
                self._marks[line] = max(self._marks.get(line, HEAD), position)

    def _is_slow(self, count: int, seconds: float) -> bool:
        if seconds > SLOW_LOOK + SLOW_CLAIM * count:
            return True
        return count >= self._enough and seconds > SLOWER * self._best_of(count) * count

    def _best_of(self, count: int) -> float:
        return self._best.get(count.bit_length(), SLOW_CLAIM + FIRST_BEST / count)
