"""A worker, from its start to its end. This file puts the parts together; each part has a file of its own.

::

    listener ┄┄look again┄┄▶ fetcher ──claims──▶ slots ──attempts──▶ executor
                                ▲                  │ verdicts
    upkeep (tick, reclaim, …)   └┄┄┄┄┄ room ┄┄┄┄┄┄┄┤
                                                   ▼
                                               completer ──▶ database

    heartbeat (lease), watch (does the loop turn?): in a thread of their own

Stopping: claim no more; return what has not started; let what runs finish within the grace; stop and return
the rest; record every verdict; leave the list. Stopping a second time ends the grace at once.
"""

import asyncio
import os
import socket
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConnectionFailed, Duration, InvalidOption, as_delay, as_limit
from pgqueue.store import schema, upkeep
from pgqueue.store.listener import CANCEL, listen
from pgqueue.store.session import OWN
from pgqueue.values.job import Claim
from pgqueue.values.options import check_queues
from pgqueue.values.verdict import Again, Returned, Unknown, Verdict
from pgqueue.worker import joblog
from pgqueue.worker.claims import Claims, Stop
from pgqueue.worker.completer import LOCK_TIMEOUT, Completer
from pgqueue.worker.connection import LONGEST_PAUSE, WorkerConnection, passes
from pgqueue.worker.executor import UNKNOWN_AFTER, Executor
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconcile import Reconciler
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Activity, TaskLoop
from pgqueue.worker.upkeep import CANCEL_EVERY, CancelRequests, Service, services
from pgqueue.worker.watch import Watch

log = worker_log()

# Nobody outside of the database is told of a claim, so it need not be on disk before the work begins. A server
# that crashes within its wal_writer_delay may forget it: then the job is ready again, and its fence holds.
UNCONFIRMED = {"synchronous_commit": "off"}
LOCKED = (psycopg.errors.LockNotAvailable,)
STALE_AFTER = 5.0
LAST_WORDS = 2.0


