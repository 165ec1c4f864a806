"""The driver's connection inside a user's: every kind that jobs can be enqueued on.

A SQLAlchemy connection or session and a Django connection are asked for the driver's connection that they hold,
which is in the same transaction. Neither these packages nor asyncpg are imported: their objects are known by their
modules.
"""

from typing import Any, TypeGuard

import psycopg

from pgqueue.errors import UnsupportedConnection
from pgqueue.store.asyncpg import AsyncpgConnection
from pgqueue.store.connection import BEGIN

KINDS = (
    "psycopg Connection and AsyncConnection, asyncpg Connection (a pool's, too), SQLAlchemy Connection, Session, "
    "AsyncConnection and AsyncSession on the postgresql+psycopg and postgresql+asyncpg dialects, and Django's "
    "connections on psycopg 3"
)
ASYNCPG = {("asyncpg.connection", "Connection"), ("asyncpg.pool", "PoolConnectionProxy")}


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
    elif _is_django(connection):
        found = _inside_django(connection)
    if isinstance(found, psycopg.AsyncConnection) or _is_asyncpg(found):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is asynchronous; await aenqueue(...) or aenqueue_many(...) with it"
        )
    if not isinstance(found, psycopg.Connection):
        raise UnsupportedConnection(f"connection={_named(connection)}: jobs can be enqueued on {KINDS}")
    return found


async def aunwrap(connection: object) -> psycopg.AsyncConnection[Any] | AsyncpgConnection:
    """The asynchronous connection that a user's connection is or holds, in its current transaction.

    Raises:
        UnsupportedConnection: it is or holds none.
    """
    if isinstance(connection, psycopg.AsyncConnection):
        return connection
    found = connection
    if _is_sqlalchemy(connection) and "sqlalchemy.ext.asyncio" in _modules(connection):
        found = await _inside_async_sqlalchemy(connection)
    elif _is_sqlalchemy(connection):
        found = _behind_blocking_sqlalchemy(connection)
    elif _is_django(connection):
        found = _inside_django(connection)
    if isinstance(found, psycopg.Connection):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is blocking; use enqueue(...) or enqueue_many(...) with it"
        )
    if not (isinstance(found, psycopg.AsyncConnection) or _is_asyncpg(found)):
        raise UnsupportedConnection(f"connection={_named(connection)}: jobs can be enqueued on {KINDS}")
    return found


def _modules(connection: object) -> str:
    """The modules of its classes: SQLAlchemy is recognised without being imported."""
    return " ".join(kind.__module__ for kind in type(connection).__mro__)


def _is_asyncpg(connection: object) -> TypeGuard[AsyncpgConnection]:
    return any((kind.__module__, kind.__name__) in ASYNCPG for kind in type(connection).__mro__)


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


def _behind_blocking_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - as above
    """What stands behind an AsyncConnection, for one, where somebody hands over its ``sync_connection``."""
    found = _inside_sqlalchemy(connection)
    # asyncpg's transaction begins with a statement of SQLAlchemy's, and here there is nothing to await one on.
    if _is_asyncpg(found):
        raise UnsupportedConnection(
            f"connection={_named(connection)} is the blocking face of an asynchronous one; "
            "give the AsyncConnection or AsyncSession itself"
        )
    return found


async def _inside_async_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - as above
    if hasattr(connection, "get_bind"):  # an AsyncSession
        connection = await connection.connection()
    if not hasattr(connection, "in_transaction"):
        return connection
    if not connection.in_transaction():
        await connection.begin()
    found = (await connection.get_raw_connection()).driver_connection
    if _is_asyncpg(found) and not found.is_in_transaction():
        # SQLAlchemy has begun, but sends asyncpg the BEGIN only with its first statement: else ours were committed
        # at once. Under AUTOCOMMIT this begins nothing, and ours is.
        await connection.exec_driver_sql(BEGIN)
    return found


def _is_django(connection: object) -> bool:
    return "django.db." in _modules(connection) or "django.utils.connection" in _modules(connection)


def _inside_django(connection: Any) -> object:  # noqa: ANN401 - Django stays unimported
    if getattr(connection, "vendor", None) != "postgresql":
        return connection
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    return connection.connection


def _named(connection: object) -> str:
    return f"<{type(connection).__module__}.{type(connection).__qualname__}>"
