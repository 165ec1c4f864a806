"""Pools of connections: one for a process, and one for each of its event loops.

A pool opens connections when they are needed, up to its size; its first is the one on which the schema was checked. When
a caller takes a connection that the server has closed, the pool replaces it: the caller's statement was not sent yet.

Only its own loop can close a pool. A program that runs each call in a new loop (``asyncio.run``, Flask's ``async def`` views)
closes none, so the first call in a new loop closes the connections of the loops that have ended.
"""

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine, Generator, Mapping
from contextvars import Context
from functools import partial
from types import coroutine
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.patience import answer_due, longest_wait
from pgqueue.store.connections.session import POOLED

SPARE = 4
"""How many connections a pool may open besides one for each job that a worker runs at a time."""


WAIT = 30.0
"""Seconds that a caller waits for a connection."""
RECONNECT = 2.0
"""Seconds for which a pool tries to connect, with growing pauses. Then it begins again, if callers wait."""


CANCEL_EVERY = 0.1
"""Seconds after which a task of a pool that has not ended is cancelled once more."""


class PoolSource(Protocol):
    """The database that pools connect to."""

    @property
    def dsn(self) -> str:
        """The database's DSN."""

    @property
    def folder(self) -> str | None:
        """The folder of an embedded server, which is started again if it has ended; None: another starts the server."""

    def connect_options(self, dsn: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """The options with which connections are made that start with these settings."""

    def verified(self) -> OwnConnection:
        """A connection for a new pool, to a database that has the tables."""

    async def averified(self) -> OwnAsyncConnection:
        """As :meth:`verified`, awaited."""


class _AsyncPool(AsyncConnectionPool[OwnAsyncConnection]):
    """A pool whose tasks end when they are cancelled, as ``asyncio.run`` does at the end of a program: it waits for them.

    psycopg's workers take a cancellation for an error of the connection that they open, log it, and go on. On Python 3.11 its
    scheduler does not see a cancellation that comes together with what it waits for (``asyncio.wait_for``).
    """

    @classmethod
    async def worker(cls, *queue: Any) -> None:  # noqa: ANN401 - psycopg's
        """Do the pool's work until it is closed."""
        await _closed_by_cancellation(super().worker(*queue))

    async def end_when_cancelled(self) -> None:
        """Wait for a cancellation, and pass it on to the pool's tasks, again until they have ended."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            while own := [one for one in asyncio.all_tasks() if one.get_name().startswith(f"{self.name}-")]:
                for one in own:
                    one.cancel()
                await asyncio.wait(own, timeout=CANCEL_EVERY)
            raise


@coroutine
def _closed_by_cancellation(work: Coroutine[Any, None, None]) -> Generator[Any, None, None]:
    """Await work that never sees the cancellation of its task: it is closed."""
    while True:
        try:
            awaited = work.send(None)
        except StopIteration:
            return
        try:
            yield awaited
        except asyncio.CancelledError:
            work.close()
            return  # and not as cancelled: a pool that is closed meanwhile would leave this error to no reader


class _LoopPool(NamedTuple):
    """One loop's pool, what ends its tasks, and the connections that it has opened and that live."""

    pool: AsyncConnectionPool[OwnAsyncConnection]
    end: asyncio.Task[None]
    opened: WeakSet[OwnAsyncConnection]


class Pools:
    """The pools of one database. Safe to use from any thread.

    Attributes:
        least: how many connections each pool may open, as the user set it.
        size: how many it may open now; more than ``least`` if a worker with a higher concurrency runs.
    """

    def __init__(self, source: PoolSource, size: int) -> None:
        self.size = self.least = size
        self._wait, self._reconnect = WAIT, RECONNECT
        self._jobs = 0
        self._source = source
        self._lock = threading.Lock()
        self._pool: ConnectionPool[OwnConnection] | None = None
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        self._opening: dict[
            asyncio.AbstractEventLoop, asyncio.Task[AsyncConnectionPool[OwnAsyncConnection]]
        ] = {}
        _all.add(self)

    def hurry(self, seconds: float) -> None:
        """Let callers wait no longer than this for a connection, in pools that are made later."""
        self._wait, self._reconnect = seconds, min(seconds, RECONNECT)

    def blocking(self) -> ConnectionPool[OwnConnection]:
        """The process's pool."""
        if (pool := self._pool) is not None:
            return pool
        wait = longest_wait()
        if not self._lock.acquire(timeout=-1 if wait is None else wait):
            raise PoolTimeout(f"another thread has tried to connect for {wait:.1f} s")
        try:
            if self._pool is None:
                first = self._source.verified()
                dsn = self._source.dsn
                self._pool = ConnectionPool(
                    dsn if self._source.folder is None else lambda: self._source.dsn,
                    connection_class=OwnConnection,
                    kwargs=self._source.connect_options(dsn, POOLED) | {"made": [first]},
                    min_size=0,
                    max_size=self.size,
                    timeout=self._wait,
                    reconnect_timeout=self._reconnect,
                    reconnect_failed=_connect_again,
                    open=True,
                )
            return self._pool
        finally:
            self._lock.release()

    async def awaitable(self) -> AsyncConnectionPool[OwnAsyncConnection]:
        """The running loop's pool."""
        loop = asyncio.get_running_loop()
        if (made := self._pools.get(loop)) is not None:
            return made.pool
        if (opening := self._opening.get(loop)) is None:  # of those that come meanwhile, each would connect
            self._close_ended_loops()
            opening = loop.create_task(self._open(loop), name="pgqueue-pool", context=Context())
            self._opening[loop] = opening
            opening.add_done_callback(self._opened)
        wait = longest_wait()
        done, _ = await asyncio.wait([opening], timeout=wait)  # which does not cancel it with its caller
        if not done:
            raise PoolTimeout(f"the first connection was waited for {wait:.1f} s")
        return opening.result()

    def _opened(self, opening: asyncio.Task[Any]) -> None:
        self._opening.pop(opening.get_loop(), None)
        if not opening.cancelled():
            opening.exception()  # else asyncio says that it was not retrieved, where no caller waits any more

    async def _open(self, loop: asyncio.AbstractEventLoop) -> AsyncConnectionPool[OwnAsyncConnection]:
        first = await self._source.averified()
        dsn = self._source.dsn
        opened = WeakSet([first])
        pool = _AsyncPool(
            dsn if self._source.folder is None else partial(asyncio.to_thread, lambda: self._source.dsn),
            connection_class=OwnAsyncConnection,
            kwargs=self._source.connect_options(dsn, POOLED) | {"made": [first], "opened": opened},
            min_size=0,
            max_size=self.size,
            timeout=self._wait,
            reconnect_timeout=self._reconnect,
            reconnect_failed=_aconnect_again,
            open=False,
        )
        self._pools[loop] = _LoopPool(pool, asyncio.create_task(pool.end_when_cancelled()), opened)
        await pool.open()
        return pool

    def _close_ended_loops(self) -> None:
        for loop in [loop for loop in tuple(self._opening) if loop.is_closed()]:
            self._opening.pop(loop, None)
        for loop in [loop for loop in tuple(self._pools) if loop.is_closed()]:
            ended = self._pools.pop(loop, None)
            for connection in tuple(ended.opened) if ended is not None else ():
                connection.pgconn.finish()  # close() would be awaited in the loop that has ended

    async def fit(self, jobs: int) -> None:
        """Resize the pools so that every running job can hold a connection, with :data:`SPARE` in addition.

        Args:
            jobs: how many more jobs run at a time in this process from now on; negative: how many fewer.
        """
        with self._lock:
            self._jobs += jobs
            self.size = max(self.least, self._jobs + SPARE if self._jobs else 0)
            if self._pool is not None:
                self._pool.resize(0, self.size)
        made = self._pools.get(asyncio.get_running_loop())
        if made is not None:
            await made.pool.resize(0, self.size)

    def close(self) -> None:
        """Close the blocking pool."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
            for unused in _unused_connections(pool):
                unused.close()

    async def aclose(self) -> None:
        """Close the running loop's pool."""
        made = self._pools.pop(asyncio.get_running_loop(), None)
        if made is not None:
            try:
                await made.pool.close()
            finally:
                made.end.cancel()
            await asyncio.wait([made.end])
            for unused in _unused_connections(made.pool):
                await unused.close()

    def forget(self) -> None:
        """Start again without pools: in a forked child, whose parent owns the sockets that it inherited."""
        self._lock = threading.Lock()
        self._pool = None
        self._pools, self._opening = {}, {}


def _connect_again(pool: ConnectionPool[Any]) -> None:
    """Have a pool that has given up connect again, if callers wait: by itself it does so only when the next one comes."""
    if pool.get_stats().get("requests_waiting"):
        pool.resize(1, pool.max_size)
        pool.resize(0, pool.max_size)


async def _aconnect_again(pool: AsyncConnectionPool[Any]) -> None:
    if pool.get_stats().get("requests_waiting"):
        await pool.resize(1, pool.max_size)
        await pool.resize(0, pool.max_size)


def _unused_connections(pool: Any) -> list[Any]:  # noqa: ANN401 - a pool of either kind
    """The connection with which a pool was made, if no caller took one."""
    return list(pool.kwargs["made"])


def take_connection(pool: ConnectionPool[OwnConnection]) -> OwnConnection:
    """A connection from a pool, which the caller must put back; never one that the server has closed."""
    connection = pool.getconn(longest_wait())
    while connection.is_cut_off():
        connection.close()
        pool.putconn(connection)
        connection = pool.getconn(longest_wait())
    connection.answers_by = answer_due()
    return connection


async def atake_connection(pool: AsyncConnectionPool[OwnAsyncConnection]) -> OwnAsyncConnection:
    """As :func:`take_connection`, awaited.

    On Python 3.11, a cancellation that comes together with the connection is lost inside the pool (``asyncio.wait_for``
    returns the connection and drops the cancellation), and a task's timeout with it. So this function checks for it.
    """
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0
    connection = await pool.getconn(longest_wait())
    while connection.is_cut_off():
        await connection.close()
        await pool.putconn(connection)
        connection = await pool.getconn(longest_wait())
    if task is not None and task.cancelling() > cancellations:
        await pool.putconn(connection)
        raise asyncio.CancelledError
    connection.answers_by = answer_due()
    return connection


_all: WeakSet[Pools] = WeakSet()


@atexit.register
def _at_exit() -> None:
    """Close what a program has left open. Since Python 3.13, a pool that ends with the process waits 5 s for each of its threads."""
    for pools in list(_all):
        pools.close()
    if (kept := sys.modules.get("pgqueue.store.kept_server")) is not None:
        kept.end()


def _after_fork() -> None:
    for pools in list(_all):
        pools.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
