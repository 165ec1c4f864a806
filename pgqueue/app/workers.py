"""The workers as operators see them: ``queue.workers``; and how a program asks for the stack of a running job.

Which workers a name means, and what can be asked of them, is decided in :mod:`pgqueue.values.workers.worker`; how a worker does it in
:mod:`pgqueue.worker.slots`.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

from pgqueue.app.operator import operator_name
from pgqueue.app.registry import Registry
from pgqueue.app.results import not_found
from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.store import audit
from pgqueue.store.connections.patience import answered_by, until, waiting_at_most
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan
from pgqueue.store.workers import stacks, workers
from pgqueue.values.jobs.job import Job
from pgqueue.values.workers.load import checked_bounds
from pgqueue.values.workers.worker import Stack, Steered, WorkerRequest, WorkerStatus, find


class Workers:
    """Looks at workers, and asks them to do something; a worker does it within a second.

    A worker is named by the first characters of its id, or by ``host:pid``; ``all`` means every live worker. Each method has an
    async version with an ``a`` before its name. Those that ask return a :class:`pgqueue.values.workers.worker.Steered`, with the workers
    that were asked. They raise ``UnknownWorker`` where no live worker has the name, and ``InvalidOption`` where several have it
    or the worker cannot do what is asked; then nothing changes. The row of a worker says who asked last.
    """

    def __init__(self, queue: Registry) -> None:
        self._queue = queue

    def list(self) -> Sequence[WorkerStatus]:
        """Every worker that is known, at its last heartbeat."""
        return self._queue.database.run(workers.listed())

    async def alist(self) -> Sequence[WorkerStatus]:
        """As :meth:`list`, awaited."""
        return await self._queue.database.arun(workers.listed())

    def get(self, which: str) -> WorkerStatus:
        """One worker, at its last heartbeat.

        Args:
            which: the first characters of its id, or ``host:pid``.

        Raises:
            UnknownWorker: there is none.
            InvalidOption: several may be meant.
        """
        return find(which, self.list())

    async def aget(self, which: str) -> WorkerStatus:
        """As :meth:`get`, awaited."""
        return find(which, await self.alist())

    def set(self, which: str, *, concurrency: int | tuple[int, int], by: str | None = None) -> Steered:
        """Have a worker run this many jobs at a time. No attempt is cut short.

        Args:
            which: which worker.
            concurrency: a number, or a minimum and a maximum between which it chooses by its load.
            by: who asks, for people to read; by default the user and the host of this process.
        """
        return self._ask(which, WorkerRequest(bounds=checked_bounds(concurrency), by=by))

    async def aset(self, which: str, *, concurrency: int | tuple[int, int], by: str | None = None) -> Steered:
        """As :meth:`set`, awaited."""
        return await self._aask(which, WorkerRequest(bounds=checked_bounds(concurrency), by=by))

    def quiet(self, which: str, *, by: str | None = None) -> Steered:
        """Have a worker claim no more jobs: it finishes those that run, returns the others, and stays.

        Args:
            which: which worker.
            by: who asks.
        """
        return self._ask(which, WorkerRequest(quiet=True, by=by))

    async def aquiet(self, which: str, *, by: str | None = None) -> Steered:
        """As :meth:`quiet`, awaited."""
        return await self._aask(which, WorkerRequest(quiet=True, by=by))

    def resume(self, which: str, *, by: str | None = None) -> Steered:
        """Have a quiet worker claim jobs again.

        Args:
            which: which worker.
            by: who asks.
        """
        return self._ask(which, WorkerRequest(quiet=False, by=by))

    async def aresume(self, which: str, *, by: str | None = None) -> Steered:
        """As :meth:`resume`, awaited."""
        return await self._aask(which, WorkerRequest(quiet=False, by=by))

    def stop(self, which: str, *, by: str | None = None) -> Steered:
        """Stop a worker gracefully, as SIGTERM does. Its supervisor does not start another.

        Args:
            which: which worker.
            by: who asks.
        """
        return self._ask(which, WorkerRequest(end="stop", by=by))

    async def astop(self, which: str, *, by: str | None = None) -> Steered:
        """As :meth:`stop`, awaited."""
        return await self._aask(which, WorkerRequest(end="stop", by=by))

    def restart(self, which: str, *, by: str | None = None) -> Steered:
        """Stop a worker gracefully, and have its supervisor start a new process in its place.

        Args:
            which: which worker; one that has a supervisor.
            by: who asks.
        """
        return self._ask(which, WorkerRequest(end="restart", by=by))

    async def arestart(self, which: str, *, by: str | None = None) -> Steered:
        """As :meth:`restart`, awaited."""
        return await self._aask(which, WorkerRequest(end="restart", by=by))

    def _ask(self, which: str, ask: WorkerRequest) -> Steered:
        return self._queue.database.run(workers.ask(which, _with_operator(ask)))

    async def _aask(self, which: str, ask: WorkerRequest) -> Steered:
        return await self._queue.database.arun(workers.ask(which, _with_operator(ask)))


def _with_operator(ask: WorkerRequest) -> WorkerRequest:
    return WorkerRequest(bounds=ask.bounds, quiet=ask.quiet, end=ask.end, by=operator_name(ask.by))


WITHIN = timedelta(seconds=15)
"""A worker whose event loop is blocked answers with its next heartbeat: every 10 seconds, where its lease is 30 seconds."""
PAUSE = 0.1
"""Seconds between two looks for the answer."""


def stack(queue: Registry, job_id: int, timeout: Duration, by: str | None) -> Stack:
    """See :meth:`pgqueue.app.control.QueueControl.stack`."""
    database, within = queue.database, as_limit("timeout", timeout)
    ends = time.monotonic() + within.total_seconds()
    with waiting_at_most(until(ends)):
        found = database.run(_ask_plan(job_id, by))
        if found is None:
            raise _not_running(job_id, database.run(control.show(job_id).on_primary()))
    with suppress(TimeoutError), answered_by(ends):
        for pause in _looks(ends):
            time.sleep(pause)
            found = database.run(stacks.look(job_id)) or found
            if found.answered_at is not None:
                break
    return found


async def astack(queue: Registry, job_id: int, timeout: Duration, by: str | None) -> Stack:  # noqa: ASYNC109 - as the blocking one
    """As :func:`stack`, awaited."""
    database, within = queue.database, as_limit("timeout", timeout)
    ends = time.monotonic() + within.total_seconds()
    with waiting_at_most(until(ends)):
        found = await database.arun(_ask_plan(job_id, by))
        if found is None:
            raise _not_running(job_id, await database.arun(control.show(job_id).on_primary()))
    with suppress(TimeoutError), answered_by(ends):
        for pause in _looks(ends):
            await asyncio.sleep(pause)
            found = await database.arun(stacks.look(job_id)) or found
            if found.answered_at is not None:
                break
    return found


def _ask_plan(job_id: int, by: str | None) -> Plan[Stack | None]:
    name = operator_name(by)
    return audit.audited(stacks.ask(job_id, by=name), "stack", f"job {job_id}", by=name)


def _not_running(job_id: int, job: Job | None) -> Exception:
    if job is None:
        return not_found(job_id, keeps_history=True)
    return InvalidOption(f"job {job_id} is {job.state}: only a running job has a stack")


def _looks(ends: float) -> Iterator[float]:
    while (left := ends - time.monotonic()) > 0:
        yield min(PAUSE, left)
