"""Every kind of connection that plans run on, a row each. ``every_kind`` makes them all look alike.

A row says how its users open a connection, write a transaction and set a savepoint. Everything else is
pgqueue's own way in: :class:`pgqueue.store.connections.database.Database`, with the user's connection in hand.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest
from databases import dsn_of
from django.apps import apps
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from django.utils.functional import empty
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import JsonbDumper
from servers import on_the_oldest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool
from store import libpq

from pgqueue.store.connections.database import Database
from pgqueue.store.plan import Plan

T = TypeVar("T")
Manager: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of connection.

    Attributes:
        name: the test's id.
        open: a context manager of an open connection, given a DSN.
        transaction: what its users write around the statements of a transaction.
        savepoint: what they write within one, to undo a part of it.
        single: what they write around a single statement; nothing where it commits by itself.
        awaits: whether it is asynchronous.
    """

    name: str
    open: Callable[[str], Manager]
    transaction: Callable[[Any], Manager]
    savepoint: Callable[[Any], Manager]
    single: Callable[[Any], Manager]
    awaits: bool = False


class Ask:
    """``await ask(plan)``: run a plan on a connection of some kind, and commit."""

    def __init__(self, kind: Kind, connection: Any, dsn: str) -> None:
        self.kind = kind
        self.connection = connection
        self.dsn = dsn
        self.database = Database(dsn)

    async def __call__(self, plan: Plan[T]) -> T:
        async with entered(self.kind.single(self.connection)):
            return await self.within(plan)

    async def within(self, plan: Plan[T]) -> T:
        """Run a plan in the connection's transaction, and leave that open."""
        if self.kind.awaits:
            return await self.database.arun(plan, self.connection)
        return self.database.run(plan, self.connection)

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """The user's own transaction: an exception rolls it back."""
        return entered(self.kind.transaction(self.connection))

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        return entered(self.kind.savepoint(self.connection))


@asynccontextmanager
async def entered(manager: Manager) -> AsyncIterator[Any]:
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


@asynccontextmanager
async def _committing(connection: Any) -> AsyncIterator[None]:
    """The style of those who never say "begin"."""
    try:
        yield
    except BaseException:
        await _awaited(connection.rollback())
        raise
    await _awaited(connection.commit())


async def _awaited(value: Awaitable[None] | None) -> None:
    if inspect.isawaitable(value):
        await value


def _psycopg(**options: Any) -> Callable[[str], Manager]:
    return lambda dsn: psycopg.connect(dsn, **options)


def _async_psycopg(**options: Any) -> Callable[[str], Manager]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn, **options) as connection:
            yield connection

    return opened


READ_BY_STATEMENTS = (
    "text",
    "int2",
    "int4",
    "int8",
    "bool",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "jsonb",
)
"""Types for which the connections of some kinds have adapters or codecs of the user's, with which no statement works."""


@asynccontextmanager
async def _async_psycopg_with_adapters(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        adapters = connection.adapters
        for kind in READ_BY_STATEMENTS:
            adapters.register_loader(kind, Unwanted)
        for given in (str, int, bool, datetime, list, dict, UUID, timedelta):
            adapters.register_dumper(given, JsonbDumper)
        yield connection


class Unwanted(Loader):
    """Reads what no statement of pgqueue's may get."""

    def load(self, data: Buffer) -> object:
        return Unwanted, data


def sqlalchemy_url(dsn: str, driver: str = "psycopg") -> str:
    """The DSN as SQLAlchemy writes it."""
    return dsn.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def _sqlalchemy_connection(dsn: str) -> Iterator[Any]:
    with create_engine(sqlalchemy_url(dsn), poolclass=NullPool).connect() as connection:
        yield connection


@contextmanager
def _session(dsn: str) -> Iterator[Any]:
    with Session(create_engine(sqlalchemy_url(dsn), poolclass=NullPool)) as session:
        yield session


@contextmanager
def _scoped_session(dsn: str) -> Iterator[Any]:
    session = scoped_session(sessionmaker(create_engine(sqlalchemy_url(dsn), poolclass=NullPool)))
    yield session
    session.remove()


def async_engine(dsn: str, driver: str = "psycopg", **options: Any) -> AsyncEngine:
    return create_async_engine(sqlalchemy_url(dsn, driver), poolclass=NullPool, **options)


def _async_sqlalchemy_connection(driver: str) -> Callable[[str], Manager]:
    return lambda dsn: async_engine(dsn, driver).connect()


def _async_session(driver: str) -> Callable[[str], Manager]:
    return lambda dsn: AsyncSession(async_engine(dsn, driver))


@asynccontextmanager
async def asyncpg_connection(dsn: str, **options: Any) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn, **options)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_of_a_pool(dsn: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=1, init=_with_codecs) as pool,
        pool.acquire() as connection,
    ):
        yield connection


