"""Every kind of connection a job can be enqueued on, and how a step runs on it.

psycopg's connections run steps themselves; a SQLAlchemy connection or session is asked for the psycopg
connection inside it, which is in the same transaction. A new driver is one class here and one row in the
conformance suite.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pgqueue.errors import SchemaMissing, UnsupportedConnection
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.plan import Copy, Row, Step

KINDS = (
    "psycopg Connection and AsyncConnection, and SQLAlchemy Connection, Session, AsyncConnection and AsyncSession "
    "on the postgresql+psycopg dialect"
)
NOT_THERE = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)


class Blocking:
    """Runs steps on a psycopg connection."""

    __slots__ = ("_catalogue", "_connection")

    def __init__(self, connection: psycopg.Connection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection; whatever row factory it has is left alone."""
        self._connection = connection
        self._catalogue = catalogue

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql = self._catalogue[step.name]
        cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
        try:
            if isinstance(step, Copy):
                with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        copy.write(chunk)
                return ()
            cursor.execute(sql, step.params, binary=True)
            return cursor.fetchall() if step.returns else ()
        except NOT_THERE as error:
            raise _schema_missing(self._catalogue, error) from error


class Awaiting:
    """Runs steps on a psycopg AsyncConnection."""

    __slots__ = ("_catalogue", "_connection")

    def __init__(self, connection: psycopg.AsyncConnection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection; whatever row factory it has is left alone."""
        self._connection = connection
        self._catalogue = catalogue

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql = self._catalogue[step.name]
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        try:
            if isinstance(step, Copy):
                async with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        await copy.write(chunk)
                return ()
            await cursor.execute(sql, step.params, binary=True)
            return await cursor.fetchall() if step.returns else ()
        except NOT_THERE as error:
            raise _schema_missing(self._catalogue, error) from error


def unwrap(connection: object) -> psycopg.Connection[Any]:
    """The blocking psycopg connection that a user's connection is or holds, in its current transaction.

    Raises:
        UnsupportedConnection: it is or holds none.
    """
    if isinstance(connection, psycopg.Connection):
        return connection
    found = connection
    if _is_sqlalchemy(connection):
        found = _inside_sqlalchemy(connection)
    if isinstance(found, psycopg.AsyncConnection):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is asynchronous; await aenqueue(...) or aenqueue_many(...) with it"
        )
    if not isinstance(found, psycopg.Connection):
        raise UnsupportedConnection(f"connection={_named(connection)}: jobs can be enqueued on {KINDS}")
    return found


async def aunwrap(connection: object) -> psycopg.AsyncConnection[Any]:
    """The asynchronous psycopg connection that a user's connection is or holds, in its current transaction.

    Raises:
        UnsupportedConnection: it is or holds none.
    """
    found = connection
    if _is_sqlalchemy(connection) and "sqlalchemy.ext.asyncio" in _modules(connection):
        found = await _inside_async_sqlalchemy(connection)
    elif _is_sqlalchemy(connection):
        found = _inside_sqlalchemy(connection)
    if isinstance(found, psycopg.Connection):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is blocking; use enqueue(...) or enqueue_many(...) with it"
        )
    if not isinstance(found, psycopg.AsyncConnection):
        raise UnsupportedConnection(f"connection={_named(connection)}: jobs can be enqueued on {KINDS}")
    return found


def _modules(connection: object) -> str:
    """The modules of its classes: SQLAlchemy is recognised without being imported."""
    return " ".join(kind.__module__ for kind in type(connection).__mro__)


def _is_sqlalchemy(connection: object) -> bool:
    return "sqlalchemy." in _modules(connection)


def _inside_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - SQLAlchemy stays unimported
    if "sqlalchemy.ext.asyncio" in _modules(connection):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is asynchronous; await aenqueue(...) or aenqueue_many(...) with it"
        )
    if hasattr(connection, "get_bind"):  # a Session, or a scoped_session
        connection = connection.connection()
    if not hasattr(connection, "in_transaction"):  # an Engine has no transaction to join
        return connection
    if not connection.in_transaction():  # as any statement would: else its commit() had nothing to commit
        connection.begin()
    return connection.connection.driver_connection


async def _inside_async_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - as above
    if hasattr(connection, "get_bind"):  # an AsyncSession
        connection = await connection.connection()
    if not hasattr(connection, "in_transaction"):
        return connection
    if not connection.in_transaction():
        await connection.begin()
    return (await connection.get_raw_connection()).driver_connection


def _named(connection: object) -> str:
    return f"<{type(connection).__module__}.{type(connection).__qualname__}>"


def _schema_missing(catalogue: Catalogue, error: psycopg.Error) -> SchemaMissing:
    return SchemaMissing(
        f'schema "{catalogue.schema}" is not there or not complete ({error.diag.message_primary}); '
        "run `pgqueue migrate`"
    )
