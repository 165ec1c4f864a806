"""The transaction that a job has open, and which calls of the queue join it.

Inside ``ctx.transaction()``, whatever the task asks of the same database without naming a connection is done in that
transaction: what the task enqueues commits with the job's completion, or not at all. A context variable says which
transaction is open. Tasks of asyncio that are started in the block join it while it is open. Other threads never do:
they may have inherited the variable, and a connection serves one thread. ``OWN_CONNECTION`` is the way out.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

import psycopg

from pgqueue.errors import UnsupportedConnection


class Apart:
    """The type of :data:`OWN_CONNECTION`."""

    def __repr__(self) -> str:
        """By its name."""
        return "OWN_CONNECTION"


OWN_CONNECTION: Final = Apart()
"""``using(connection=OWN_CONNECTION)``: on a connection of the queue's own, committed at once."""


class Open:
    """A job's open transaction.

    Attributes:
        connection: the connection that it is on.
        turn: held by an asyncio task while it runs a plan here: savepoints of two must not cross.
    """

    __slots__ = ("_outer", "_thread", "connection", "is_open", "key", "turn")

    def __init__(
        self,
        key: object,
        connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]",
        outer: "Open | None",
    ) -> None:
        """A transaction that has just begun, in this thread.

        Args:
            key: what stands for its database.
            connection: the connection that it is on.
            outer: the transaction in which it began, perhaps of another database.
        """
        self.key = key
        self.connection = connection
        self.is_open = True
        self.turn = asyncio.Lock()
        self._outer = outer
        self._thread = threading.get_ident()

    def of(self, key: object) -> "Open | None":
        """The innermost open transaction of a database that this thread may join."""
        one: Open | None = self
        while one is not None:
            if one.key is key and one.is_open and one._thread == threading.get_ident():  # noqa: SLF001 - of this same class
                return one
            one = one._outer  # noqa: SLF001 - as above
        return None


_innermost: ContextVar[Open | None] = ContextVar("pgqueue_transaction", default=None)


@contextmanager
def joinable(
    key: object, connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
) -> Iterator[None]:
    """Let what is asked of a database within the block join the transaction that is open on a connection."""
    opened = Open(key, connection, _innermost.get())
    token = _innermost.set(opened)
    try:
        yield
    finally:
        opened.is_open = False  # a copy of this context may live on, in an asyncio task that was started here
        with suppress(ValueError):  # left in another context than it was entered in, which keeps its variable
            _innermost.reset(token)


def open_transaction(key: object) -> Open | None:
    """The transaction that a call of this database joins here; None: it takes a connection of its own."""
    innermost = _innermost.get()
    return None if innermost is None else innermost.of(key)


def blocking_connection(transaction: Open) -> "psycopg.Connection[Any]":
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
