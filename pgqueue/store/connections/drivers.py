"""Which class runs steps on a user's connection, by the connection's driver.

To add a driver: write a class with ``execute`` and ``transaction`` (:class:`pgqueue.store.plan.Runs`, or ``RunsAsync``
for an awaitable one), and give it a row in :data:`DRIVERS` and one in the conformance suite (``tests/store/drivers.py``).
Drivers are not imported: a connection is known by the name of its class. How the driver's connection is found inside
those of SQLAlchemy and Django is decided in :mod:`pgqueue.store.connections.unwrap`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from pgqueue.errors import UnsupportedConnection
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.asyncpg import AsyncpgStepRunner
from pgqueue.store.connections.connection import AsyncStepRunner, StepRunner
from pgqueue.store.connections.unwrap import aunwrap, connection_class, unwrap
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
