"""How steps run on psycopg's connections; :mod:`pgqueue.store.asyncpg` does the same for asyncpg's.

A new driver is one such class and one row in the conformance suite.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pgqueue.errors import SchemaMissing
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.plan import Copy, Row, Step

NOT_THERE = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)
# A cursor keeps what it has read in memory until its next statement, which may be long in coming.
FEW = 100
# psycopg sends the transaction's own BEGIN before the first statement, whichever that is.
BEGIN = "select"


class Blocking:
    """Runs steps on a psycopg connection, one after the other, on one cursor: to make one costs 10 µs and more."""

    __slots__ = ("_connection", "_cursor", "catalogue")

    def __init__(self, connection: psycopg.Connection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection; whatever row factory it has is left alone."""
        self._connection = connection
        self.catalogue = catalogue
        self._renew_cursor()

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql, cursor = self.catalogue[step.name], self._cursor
        try:
            if isinstance(step, Copy):
                with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        copy.write(chunk)
                return ()
            cursor.execute(sql, step.params, binary=True)
            return self._rows() if step.returns else ()
        except NOT_THERE as error:
            raise schema_missing(self.catalogue, error.diag.message_primary) from error

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the user's."""
        if _is_to_begin(self._connection):
            self._connection.execute(BEGIN)
        with self._connection.transaction():
            yield

    def _rows(self) -> Sequence[Row]:
        rows = self._cursor.fetchall()
        if len(rows) > FEW:
            self._renew_cursor()
        return rows

    def _renew_cursor(self) -> None:
        self._cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)


class OwnConnection(psycopg.Connection[Any]):
    """A connection of ours, which keeps what runs steps on it."""

    _steps: Blocking | None = None

    def steps(self, catalogue: Catalogue) -> Blocking:
        """What runs steps here; whoever has the connection has it alone."""
        if self._steps is None or self._steps.catalogue is not catalogue:
            self._steps = Blocking(self, catalogue)
        return self._steps


class Awaiting:
    """Runs steps on a psycopg AsyncConnection as :class:`Blocking` does."""

    __slots__ = ("_connection", "_cursor", "catalogue")

    def __init__(self, connection: psycopg.AsyncConnection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection; whatever row factory it has is left alone."""
        self._connection = connection
        self.catalogue = catalogue
        self._renew_cursor()

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql, cursor = self.catalogue[step.name], self._cursor
        try:
            if isinstance(step, Copy):
                async with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        await copy.write(chunk)
                return ()
            await cursor.execute(sql, step.params, binary=True)
            return await self._rows() if step.returns else ()
        except NOT_THERE as error:
            raise schema_missing(self.catalogue, error.diag.message_primary) from error

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the user's."""
        if _is_to_begin(self._connection):
            await self._connection.execute(BEGIN)
        async with self._connection.transaction():
            yield

    async def _rows(self) -> Sequence[Row]:
        rows = await self._cursor.fetchall()
        if len(rows) > FEW:
            self._renew_cursor()
        return rows

    def _renew_cursor(self) -> None:
        self._cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)


class OwnAsyncConnection(psycopg.AsyncConnection[Any]):
    """An awaitable connection of ours, which keeps what runs steps on it."""

    _steps: Awaiting | None = None

    def steps(self, catalogue: Catalogue) -> Awaiting:
        """What runs steps here; whoever has the connection has it alone."""
        if self._steps is None or self._steps.catalogue is not catalogue:
            self._steps = Awaiting(self, catalogue)
        return self._steps


def schema_missing(catalogue: Catalogue, reason: str | None) -> SchemaMissing:
    """What to raise when the server says that something of ours is not there."""
    return SchemaMissing(
        f'schema "{catalogue.schema}" is not there or not complete ({reason}); run `pgqueue migrate`'
    )


def _is_to_begin(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the user's transaction would begin with the next statement.

    Were that psycopg's ``transaction()`` block, the block would commit it, too, and not the user.
    """
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
