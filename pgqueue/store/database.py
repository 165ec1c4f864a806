"""One database as one app sees it: where it is, which schema, and the pools to reach it."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgqueue.errors import ConfigurationError, ConnectionFailed, DatabaseError
from pgqueue.store import schema
from pgqueue.store.asyncpg import Asyncpg
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connection import Awaiting, Blocking, OwnAsyncConnection, OwnConnection
from pgqueue.store.plan import Plan, arun, run
from pgqueue.store.unwrap import aunwrap, unwrap

T = TypeVar("T")
AwaitablePools: TypeAlias = WeakKeyDictionary[
    asyncio.AbstractEventLoop, AsyncConnectionPool[OwnAsyncConnection]
]
DSN_SETTINGS = ("PGQUEUE_DSN", "DATABASE_URL")
DIRECT_DSN_SETTING = "PGQUEUE_DIRECT_DSN"
SECRETS = ("password", "sslpassword")
# A peer that vanished without a word is noticed within half a minute, not after TCP's two hours.
CONNECTION_DEFAULTS: dict[str, Any] = {
    "application_name": "pgqueue",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def dsn_in_environment() -> str | None:
    """Where the database is, as far as this process's environment says."""
    return next(filter(None, map(os.environ.get, DSN_SETTINGS)), None)


