"""When the queue is kept in order: one row per service. What each does is in :mod:`pgqueue.store.upkeep`.

Every worker runs every service; each is safe to run by many at once. A new service is one statement, one
plan, one row here and one test.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from pgqueue.store import upkeep
from pgqueue.worker.link import Link

log = logging.getLogger("pgqueue.worker")

JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Service:
    """Something to do again and again.

    Attributes:
        name: for the log.
        every: seconds between two runs, give or take a tenth.
        run_once: does it; may return in how many seconds to come back, if that is sooner.
        nudge: set by anybody who knows a reason to come back at once.
    """

    name: str
    every: float
    run_once: Callable[[], Awaitable[float | None]]
    nudge: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run for ever. A failure is logged, and the next turn comes as usual."""
        while True:
            self.nudge.clear()
            try:
                sooner = await self.run_once()
            except Exception:
                log.exception("service failed", extra={"service": self.name})
                sooner = None
            pause = self.every * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to a nudge
                async with asyncio.timeout(pause if sooner is None else min(pause, sooner)):
                    await self.nudge.wait()


def services(
    link: Link,
    *,
    poll: float,
    sweep: float,
    history: timedelta,
    look: asyncio.Event,
    later: asyncio.Event,
) -> Sequence[Service]:
    """The services of a queue.

    Args:
        link: the connection they share, one at a time.
        poll: seconds between looks for jobs that are due.
        sweep: seconds between looks for workers that are gone.
        history: for how long ended jobs are kept.
        look: to set when there may be new ready jobs.
        later: is set when a job was put back for later, perhaps sooner than the next known to be due.
    """

    async def promote() -> float | None:
        promoted = await link.run(upkeep.promote)
        if promoted.count:
            look.set()
        return promoted.next_in

    async def reclaim() -> None:
        states = await link.run(upkeep.reclaim)
        if states:
            log.warning("reclaimed jobs of lost workers", extra={"jobs": len(states)})
            look.set()

    async def keep_history() -> None:
        await link.run(upkeep.ensure_history_days)
        await link.run(lambda: upkeep.drop_history(history))

    async def release_holds() -> None:
        await link.run(upkeep.release_holds)

    return (
        Service("promote due jobs", poll, promote, later),
        Service("reclaim lost jobs", sweep, reclaim),
        Service("keep history partitions", 600.0, keep_history),
        Service("release unique keys", 60.0, release_holds),
    )
