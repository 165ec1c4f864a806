"""When to give up plain functions that take too long: one timer, set for whichever is due first."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from pgqueue.worker.attempt import Attempt


class Deadlines:
    """Watches over attempts that run in threads. Short ones cost a comparison each, and no timer."""

    def __init__(self, running: Mapping[int, Attempt], on_passed: Callable[[Attempt], object]) -> None:
        """Watch nothing yet.

        Args:
            running: the attempts in progress; one that is gone from there is watched no more.
            on_passed: told, in the loop, of each attempt that has run for too long.
        """
        self._running = running
        self._on_passed = on_passed
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: Attempt, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Give an attempt this many seconds from now. Called in the attempt's own thread."""
        attempt.deadline = time.monotonic() + seconds
        if attempt.deadline < self._due:
            self._due = attempt.deadline
            with suppress(RuntimeError):  # the loop is closed: the worker has gone
                loop.call_soon_threadsafe(self._set, loop)

    def overdue(self) -> list[Attempt]:
        """The attempts whose time is up; each is named once."""
        now = time.monotonic()
        passed = [attempt for attempt in list(self._running.values()) if attempt.deadline <= now]
        for attempt in passed:
            attempt.deadline = math.inf
        return passed

    def close(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake up for the one that is due first."""
        self.close()
        self._due = min((attempt.deadline for attempt in list(self._running.values())), default=math.inf)
        if self._due < math.inf:
            self._timer = loop.call_later(max(0.0, self._due - time.monotonic()), self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        for attempt in self.overdue():
            self._on_passed(attempt)
        self._set(loop)
