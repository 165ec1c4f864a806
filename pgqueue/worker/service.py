"""Something that a worker does again and again, apart from its jobs; :mod:`pgqueue.worker.upkeep` says what."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pgqueue.worker.connection import passes
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.troubles import Reminder, first_line

log = worker_log()

JITTER = 0.1
AGAIN_AFTER = 50.0
"""Seconds at most until a service runs again that failed because of the database: with the jitter, less than a minute."""


@dataclass(frozen=True, slots=True)
class Service:
    """Something to do again and again.

    Attributes:
        name: for the log.
        every: seconds between two runs, give or take a tenth.
        run_once: does it; may return the seconds until the next run, if that is sooner.
        first: seconds from the start to the first run, give or take a tenth.
        nudge: set by a part of the worker that has a reason for a run at once.
    """

    name: str
    every: float
    run_once: Callable[[], Awaitable[float | None]]
    first: float = 0.0
    nudge: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run for ever. A failure is logged; the next run comes as usual, or within a minute if the error may pass."""
        reminder = Reminder()
        pause = _about(self.first)
        while True:
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to a nudge
                async with asyncio.timeout(pause):
                    await self.nudge.wait()
            self.nudge.clear()
            pause = await self._try_once(reminder)

    async def _try_once(self, reminder: Reminder) -> float:
        """Run once, and log a failure; return the seconds until the next run."""
        pause = _about(self.every)
        try:
            sooner = await self.run_once()
        except Exception as error:
            if not passes(error):
                log.exception("service failed", extra={"service": self.name})
                return pause
            pause = min(pause, _about(AGAIN_AFTER))
            if reminder.failed():
                extra = {"service": self.name, "error": first_line(error), "seconds": round(pause)}
                log.warning("service did not run, because of the database; it is tried again", extra=extra)
            return pause
        reminder.ended()
        return pause if sooner is None else min(pause, sooner)


def _about(seconds: float) -> float:
    # Give or take a tenth, so that workers that start together spread out.
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret
