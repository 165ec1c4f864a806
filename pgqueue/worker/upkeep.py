"""What a worker does again and again: one row per service, in :meth:`Upkeep.services`.

Some services keep this worker in order (:mod:`pgqueue.worker.reconciler` compares what it knows with the database), the
others the queue; what those do is in :mod:`pgqueue.store.workers.upkeep`. Every worker runs every service, and any number of workers may run
one at the same time. A new service is one statement, one plan, one method and one row here, and one test.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

import psycopg

from pgqueue.app.hooks.observer import Observers
from pgqueue.errors import ConnectionFailed
from pgqueue.store import retention, signals
from pgqueue.store.drive import adrive
from pgqueue.store.flows import flow_progress, flow_upkeep
from pgqueue.store.insight import series
from pgqueue.store.jobs import notes
from pgqueue.store.jobs.expiry import Expirer
from pgqueue.store.jobs.sweep import reclaim
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Plan
from pgqueue.store.queues import queues
from pgqueue.store.schedules import ticks
from pgqueue.store.workers import leases, upkeep, workers
from pgqueue.values.workers.lease import CANCEL_EVERY
from pgqueue.worker.alerts import AlertLooks
from pgqueue.worker.claims import Claims
from pgqueue.worker.connection import LONG_READ, Connections, WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.other_workers import OtherWorkers
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconciler import Reconciler
from pgqueue.worker.runners import Runners
from pgqueue.worker.series import SeriesWriter
from pgqueue.worker.service import Service
from pgqueue.worker.signals import Signals
from pgqueue.worker.slots import Slots
from pgqueue.worker.troubles import first_line

log = worker_log()

STALE_AFTER = 1.0
"""Seconds. Claims that have not started are requeued if no claim was added for this long."""
SELDOM_EVERY = 4.0
"""Seconds from a poll that looks for seldom work to the next poll that does: with the usual ``sweep``, every poll of an idle
worker."""
SELDOM_AT_LEAST = 600.0
"""Seconds between two runs of a service that a poll starts when it finds work for it, if no poll finds any."""
FIRING = 0.5
"""Seconds of one poll that go to schedules: due jobs and lost workers are looked for in between."""
POLL_AGAIN = 0.05
"""Seconds from a poll that found a schedule or a deadline due to the next one, which tells when the next is due."""
LONG_READS_FIRST = 30.0
"""Seconds until the first run of services that read the jobs from end to end (0.1 s for a million), or the nodes of all
flows that run (1 s for a million): they do not run at the moment when many workers start."""

TIDYING: Sequence[Callable[[], Plan[int]]] = (
    retention.ensure_history_days,
    retention.drop_history,
    retention.clear_history,
    retention.drop_strays,
    retention.drop_dead,
    upkeep.release_holds,
    upkeep.drop_ticks,
    upkeep.drop_notes,
    upkeep.drop_signals,
    upkeep.drop_rates,
    series.move,
    series.drop,
    flow_upkeep.drop_flows,
)
"""What can wait, in this order; each step commits by itself."""
DROPPING = frozenset(
    {retention.drop_history, retention.clear_history, retention.drop_strays, retention.drop_dead}
)
"""The steps that drop what is past the retention."""


class Upkeep:
    """The services of one worker."""

    def __init__(
        self,
        connections: Connections,
        *,
        heartbeat: Heartbeat,
        fetcher: Fetcher,
        claims: Claims,
        runners: Runners,
        reconciler: Reconciler,
        queues: Queues,
        lanes: ServedLanes,
        executor: Executor,
        slots: Slots,
        observers: Observers,
        series: SeriesWriter,
        signals: Signals,
        poll: timedelta,
        sweep: timedelta,
        drops_history: Callable[[], bool],
    ) -> None:
        """``poll``: the time between two polls while anything happens. ``sweep``: the most time between two polls.

        One connection makes due jobs ready and ends lost workers' jobs, one plan at a time. ``timeouts`` of queues are renewed
        by each poll. ``drops_history`` returns whether this worker drops what is past the retention.
        """
        self._connections = connections
        self._heartbeat = heartbeat
        self._fetcher = fetcher
        self._claims = claims
        self._runners = runners
        self._reconciler = reconciler
        self._queues = queues
        self._lanes = lanes
        self._executor = executor
        self._slots = slots
        self._observers = observers
        self._series = series
        self._signals = signals
        self._poll_every = poll.total_seconds()
        self._sweep_every = sweep.total_seconds()
        self._drops_history = drops_history
        self._alerts = AlertLooks(connections, signals)
        self._others = OtherWorkers(connections)
        self._expiring = Expirer()
        self._taken_days = set[str]()
        self._writing_logs = asyncio.Lock()
        self._seldom_at = 0.0
        self._seldom = {work: asyncio.Event() for work in ("expire", "age", "alerts", "workers")}

    def services(self, *, compare_every: float) -> Sequence[Service]:
        """Every service, and when it runs; ``compare_every`` is in seconds."""
        signals = self._signals
        return (
            Service("compare what is held", compare_every, self._reconciler.run_once),
            Service("look for jobs again", min(signals.look_within / 4, 5.0), self._fetcher.look_again),
            Service("return stale claims", 1.0, self.return_stale),
            Service("choose the number of slots", 1.0, self.choose_slots, first=1.0, nudge=signals.slots),
            Service("write the progress and the log lines of jobs", 1.0, self.write_progress),
            Service("ask which jobs to cancel", CANCEL_EVERY, self.stop_cancelled, nudge=signals.cancel),
            Service(
                "make due jobs ready, look for lost workers", self._sweep_every, self.poll, nudge=signals.poll
            ),
            self._started_by_poll("end jobs that have expired", "expire", self.end_expired),
            self._started_by_poll("raise the priority of jobs that wait", "age", self.age),
            self._started_by_poll("look at alerts", "alerts", self._alerts.run_once),
            self._started_by_poll("name other workers that start no jobs", "workers", self._others.run_once),
            Service("write what was measured", 60.0, self._series.run_once),
            Service(
                "look for tasks that no worker runs",
                60.0,
                self.note_unknown_tasks,
                first=5.0,
                nudge=signals.unknown,
            ),
            Service("tidy history, dead jobs and unique keys", 600.0, self.tidy),
            Service("settle flows", 600.0, self.settle_flows, LONG_READS_FIRST),
            Service("look for jobs of unknown workers", 3600.0, self.note_lost_jobs, LONG_READS_FIRST),
        )

    def _started_by_poll(
        self, name: str, work: str, run_once: Callable[[], Awaitable[float | None]]
    ) -> Service:
        """A service that a poll starts when it finds this work: an idle worker sends no statement for it."""
        return Service(name, SELDOM_AT_LEAST, run_once, SELDOM_AT_LEAST, nudge=self._seldom[work])

    async def poll(self) -> float:
        """Make due jobs ready, and reclaim the jobs of lost workers; returns the seconds until the next poll."""
        seldom = time.monotonic() >= self._seldom_at
        polled = await self._connections.upkeep.run(
            upkeep.poll(self._queues.starts(), elsewhere=self._queues.searches, seldom=seldom)
        )
        if seldom:
            self._start_seldom(polled.seldom)
        if polled.timeouts or self._executor.timeouts:
            self._executor.timeouts = {
                name: timedelta(seconds=value) for name, value in polled.timeouts.items()
            }
        if polled.refused:
            log.error(
                "jobs set aside: the database refused to put them in line", extra={"jobs": polled.refused}
            )
        self._lanes.learn(limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
        if polled.count or polled.ready or (polled.in_lanes and not self._lanes.rests):
            self._signals.look.set()
        elif self._fetcher.waits:
            self._signals.looked()
        if polled.lost:
            await self._reclaim()
        if await self._found_due(polled):
            return POLL_AGAIN
        pause = self._sweep_every if self._signals.activity.idle else self._poll_every
        return min(filter(None, [pause, polled.next_in, polled.schedule_in, polled.wait_in]))

    def _start_seldom(self, found: Sequence[str]) -> None:
        """Start the services for which the poll found work; the next look for such work comes later."""
        self._seldom_at = time.monotonic() + SELDOM_EVERY
        for work in found:
            self._seldom[work].set()
        if self._others.logged:
            self._seldom["workers"].set()

    async def _found_due(self, polled: upkeep.PollResult) -> bool:
        """Do what a poll has found to be due, a share of each kind; return whether there was anything."""
        fires = polled.schedule_in is not None and polled.schedule_in <= 0
        if fires:
            await self._fire_schedules()
        worked = polled.flow_work and await self._work_in_flows()
        admitted = polled.wait_in == 0 and await self._admit_waiting()
        return admitted or fires or worked

    async def choose_slots(self) -> None:
        """Read what the worker is asked to do, if it was told to; choose the number of slots; say what it does now."""
        asked, self._signals.asked = self._signals.asked, set()
        if str(self._heartbeat.id) in asked:
            await self._heartbeat.do(self._heartbeat.beat)
        await self._slots.run_once()
        if self._slots.unsaid:
            await self._heartbeat.do(self._heartbeat.beat)

    async def note_unknown_tasks(self) -> None:
        """Load tasks that this worker left out as unknown; note those tasks that wait and that no worker runs.

        A worker that has no free slot, or was told not to run a task, claims none of its jobs, so it has to look. Jobs that have
        waited for too long are claimed, to be given up.
        """
        served = self._executor.served
        for name in served.unknown():
            if await self._executor.load(name):
                served.try_again(name)
                self._signals.look.set()
        plan = workers.note_left_out(
            self._heartbeat.id,
            [*served.not_chosen(), *served.unknown()],
            queues=self._heartbeat.queues,
            known=[*served.known],
        )
        for task, seconds in await self._connections.upkeep.run(plan):
            if seconds >= self._executor.unknown_after.total_seconds() and served.may_run(task):
                served.try_again(task)

    async def return_stale(self) -> None:
        """Requeue claims that wait although nothing has been claimed for a while: other workers may run them."""
        returned = self._runners.return_stale(STALE_AFTER)
        if returned:
            log.info("returned claims that did not get to start", extra={"jobs": returned})
        if (heavy := self._claims.heavy()) is not None:
            claim, slots = heavy
            plan = workers.has_free_slots(self._heartbeat.id, claim.queue, claim.task, slots)
            if await self._connections.upkeep.run(plan):
                self._runners.return_heavy(claim.id)

    async def write_progress(self) -> None:
        """Write what jobs reported and logged since the last time, in one statement each; most often there is nothing.

        It has a connection of its own, opened at the first report: no other service waits if the notes are locked.
        """
        with self._executor.board.writing() as reports:
            if reports:
                await self._connections.progress.run(notes.report(reports))
        await self.write_logs()

    async def write_logs(self) -> None:
        """Write the last log lines of attempts that have logged since the last time; another such write has ended then, too."""
        async with self._writing_logs:
            for _ in range(self._executor.logs.portions()):
                with self._executor.logs.writing() as portion:
                    logs = await asyncio.to_thread(portion.stored)
                    await self._connections.progress.run(notes.keep_logs(logs))

    async def stop_cancelled(self) -> None:
        """Stop the jobs that are to be cancelled, within a second.

        ``cancel()`` of a running job notifies all workers that listen, and each asks whether one of its jobs is meant.
        A worker that cannot listen asks every 0.8 s while it has jobs. The heartbeat asks, too, so that a lost
        notification costs one beat at most.
        """
        heard, self._signals.cancel_heard = self._signals.cancel_heard, False
        known = self._runners.known() if heard or not self._signals.activity.can_listen else ()
        if not known:
            return
        asked = await self._connections.claiming.run(leases.cancel_requests(self._heartbeat.id, known))
        if asked:
            self._runners.cancel(asked)

    async def end_expired(self) -> float | None:
        """End jobs that were not started in time and that no worker has claimed, a portion in each transaction."""
        states = await adrive(self._expiring.portion(), self._connections.upkeep.run)
        if not states:
            return None
        log.warning("jobs are dead: not started in time", extra={"jobs": len(states)})
        self._signals.look.set()  # in a flow, another job may be ready now
        return POLL_AGAIN

    async def age(self) -> None:
        """Raise the priority of jobs that have waited for long, in queues that have ageing."""
        if await self._connections.upkeep.run(queues.age()):
            self._signals.look.set()

    async def tidy(self) -> None:
        """Do what can wait, step by step."""
        async with self._connections.for_once("tidying") as own:
            drops = self._drops_history()
            for step in TIDYING:
                if drops or step not in DROPPING:
                    await _try_step(own, step)
            await self._name_taken_days(own)

    async def _name_taken_days(self, own: WorkerConnection) -> None:
        taken = await own.once(retention.find_taken_history_days())
        for name in set(taken) - self._taken_days:
            log.warning(
                "the history's partition of a day cannot be made: a relation that is no partition has its name. "
                "Rename that relation, or drop it; until then jobs that end on this day go to the default partition",
                extra={"relation": name},
            )
        self._taken_days = set(taken)

    async def settle_flows(self) -> None:
        """Do what follows the ends of jobs of which their flows were not told, a portion in each transaction."""
        async with self._connections.for_once("settling flows") as own:
            for step in (flow_upkeep.settle_stranded, flow_upkeep.settle_purged):
                until = time.monotonic() + LONG_READ
                while await _try_step(own, step) == flow_upkeep.SETTLED_AT_ONCE and time.monotonic() < until:
                    pass

    async def note_lost_jobs(self) -> None:
        """Note workers that are not registered and hold jobs: the next sweep reclaims these jobs."""
        async with self._connections.for_once("tidying") as own:
            await own.once(upkeep.note_unlisted_workers(), bound=LONG_READ)

    async def _fire_schedules(self) -> None:
        """Fire the ticks that are due, a batch of schedules in each transaction; many of them take several polls."""
        more, until = True, time.monotonic() + FIRING
        while more:
            fired = await self._connections.upkeep.run(ticks.fire_due())
            more = fired.more and time.monotonic() < until
            if fired.jobs:
                self._signals.look.set()
            for name, error in fired.set_aside:
                log.error(
                    "schedule set aside: change it, or resume it", extra={"schedule": name, "error": error}
                )

    async def _work_in_flows(self) -> bool:
        """Do what earlier transactions left to do in flows, a piece in each transaction; return whether anything was done."""
        until, worked = time.monotonic() + FIRING, False
        while time.monotonic() < until and await self._connections.upkeep.run(flow_progress.work()):
            self._signals.look.set()
            worked = True
        return worked

    async def _admit_waiting(self) -> bool:
        done = await self._connections.upkeep.run(signals.admit_due())
        if done.refused:
            log.error("jobs set aside: not admitted by the database", extra={"jobs": list(done.refused)})
        if done.handled:
            self._signals.look.set()
        return bool(done.handled)

    async def _reclaim(self) -> None:
        swept = await adrive(reclaim(), partial(self._connections.upkeep.once, bound=LONG_READ))
        if swept.verdicts:
            log.warning("reclaimed jobs of lost workers", extra={"jobs": len(swept.verdicts)})
            self._observers.reclaimed(swept.verdicts)
            self._signals.look.set()


async def _try_step(connection: WorkerConnection, step: Callable[[], Plan[int]]) -> int:
    """Run a step; what it counts. A step that fails is logged and tried again at the next run; the others go on.

    Raises:
        ConnectionFailed: there is no connection to be had, so all other steps would fail, too.
        psycopg.errors.ReadOnlySqlTransaction: the database takes no writes, so they would fail, too.
    """
    try:
        count = await connection.once(step(), bound=LONG_READ)
    except (ConnectionFailed, psycopg.errors.ReadOnlySqlTransaction):
        raise
    except psycopg.Error as error:
        log.warning(
            "tidying: a step failed, and is tried again",
            extra={"step": step.__name__, "error": first_line(error)},
        )
        return 0
    if count:
        log.info("tidied", extra={"step": step.__name__, "count": count})
    return count
