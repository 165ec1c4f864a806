"""The parts of one worker: made here, each from those before it, and never told of those after it.

:class:`Inspection` is what a worker shows of its inside, for tests and for people.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

import psycopg

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.database import Database
from pgqueue.store.portions import LARGEST_ANSWER
from pgqueue.values.health import WorkerHealth
from pgqueue.values.job import Claim
from pgqueue.values.lease import renew_every
from pgqueue.values.verdict import Verdict
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import JobLog
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconcile import Reconciler
from pgqueue.worker.recording import LOCK_TIMEOUT
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals
from pgqueue.worker.upkeep import Service, Upkeep
from pgqueue.worker.watch import Blocked, Watch

# No program outside of the database is told of a claim, so it need not be on disk before the work begins. A server that
# crashes within its wal_writer_delay may forget it: then the job is ready again, and its fence holds.
UNCONFIRMED: Mapping[str, str] = {"synchronous_commit": "off"}
LOCKED = (psycopg.errors.LockNotAvailable,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a worker was told, checked; see :class:`pgqueue.worker.worker.Worker`. Lengths of time are timedeltas."""

    queues: Sequence[str] | None
    concurrency: int
    lease: timedelta
    poll: timedelta
    sweep: timedelta
    unknown_after: timedelta
    blocked_after: timedelta
    drops_history: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a worker is doing at one moment.

    Attributes:
        worker: its id.
        concurrency: how many slots it has.
        slots_taken: slots of attempts, and of runners that look for the next one.
        running: the claims of the attempts in progress.
        waiting: claims that have not started, in order.
        verdicts: those that wait to be recorded for the first time.
        put_off: verdicts that the database refused or could not take, and that are tried again.
        backlog: how many verdicts the database does not have yet, those on their way included.
        not_returned: how many plain functions were given up and have not returned.
        idle_threads: how many threads wait for a plain function.
        waits: it waits to be notified, has recorded everything and has heard nothing.
        can_listen: whether notifications arrive.
        blocked: what blocks the event loop; None: it runs.
        queues: the queues that it knows and asks.
    """

    worker: UUID
    concurrency: int
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
    blocked: Blocked | None
    queues: tuple[str, ...]


class Connections:
    """The connections that a worker keeps open, besides those on which it listens and renews its lease."""

    def __init__(self, database: Database, *, bound: float) -> None:
        """Connect when they are first used.

        Args:
            database: where to.
            bound: the deadline of a plan, in seconds.
        """
        self.lock_timeout = {"lock_timeout": f"{max(1, min(600_000, int(bound * 500)))}ms"}
        own = partial(WorkerConnection, database=database, bound=bound)
        self.claiming = own("claims", settings={**self.lock_timeout, **UNCONFIRMED}, reads=LARGEST_ANSWER)
        self.upkeep = own("upkeep", settings=self.lock_timeout)
        self.finishing = own("finishes", settings=LOCK_TIMEOUT, told=LOCKED)
        self.stand_in = own("finishes while blocked", settings=LOCK_TIMEOUT, told=LOCKED)

    async def close(self) -> None:
        """Close those that are open; the stand-in is closed after each use."""
        for connection in (self.claiming, self.finishing, self.upkeep):
            await connection.close()


class Parts:
    """The parts of a worker, in the order in which they depend on one another."""

    def __init__(self, queue: PgQueue, options: Options) -> None:
        """Make them; nothing is connected yet."""
        # An app's queue may have another database in another context: this worker keeps to the one of here and now.
        self.database = database = queue.database
        bound = options.lease.total_seconds() / 2
        self.connections = Connections(database, bound=bound)
        self.signals = Signals()
        observers = queue.observers.and_also(JobLog())
        executor = Executor(
            queue.tasks,
            load=queue.load_task,
            longest_result=queue.max_payload,
            codec=queue.codec,
            unknown_after=options.unknown_after,
            observers=observers,
        )
        self.claims = Claims(
            options.concurrency,
            tasks=queue.tasks,
            context=partial(
                Context,
                database=database,
                keep=queue.keeps_history,
                judge=executor,
            ),
        )
        self.completer = Completer(
            self.connections.finishing,
            keep=queue.keeps_history,
            codec=queue.codec,
            signals=self.signals,
            observers=observers,
        )
        self.runners = Runners(
            self.claims, executor, self.completer, signals=self.signals, observers=observers
        )
        self.watch = Watch(
            self.signals,
            after=options.blocked_after.total_seconds(),
            meanwhile=partial(self.runners.while_blocked, self.connections.stand_in),
        )
        self.heartbeat = Heartbeat(
            WorkerConnection("heartbeat", database, bound=bound / 2, settings=self.connections.lock_timeout),
            lease=options.lease,
            concurrency=options.concurrency,
            queues=options.queues,
            tasks=lambda: sorted(queue.tasks),
            health=self.health,
            runners=self.runners,
            signals=self.signals,
            beside=(self.watch.run,),
        )
        self.queues = Queues(options.queues)
        self.reconciler = Reconciler(
            database,
            self.connections.claiming,
            heartbeat=self.heartbeat,
            runners=self.runners,
            completer=self.completer,
        )
        self.fetcher = Fetcher(
            self.connections.claiming,
            claims=self.claims,
            runners=self.runners,
            completer=self.completer,
            heartbeat=self.heartbeat,
            queues=self.queues,
            signals=self.signals,
        )
        self.upkeep = Upkeep(
            connection=self.connections.upkeep,
            claiming=self.connections.claiming,
            tidying=partial(WorkerConnection, "tidying", database),
            heartbeat=self.heartbeat,
            runners=self.runners,
            reconciler=self.reconciler,
            queues=self.queues,
            signals=self.signals,
            poll_every=options.poll.total_seconds(),
            sweep_every=options.sweep.total_seconds(),
            drops_history=options.drops_history,
        )
        self.services: Sequence[Service] = self.upkeep.services(compare_every=renew_every(options.lease))

    def inspect(self) -> Inspection:
        """What the worker is doing now."""
        claims, completer = self.claims, self.completer
        return Inspection(
            worker=self.heartbeat.id,
            concurrency=claims.size,
            slots_taken=claims.taken,
            running=tuple(attempt.claim for attempt in list(claims.running.values())),
            waiting=tuple(claims.waiting),
            verdicts=completer.pending,
            put_off=completer.put_off,
            backlog=completer.backlog,
            not_returned=claims.not_returned,
            idle_threads=self.runners.idle_threads,
            waits=self.fetcher.waits and not completer.backlog,
            can_listen=self.signals.activity.can_listen,
            blocked=self.watch.blocked,
            queues=tuple(self.queues.starts()),
        )

    def health(self) -> WorkerHealth:
        """What the worker says of itself with a heartbeat."""
        blocked = self.watch.blocked
        return WorkerHealth(None if blocked is None else blocked.reported(), self.claims.not_returned)

    async def close(self) -> None:
        """Close the connections, and release the threads."""
        self.runners.close()
        await self.heartbeat.stop()
        await self.connections.close()
