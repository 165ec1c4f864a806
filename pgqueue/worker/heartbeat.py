"""A worker's lease, in a thread with an event loop and a connection of its own.

The lease says that this process lives, so it does not depend on the event loop in which coroutines of tasks run: a task
that blocks that loop, for however long, costs neither the lease nor what has ended meanwhile. The thread

- renews the lease every third of it, says how the worker is and what it does, and learns which jobs are to be cancelled,
  what the worker is asked to do, and of which jobs a program asks for the stack;
- watches the worker's loop (:mod:`pgqueue.worker.watch`) and, while that is blocked, does what cannot wait for it.

When the lease is lost, the thread drops everything that was held under it before anything else can start, and registers
the worker again under a new id. A process that is stopped, or whose code holds the GIL, runs no thread: it loses its
lease when that has passed.
"""

import asyncio
import concurrent.futures
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.store.jobs.refusals import in_one_line
from pgqueue.store.workers import leases
from pgqueue.store.workers.stacks import answer
from pgqueue.values.workers.health import WorkerHealth
from pgqueue.values.workers.lease import renew_every
from pgqueue.worker import stacks
from pgqueue.worker.claims import Claims
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.memory import resident_memory
from pgqueue.worker.runners import Runners
from pgqueue.worker.served_tasks import ServedTasks
from pgqueue.worker.signals import Signals
from pgqueue.worker.slots import Slots
from pgqueue.worker.watch import LoopWatch

log = worker_log()

CANCEL_TIMEOUT = 5.0
"""Seconds for which the thread's end waits for the server to cancel statements."""
JITTER = 0.1

MOST_SAID = 1_000
"""Running jobs that a heartbeat names."""


