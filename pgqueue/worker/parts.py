"""The parts of one worker: made here, each from those before it, and never told of those after it.

:class:`Inspection` is what a worker shows of its inside, for tests and for people.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from pgqueue.app.hooks.hook import HookState
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.workers.chosen_tasks import ChosenTasks
from pgqueue.values.workers.health import Vitals, look_within
from pgqueue.values.workers.lease import renew_every
from pgqueue.values.workers.load import Bounds
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import Connections
from pgqueue.worker.executor import Executor
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.gauge import Gauge
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import JobLog
from pgqueue.worker.measures import Measures
from pgqueue.worker.own_end import LOOK_EVERY, OwnEnd, OwnEndWatch
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconciler import Reconciler
from pgqueue.worker.recycling import REPLACE_EVERY, RecycleWatch, Recycling
from pgqueue.worker.runners import Runners
from pgqueue.worker.series import SeriesWriter
from pgqueue.worker.served_tasks import ServedTasks
from pgqueue.worker.service import Service
from pgqueue.worker.signals import Signals
from pgqueue.worker.slots import Slots
from pgqueue.worker.upkeep import Upkeep
from pgqueue.worker.watch import LoopBlocker, LoopWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker was told, checked; see :class:`pgqueue.worker.worker.Worker`. Lengths of time are timedeltas."""

    served: ServedQueues
    tasks: ChosenTasks
    concurrency: Bounds
    lease: timedelta
    poll: timedelta
    sweep: timedelta
    unknown_after: timedelta
    blocked_after: timedelta
    series: bool
    own_end: OwnEnd
    recycling: Recycling
    drops_history: Callable[[], bool]
    supervised: Callable[[], bool]
    app: Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a worker is doing at one moment.

    Attributes:
        worker: its id.
        concurrency: how many slots it has.
        quiet: whether it claims no jobs, as it was asked.
        slots_taken: slots of attempts, and of runners that look for the next one.
        running: the claims of the attempts in progress.
        waiting: claims that have not started, in order; last those that wait for others of their batch.
        verdicts: those that wait to be recorded for the first time.
        put_off: verdicts that the database refused or could not take, and that are tried again.
        backlog: how many verdicts the database does not have yet, those on their way included.
        not_returned: how many functions go on after their timeout, or after their job was lost.
        idle_threads: how many threads wait for a plain function.
        waits: it waits to be notified, has recorded everything and has heard nothing.
        can_listen: whether notifications arrive.
        blocked: what blocks the event loop; None: it runs.
        queues: the queues that it knows and asks.
        hooks: of each hook of the queue, how many calls ended and failed, how many events wait, and how many were dropped.
    """

    worker: UUID
    concurrency: int
    quiet: bool
    slots_taken: int
    running: tuple[Claim, ...]
    waiting: tuple[Claim, ...]
    verdicts: tuple[Verdict, ...]
    put_off: tuple[Verdict, ...]
    backlog: int
    not_returned: int
    idle_threads: int
    waits: bool
    can_listen: bool
    blocked: LoopBlocker | None
    queues: tuple[str, ...]
    hooks: tuple[HookState, ...]


class WorkerParts:
    """The parts of a worker, in the order in which they depend on one another."""

    connections: Connections

    def __init__(
        self, queue: PgQueue, options: WorkerOptions, *, beside: "WorkerParts | None" = None
    ) -> None:
        """``beside``: the parts of a worker whose connections this one shares.

        Raises:
            ConfigurationError: that worker's jobs are in another database.
        """
        observers = queue.observers.of_worker(JobLog())
        measures = Measures() if options.series else None
        if measures is not None:
            observers.add(measures)
        tasks = ServedTasks(queue.tasks, options.tasks)
        executor = self.executor = Executor(
            queue, unknown_after=options.unknown_after, tasks=tasks, observers=observers, app=options.app
        )
        self.database = executor.database
        self.hooks = queue.hooks
        if beside is not None and beside.database is not self.database:
            raise ConfigurationError(
                "beside: this worker's queue has another database, so it can share no connections"
            )
        shared = None if beside is None else beside.connections
        connections = self.connections = Connections(self.database, lease=options.lease, shared=shared)
        self.series = series = SeriesWriter(connections, measures)
        self.signals = signals = Signals(
            listens=lambda: self.database.listen_dsn is not None,
            look_within=look_within(poll=options.poll, sweep=options.sweep, lease=options.lease),
        )
        self._lease = options.lease.total_seconds()
        self.claims = claims = Claims(
            options.concurrency.minimum, tasks=tasks.known, host=executor, batch_tasks=queue.batch_tasks
        )
        self.completer = completer = Completer(
            connections.finishing, claims, queue, tasks=tasks, signals=signals, observers=observers
        )
        self.runners = runners = Runners(claims, executor, completer, signals=signals, observers=observers)
        self.watch = LoopWatch(signals, runners, connections.stand_in, after=options.blocked_after)
        self.slots = slots = Slots(
            options.concurrency,
            claims,
            runners,
            self.database.pools,
            measure=Gauge(claims, signals, self.watch).measure,
            signals=signals,
            supervised=options.supervised,
        )
        self.heartbeat = heartbeat = Heartbeat(
            connections.heartbeat,
            lease=options.lease,
            queues=options.served.entries,
            tasks=tasks,
            claims=claims,
            runners=runners,
            slots=slots,
            watch=self.watch,
            signals=signals,
        )
        self.queues = queues = Queues(options.served, left_out=tasks.left_out)
        self.lanes = lanes = ServedLanes(
            lambda: queue.limits,
            lambda: queue.limiting,
            options.served,
            left_out=tasks.left_out,
            is_unknown=tasks.is_unknown,
        )
        self.fetcher = fetcher = Fetcher(
            connections.claiming,
            claims=claims,
            runners=runners,
            completer=completer,
            heartbeat=heartbeat,
            queues=queues,
            lanes=lanes,
            served=options.served,
            signals=signals,
            leave_out=executor.leave_out,
        )
        self.reconciler = Reconciler(connections, heartbeat=heartbeat, completer=completer)
        self.upkeep = Upkeep(
            connections,
            heartbeat=heartbeat,
            fetcher=fetcher,
            claims=claims,
            runners=runners,
            reconciler=self.reconciler,
            queues=queues,
            lanes=lanes,
            executor=executor,
            slots=slots,
            observers=observers,
            series=series,
            signals=signals,
            poll=options.poll,
            sweep=options.sweep,
            drops_history=options.drops_history,
        )
        self.own_end = OwnEndWatch(
            options.own_end,
            claims=claims,
            completer=completer,
            fetcher=fetcher,
            signals=signals,
            poll=self.upkeep.poll,
        )
        if options.own_end.max_jobs is not None:
            claims.most = options.own_end.max_jobs
        recycling = RecycleWatch(options.recycling, claims=claims, slots=slots, supervised=options.supervised)
        self.services = [
            *self.upkeep.services(compare_every=renew_every(options.lease)),
            Service("replacement", REPLACE_EVERY, recycling.run_once),
        ]
        if options.own_end.is_wanted:
            self.services.append(Service("end by itself", LOOK_EVERY, self.own_end.run_once))

    def inspect(self) -> Inspection:
        """What the worker is doing now."""
        claims, completer = self.claims, self.completer
        with claims.lock:
            waiting = tuple(claims.unstarted())
        return Inspection(
            worker=self.heartbeat.id,
            concurrency=claims.size,
            quiet=claims.quiet,
            slots_taken=claims.taken,
            running=tuple(attempt.claim for attempt in list(claims.running.values())),
            waiting=waiting,
            verdicts=tuple(claims.verdicts),
            put_off=completer.put_off,
            backlog=completer.backlog,
            not_returned=claims.not_returned,
            idle_threads=self.runners.idle_threads,
            waits=self.fetcher.waits and not completer.backlog,
            can_listen=self.signals.activity.can_listen,
            blocked=self.watch.blocked,
            queues=tuple(self.queues.starts()),
            hooks=self.hooks.states,
        )

    def vitals(self) -> Vitals:
        """How the worker is now. It takes no lock, so any thread may ask while the event loop is blocked."""
        signals, heartbeat, now = self.signals, self.heartbeat, time.monotonic()
        renewed_at = heartbeat.renewed_at
        return Vitals(
            stopping=signals.stopping.is_set(),
            beats=heartbeat.beats,
            renewed=None if renewed_at is None else now - renewed_at,
            lease=self._lease,
            looked=now - signals.looked_at,
            look_within=signals.look_within,
            not_listening=signals.not_listening(),
            blocked=self.watch.reported(),
            slots=self.claims.size,
            slots_taken=self.claims.taken,
            backlog=self.completer.backlog,
            not_returned=self.claims.not_returned,
            stuck=self.claims.stuck,
            claims=self.fetcher.asks,
            empty_claims=self.fetcher.empty,
            lost_leases=heartbeat.lost_leases,
            blocks=self.watch.blocks,
        )

    async def close(self) -> None:
        """Close the connections, release the threads, and end the processes."""
        self.runners.close()
        await self.executor.processes.close()
        await self.heartbeat.stop()
        await self.connections.close()
