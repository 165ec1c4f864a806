"""Django's connections around a job: closed and recycled as they are around a request.

A plain task runs in a thread with its own connections, so they are recycled in this thread, before and after the task.

``async def`` tasks share the one thread in which ``sync_to_async`` runs the ORM. To switch to that thread for every job
would cost more than most such jobs. So the event loop's thread reads whether a connection must be recycled. This is
safe, since only the ORM's thread acts on it.

Django's signal tells which connections exist: to ask Django would take 25 µs a job.
"""

import asyncio
import select
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, ref

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware


class _OfThread(threading.local):
    """The connections of a thread of plain tasks.

    Attributes:
        opened: the connections that it has opened; None: it is no such thread.
    """

    opened: list[BaseDatabaseWrapper] | None = None


_of_thread = _OfThread()
_shared: list[ReferenceType[BaseDatabaseWrapper]] = []
"""The connections of the thread in which ``sync_to_async`` runs the ORM; that thread removes those of other threads."""
_changing = threading.Lock()
_recycling_tasks: set["asyncio.Task[None]"] = set()


class Recycling(Middleware):
    """Recycles Django's connections around each attempt."""

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        """Run a plain function with its thread's connections recycled before and after it."""
        opened = _opened_here()
        recycle(opened)
        try:
            return call()
        finally:
            recycle(opened)

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        """Run an ``async def`` function with the ORM's connections recycled before and after it, if they are due."""
        if _is_due():
            await sync_to_async(_recycle_all)()
        try:
            return await call()
        finally:
            if _is_due():
                _recycle_soon()


def recycle(wrappers: Iterable[BaseDatabaseWrapper]) -> None:
    """Close this thread's connections that are too old or broken, and delete the queries that DEBUG keeps.

    A connection within an ``atomic()`` block stays open: it is a test case's, when the test runs a job.

    Args:
        wrappers: the connections.
    """
    for wrapper in wrappers:
        wrapper.queries_log.clear()
        if not wrapper.in_atomic_block:
            if _may_be_broken(wrapper):
                wrapper.errors_occurred = True  # so that Django checks whether it is usable
            wrapper.close_if_unusable_or_obsolete()


@contextmanager
def closing_connections() -> Iterator[None]:
    """Close this thread's connections after a call of a hook: the thread may end with it.

    A connection within an ``atomic()`` block stays open: it is a test case's.
    """
    try:
        yield
    finally:
        for wrapper in connections.all(initialized_only=True):
            if not wrapper.in_atomic_block:
                wrapper.close()


def remember(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Note a connection that was opened; for Django's signal ``connection_created``."""
    if _of_thread.opened is None:
        with _changing:
            others = [one for one in _shared if one() not in {None, connection}]
            _shared[:] = [*others, ref(connection)]
    elif connection not in _of_thread.opened:
        _of_thread.opened.append(connection)


def _opened_here() -> list[BaseDatabaseWrapper]:
    """Return this thread's connections; from now on the thread records those that it opens."""
    if _of_thread.opened is None:
        _of_thread.opened = list(connections.all(initialized_only=True))
    return _of_thread.opened


def _recycle_all() -> None:
    """Recycle this thread's connections, and forget those of other threads, which this thread cannot recycle."""
    here = connections.all(initialized_only=True)
    recycle(here)
    with _changing:
        _shared[:] = [ref(wrapper) for wrapper in here]


def _recycle_soon() -> None:
    """Recycle without waiting: the job has ended, and the thread may be busy with the call of a cancelled job."""
    task = asyncio.get_running_loop().create_task(sync_to_async(_recycle_all)())
    _recycling_tasks.add(task)
    task.add_done_callback(_recycling_tasks.discard)


def _is_due() -> bool:
    return any(
        wrapper.errors_occurred
        or (wrapper.close_at is not None and time.monotonic() >= wrapper.close_at)
        or wrapper.queries_log
        or _may_be_broken(wrapper)
        for one in _shared
        if (wrapper := one()) is not None and wrapper.connection is not None
    )


def _may_be_broken(wrapper: BaseDatabaseWrapper) -> bool:
    """Whether the server has sent data without a request, as when it ends a connection; 2 µs, and no round trip."""
    connection = wrapper.connection
    if connection is None or wrapper.vendor != "postgresql":
        return False
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        return bool(waiting.poll(0))
    except psycopg.Error:  # it is closed already
        return True