class Worker:
    """Runs the jobs of a queue, ``concurrency`` at a time, until it is stopped."""

    drops_history = True
    """Whether it drops what is past the retention. The pipeline's own worker leaves that to others."""

    def __init__(
        self,
        queue: PgQueue,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 20,
        lease: Duration = timedelta(seconds=30),
        poll: Duration = timedelta(seconds=1),
        sweep: Duration = timedelta(seconds=5),
        grace: Duration = timedelta(seconds=30),
        unknown_after: Duration = UNKNOWN_AFTER,
        blocked_after: Duration = timedelta(seconds=1),
    ) -> None:
        """Describe a worker; :meth:`run` starts it. Lengths of time are seconds, or timedeltas.

        Args:
            queue: whose tasks to run.
            queues: the queues to serve; None: all.
            concurrency: how many jobs to run at a time.
            lease: how soon others may have the jobs if this process dies; renewed every third of it.
            poll: how often to look for jobs when nobody says that there are any.
            sweep: how often to look for workers that are gone.
            grace: how long running jobs may go on after :meth:`stop`.
            unknown_after: a job whose task no worker has known for this long, each time it was due, is dead as
                ``unknown``.
            blocked_after: when an event loop that does not turn is logged with the task that blocks it, and its claims
                that have not started go back.

        Raises:
            InvalidOption: a value is out of its range.
            ConfigurationError: a task's annotations cannot be read.
        """
        if concurrency < 1:
            raise InvalidOption(f"concurrency={concurrency!r}: run at least one job at a time")
        lease, poll, sweep = as_limit("lease", lease), as_limit("poll", poll), as_limit("sweep", sweep)
        blocked_after = as_limit("blocked_after", blocked_after)
        self.queue = queue
        self.queues = _served(queue, queues)
        for task in queue.tasks.values():
            _ = task.signature
        # An app's queue may have another database in another context: this worker keeps to the one of here and now.
        self._database = database = queue.database
        self._concurrency = concurrency
        self._grace = as_delay("grace", grace).total_seconds()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._look = asyncio.Event()
        self._later = asyncio.Event()
        bound = lease.total_seconds() / 2  # a plan's deadline, in seconds
        waits = {"lock_timeout": f"{max(1, min(600_000, int(bound * 500)))}ms"}
        self._claims = WorkerConnection("claims", database, bound=bound, settings={**waits, **UNCONFIRMED})
        self._upkeep = WorkerConnection("upkeep", database, bound=bound, settings=waits)
        self._finishes = WorkerConnection(
            "finishes", database, bound=bound, settings=LOCK_TIMEOUT, told=LOCKED
        )
        self._stand_in = WorkerConnection(
            "finishes while blocked", database, bound=bound, settings=LOCK_TIMEOUT, told=LOCKED
        )
        self._home = TaskLoop()
        self._completer = Completer(
            self._finishes,
            keep=queue.keeps_history,
            on_written=self._written,
            on_doubt=self._doubt,
            home=self._home,
        )
        self._keeps_history = queue.keeps_history
        self._executor = executor = Executor(
            queue.tasks,
            load=queue.load_task,
            longest_result=queue.max_payload,
            unknown_after=as_limit("unknown_after", unknown_after),
        )
        self._hand = Claims(concurrency, context=self._context, is_plain=executor.is_plain)
        self._slots = Runners(self._hand, executor, self._completer, on_room=self._room_made, home=self._home)
        self._watch = Watch(self._home, after=blocked_after.total_seconds(), meanwhile=self._while_blocked)
        self._lines, self._calm = Queues(self.queues), Activity(on_stir=self._later.set)
        self._member = Heartbeat(
            WorkerConnection("heartbeat", database, bound=bound / 2, settings=waits),
            lease=lease,
            concurrency=concurrency,
            queues=self.queues,
            tasks=lambda: sorted(queue.tasks),
            known=self._known,
            on_lost=self._lost,
            on_joined=lambda: self._home.call(self._look.set),
            on_cancel=self._slots.cancel,
            beside=(self._watch.run,),
        )
        self._reconciler = Reconciler(
            database,
            self._claims,
            worker=lambda: self._member.id,
            known=self._known,
            record=self._completer.add,
        )
        self._fetcher = Fetcher(
            self._claims,
            self._member,
            self._slots,
            self._completer,
            lines=self._lines,
            calm=self._calm,
            look=self._look,
        )
        self._cancelling, self._cancel_soon = self._made_cancelling(), asyncio.Event()
        self._services = self._all_services(lease=lease, poll=poll, sweep=sweep)

    @property
    def id(self) -> UUID:
        """The name under which this worker holds its claims; fresh for every lost lease."""
        return self._member.id

    def stop(self) -> None:
        """Stop gracefully; called again, at once. Call it in the worker's event loop."""
        if self._stopping.is_set() and not self._hurry.is_set():
            self._hurry.set()
            joblog.hurried(self.id, len(self._hand.running))
        self._start_nothing()

    async def run(self) -> None:
        """Run jobs until stopped.

        Raises:
            ConnectionFailed: the database cannot be reached at the start; later on, it is waited for.
            SchemaError: the schema is missing, too old or too new.
        """
        pools = self._database.pools
        await pools.fit(self._concurrency)  # else jobs with a transaction each could wait for one another
        try:
            self._home.here()
            await self._check_in()
            await self._work()
        finally:
            await pools.fit(-self._concurrency)
            await self._close()

    async def _work(self) -> None:
        fetching = asyncio.create_task(self._fetcher.run(), name="pgqueue fetcher")
        background = [asyncio.create_task(loop, name="pgqueue") for loop in self._loops()]
        try:
            await _first_of(self._stopping.wait(), fetching, *background)
        finally:
            try:
                await self._wind_down(fetching)
            finally:
                await _cancel(fetching, *background)

    async def _check_in(self) -> None:
        claims = (
            await self._claims.connect()
        )  # fails at once, where a plan would wait for the database to come back
        catalogue = self._database.catalogue
        await self._claims.run(schema.verify(catalogue.schema, migrate_hint=catalogue.migrate_hint))
        await self._member.start()
        await self._store_retention()
        joblog.started(self.id, claims.info, self.queues, list(self.queue.tasks))

    async def _store_retention(self) -> None:
        """Retention is a property of the queue: what this program says is stored, and holds for every program."""
        history, dead = self.queue.history, self.queue.dead
        if history is None and dead is None:
            return
        said_by = f"{socket.gethostname()} {os.getpid()}"
        kept = await self._claims.run(upkeep.keep_for(history, dead, said_by=said_by))
        if kept.changed:
            log.warning("retention changed", extra={"history": kept.history, "dead": kept.dead})

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        loops = [self._completer.run(), *(service.run() for service in self._services)]
        if self._database.listen_dsn is not None:
            loops.append(self._listen())
        return loops

    async def _wind_down(self, fetching: "asyncio.Task[None]") -> None:
        joblog.stopping(self.id, len(self._hand.running), self._grace)
        self._start_nothing()
        grace_ends = time.monotonic() + self._grace
        await self._until(grace_ends, fetching)
        self._slots.return_waiting()
        await self._until(grace_ends, self._slots.emptied())
        self._slots.stop(Stop.SHUTDOWN)
        await _within(LAST_WORDS, self._slots.emptied())
        await self._until(grace_ends, self._completer.flushed())
        await _within(LAST_WORDS, self._completer.flushed())
        await self._leave(_failure_of(fetching))
        joblog.stopped(self.id, self._completer.backlog)

    def _start_nothing(self) -> None:
        """From this moment on no job is claimed or started."""
        self._fetcher.stop()
        self._hand.close()
        self._stopping.set()

    async def _until(self, deadline: float, work: "Coroutine[Any, Any, None] | asyncio.Task[None]") -> None:
        """Let the work end by itself until the deadline, or until :meth:`stop` is called again; then cancel it."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self._hurry.wait())]
        patience = max(0.0, deadline - time.monotonic())
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(*tasks)

    async def _leave(self, failure: BaseException | None) -> None:
        """Leave the list. Where it is not certain that nothing is held, the next sweep looks for that."""
        clean = False
        self._slots.give_back()
        try:
            await asyncio.wait_for(self._reconciler.compare(failure), LAST_WORDS)
            await asyncio.wait_for(self._completer.flushed(), LAST_WORDS)
            clean = True
        except (TimeoutError, psycopg.Error, ConnectionFailed) as error:
            log.warning("what this worker holds could not be compared", extra={"error": repr(error)})
        finally:
            await _within(LAST_WORDS, self._member.do(lambda: self._member.leave(clean=clean)))

    async def _close(self) -> None:
        self._slots.close()
        await self._member.stop()
        for link in (self._claims, self._finishes, self._upkeep):
            await link.close()

    def _all_services(self, *, lease: timedelta, poll: timedelta, sweep: timedelta) -> Sequence[Service]:
        """What is to be done again and again: for this worker, and for the queue."""
        return (
            Service("compare what is held", lease.total_seconds() / 3, self._reconciler.run_once),
            Service("return stale claims", 1.0, self._return_stale),
            Service(
                "hear of jobs to cancel", CANCEL_EVERY, self._cancelling.run_once, nudge=self._cancel_soon
            ),
            *services(
                self._upkeep,
                lambda: WorkerConnection("tidying", self._database),
                lines=self._lines,
                calm=self._calm,
                poll=poll.total_seconds(),
                sweep=sweep.total_seconds(),
                look=self._look,
                later=self._later,
                drops=lambda: self.drops_history,
            ),
        )

    def _made_cancelling(self) -> CancelRequests:
        return CancelRequests(
            self._claims,
            worker=lambda: self.id,
            known=self._hand.known,
            can_listen=lambda: not self._calm.deaf,
            on_cancel=self._slots.cancel,
        )

    async def _listen(self) -> None:
        """Listen for ever; while the connection is away, polling does the work."""
        database = self._database
        while True:
            try:
                async with await database.aconnect(database.listen_dsn, settings=OWN) as connection:
                    await listen(connection, database.catalogue, self._heard)
            except (psycopg.Error, ConnectionFailed) as error:
                if not passes(error):
                    raise
            self._calm.deaf = True
            self._look.set()
            await asyncio.sleep(LONGEST_PAUSE / 5)

    def _heard(self, said: str) -> None:
        self._calm.deaf = False
        if said == CANCEL:
            self._cancelling.hear()
            self._cancel_soon.set()
            return
        self._calm.stir()
        self._look.set()

    async def _return_stale(self) -> None:
        returned = self._slots.return_waiting(older_than=STALE_AFTER)
        if returned:
            log.info("returned claims that did not get to start", extra={"jobs": returned})

    def _known(self) -> list[int]:
        return self._completer.known(self._hand.known)

    async def _while_blocked(self) -> None:
        """A task blocks the event loop: do here, in the heartbeat's thread, what cannot wait for it."""
        self._slots.time_out()
        returned = self._slots.return_waiting()
        if returned:
            log.info("returned claims that a blocked event loop cannot start", extra={"jobs": returned})
        async with self._stand_in as link:
            await self._completer.stand_in(link, self._hand.verdicts)

    def _doubt(self, verdicts: Sequence[Verdict]) -> None:
        self._reconciler.doubt(verdicts)

    def _written(self, verdicts: Sequence[Verdict]) -> None:
        self._reconciler.ended(verdicts)
        self._fetcher.room_made()
        going_back = [verdict for verdict in verdicts if isinstance(verdict, Again | Returned | Unknown)]
        if going_back:
            self._later.set()
        if any(not verdict.delay for verdict in going_back):
            self._look.set()

    def _room_made(self) -> None:
        self._fetcher.room_made()

    def _lost(self, worker: UUID) -> None:
        self._slots.abandon(worker)
        self._completer.forget(worker)

    def _context(self, claim: Claim) -> Context:
        return Context(claim, self._database, keep=self._keeps_history, judge=self._executor)


def _served(queue: PgQueue, queues: Sequence[str] | None) -> list[str] | None:
    if queues is None:
        return None if queue.queues is None else sorted(queue.queues)
    checked = check_queues(queues)
    for name in checked:
        queue.require_queue(name)
    return checked


def _failure_of(fetching: "asyncio.Task[None]") -> BaseException | None:
    """What ended the fetcher, if it was an error: perhaps a job that it could not read."""
    return fetching.exception() if fetching.done() and not fetching.cancelled() else None


async def _first_of(*work: "Coroutine[Any, Any, Any] | asyncio.Task[None]") -> None:
    """Wait for the first to end; if it failed, fail."""
    tasks = [asyncio.ensure_future(one) for one in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await _cancel(tasks[0])
    for task in done:
        if not task.cancelled():
            task.result()


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Give the work this many seconds, and then do without."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
