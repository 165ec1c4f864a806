"""Django's connections around a job: closed and recycled as they are around a request.

A plain task runs in a thread with connections of its own, so they are seen to right there, before and after it.

``async def`` tasks share the one thread in which ``sync_to_async`` runs the ORM. Going there and back for every job
would cost more than most such jobs do, so whether there is anything to see to is read from here, without asking.
Looking is free of harm, since only that thread ever acts on what was seen.

Which connections there are is known from Django's signal: asking Django would take 25 µs a job.
"""

import asyncio
import select
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from weakref import ReferenceType, ref

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware


class _Own(threading.local):
    """What a thread of plain tasks knows of itself.

    Attributes:
        opened: the connections that it has opened; None: it is no such thread.
    """

    opened: list[BaseDatabaseWrapper] | None = None


_own = _Own()
_shared: list[ReferenceType[BaseDatabaseWrapper]] = []
"""The connections of the thread in which ``sync_to_async`` runs the ORM; one of another thread is found out there."""
_changing = threading.Lock()
_under_way: set["asyncio.Task[None]"] = set()


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

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - as above
        """Run an ``async def`` function with the ORM's connections recycled before and after it, where they are due."""
        if _is_due():
            await sync_to_async(_recycle_all)()
        try:
            return await call()
        finally:
            if _is_due():
                _recycle_soon()


def recycle(wrappers: Iterable[BaseDatabaseWrapper]) -> None:
    """Close this thread's connections that are too old or broken, and forget the queries that DEBUG keeps.

    One within an ``atomic()`` block is left alone: a test case's, when a job is run within the test.

    Args:
        wrappers: the connections.
    """
    for wrapper in wrappers:
        wrapper.queries_log.clear()
        if not wrapper.in_atomic_block:
            if _may_be_broken(wrapper):
                wrapper.errors_occurred = True  # so Django asks it whether it is usable
            wrapper.close_if_unusable_or_obsolete()


def remember(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Note a connection that was opened; for Django's signal ``connection_created``."""
    if _own.opened is None:
        with _changing:
            others = [one for one in _shared if one() not in {None, connection}]
            _shared[:] = [*others, ref(connection)]
    elif connection not in _own.opened:
        _own.opened.append(connection)


def _opened_here() -> list[BaseDatabaseWrapper]:
    """This thread's connections; from now on it keeps count of them."""
    if _own.opened is None:
        _own.opened = list(connections.all(initialized_only=True))
    return _own.opened


def _recycle_all() -> None:
    """See to this thread's connections, and forget those of others, which nobody can see to from here."""
    here = connections.all(initialized_only=True)
    recycle(here)
    with _changing:
        _shared[:] = [ref(wrapper) for wrapper in here]


def _recycle_soon() -> None:
    """Not awaited: the job has ended, and the thread may be busy with what a cancelled one left behind."""
    going = asyncio.get_running_loop().create_task(sync_to_async(_recycle_all)())
    _under_way.add(going)
    going.add_done_callback(_under_way.discard)


def _is_due() -> bool:
    """Whether a shared connection is to be closed, looked at, or rid of its queries."""
    return any(
        wrapper.errors_occurred
        or (wrapper.close_at is not None and time.monotonic() >= wrapper.close_at)
        or wrapper.queries_log
        or _may_be_broken(wrapper)
        for one in _shared
        if (wrapper := one()) is not None and wrapper.connection is not None
    )


def _may_be_broken(wrapper: BaseDatabaseWrapper) -> bool:
    """Whether the server has said something unasked, as it does when it ends a connection; 2 µs, and no round trip."""
    connection = wrapper.connection
    if connection is None or wrapper.vendor != "postgresql":
        return False
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        return bool(waiting.poll(0))
    except psycopg.Error:  # it is closed already
        return True