class Heartbeat:
    """A worker's row in ``workers``, and the thread that keeps it.

    Attributes:
        id: the worker's id; a new one after a lost lease.
        queues: what the worker serves, as its row has it; None: all.
        renewed_at: when the database last registered it or renewed its lease, in seconds of the monotonic clock; None: never.
        lost_leases: how many leases were lost.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        *,
        lease: timedelta,
        queues: Sequence[str] | None,
        tasks: ServedTasks,
        claims: Claims,
        runners: Runners,
        slots: Slots,
        watch: LoopWatch,
        signals: Signals,
    ) -> None:
        """``connection`` is one that nothing else uses. ``queues``: None: the worker serves all.

        When the lease is lost, ``runners`` drops everything. ``watch`` runs in the heartbeat's thread, too.
        """
        self._connection = connection
        self._lease = lease
        self.queues = queues
        self._tasks = tasks
        self._known: Sequence[str] | None = None  # as its row has them
        self._claims = claims
        self._runners = runners
        self._slots = slots
        self._watch = watch
        self._signals = signals
        self._thread: threading.Thread | None = None
        self._caller: asyncio.AbstractEventLoop
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._leaving = False
        self.renewed_at: float | None = None
        self.lost_leases = 0
        self.id = uuid4()

    async def start(self) -> None:
        """Start the thread, and register this worker.

        Raises:
            OSError: the thread could make no event loop; the process may have too many files open.
        """
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._caller = asyncio.get_running_loop()
        thread = threading.Thread(target=self._live, args=(started,), name="pgqueue-heartbeat", daemon=True)
        thread.start()
        self._thread = thread
        try:
            await asyncio.wrap_future(started)
        except OSError:
            thread.join()
            self._thread = None
            raise
        await self.do(self.register)

    async def stop(self) -> None:
        """End the thread, and close its connection."""
        if self._thread is None:
            await self._connection.close()
        else:
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.wrap_future(self._ended)
            self._thread.join()
            self._thread = None

    async def do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something in the thread, or here while there is none."""
        if self._thread is None:
            await work()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    async def register(self) -> None:
        """Make this worker known."""
        doing = self._slots.doing()
        info = leases.WorkerInfo.here(
            doing.bounds.maximum,
            self.queues,
            id=self.id,
            tasks=sorted(self._tasks.known),
            chosen_tasks=self._tasks.chosen.entries,
            doing=doing,
        )
        self._known = info.tasks
        await self._connection.run(leases.register(info, self._lease))
        self.renewed_at = time.monotonic()

    async def beat(self) -> None:
        """Renew the lease, and do what there is to do; if it is lost, drop everything and register again."""
        current = self.id
        doing = self._slots.doing()
        heard = await self._connection.run(
            leases.beat(current, self._lease, health=self._health, doing=doing)
        )
        if self._leaving or self.id != current:  # another beat has found the lease lost, and has registered
            return
        if heard is None:
            log.error(
                "lease lost: other workers run its jobs again; this worker joins afresh",
                extra={"worker": str(self.id)},
            )
            self.lost_leases += 1
            lost, self.id = self.id, uuid4()
            self._runners.abandon(lost)
            await self.register()
            self._signals.call(self._signals.look.set)
            return
        self.renewed_at = time.monotonic()
        self._slots.obey(heard.ask)
        await self._cancel_as_asked()
        await self._say_tasks()
        if heard.stacks:
            await self._say_stacks(heard.stacks)

    async def _cancel_as_asked(self) -> None:
        """Cancel the jobs that callers asked to cancel. If the jobs are locked, the next beat asks again: the lease does not wait."""
        if not (known := self._runners.known()):
            return
        try:
            asked = await self._connection.once(
                leases.cancel_requests(self.id, known), bound=self._lease.total_seconds() / 10
            )
        except (psycopg.Error, ConnectionFailed) as error:
            log.warning(
                "the worker could not read which jobs are to be cancelled; its next heartbeat asks again",
                extra={"error": in_one_line(error)},
            )
        else:
            if asked:
                self._runners.cancel(asked)

    async def _say_tasks(self) -> None:
        """Say which tasks it runs, if some were loaded since it last did."""
        known = sorted(self._tasks.known)
        if known != self._known:
            await self._connection.run(leases.know_tasks(self.id, known, self.queues))
            self._known = known

    async def _say_stacks(self, jobs: Sequence[int]) -> None:
        running = self._claims.running
        try:
            said = {job: stacks.stack_of(running.get(job)) for job in jobs}
            await self._connection.run(answer(self.id, said))
        except Exception:
            # A failure does not cost the lease.
            log.exception("stacks of jobs could not be told", extra={"jobs": [*jobs]})

    async def leave(self, *, clean: bool) -> None:
        """Delete this worker's row.

        Args:
            clean: it holds no job. Else the next sweep looks for its jobs.
        """
        self._leaving = True
        await self._connection.run(leases.leave_without_jobs(self.id) if clean else leases.leave(self.id))

    def _health(self) -> WorkerHealth:
        signals = self._signals
        stops = self._leaving or signals.stopping.is_set()
        return WorkerHealth(
            self._watch.reported(),
            self._claims.not_returned,
            resident_memory(),
            list(self._claims.running)[:MOST_SAID],
            taken=self._claims.taken,
            overrunning=self._claims.overdue[:MOST_SAID],
            looked=None if stops else time.monotonic() - signals.looked_at,
            look_within=signals.look_within + renew_every(self._lease) * (1 + JITTER),
            not_listening=signals.not_listening(),
        )

    @property
    def beats(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _live(self, started: "concurrent.futures.Future[None]") -> None:
        try:
            with asyncio.Runner() as runner:  # makes the loop, which takes file descriptors
                runner.run(self._serve(started))
        except OSError as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _serve(self, started: "concurrent.futures.Future[None]") -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        started.set_result(None)
        work = [asyncio.create_task(one()) for one in (self._beat_for_ever, self._watch.run)]
        await self._stopping.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        # What the caller cancelled may still be cancelling its statement. If the connection were closed before, the server
        # would run the statement: a worker that never started would be registered.
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=CANCEL_TIMEOUT)
        await self._connection.close()

    async def _beat_for_ever(self) -> None:
        pause = renew_every(self._lease)
        while True:
            await asyncio.sleep(pause * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - spreads load
            if self._leaving:
                return
            if self._caller.is_closed():  # without telling this thread: nothing runs that needs a lease
                log.error(
                    "the worker's event loop was closed; its lease ends", extra={"worker": str(self.id)}
                )
                self._stopping.set()
                return
            try:
                await self.beat()
            except Exception:  # the next try must come before the lease ends
                log.exception("the lease could not be renewed", extra={"worker": str(self.id)})
                pause = self._lease.total_seconds() / 10
            else:
                pause = renew_every(self._lease)
