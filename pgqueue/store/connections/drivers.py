"""Which class runs steps on a user's connection, by the connection's driver.

To add a driver: write a class with ``execute`` and ``transaction`` (:class:`pgqueue.store.plan.Runs`, or ``RunsAsync``
for an awaitable one), and give it a row in :data:`DRIVERS` and one in the conformance suite (``tests/store/drivers.py``).
Drivers are not imported: a connection is known by the name of its class, also inside one of SQLAlchemy or Django.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import psycopg

from pgqueue.errors import UnsupportedConnection
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.asyncpg import AsyncpgConnection, AsyncpgStepRunner
from pgqueue.store.connections.connection import BEGIN, AsyncStepRunner, StepRunner
from pgqueue.store.plan import Runs, RunsAsync

KINDS = (
    "psycopg Connection and AsyncConnection, asyncpg Connection (a pool's, too), SQLAlchemy Connection, Session, "
    "AsyncConnection and AsyncSession on the postgresql+psycopg and postgresql+asyncpg dialects, and Django's "
    "connections on psycopg 3"
)


class Driver(NamedTuple):
    """How steps run on the connections of one driver.

    Attributes:
        steps: the class that runs steps, made of a connection and the statements.
        awaits: whether its methods are awaited.
    """

    steps: Callable[[Any, Catalogue], Any]
    awaits: bool = False


DRIVERS = {
    "psycopg.Connection": Driver(StepRunner),
    "psycopg.AsyncConnection": Driver(AsyncStepRunner, awaits=True),
    "asyncpg.connection.Connection": Driver(AsyncpgStepRunner, awaits=True),
    "asyncpg.pool.PoolConnectionProxy": Driver(AsyncpgStepRunner, awaits=True),
}
"""The drivers, by the class of their connections; it may be a base class."""

_known: dict[type, Driver] = {}


def steps_on(connection: object, catalogue: Catalogue) -> Runs:
    """What runs steps on a user's blocking connection, in its current transaction.

    Raises:
        UnsupportedConnection: it is awaitable, or of a driver that is not known here.
    """
    found = connection if type(connection) in _known else unwrap(connection)
    driver = _driver_of(found, connection)
    if driver.awaits:
        raise UnsupportedConnection(
            f"connection={connection_class(connection)} is asynchronous; await aenqueue(...) or aenqueue_many(...) with it"
        )
    steps: Runs = driver.steps(found, catalogue)
    return steps


async def asteps_on(connection: object, catalogue: Catalogue) -> RunsAsync:
    """What runs steps on a user's awaitable connection, in its current transaction.

    Raises:
        UnsupportedConnection: it is blocking, or of a driver that is not known here.
    """
    found = connection if type(connection) in _known else await aunwrap(connection)
    driver = _driver_of(found, connection)
    if not driver.awaits:
        raise UnsupportedConnection(
            f"connection={connection_class(connection)} is blocking; use enqueue(...) or enqueue_many(...) with it"
        )
    steps: RunsAsync = driver.steps(found, catalogue)
    return steps


async def is_blocking(connection: object) -> bool:
    """Whether the driver's connection that a user's connection is or holds is used without awaiting.

    Raises:
        UnsupportedConnection: it is of a driver that is not known here.
    """
    return not _driver_of(await aunwrap(connection), connection).awaits


def psycopg_connection(connection: object) -> psycopg.Connection[Any]:
    """The blocking psycopg connection that a user's connection is or holds, where psycopg's own methods are needed.

    Raises:
        UnsupportedConnection: it is or holds another one.
    """
    found = unwrap(connection)
    if not isinstance(found, psycopg.Connection):
        raise UnsupportedConnection(
            f"connection={connection_class(connection)}: a blocking connection of psycopg 3 is needed here"
        )
    return found


async def psycopg_async_connection(connection: object) -> psycopg.AsyncConnection[Any]:
    """The awaitable psycopg connection that a user's connection is or holds, where psycopg's own methods are needed.

    Raises:
        UnsupportedConnection: it is or holds another one.
    """
    found = await aunwrap(connection)
    if not isinstance(found, psycopg.AsyncConnection):
        raise UnsupportedConnection(
            f"connection={connection_class(connection)}: an awaitable connection of psycopg 3 is needed here"
        )
    return found


def _driver_of(found: object, given: object) -> Driver:
    kind = type(found)
    if (driver := _known.get(kind)) is not None:
        return driver
    for base in kind.__mro__:
        if (driver := DRIVERS.get(f"{base.__module__}.{base.__qualname__}")) is not None:
            _known[kind] = driver
            return driver
    raise UnsupportedConnection(f"connection={connection_class(given)}: jobs can be enqueued on {KINDS}")


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
