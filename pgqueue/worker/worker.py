"""A worker, from its start to its end. :mod:`pgqueue.worker.parts` makes its parts; each part has a file of its own.

::

    listener ┄┄look again┄┄▶ fetcher ──claims──▶ runners ──attempts──▶ executor
                                ▲                  │ verdicts
    upkeep (poll, reclaim, …)   └┄┄┄┄┄ room ┄┄┄┄┄┄┄┤
                                                   ▼
                                               completer ──▶ database

    heartbeat (lease), watch (is the loop blocked?): in a thread of their own

The dotted lines are :class:`pgqueue.worker.signals.Signals`.

Stopping: claim no more; requeue what has not started; let what runs finish within the grace; stop and requeue the rest; record
every verdict; delete the worker's row. Stopping a second time ends the grace at once. If a program ends its event loop before it
stops the worker, the worker's running jobs count as those of a worker that has died.
"""

import asyncio
import os
import socket
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any
from uuid import UUID

import psycopg

from pgqueue.app import alerts
from pgqueue.app.flows import workflow
from pgqueue.app.late_tasks import register_late_tasks
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.schedules import schedules
from pgqueue.app.task import TaskLoader
from pgqueue.errors import (
    ConfigurationError,
    ConnectionFailed,
    Duration,
    PgQueueError,
    SchemaMissing,
    as_delay,
    as_limit,
)
from pgqueue.store import retention
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.jobs.event import WorkerEvent, WorkerEventName
from pgqueue.values.jobs.verdict import Stop
from pgqueue.values.queues.served_queues import Order, parse_served
from pgqueue.values.workers.chosen_tasks import parse_chosen
from pgqueue.values.workers.health import Vitals
from pgqueue.values.workers.lease import BLOCKED_AFTER, GRACE, LEASE, POLL, SWEEP
from pgqueue.values.workers.load import checked_bounds
from pgqueue.values.workers.worker import End
from pgqueue.worker import joblog
from pgqueue.worker.awaiting import cancel, first_of, within
from pgqueue.worker.connection import LONG_READ
from pgqueue.worker.executor import UNKNOWN_AFTER
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.own_end import own_end_of
from pgqueue.worker.parts import Inspection, WorkerOptions, WorkerParts
from pgqueue.worker.published_tasks import store_tasks
from pgqueue.worker.recycling import recycling_of
from pgqueue.worker.signals import listen_for_ever
from pgqueue.worker.threads import require_threads

log = worker_log()

DECLARED_WITHIN = 5.0
"""Seconds for which a start waits until the app's schedules and alerts are stored."""
LAST_STEP_TIMEOUT = 2.0
"""Seconds that each of the last steps of a stopping worker may take, after the grace."""


