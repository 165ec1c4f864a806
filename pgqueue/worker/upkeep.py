"""When the queue is kept in order: one row per service. What each does is in :mod:`pgqueue.store.upkeep`.

Every worker runs every service; each is safe to run by many at once. A new service is one statement, one
plan, one row here and one test.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.store import claim, upkeep
from pgqueue.store.plan import Plan
from pgqueue.store.sweep import arun_sweep, reclaiming
from pgqueue.worker.connection import LONG_READ, WorkerConnection
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.queues import Queues
from pgqueue.worker.signals import Activity

log = worker_log()

JITTER = 0.1
ORPHANS_FIRST = 30.0
"""It reads the jobs from end to end, 0.1 s for a million: not at the very moment when a fleet starts to work."""


TIDYING: Sequence[Callable[[], Plan[int]]] = (
    upkeep.ensure_history_days,
    upkeep.drop_history,
    upkeep.drop_strays,
    upkeep.drop_dead,
    upkeep.release_holds,
)
"""What can wait, in this order; each step commits by itself."""
DROPPING = frozenset({upkeep.drop_history, upkeep.drop_strays, upkeep.drop_dead})
"""Those that drop what is past the retention."""


@dataclass(frozen=True, slots=True)
class Service:
    """Something to do again and again.

    Attributes:
        name: for the log.
        every: seconds between two runs, give or take a tenth.
        run_once: does it; may return in how many seconds to come back, if that is sooner.
        first: seconds from the start to the first run, give or take a tenth.
        nudge: set by anybody who knows a reason to come back at once.
    """

    name: str
    every: float
    run_once: Callable[[], Awaitable[float | None]]
    first: float = 0.0
    nudge: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run for ever. A failure is logged, and the next turn comes as usual."""
        pause = _about(self.first)
        while True:
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to a nudge
                async with asyncio.timeout(pause):
                    await self.nudge.wait()
            self.nudge.clear()
            try:
                sooner = await self.run_once()
            except Exception:
                log.exception("service failed", extra={"service": self.name})
                sooner = None
            pause = _about(self.every)
            if sooner is not None:
                pause = min(pause, sooner)


def services(
    link: WorkerConnection,
    tidying: Callable[[], WorkerConnection],
    *,
    lines: Queues,
    calm: Activity,
    poll: float,
    sweep: float,
    look: asyncio.Event,
    later: asyncio.Event,
    drops: Callable[[], bool] = lambda: True,
) -> Sequence[Service]:
    """The services of a queue.

    Args:
        link: the connection on which due jobs are put in line and lost workers' jobs are ended, one plan at a time.
        tidying: makes a connection for one run of what can wait: no lock that it waits for, and no table that it reads
            from end to end, may hold up the others.
        lines: what the worker serves.
        calm: how closely to look.
        poll: seconds between two ticks while anything happens.
        sweep: seconds between two ticks at the most.
        look: to set when there may be new ready jobs.
        later: is set when a job was put back for later, perhaps sooner than the next known to be due.
        drops: whether to drop what is past the retention.
    """

    async def tick() -> float:
        ticked = await link.run(upkeep.tick(lines.starts(), elsewhere=lines.serves_all))
        if ticked.refused:
            log.error(
                "jobs set aside: the database refused to put them in line", extra={"jobs": ticked.refused}
            )
        if ticked.count or ticked.ready:
            look.set()
        if ticked.lost:
            await reclaim()
        pause = sweep if calm.reigns else poll
        return pause if ticked.next_in is None else min(pause, ticked.next_in)

    async def reclaim() -> None:
        states = await arun_sweep(reclaiming(), partial(link.once, bound=LONG_READ))
        if states:
            log.warning("reclaimed jobs of lost workers", extra={"jobs": len(states)})
            look.set()

    async def tidy() -> None:
        await _tidy(tidying(), drops=drops())

    async def note_orphans() -> None:
        async with opened(tidying()) as own:
            await own.once(upkeep.note_orphans(), bound=LONG_READ)

    return (
        Service("put due jobs in line, look for lost workers", sweep, tick, nudge=later),
        Service("tidy history, dead jobs and unique keys", 600.0, tidy),
        Service("look for jobs of workers that nobody knows", 3600.0, note_orphans, ORPHANS_FIRST),
    )


@asynccontextmanager
async def opened(link: WorkerConnection) -> AsyncIterator[WorkerConnection]:
    """A connection for one run, which is closed afterwards: it is needed for a moment, every ten minutes."""
    try:
        yield link
    finally:
        await link.close()


async def _tidy(link: WorkerConnection, *, drops: bool) -> None:
    async with opened(link) as own:
        for step in TIDYING:
            if drops or step not in DROPPING:
                await _try_step(own, step)


async def _try_step(link: WorkerConnection, step: Callable[[], Plan[int]]) -> None:
    """Run a step of tidying. One that fails is logged and tried again at the next turn; the others go on."""
    try:
        count = await link.once(step(), bound=LONG_READ)
    except (psycopg.Error, ConnectionFailed) as error:
        log.warning(
            "tidying: a step failed, and is tried again", extra={"step": step.__name__, "error": str(error)}
        )
    else:
        if count:
            log.info("tidied", extra={"step": step.__name__, "count": count})


def _about(seconds: float) -> float:
    """Give or take a tenth, so that workers that start together spread out."""
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, no secret


CANCEL_EVERY = 0.8
"""Seconds between two looks of a worker that cannot listen; a service comes back within a tenth more."""


class CancelRequests:
    """Asks which of the jobs in hand are to be cancelled, when there is a reason to."""

    def __init__(
        self,
        link: WorkerConnection,
        *,
        worker: Callable[[], UUID],
        known: Callable[[], Sequence[int]],
        can_listen: Callable[[], bool],
        on_cancel: Callable[[Sequence[int]], object],
    ) -> None:
        """Begin with nothing heard.

        Args:
            link: the connection to ask on.
            worker: in whose name the jobs are held.
            known: every job in hand.
            can_listen: whether notifications are heard.
            on_cancel: told which jobs are to be cancelled.
        """
        self._link = link
        self._worker = worker
        self._known = known
        self._can_listen = can_listen
        self._on_cancel = on_cancel
        self._told = False

    def hear(self) -> None:
        """A job of some worker is to be cancelled."""
        self._told = True

    async def run_once(self) -> None:
        """Ask, if a notification was heard or none can be."""
        told, self._told = self._told, False
        known = self._known() if told or not self._can_listen() else ()
        if not known:
            return
        asked = await self._link.run(claim.cancel_requests(self._worker(), known))
        if asked:
            self._on_cancel(asked)
