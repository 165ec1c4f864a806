"""Finds the driver's connection inside a user's: in a SQLAlchemy connection or session, or in a Django connection.

The driver's connection is in the same transaction. SQLAlchemy, Django and asyncpg are not imported: their objects are
recognised by their modules. Any other connection is taken as the driver's own; :mod:`pgqueue.store.connections.drivers` decides which
drivers there are.
"""

from typing import Any, TypeGuard

from pgqueue.errors import UnsupportedConnection
from pgqueue.store.connections.asyncpg import AsyncpgConnection
from pgqueue.store.connections.connection import BEGIN

ASYNCPG = {("asyncpg.connection", "Connection"), ("asyncpg.pool", "PoolConnectionProxy")}


def unwrap(connection: object) -> Any:  # noqa: ANN401 - of any driver
    """The driver's connection that a user's connection is or holds, in its current transaction.

    Raises:
        UnsupportedConnection: it is one of SQLAlchemy's awaitable connections.
    """
    modules = _modules(connection)
    if "sqlalchemy." in modules:
        return _inside_sqlalchemy(connection)
    return _inside_django(connection) if _is_django(modules) else connection


async def aunwrap(connection: object) -> Any:  # noqa: ANN401 - of any driver
    """The driver's connection that a user's awaitable connection is or holds, in its current transaction.

    Raises:
        UnsupportedConnection: it is the blocking face of a SQLAlchemy awaitable connection.
    """
    modules = _modules(connection)
    if "sqlalchemy.ext.asyncio" in modules:
        return await _inside_async_sqlalchemy(connection)
    if "sqlalchemy." in modules:
        return _behind_blocking_sqlalchemy(connection)
    return _inside_django(connection) if _is_django(modules) else connection


def connection_class(connection: object) -> str:
    """A connection's class, for messages."""
    return f"<{type(connection).__module__}.{type(connection).__qualname__}>"


def _modules(connection: object) -> str:
    return " ".join(kind.__module__ for kind in type(connection).__mro__)


def _is_asyncpg(connection: object) -> TypeGuard[AsyncpgConnection]:
    return any((kind.__module__, kind.__name__) in ASYNCPG for kind in type(connection).__mro__)


def _inside_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - SQLAlchemy stays unimported
    if "sqlalchemy.ext.asyncio" in _modules(connection):
        raise UnsupportedConnection(
            f"connection={connection_class(connection)} is asynchronous; await aenqueue(...) or aenqueue_many(...) with it"
        )
    if hasattr(connection, "get_bind"):  # a Session, or a scoped_session
        connection = connection.connection()
    if not hasattr(connection, "in_transaction"):  # an Engine has no transaction to join
        return connection
    if (
        not connection.in_transaction()
    ):  # begin, as any statement would: otherwise its commit() would commit nothing
        connection.begin()
    return connection.connection.driver_connection


def _behind_blocking_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - SQLAlchemy stays unimported
    found = _inside_sqlalchemy(connection)
    # asyncpg's transaction begins with SQLAlchemy's first statement, and a blocking call cannot await one.
    if _is_asyncpg(found):
        raise UnsupportedConnection(
            f"connection={connection_class(connection)} is the blocking face of an asynchronous one; "
            "give the AsyncConnection or AsyncSession itself"
        )
    return found


async def _inside_async_sqlalchemy(connection: Any) -> object:  # noqa: ANN401 - SQLAlchemy stays unimported
    if hasattr(connection, "get_bind"):  # an AsyncSession
        connection = await connection.connection()
    if not hasattr(connection, "in_transaction"):
        return connection
    if not connection.in_transaction():
        await connection.begin()
    found = (await connection.get_raw_connection()).driver_connection
    if _is_asyncpg(found) and not found.is_in_transaction():
        # SQLAlchemy has begun, but sends asyncpg the BEGIN only with its first statement: without it, pgqueue's
        # statements would be committed at once. Under AUTOCOMMIT this begins no transaction, and they are.
        await connection.exec_driver_sql(BEGIN)
    return found


def _is_django(modules: str) -> bool:
    return "django.db." in modules or "django.utils.connection" in modules


def _inside_django(connection: Any) -> object:  # noqa: ANN401 - Django stays unimported
    if getattr(connection, "vendor", None) != "postgresql":
        return connection
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    return connection.connection