class Database:
    """Runs plans: on connections of its own, or on the user's."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "pgqueue",
        direct_dsn: str | None = None,
        behind_pooler: bool = False,
        pool_size: int = 10,
    ) -> None:
        """Remember where the database is. Nothing is connected until something is run.

        Args:
            dsn: libpq's URI or keywords; SQLAlchemy's ``postgresql+psycopg://`` works too. By default the
                environment's PGQUEUE_DSN or DATABASE_URL.
            schema: where the tables are.
            direct_dsn: how to reach the server itself, where ``dsn`` is a transaction pooler; for LISTEN.
                By default the environment's PGQUEUE_DIRECT_DSN.
            behind_pooler: ``dsn`` leads to a transaction pooler such as PgBouncer, where statements cannot
                be prepared and notifications do not arrive.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep.
        """
        self.catalogue = catalogue_of(schema)
        self.behind_pooler = behind_pooler
        self._given_dsn = dsn
        self._given_direct_dsn = direct_dsn
        self._pool_size = pool_size
        self._lock = threading.Lock()
        self._pool: ConnectionPool[OwnConnection] | None = None
        self._pools: AwaitablePools = WeakKeyDictionary()
        _databases.add(self)

    @property
    def dsn(self) -> str:
        """Where the database is.

        Raises:
            ConfigurationError: nothing says where; the message names what was looked for.
        """
        found = self._given_dsn or dsn_in_environment()
        if not found:
            raise ConfigurationError(
                "no database: give PgQueue(dsn) or --dsn, or set PGQUEUE_DSN or DATABASE_URL "
                "(looked for in that order), for example postgresql://user@localhost/app"
            )
        return _for_libpq(found)

    @property
    def listen_dsn(self) -> str | None:
        """Where LISTEN works; None: nowhere, so workers poll."""
        direct = self._given_direct_dsn or os.environ.get(DIRECT_DSN_SETTING)
        if direct:
            return _for_libpq(direct)
        return None if self.behind_pooler else self.dsn

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan on the user's connection, in its transaction, or on one of ours, committed at once."""
        if connection is not None:
            return run(plan, Blocking(unwrap(connection), self.catalogue))
        try:
            with self.pooled() as own:
                return run(plan, own.steps(self.catalogue))
        except psycopg.OperationalError as error:
            raise _failure(error) from error

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        if connection is not None:
            return await arun(plan, await self._on(connection))
        try:
            async with self.apooled() as own:
                return await arun(plan, own.steps(self.catalogue))
        except psycopg.OperationalError as error:
            raise _failure(error) from error

    def run_whole(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan of several statements as a whole: in a transaction, or in a savepoint of the user's."""
        if connection is not None:
            return _run_whole(plan, Blocking(unwrap(connection), self.catalogue))
        try:
            with self.pooled() as own:
                return _run_whole(plan, own.steps(self.catalogue))
        except psycopg.OperationalError as error:
            raise _failure(error) from error

    async def arun_whole(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run_whole` does, awaited."""
        if connection is not None:
            return await _arun_whole(plan, await self._on(connection))
        try:
            async with self.apooled() as own:
                return await _arun_whole(plan, own.steps(self.catalogue))
        except psycopg.OperationalError as error:
            raise _failure(error) from error

    @contextmanager
    def pooled(self) -> Iterator[OwnConnection]:
        """A blocking connection from the pool, in autocommit mode."""
        pool = self._blocking_pool()
        connection = pool.getconn()
        try:
            yield connection
        finally:
            pool.putconn(connection)  # not the pool's own context, which would look for a transaction to end

    @asynccontextmanager
    async def apooled(self) -> AsyncIterator[OwnAsyncConnection]:
        """An awaitable connection from the running loop's pool, in autocommit mode."""
        pool = await self._awaitable_pool()
        async with pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction on a blocking connection from the pool; a :class:`psycopg.Rollback` ends it quietly."""
        with self.pooled() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A transaction as :meth:`transaction` makes it, on an awaitable connection."""
        async with self.apooled() as connection, connection.transaction():
            yield connection

    def connect(self, dsn: str | None = None) -> OwnConnection:
        """A blocking connection of one's own, in autocommit mode.

        Raises:
            ConnectionFailed: there is none to be had; the message says where it was tried, and why not.
        """
        dsn = dsn or self.dsn
        with _connection_errors(dsn):
            return OwnConnection.connect(dsn, **self._connect_options(dsn))

    async def aconnect(self, dsn: str | None = None) -> OwnAsyncConnection:
        """An awaitable connection as :meth:`connect` makes it."""
        dsn = dsn or self.dsn
        with _connection_errors(dsn):
            return await OwnAsyncConnection.connect(dsn, **self._connect_options(dsn))

    def verify(self) -> None:
        """Connect, and check that the schema is one this release can work with.

        Raises:
            ConnectionFailed: there is no connection to be had.
            SchemaError: the schema is missing, too old or too new.
        """
        with self.connect() as connection:
            run(schema.verify(self.catalogue.schema), connection.steps(self.catalogue))

    def but(
        self,
        *,
        dsn: str | None = None,
        schema: str | None = None,
        behind_pooler: bool = False,
        direct_dsn: str | None = None,
    ) -> "Database":
        """Another database with this one's settings, except for those that are given."""
        return self._remade(
            dsn,
            schema=schema or self.catalogue.schema,
            direct_dsn=direct_dsn or (None if dsn else self._given_direct_dsn),
            behind_pooler=behind_pooler or self.behind_pooler,
            pool_size=self._pool_size,
        )

    def _remade(self, dsn: str | None, **options: Any) -> "Database":  # noqa: ANN401 - the constructor's own
        """A database of this kind, with this one's DSN if none is given; a framework's overrides it."""
        return Database(dsn or self._given_dsn, **options)

    def close(self) -> None:
        """Close the blocking pool."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the running loop's pool."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _connect_options(self, dsn: str) -> dict[str, Any]:
        named = conninfo_to_dict(dsn)
        defaults = {key: value for key, value in CONNECTION_DEFAULTS.items() if key not in named}
        return {"autocommit": True, "prepare_threshold": None if self.behind_pooler else 2, **defaults}

    def _blocking_pool(self) -> ConnectionPool[OwnConnection]:
        if (pool := self._pool) is not None:
            return pool
        with self._lock:
            if self._pool is None:
                self.verify()
                self._pool = ConnectionPool(
                    self.dsn,
                    connection_class=OwnConnection,
                    kwargs=self._connect_options(self.dsn),
                    min_size=0,
                    max_size=self._pool_size,
                    open=True,
                )
            return self._pool

    async def _awaitable_pool(self) -> AsyncConnectionPool[OwnAsyncConnection]:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            async with await self.aconnect() as connection:
                await arun(schema.verify(self.catalogue.schema), connection.steps(self.catalogue))
            pool = self._pools.setdefault(
                loop,
                AsyncConnectionPool(
                    self.dsn,
                    connection_class=OwnAsyncConnection,
                    kwargs=self._connect_options(self.dsn),
                    min_size=0,
                    max_size=self._pool_size,
                    open=False,
                ),
            )
            await pool.open()
        return pool

    async def _on(self, connection: object) -> Awaiting | Asyncpg:
        """What runs steps on a user's awaitable connection, by its driver."""
        driver = await aunwrap(connection)
        if isinstance(driver, psycopg.AsyncConnection):
            return Awaiting(driver, self.catalogue)
        return Asyncpg(driver, self.catalogue)

    def forget_pools(self) -> None:
        """Start again without pools: in a forked child, whose parent owns the sockets it inherited."""
        self._lock = threading.Lock()
        self._pool = None
        self._pools = WeakKeyDictionary()


_databases: WeakSet[Database] = WeakSet()


def _after_fork() -> None:
    for database in list(_databases):
        database.forget_pools()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _run_whole(plan: Plan[T], connection: Blocking) -> T:
    with connection.whole():
        return run(plan, connection)


async def _arun_whole(plan: Plan[T], connection: Awaiting | Asyncpg) -> T:
    async with connection.whole():
        return await arun(plan, connection)


def _for_libpq(dsn: str) -> str:
    """The DSN without SQLAlchemy's driver name."""
    scheme, colon, rest = dsn.partition("://")
    return f"{scheme.partition('+')[0]}{colon}{rest}" if colon else dsn


@contextmanager
def _connection_errors(dsn: str) -> Iterator[None]:
    try:
        yield
    except psycopg.ProgrammingError:
        raise ConfigurationError(  # libpq's own words repeat the DSN, password and all
            "the database's DSN cannot be read; write postgresql://user:password@host:port/name, "
            "with %25 for % and %40 for @ in a password"
        ) from None
    except psycopg.OperationalError as error:
        raise ConnectionFailed(
            f"cannot connect to {_without_password(dsn)}: {error}; check --dsn, PGQUEUE_DSN or DATABASE_URL, "
            "and that the server runs"
        ) from error


def _failure(error: psycopg.OperationalError) -> DatabaseError:
    """What went wrong on a connection of ours, in our words: it was lost, or the statement was turned away."""
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
        return ConnectionFailed(
            f"the connection was lost: {str(error).strip()}; whether it was done is not known"
        )
    return DatabaseError(f"the database could not do it: {str(error).strip()}")


def _without_password(dsn: str) -> str:
    named = conninfo_to_dict(dsn)
    for secret in SECRETS:
        named.pop(secret, None)
    return make_conninfo("", **{key: str(value) for key, value in named.items()})
