"""A real database as a test sees it: at another instant, or on the test's own connection."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

import psycopg

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.audit import unaudited
from pgqueue.store.connections.connection import OwnAsyncConnection, achecked, checked
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.drivers import is_blocking, psycopg_async_connection, psycopg_connection
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.plan import Plan
from pgqueue.testing.clock import Clock

T = TypeVar("T")
D = TypeVar("D", bound="Database | StandIn")


class StandIn:
    """Stands in for a :class:`Database` of any kind, and leaves to it all that it does not change itself.

    Attributes:
        real: the database.
        clock: what time it is for plans; None: the database's own.
    """

    calls_hooks = True

    def __init__(self, real: Database, *, clock: Clock | None = None, connection: object = None) -> None:
        """``clock``: what time it is for plans; None: the database's own.

        ``connection``: where plans run that name no other; None: as ``real`` does it.
        """
        self.real = real
        self.clock = clock
        self._connection = connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the database
        return getattr(self.real, name)

    @property
    def blocks(self) -> bool:
        """Whether a coroutine enqueues as :attr:`Database.blocks` says; on a connection of the test's it does not."""
        return self._connection is None and self.real.blocks

    def joins(self, connection: object) -> bool:
        """Whether jobs would be added on the caller's connection or transaction, as :meth:`Database.joins` says."""
        return self._connection is not None or self.real.joins(connection)

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan, as :meth:`Database.run` does."""
        return self.real.run(self._dated(plan), self._chosen(connection))

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan, as :meth:`Database.arun` does; on a test's blocking connection, without awaiting."""
        chosen = self._chosen(connection)
        if chosen is not None and chosen is self._connection and await is_blocking(chosen):
            return self.run(plan, connection)
        return await self.real.arun(self._dated(plan), chosen)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction for a task: a savepoint where the test has a connection."""
        if self._connection is None:
            with self.real.transaction() as own:
                yield own
        else:
            joined = psycopg_connection(self._connection)
            with checked(joined.transaction()):
                yield joined

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A transaction for an ``async def`` task: a savepoint where the test has a connection."""
        if self._connection is None:
            async with self.real.atransaction() as own:
                yield own
        else:
            joined = await psycopg_async_connection(self._connection)
            async with achecked(joined.transaction()):
                yield joined

    def _dated(self, plan: Plan[T]) -> Plan[T]:
        """The plan at the clock's instant, where it takes an instant and none is given."""
        if (done := unaudited(plan)) is not plan:
            return plan.but(done=self._dated(done))
        if self.clock is None or plan.arguments.get("now", plan) is not None:
            return plan
        return plan.but(now=self.clock.now)

    def _chosen(self, connection: object) -> object:
        if self._connection is not None and (connection is None or connection is OWN_CONNECTION):
            return self._connection
        return connection


class UnpooledDatabase(Database):
    """A database whose awaitable connections are closed at once: a pool would outlive the loop of its test."""

    @asynccontextmanager
    async def apooled(self) -> AsyncIterator[OwnAsyncConnection]:
        """An awaitable connection of its own, in autocommit mode."""
        async with await self.aconnect() as connection:
            yield connection


@contextmanager
def swap_database(queue: PgQueue, database: D) -> Iterator[D]:
    """Put another database in place of a queue's for the length of a block."""
    before, queue.database = queue.database, cast("Database", database)
    try:
        yield database
    finally:
        queue.database = before
