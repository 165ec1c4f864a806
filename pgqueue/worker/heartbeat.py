"""A worker's lease, in a thread with an event loop and a connection of its own.

The lease says that this process lives, so it does not depend on the event loop in which users' coroutines run: a task
that blocks that loop, for however long, costs neither the lease nor what has ended meanwhile. The thread

- renews the lease every third of it, and hears which jobs are to be cancelled;
- watches the users' loop (:mod:`pgqueue.worker.watch`) and, while that is blocked, does what cannot wait for it.

When the lease is lost, the thread drops everything that was held under it before anything else can start, and joins
afresh under a new id. A process that is stopped, or whose code holds the GIL, runs no thread: it loses its lease when
that has passed.
"""

import asyncio
import concurrent.futures
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from pgqueue.store import claim
from pgqueue.values.version import __version__
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.joblog import worker_log

log = worker_log()

JITTER = 0.1


class Heartbeat:
    """A worker's row in ``workers``, and the thread that keeps it.

    Attributes:
        id: the worker's id; a fresh one after a lost lease.
    """

    def __init__(
        self,
        link: WorkerConnection,
        *,
        lease: timedelta,
        concurrency: int,
        queues: Sequence[str] | None,
        tasks: Callable[[], Sequence[str]],
        known: Callable[[], Sequence[int]],
        on_lost: Callable[[UUID], object],
        on_joined: Callable[[], object],
        on_cancel: Callable[[Sequence[int]], object],
        beside: Sequence[Callable[[], Coroutine[Any, Any, object]]] = (),
    ) -> None:
        """Prepare to join. What is called back is called in this thread.

        Args:
            link: a connection that nothing else uses.
            lease: how soon others may have the claims if this process dies.
            concurrency: how many jobs it runs at a time.
            queues: what it serves; None: all.
            tasks: the tasks that it knows, when it joins.
            known: every job it knows to be in its name.
            on_lost: told the old id when the lease is lost: what it held are other workers' jobs now.
            on_joined: called when it has joined afresh after that.
            on_cancel: told which of its jobs are to be cancelled.
            beside: what else runs in the thread, for as long as it lives.
        """
        self._link = link
        self._lease = lease
        self._concurrency = concurrency
        self._queues = queues
        self._tasks = tasks
        self._known = known
        self._on_lost = on_lost
        self._on_joined = on_joined
        self._on_cancel = on_cancel
        self._beside = beside
        self._thread: threading.Thread | None = None
        self._caller: asyncio.AbstractEventLoop
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._leaving = False
        self.id = uuid4()

    async def start(self) -> None:
        """Start the thread, and make this worker known."""
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._caller = asyncio.get_running_loop()
        thread = threading.Thread(target=self._live, args=(started,), name="pgqueue-heartbeat", daemon=True)
        thread.start()
        self._thread = thread
        await asyncio.wrap_future(started)
        await self.do(self.join)

    async def stop(self) -> None:
        """End the thread, and close its connection."""
        if self._thread is not None:
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

    async def join(self) -> None:
        """Make this worker known."""
        info = claim.WorkerInfo(
            self.id,
            socket.gethostname(),
            os.getpid(),
            self._concurrency,
            __version__,
            self._queues,
            self._tasks(),
        )
        await self._link.run(claim.register(info, self._lease))

    async def beat(self) -> None:
        """Renew the lease, and stop what is to be cancelled; if it is lost, let go and join afresh."""
        known = self._known()
        to_cancel = await self._link.run(claim.beat(self.id, self._lease, known))
        if self._leaving:
            return
        if to_cancel is None:
            log.error(
                "lease lost: other workers run its jobs again; this worker joins afresh",
                extra={"worker": str(self.id)},
            )
            lost, self.id = self.id, uuid4()
            self._on_lost(lost)
            await self.join()
            self._on_joined()
        elif to_cancel:
            self._on_cancel(to_cancel)

    async def leave(self, *, clean: bool) -> None:
        """Take this worker off the list.

        Args:
            clean: it holds nothing. Else the next sweep looks for its jobs.
        """
        self._leaving = True
        await self._link.run(claim.retire(self.id) if clean else claim.leave(self.id))

    def _live(self, started: "concurrent.futures.Future[None]") -> None:
        try:
            asyncio.run(self._serve(started))
        finally:
            self._ended.set_result(None)

    async def _serve(self, started: "concurrent.futures.Future[None]") -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        started.set_result(None)
        work = [asyncio.create_task(one()) for one in (self._beat_for_ever, *self._beside)]
        await self._stopping.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await self._link.close()

    async def _beat_for_ever(self) -> None:
        every = self._lease.total_seconds() / 3
        while True:
            await asyncio.sleep(every * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - spreads load
            if self._leaving:
                return
            if (
                self._caller.is_closed()
            ):  # without a word to this thread: nothing runs any more that needs a lease
                log.error(
                    "the worker's event loop was closed; its lease ends", extra={"worker": str(self.id)}
                )
                self._stopping.set()
                return
            try:
                await self.beat()
            except Exception:  # the next try must come before the lease ends
                log.exception("the lease could not be renewed", extra={"worker": str(self.id)})
                every = self._lease.total_seconds() / 10
            else:
                every = self._lease.total_seconds() / 3