class Worker:
    """Runs the jobs of a queue, up to ``concurrency`` at a time, until it is stopped.

    Attributes:
        queue: whose tasks it runs.
        queues: the names and patterns that it serves; None: all.
        parts: what it is made of. For tests; it may change in any release.
    """

    drops_history = True
    """Whether it drops what is past the retention. The pipeline's own worker leaves that to others."""

    supervised = False
    """Whether a supervisor starts a new process when this one ends because it was asked to restart."""

    parts: WorkerParts

    app: str | None = None
    """Where a process finds the queue, as ``module:attribute``; None: it is looked for among what is imported."""

    def __init__(
        self,
        queue: PgQueue,
        *,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        order: Order = "shares",
        tasks: Iterable[str] | None = None,
        concurrency: int | tuple[int, int] = 20,
        lease: Duration = LEASE,
        poll: Duration = POLL,
        sweep: Duration = SWEEP,
        grace: Duration = GRACE,
        unknown_after: Duration = UNKNOWN_AFTER,
        blocked_after: Duration = BLOCKED_AFTER,
        series: bool = True,
        until_empty: bool = False,
        max_jobs: int | None = None,
        max_time: Duration | None = None,
        max_jobs_per_process: int | None = None,
        max_memory: int | str | None = None,
        beside: "Worker | None" = None,
    ) -> None:
        """Describe a worker; :meth:`run` starts it. Lengths of time are seconds, or timedeltas.

        Args:
            queue: whose tasks to run.
            queues: the queues to serve; None: all. Names, patterns such as ``mail-*``, and with ``!`` before it what is not
                served: ``["mail-*", "!mail-bulk"]``. With weights, ``{"mail": 5, "reports": 1}`` or ``["mail:5", "reports:1"]``,
                a worker that is always busy runs 5 jobs of the one for each of the other; else all have an equal share.
            order: ``shares``, or ``strict``: then jobs of a queue run only while those before it have no ready job.
            tasks: which of the app's tasks to run; None: all. Names, patterns such as ``mail.*``, and with ``!`` before it what is
                not run. Jobs of other tasks are left to other workers.
            concurrency: how many jobs to run at a time; or a minimum and a maximum, ``(5, 50)``, between which the worker
                chooses by its load.
            lease: how soon other workers may have the jobs if this process dies; renewed every third of it.
            poll: how often to look for jobs that no notification announced.
            sweep: how often to look for lost workers.
            grace: how long running jobs may go on after :meth:`stop`.
            unknown_after: a job whose task no worker has known for this long, each time it was due, is dead as ``unknown``.
            blocked_after: after this long a blocked event loop is logged with the task that blocks it, and claims
                that have not started are requeued.
            series: whether to write, once a minute, what was measured of its jobs: see ``queue.insight.series``.
            until_empty: end when no job is left that the worker may run now. Jobs that are due later are left.
            max_jobs: end after this many attempts. None: there is no bound.
            max_time: claim no more after this time, and end as after :meth:`stop`. None: there is no bound.
            max_jobs_per_process: end after about this many attempts, as if asked to restart: a supervisor starts a new process.
            max_memory: the same when this process has more memory: bytes, or a text such as ``"512 MB"``.
            beside: a worker of the same queue in the same event loop, whose connections this one shares.

        Raises:
            InvalidOption: a value is out of its range.
            ConfigurationError: a task's annotations cannot be read; the queue has shards, or is not that of ``beside``.
        """
        if isinstance(queue.database.itself, ShardedDatabase):
            raise ConfigurationError(
                "this queue has shards: run pgqueue.ShardedWorker(queue), which serves all of them"
            )
        self.queue = queue
        workflow.register(queue)
        register_late_tasks(queue)
        served = parse_served(queues, order=order, declared=queue.queues)
        self.queues = served.entries
        self._grace = as_delay("grace", grace).total_seconds()
        options = WorkerOptions(
            served=served,
            # a framework's task may be registered when a job names it
            tasks=parse_chosen(tasks, known=None if isinstance(queue.tasks, TaskLoader) else queue.tasks),
            concurrency=checked_bounds(concurrency),
            lease=as_limit("lease", lease),
            poll=as_limit("poll", poll),
            sweep=as_limit("sweep", sweep),
            unknown_after=as_limit("unknown_after", unknown_after),
            blocked_after=as_limit("blocked_after", blocked_after),
            series=series,
            own_end=own_end_of(until_empty=until_empty, max_jobs=max_jobs, max_time=max_time),
            recycling=recycling_of(max_jobs_per_process=max_jobs_per_process, max_memory=max_memory),
            drops_history=lambda: self.drops_history,
            supervised=lambda: self.supervised,
            app=lambda: self.app,
        )
        for task in queue.tasks.values():
            _ = task.signature
        queue.schedules.declared()  # refuses arguments that do not fit
        queue.alerts.declared()  # and tasks that cannot be told
        self.parts = WorkerParts(queue, options, beside=None if beside is None else beside.parts)
        self._declaring: asyncio.Task[None] | None = None

    @property
    def id(self) -> UUID:
        """The id under which this worker holds its claims; a new one after each lost lease."""
        return self.parts.heartbeat.id

    @property
    def asked_to_end(self) -> End | None:
        """Whether it was asked from outside to ``stop`` or to ``restart``, or ends to be replaced; None: neither."""
        return self.parts.slots.end

    @property
    def own_end(self) -> str | None:
        """Why it ended by itself; None: it did not."""
        return self.parts.own_end.reason

    @property
    def died(self) -> int:
        """How many jobs of its attempts are dead."""
        return self.parts.completer.died

    def inspect(self) -> Inspection:
        """What the worker is doing now: what runs and waits, what is not recorded, whether its loop is blocked."""
        return self.parts.inspect()

    def vitals(self) -> Vitals:
        """How the worker is now: what :func:`pgqueue.values.workers.health.not_ready` judges. From any thread."""
        return self.parts.vitals()

    def stop(self) -> None:
        """Stop gracefully; called again, at once. Call it in the worker's event loop."""
        signals = self.parts.signals
        if signals.stopping.is_set() and not signals.hurry.is_set():
            signals.hurry.set()
            joblog.log_second_stop(self.id, len(self.parts.claims.running))
        self._start_nothing()

    async def run(self) -> None:
        """Run jobs until stopped.

        Raises:
            ConnectionFailed: the database cannot be reached at the start; later on, the worker waits for it.
            ConfigurationError: gevent has replaced Python's threads; or processes of tasks cannot find the queue.
            SchemaError: the schema is missing, too old or too new.
        """
        require_threads()
        self.parts.executor.processes.check()
        self.parts.connections.use()
        await self.parts.slots.open()
        try:
            self.parts.signals.here()
            self.parts.signals.program = asyncio.current_task()
            if await self._checked_in():
                async with self.queue.hooks.serving(self._event, self.parts.signals.stopping):
                    await self._work()
        finally:
            if self._declaring is not None:
                await cancel(self._declaring)
            await self.parts.slots.close()
            await self.parts.close()

    async def _work(self) -> None:
        fetching = asyncio.create_task(self.parts.fetcher.run(), name="pgqueue fetcher")
        background = [asyncio.create_task(loop, name="pgqueue") for loop in self._loops()]
        try:
            await first_of(self.parts.signals.stopping.wait(), fetching, *background)
        finally:
            try:
                if all(task.done() or task.cancelling() for task in (fetching, *background)):
                    await self._abandon_loop()
                else:
                    await self._wind_down(fetching)
            finally:
                await cancel(fetching, *background)

    def _event(self, name: WorkerEventName) -> WorkerEvent:
        queues = None if self.queues is None else tuple(self.queues)
        return WorkerEvent(name=name, worker=self.id, queues=queues, concurrency=self.parts.claims.size)

    async def _checked_in(self) -> bool:
        """Check in. Return False if the worker was told to stop, and the database did not answer in time, or it was told twice."""
        checking = asyncio.ensure_future(self._check_in())
        stopping = asyncio.ensure_future(self.parts.signals.stopping.wait())
        try:
            await asyncio.wait((checking, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not checking.done():
                await self._until(time.monotonic() + LAST_STEP_TIMEOUT, checking)
        finally:
            await cancel(checking, stopping)
        if checking.cancelled():
            log.warning("this worker stops before it has started: the database does not answer")
            return False
        checking.result()
        return True

    async def _check_in(self) -> None:
        claiming = self.parts.connections.claiming
        connection = await claiming.opened()  # raises at once, where a plan would wait for the database
        await claiming.run(self.parts.database.verification(), told=(SchemaMissing,))
        await self.parts.heartbeat.start()
        await self.parts.series.start()
        await self._store_retention()
        await self._store_declared_soon()
        joblog.log_start(
            self.id,
            connection.info,
            self.queues,
            [name for name in self.parts.executor.served.known if name not in BUILTIN],
        )

    async def _store_retention(self) -> None:
        # Retention is a property of the queue: what this program says is stored, and holds for every program.
        queue = self.queue
        if queue.history is None and queue.dead is None and queue.history_args is None:
            return
        said_by = f"{socket.gethostname()} {os.getpid()}"
        claiming = self.parts.connections.claiming
        kept = await claiming.run(
            retention.keep_for(queue.history, queue.dead, history_args=queue.history_args, said_by=said_by)
        )
        if kept.changed:
            lengths = {"history": kept.history, "dead": kept.dead or "for ever"}
            said = {name: str(length).removesuffix(", 0:00:00") for name, length in lengths.items()}
            log.warning("retention changed", extra={**said, "history_args": kept.history_args})

    async def _store_declared_soon(self) -> None:
        """Store what the app declares; if another transaction has it locked, the worker starts before that is done."""
        self._declaring = asyncio.create_task(self._store_declared(), name="pgqueue declaring")
        await asyncio.wait((self._declaring,), timeout=DECLARED_WITHIN)
        if self._declaring.done():
            self._declaring.result()
        else:
            log.warning(
                "the schedules and alerts that this app declares are not stored yet: another transaction may have "
                "them locked; the worker runs jobs meanwhile"
            )

    async def _store_declared(self) -> None:
        async with self.parts.connections.for_once("declaring") as own:
            try:
                schedules.log_applied(await own.run(self.queue.schedules.application(), bound=LONG_READ))
            except (psycopg.Error, PgQueueError):
                # The worker runs jobs all the same.
                log.exception("the schedules that this app declares could not be stored")
            await store_tasks(self.queue.tasks, own)
            try:
                alerts.log_applied(await own.run(self.queue.alerts.application(), bound=LONG_READ))
            except (psycopg.Error, PgQueueError):
                log.exception("the alerts that this app declares could not be stored")

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        loops = [self.parts.completer.run(), *(service.run() for service in self.parts.services)]
        if self.parts.database.listen_dsn is not None:
            loops.append(listen_for_ever(self.parts.database, self.parts.signals))
        return loops

    async def _wind_down(self, fetching: "asyncio.Task[None]") -> None:
        runners, completer = self.parts.runners, self.parts.completer
        joblog.log_stopping(self.id, len(self.parts.claims.running), self._grace, self.own_end)
        self._start_nothing()
        grace_ends = time.monotonic() + self._grace
        await self._until(grace_ends, fetching)
        runners.return_waiting()
        await self._until(grace_ends, runners.emptied())
        runners.stop(Stop.SHUTDOWN)
        await within(LAST_STEP_TIMEOUT, runners.emptied())
        await self._until(grace_ends, completer.flushed())
        await within(LAST_STEP_TIMEOUT, completer.flushed())
        await self._leave(_failure_of(fetching))
        await within(LAST_STEP_TIMEOUT, self.parts.upkeep.write_logs())
        await within(LAST_STEP_TIMEOUT, self.parts.series.write(everything=True))
        joblog.log_stop(self.id, completer.backlog)

    async def _abandon_loop(self) -> None:
        """The program ends the loop: the heartbeat's thread records the known verdicts, and the next sweep takes over what ran."""
        runners, heartbeat, own = self.parts.runners, self.parts.heartbeat, self.parts.connections.stand_in
        self._start_nothing()
        log.error(
            "the event loop ends, and the worker was not stopped: what runs counts as lost, and other workers run it again",
            extra={"worker": str(self.id), "jobs": [*self.parts.claims.running]},
        )
        await within(LAST_STEP_TIMEOUT, heartbeat.do(lambda: runners.while_blocked(own)))
        await within(LAST_STEP_TIMEOUT, heartbeat.do(lambda: heartbeat.leave(clean=False)))

    def _start_nothing(self) -> None:
        self.parts.fetcher.stop()
        self.parts.claims.close()
        self.parts.signals.stopping.set()

    async def _until(self, deadline: float, work: "Coroutine[Any, Any, None] | asyncio.Future[None]") -> None:
        """Let the work end by itself until the deadline, or until :meth:`stop` is called again; then cancel it."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self.parts.signals.hurry.wait())]
        left = max(0.0, deadline - time.monotonic())
        await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        await cancel(*tasks)

    async def _leave(self, failure: BaseException | None) -> None:
        """Delete the worker's row. If it is not certain that it holds no job, the next sweep looks for its jobs."""
        clean, heartbeat = False, self.parts.heartbeat
        self.parts.runners.give_back()
        try:
            await asyncio.wait_for(self.parts.reconciler.compare(failure), LAST_STEP_TIMEOUT)
            await asyncio.wait_for(self.parts.completer.flushed(), LAST_STEP_TIMEOUT)
            clean = True
        except (TimeoutError, psycopg.Error, ConnectionFailed) as error:
            log.warning("what this worker holds could not be compared", extra={"error": repr(error)})
        finally:
            await within(LAST_STEP_TIMEOUT, heartbeat.do(lambda: heartbeat.leave(clean=clean)))


def _failure_of(fetching: "asyncio.Task[None]") -> BaseException | None:
    """Return what ended the fetcher, if it was an error: perhaps a job that it could not read."""
    return fetching.exception() if fetching.done() and not fetching.cancelled() else None