async def _with_codecs(connection: Any) -> None:
    for kind in READ_BY_STATEMENTS:
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=repr, decoder=repr, format="text")


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """A Django connection without a project; the suite waits on a loop, which Django would hold to be a mistake."""
    where = conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": where["dbname"],
        "USER": where["user"],
        "PASSWORD": where.get("password", ""),
        "HOST": where["host"],
        "PORT": where["port"],
    }
    with _django_settings(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        patch.setattr(apps, "ready", True)
        connection = ConnectionHandler({"default": {}, "kinds": database})["kinds"]
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def _django_settings() -> Iterator[None]:
    """Django's defaults for as long as it takes, unless there are settings."""
    if settings.configured:
        yield
        return
    settings.configure(USE_TZ=True)
    try:
        yield
    finally:
        settings._wrapped = empty  # noqa: SLF001 - there is no public way


def atomic(connection: Any, *, savepoint: bool = True) -> AbstractContextManager[Any]:
    """Django's own block, on a connection that stands in no project's settings."""
    connections[connection.alias] = connection  # where atomic looks for it
    return transaction.atomic(connection.alias, savepoint=savepoint)


def _own(connection: Any) -> Manager:
    return connection.transaction()  # type: ignore[no-any-return]  # psycopg's, of either colour, or asyncpg's


def _nested(connection: Any) -> Manager:
    return connection.begin_nested()  # type: ignore[no-any-return]  # SQLAlchemy's, of either colour


def _nothing(_: Any) -> Manager:
    return nullcontext()


def _kind(name: str, opened: Callable[[str], Manager], *, awaits: bool = False) -> Kind:
    return Kind(name, opened, _committing, _own, _committing, awaits)


def _autocommit_kind(name: str, opened: Callable[[str], Manager], *, awaits: bool = False) -> Kind:
    return Kind(name, opened, _own, _own, _nothing, awaits)


def _sqlalchemy_kind(name: str, opened: Callable[[str], Manager], *, awaits: bool = False) -> Kind:
    return Kind(name, opened, _committing, _nested, _committing, awaits)


KINDS = (
    _kind("psycopg", _psycopg()),
    _kind("psycopg-dict_row", _psycopg(row_factory=dict_row)),
    _kind("psycopg-ClientCursor", _psycopg(cursor_factory=psycopg.ClientCursor)),
    _autocommit_kind("psycopg-autocommit", _psycopg(autocommit=True)),
    _kind("psycopg-async-dict_row", _async_psycopg(row_factory=dict_row), awaits=True),
    _autocommit_kind("psycopg-async-autocommit", _async_psycopg_with_adapters, awaits=True),
    _sqlalchemy_kind("sqlalchemy-Connection", _sqlalchemy_connection),
    _sqlalchemy_kind("sqlalchemy-Session", _session),
    _sqlalchemy_kind("sqlalchemy-scoped_session", _scoped_session),
    _sqlalchemy_kind("sqlalchemy-AsyncConnection", _async_sqlalchemy_connection("psycopg"), awaits=True),
    _sqlalchemy_kind("sqlalchemy-AsyncSession", _async_session("psycopg"), awaits=True),
    _autocommit_kind("asyncpg", asyncpg_connection, awaits=True),
    _autocommit_kind("asyncpg-pool", _asyncpg_of_a_pool, awaits=True),
    _sqlalchemy_kind(
        "sqlalchemy-AsyncConnection-asyncpg", _async_sqlalchemy_connection("asyncpg"), awaits=True
    ),
    _sqlalchemy_kind("sqlalchemy-AsyncSession-asyncpg", _async_session("asyncpg"), awaits=True),
    Kind("django", django_connection, atomic, atomic, _nothing),
    _autocommit_kind("libpq", libpq.opened),
)

DRIVERS = {
    "psycopg",
    "psycopg-async-autocommit",
    "asyncpg",
    "sqlalchemy-AsyncSession-asyncpg",
    "django",
    "libpq",
}
"""The kinds on which a statement could behave differently: each driver, and those that set codecs or adapters on it.

The other kinds only wrap these: pgqueue runs its statements on a cursor of its own, with any cursor or row factory
the connection has. ``test_transactions.py`` and ``test_every_kind.py`` run on all of them and would see a difference.
"""
ON_THE_OLDEST = {"psycopg", "asyncpg"}
"""The drivers on which statements run on the oldest server too: one that sends text, and one that sends binary values and
prepares each statement. How a driver writes a statement does not depend on the server, and PostgreSQL 18 sees all of them.
Tests of every kind of connection run on all kinds there, too."""
CHOSEN = ON_THE_OLDEST if on_the_oldest() else DRIVERS


_sweeping: dict[str, psycopg.Connection[Any]] = {}
"""The connection that empties a file's database before each of its tests, by DSN; a new one would cost as much again."""


@pytest.fixture(scope="module")
def one_database(migrated_server: Any) -> Iterator[str]:
    """A database for a whole file of tests on every kind: emptying it takes a tenth of the time of a fresh one."""
    with psycopg.connect(dsn_of(migrated_server, "postgres"), autocommit=True) as connection:
        connection.execute(f'create database pgqueue_test_kinds template "{migrated_server.template_dbname}"')
        where = dsn_of(migrated_server, "pgqueue_test_kinds")
        with psycopg.connect(where, autocommit=True) as _sweeping[where]:
            yield where
        connection.execute("drop database pgqueue_test_kinds with (force)")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def every_kind(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Ask]:
    """A connection of every kind in turn, for tests of what differs between kinds: transactions and unwrapping.

    A file of tests takes both fixtures by name: ``ask, database = every_kind, one_database``.
    """
    async with _opened(request.param, database) as ask:
        yield ask


@pytest.fixture(params=[kind for kind in KINDS if kind.name in CHOSEN], ids=lambda kind: kind.name)
async def every_driver(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Ask]:
    """A connection of every driver in turn, for tests of what a statement does; used as :func:`every_kind`."""
    async with _opened(request.param, database) as ask:
        yield ask


@asynccontextmanager
async def _opened(kind: Kind, database: str) -> AsyncIterator[Ask]:
    _sweep(_sweeping[database])
    async with entered(kind.open(database)) as connection:
        yield Ask(kind, connection, database)


def _sweep(connection: psycopg.Connection[Any]) -> None:
    """Leave neither rows nor the partitions of the days in which tests take place."""
    connection.execute(
        "delete from pgqueue.jobs; delete from pgqueue.job_history; delete from pgqueue.dead_jobs;"
        "delete from pgqueue.workers; delete from pgqueue.lost_workers; delete from pgqueue.former_workers;"
        "delete from pgqueue.queues; delete from pgqueue.unique_holds; delete from pgqueue.retention;"
        "insert into pgqueue.retention default values;"
        "delete from pgqueue.schedules; delete from pgqueue.schedule_ticks; delete from pgqueue.waits;"
        "delete from pgqueue.flows; delete from pgqueue.nodes; delete from pgqueue.edges;"
        "delete from pgqueue.node_counts; delete from pgqueue.flow_work"
    )
    for name in partitions(connection):
        if name.startswith("job_history_2031"):
            connection.execute(f"drop table pgqueue.{name}")


def partitions(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute(
        "select inhrelid::regclass::text from pg_inherits "
        "where inhparent = 'pgqueue.job_history'::regclass order by 1"
    )
    return [row[0].removeprefix("pgqueue.") for row in rows]
