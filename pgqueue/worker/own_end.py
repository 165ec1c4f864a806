"""When a worker ends by itself: when nothing is left to run, after a number of attempts, or after a time.

Nothing is left when the worker holds no job, has recorded all that it ran, and has then made due jobs ready and looked twice
without finding one. A look may have begun before the last record, so one is not enough. A job in a lane that may start later
by its rate is left; one that is due later is not, nor one that this worker does not run.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from pgqueue.errors import Duration, as_limit
from pgqueue.values.jobs.options import check_number
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.signals import Signals

MOST_JOBS = range(1, 2**31)
LOOK_EVERY = 0.2
SOON = 0.02
"""Seconds between two looks at the worker; while it may be done."""
LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEnd:
    """When a worker is to end by itself; None and False: never.

    Attributes:
        until_empty: when nothing is left that it may run now.
        max_jobs: after how many attempts.
        max_time: after which time; what runs then is finished, as after a stop.
    """

    until_empty: bool = False
    max_jobs: int | None = None
    max_time: timedelta | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it is to end by itself at all."""
        return self.until_empty or self.max_jobs is not None or self.max_time is not None


def own_end_of(*, until_empty: bool, max_jobs: int | None, max_time: Duration | None) -> OwnEnd:
    """What a worker was told of its end, checked.

    Raises:
        InvalidOption: a value is out of its range.
    """
    if max_jobs is not None:
        check_number("max_jobs", max_jobs, MOST_JOBS)
    return OwnEnd(
        until_empty=until_empty,
        max_jobs=max_jobs,
        max_time=None if max_time is None else as_limit("max_time", max_time),
    )


class OwnEndWatch:
    """Stops a worker when its time has come.

    Attributes:
        reason: why it stopped the worker; None: it has not.
    """

    def __init__(
        self,
        wanted: OwnEnd,
        *,
        claims: Claims,
        completer: Completer,
        fetcher: Fetcher,
        signals: Signals,
        poll: Callable[[], Awaitable[object]],
    ) -> None:
        """``poll`` makes due jobs ready."""
        self.reason: str | None = None
        self._wanted = wanted
        self._claims = claims
        self._completer = completer
        self._fetcher = fetcher
        self._signals = signals
        self._poll = poll
        self._began = time.monotonic()
        self._quiet: int | None = None  # how many looks had found nothing when the worker seemed to be done

    async def run_once(self) -> float:
        """Stop the worker if its time has come; return the seconds until the next look."""
        if self.reason is None:
            self.reason = self._bound_reached()
        if self.reason is None and self._wanted.until_empty and await self._is_empty():
            self.reason = "no job is left"
        if self.reason is None and 0 < self._claims.size <= self._claims.kept:
            self.reason = "each of its slots is kept by a function that does not return"
        if self.reason is not None:
            self._signals.stopping.set()
        return LOOK_EVERY if self._quiet is None or self._fetcher.again_in is not None else SOON

    def _bound_reached(self) -> str | None:
        wanted = self._wanted
        if wanted.max_time is not None and time.monotonic() - self._began >= wanted.max_time.total_seconds():
            return f"its time of {wanted.max_time} is over"
        if wanted.max_jobs is not None and self._has_run(wanted.max_jobs) and self._holds_nothing():
            return f"it has run {wanted.max_jobs:,} jobs"
        return None

    async def _is_empty(self) -> bool:
        if not self._holds_nothing():
            self._quiet = None
            return False
        if self._quiet is None:
            await self._poll()
            self._quiet = self._fetcher.quiet
        if self._fetcher.quiet < self._quiet:
            self._quiet = None
            return False
        if self._fetcher.again_in is None:  # else it looks by itself
            self._signals.look.set()
        return self._fetcher.quiet >= self._quiet + LOOKS

    def _has_run(self, jobs: int) -> bool:
        return self._claims.ended + len(self._claims.overdue) >= jobs

    def _holds_nothing(self) -> bool:
        """Whether it has no job but those whose functions go on after their timeout: a stop waits for these, within the grace."""
        claims = self._claims
        goes_on = len(claims.running) == len(claims.overdue)
        return goes_on and not (claims.queued or claims.held.count or self._completer.backlog)
