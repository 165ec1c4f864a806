"""What a worker does again and again: one row per service, in :meth:`Upkeep.services`.

Some services keep this worker in order, the others the queue; what those do is in :mod:`pgqueue.store.upkeep`. Every
worker runs every service, and any number of workers may run one at the same time. A new service is one statement, one
plan, one method and one row here, and one test.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.store import claim, ticks, upkeep
from pgqueue.store.plan import Plan
from pgqueue.store.sweep import arun_sweep, reclaiming
from pgqueue.worker.connection import LONG_READ, WorkerConnection
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconcile import Reconciler
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals

log = worker_log()

JITTER = 0.1
STALE_AFTER = 5.0
"""Seconds. Claims that have not started are requeued if no claim was added for this long."""
CANCEL_EVERY = 0.8
"""Seconds between two looks of a worker that cannot listen; a service comes back within a tenth more."""
POLL_AGAIN = 0.05
"""Seconds from a poll that found a schedule due to the next one, which tells when the next schedule is due."""
LOST_JOBS_FIRST = 30.0
"""Seconds until the first look for jobs of unknown workers. It reads the jobs from end to end (0.1 s for a million),
so it does not run at the moment when many workers start."""

TIDYING: Sequence[Callable[[], Plan[int]]] = (
    upkeep.ensure_history_days,
    upkeep.drop_history,
    upkeep.drop_strays,
    upkeep.drop_dead,
    upkeep.release_holds,
    upkeep.drop_ticks,
)
"""What can wait, in this order; each step commits by itself."""
DROPPING = frozenset({upkeep.drop_history, upkeep.drop_strays, upkeep.drop_dead})
"""The steps that drop what is past the retention."""


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
        """Run for ever. A failure is logged, and the next run comes as usual."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The services of one worker.

    Attributes:
        connection: on which due jobs are made ready and lost workers' jobs are ended, one plan at a time.
        claiming: the connection on which jobs are claimed.
        tidying: makes a connection for one run of what can wait: a lock that it waits for, or a table that it reads from
            end to end, must not hold up the other services.
        heartbeat: the worker's id.
        runners: what it runs.
        reconciler: compares what the worker knows with the database.
        queues: what it serves.
        signals: how the other parts are told, and tell.
        poll_every: seconds between two polls while anything happens.
        sweep_every: the most seconds between two polls.
        drops_history: returns whether this worker drops what is past the retention.
    """

    connection: WorkerConnection
    claiming: WorkerConnection
    tidying: Callable[[], WorkerConnection]
    heartbeat: Heartbeat
    runners: Runners
    reconciler: Reconciler
    queues: Queues
    signals: Signals
    poll_every: float
    sweep_every: float
    drops_history: Callable[[], bool]

    def services(self, *, compare_every: float) -> Sequence[Service]:
        """Every service, and when it runs; ``compare_every`` is in seconds."""
        signals = self.signals
        return (
            Service("compare what is held", compare_every, self.reconciler.run_once),
            Service("return stale claims", 1.0, self.return_stale),
            Service("ask which jobs to cancel", CANCEL_EVERY, self.stop_cancelled, nudge=signals.cancel),
            Service(
                "make due jobs ready, look for lost workers", self.sweep_every, self.poll, nudge=signals.poll
            ),
            Service("tidy history, dead jobs and unique keys", 600.0, self.tidy),
            Service("look for jobs of unknown workers", 3600.0, self.note_lost_jobs, LOST_JOBS_FIRST),
        )

    async def poll(self) -> float:
        """Make due jobs ready, and reclaim the jobs of lost workers; returns the seconds until the next poll."""
        polled = await self.connection.run(
            upkeep.poll(self.queues.starts(), elsewhere=self.queues.serves_all)
        )
        if polled.refused:
            log.error(
                "jobs set aside: the database refused to put them in line", extra={"jobs": polled.refused}
            )
        if polled.count or polled.ready:
            self.signals.look.set()
        if polled.lost:
            await self._reclaim()
        pause = self.sweep_every if self.signals.activity.idle else self.poll_every
        if polled.schedule_in is not None and polled.schedule_in <= 0:
            await self._fire_schedules()
            return POLL_AGAIN
        return min([pause, *(due for due in (polled.next_in, polled.schedule_in) if due is not None)])

    async def return_stale(self) -> None:
        """Requeue claims that wait although nothing has been claimed for a while: other workers may run them."""
        returned = self.runners.return_waiting(older_than=STALE_AFTER)
        if returned:
            log.info("returned claims that did not get to start", extra={"jobs": returned})

    async def stop_cancelled(self) -> None:
        """Stop the jobs that are to be cancelled, within a second.

        ``cancel()`` of a running job notifies all workers that listen, and each asks whether one of its jobs is meant.
        A worker that cannot listen asks every 0.8 s while it has jobs. The heartbeat asks, too, so that a lost
        notification costs one beat at most.
        """
        heard, self.signals.cancel_heard = self.signals.cancel_heard, False
        known = self.runners.known() if heard or not self.signals.activity.can_listen else ()
        if not known:
            return
        asked = await self.claiming.run(claim.cancel_requests(self.heartbeat.id, known))
        if asked:
            self.runners.cancel(asked)

    async def tidy(self) -> None:
        """Do what can wait, step by step."""
        async with self.tidying() as own:
            drops = self.drops_history()
            for step in TIDYING:
                if drops or step not in DROPPING:
                    await _try_step(own, step)

    async def note_lost_jobs(self) -> None:
        """Note workers that are not registered and hold jobs: the next sweep reclaims these jobs."""
        async with self.tidying() as own:
            await own.once(upkeep.note_unlisted_workers(), bound=LONG_READ)

    async def _fire_schedules(self) -> None:
        """Fire the ticks that are due, a batch of schedules in each transaction."""
        more = True
        while more:
            fired = await self.connection.run(ticks.fire_due())
            more = fired.more
            if fired.jobs:
                self.signals.look.set()
            for name, error in fired.set_aside:
                log.error(
                    "schedule set aside: change it, or resume it", extra={"schedule": name, "error": error}
                )

    async def _reclaim(self) -> None:
        states = await arun_sweep(reclaiming(), partial(self.connection.once, bound=LONG_READ))
        if states:
            log.warning("reclaimed jobs of lost workers", extra={"jobs": len(states)})
            self.signals.look.set()


async def _try_step(connection: WorkerConnection, step: Callable[[], Plan[int]]) -> None:
    """Run a step of tidying. A step that fails is logged and tried again at the next run; the others go on."""
    try:
        count = await connection.once(step(), bound=LONG_READ)
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
