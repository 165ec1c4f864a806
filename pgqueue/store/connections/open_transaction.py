"""The transaction that a job has open, and which calls of the queue join it.

Inside ``ctx.transaction()``, every call of the same database that names no connection runs in that transaction: jobs that
the task enqueues commit with the job's completion, or not at all. A context variable holds the open transaction. asyncio
tasks that are started in the block join it while it is open. Other threads never join, although they may have inherited
the variable, because a connection serves one thread; nor do forked processes.
``OWN_CONNECTION`` makes a call independent of the transaction.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import psycopg

from pgqueue.errors import UnsupportedConnection
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.drivers import asteps_on, steps_on
from pgqueue.store.plan import Plan, arun, run

T = TypeVar("T")


class OwnConnectionMarker:
    """The type of :data:`OWN_CONNECTION`."""

    def __repr__(self) -> str:
        return "OWN_CONNECTION"


OWN_CONNECTION: Final = OwnConnectionMarker()
"""``using(connection=OWN_CONNECTION)``: uses one of the queue's connections, and commits at once."""


class OpenTransaction:
    """A job's open transaction.

    Attributes:
        connection: its connection.
        turn: a lock that an asyncio task holds while it runs a plan: savepoints of two tasks must not cross.
    """

    __slots__ = ("_outer", "_thread", "connection", "is_open", "key", "turn")

    def __init__(
        self,
        key: object,
        connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]",
        outer: "OpenTransaction | None",
    ) -> None:
        """``key`` identifies the transaction's database.

        ``outer`` is the open transaction in which it began, possibly of another database.
        """
        self.key = key
        self.connection = connection
        self.is_open = True
        self.turn = asyncio.Lock()
        self._outer = outer
        self._thread = threading.get_ident()

    def of(self, key: object) -> "OpenTransaction | None":
        """The innermost open transaction of a database that this thread may join."""
        one: OpenTransaction | None = self
        while one is not None:
            if one.key is key and one.is_open and one._thread == threading.get_ident():  # noqa: SLF001 - of the same class
                return one
            one = one._outer  # noqa: SLF001 - of the same class
        return None


_innermost: ContextVar[OpenTransaction | None] = ContextVar("pgqueue_transaction", default=None)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _innermost.set(None))


@contextmanager
def joinable(
    key: object, connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
) -> Iterator[None]:
    """Let calls of a database inside the block join the transaction that is open on a connection."""
    opened = OpenTransaction(key, connection, _innermost.get())
    token = _innermost.set(opened)
    try:
        yield
    finally:
        opened.is_open = False  # an asyncio task that was started here may keep a copy of this context
        with suppress(ValueError):  # the block was left in another context, which keeps its own variable
            _innermost.reset(token)


def open_transaction(key: object) -> OpenTransaction | None:
    """The transaction that a call of this database joins here; None: it uses its own connection."""
    innermost = _innermost.get()
    return None if innermost is None else innermost.of(key)


def blocking_connection(transaction: OpenTransaction) -> "psycopg.Connection[Any]":
    """The connection to join from a blocking call.

    Raises:
        UnsupportedConnection: a blocking call cannot use an awaitable connection.
    """
    if isinstance(transaction.connection, psycopg.AsyncConnection):
        raise UnsupportedConnection(
            "a blocking call cannot join the `async with ctx.transaction()` that is open here: await its twin "
            "(aenqueue(...), ajob(...)), or enqueue with using(connection=OWN_CONNECTION), committed at once"
        )
    return transaction.connection


async def arun_joined(transaction: OpenTransaction, plan: Plan[T], catalogue: Catalogue) -> T:
    """Run a plan in an open transaction, after those that other asyncio tasks run in it."""
    if isinstance(transaction.connection, psycopg.Connection):  # a plain function that runs a loop of its own
        return run(plan, steps_on(transaction.connection, catalogue))
    async with transaction.turn:
        return await arun(plan, await asteps_on(transaction.connection, catalogue))
