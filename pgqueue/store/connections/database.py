"""One database as one app sees it: where it is, which schema, and on which connection a plan runs.

A framework's queue is given a database of its own kind, which chooses the connection: nothing of the queue is overridden.
How a DSN is read is decided in :mod:`pgqueue.store.connections.dsn`, and how connections are kept in :mod:`pgqueue.store.connections.pools`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, ParamSpec, TypeVar
from weakref import proxy

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgqueue.errors import ConfigurationError, ConnectionFailed, InvalidOption
from pgqueue.store.catalogue import MIGRATE_HINT, catalogue_of
from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.drivers import asteps_on, steps_on
from pgqueue.store.connections.dsn import (
    CONNECTION_DEFAULTS,
    DIRECT_DSN_SETTING,
    EMBEDDED,
    absolute,
    connection_errors,
    dsn_in_environment,
    failure,
    failure_of_check,
    for_libpq,
    patience_per_host,
    read_only,
)
from pgqueue.store.connections.open_transaction import (
    OWN_CONNECTION,
    arun_joined,
    blocking_connection,
    open_transaction,
)
from pgqueue.store.connections.patience import answer_due, connect_patience
from pgqueue.store.connections.pools import Pools, atake_connection, take_connection
from pgqueue.store.connections.session import (
    NO_SETTINGS,
    POOLED,
    ended_if_idle,
    settings_after,
    startup_options,
    unknown_settings,
)
from pgqueue.store.plan import Plan, arun, run
from pgqueue.store.results.ends import EndWaiters
from pgqueue.store.schema import schema
from pgqueue.values.queues.defaults import QueueCache

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Runs plans: on connections of its own, or on the user's.

    Attributes:
        dsn_hint: what to tell a user who has given no DSN. A framework's database says it in its own words.
        dsn_settings: which settings a DSN may come from, as a message names them. A framework's database names its own.
        migrate_hint: what to tell a user whose tables are missing or too old. A framework's database names its command.
        catalogue: the statements, for its schema.
        behind_pooler: whether the DSN leads to a transaction pooler.
        pools: its connections.
        ends: who waits in this process for its jobs to end.
        known: what this process remembers of queues, for enqueues.
        in_memory: whether it stands in for a database in a test: its jobs run only when the test says so.
        calls_hooks: whether it is a test's: hooks are called at once, in the caller.
        blocks: whether it is a framework's whose connection blocks: a coroutine enqueues by :meth:`acall`.
    """

    dsn_hint: str = (
        "give PgQueue(dsn) or --dsn, or set PGQUEUE_DSN or DATABASE_URL (looked for in that order), "
        "for example postgresql://user@localhost/app"
    )
    dsn_settings: ClassVar[str] = "--dsn, PGQUEUE_DSN or DATABASE_URL"
    migrate_hint: ClassVar[str] = MIGRATE_HINT
    in_memory: ClassVar[bool] = False
    calls_hooks: ClassVar[bool] = False
    blocks: ClassVar[bool] = False

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
            dsn: libpq's URI or keywords, or SQLAlchemy's; by default the environment's PGQUEUE_DSN or DATABASE_URL.
            schema: where the tables are.
            direct_dsn: how to reach the server itself, where ``dsn`` is a transaction pooler; by default PGQUEUE_DIRECT_DSN.
            behind_pooler: ``dsn`` leads to a transaction pooler, where notifications do not arrive. Nothing is prepared.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep.

        Raises:
            InvalidOption: the schema's name or the pool's size is out of its range.
        """
        if pool_size < 1:
            raise InvalidOption(f"pool_size={pool_size!r}: keep at least one connection")
        self.catalogue = catalogue_of(schema, migrate_hint=self.migrate_hint)
        self.behind_pooler = behind_pooler
        self._given_dsn = dsn and absolute(dsn)
        self._given_direct_dsn = direct_dsn
        self._unknown_settings: frozenset[str] = frozenset()
        self.pools = Pools(proxy(self), pool_size)  # no cycle: one that is dropped closes its pools at once
        self.ends = EndWaiters(proxy(self))
        self.known = QueueCache()

    @property
    def dsn(self) -> str:
        """Where the database is.

        Raises:
            ConfigurationError: nothing says where; the message names what was looked for.
        """
        if (folder := self.folder) is not None:
            from pgqueue.store.kept_server import kept_dsn  # noqa: PLC0415 - few programs have one

            return kept_dsn(folder, schema=self.catalogue.schema)
        if not (found := self._located()):
            raise ConfigurationError(f"no database: {self.dsn_hint}")
        return for_libpq(found)

    @property
    def folder(self) -> str | None:
        """The folder of an embedded server; None: the DSN leads to a server that others start."""
        found = self._located() or ""
        return found.removeprefix(EMBEDDED) if found.startswith(EMBEDDED) else None

    def _located(self) -> str | None:
        return self._given_dsn or dsn_in_environment()

    @property
    def listen_dsn(self) -> str | None:
        """Where LISTEN works; None: nowhere, so workers poll."""
        return self._direct_dsn or (None if self.behind_pooler else self.dsn)

    @property
    def _direct_dsn(self) -> str | None:
        direct = self._given_direct_dsn or os.environ.get(DIRECT_DSN_SETTING)
        return for_libpq(direct) if direct and self.folder is None else None

    @property
    def itself(self) -> "Database":
        """This very database, also where a test has put something in front of it."""
        return self

    def joins(self, connection: object) -> bool:
        """Whether jobs would be added on the caller's connection or transaction, and not on a connection of ours."""
        return connection is not OWN_CONNECTION and (connection is not None or self.in_job_transaction)

    @property
    def in_job_transaction(self) -> bool:
        """Whether a job has a transaction open here, which plans join that name no connection."""
        return open_transaction(self) is not None

    async def acall(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call from a coroutine what blocks on a framework's connection, in the thread that this connection needs."""
        return await asyncio.to_thread(function, *args, **kwargs)

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan: in a transaction, or in a savepoint of the user's, where the plan says that it needs one.

        Args:
            plan: which.
            connection: the user's, in its current transaction; ``OWN_CONNECTION``: one of ours, committed at once;
                None: the transaction that a job has open here (see :mod:`pgqueue.store.connections.open_transaction`), else one of ours.
        """
        if connection is None and (joined := open_transaction(self)) is not None:
            connection = blocking_connection(joined)
        if connection is not None and connection is not OWN_CONNECTION:
            return run(plan, steps_on(connection, self.catalogue))
        try:
            pool = self.pools.blocking()
            own = take_connection(pool)  # not pooled(): a context manager costs an enqueue 1 µs
            try:
                return run(plan, own.steps(self.catalogue))
            except psycopg.errors.ReadOnlySqlTransaction as error:
                own.close()  # after a failover the next one leads to the new primary
                raise read_only(error) from error
            finally:
                pool.putconn(own)
        except psycopg.OperationalError as error:
            raise failure(error) from error

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        if connection is None and (joined := open_transaction(self)) is not None:
            return await arun_joined(joined, plan, self.catalogue)
        if connection is not None and connection is not OWN_CONNECTION:
            return await arun(plan, await asteps_on(connection, self.catalogue))
        try:
            async with self.apooled() as own:
                try:
                    return await arun(plan, own.steps(self.catalogue))
                except psycopg.errors.ReadOnlySqlTransaction as error:
                    await own.close()
                    raise read_only(error) from error
        except psycopg.OperationalError as error:
            raise failure(error) from error

    @contextmanager
    def pooled(self) -> Iterator[OwnConnection]:
        """A blocking connection from the pool, in autocommit mode."""
        pool = self.pools.blocking()
        connection = take_connection(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)  # not the pool's own context, which would look for a transaction to end

    @asynccontextmanager
    async def apooled(self) -> AsyncIterator[OwnAsyncConnection]:
        """An awaitable connection from the running loop's pool, in autocommit mode."""
        pool = await self.pools.awaitable()
        connection = await atake_connection(pool)
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction on a blocking connection from the pool; a :class:`psycopg.Rollback` ends it without an error.

        What the block sets for the session (``set search_path``, a role, a row factory) ends with it.

        Raises:
            psycopg.OperationalError: the connection was lost; also in place of a Rollback, which then was not needed.
        """
        with self.pooled() as connection:
            try:
                with connection.transaction():
                    yield connection
            finally:
                connection.clean()

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A transaction as :meth:`transaction` makes it, on an awaitable connection."""
        async with self.apooled() as connection:
            try:
                async with connection.transaction():
                    yield connection
            finally:
                await connection.clean()

    def connect(
        self,
        dsn: str | None = None,
        *,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> OwnConnection:
        """A new blocking connection, in autocommit mode.

        Args:
            dsn: where to, if not to this database's own DSN.
            settings: to start with; see :mod:`pgqueue.store.connections.session`. None are made behind a pooler.

        Raises:
            ConnectionFailed: there is none to be had; the message says where it was tried, and why not.
        """
        patience = connect_patience(dsn := dsn or self.dsn)
        while True:
            left_out = self._unknown_settings
            try:
                with connection_errors(dsn, self.dsn_settings):
                    return OwnConnection.connect(dsn, **self.connect_options(dsn, settings) | patience)
            except ConnectionFailed as error:
                if not self._learns_unknown(error, settings, left_out):
                    raise

    async def aconnect(
        self,
        dsn: str | None = None,
        *,
        settings: Mapping[str, str] = NO_SETTINGS,
        within: float | None = None,
    ) -> OwnAsyncConnection:
        """As :meth:`connect`, awaited. ``within``: for how many seconds the caller waits, each host of the DSN for its part of it."""
        if dsn is None:  # an embedded server may have to be started, which takes a second or more
            dsn = self.dsn if self.folder is None else await asyncio.to_thread(lambda: self.dsn)
        patience = patience_per_host(dsn, within) or connect_patience(dsn)
        while True:
            left_out = self._unknown_settings
            try:
                with connection_errors(dsn, self.dsn_settings):
                    options = self.connect_options(dsn, settings) | patience
                    return await OwnAsyncConnection.connect(dsn, **options)
            except ConnectionFailed as error:
                if not self._learns_unknown(error, settings, left_out):
                    raise

    def verification(self) -> Plan[str]:
        """The plan that checks that the schema is one this release can work with; returns its revision."""
        return schema.verify(self.catalogue.schema, migrate_hint=self.catalogue.migrate_hint)

    def verify(self) -> None:
        """Connect, and check that the schema is one this release can work with.

        Raises:
            ConnectionFailed: there is no connection to be had.
            SchemaError: the schema is missing, too old or too new.
        """
        self.verified().close()

    def verified(self) -> OwnConnection:
        """A new connection, on which the schema was checked as :meth:`verify` does."""
        connection = self.connect(settings=POOLED)
        self._unknown_settings |= settings_after(connection.info.server_version)
        connection.answers_by = answer_due()
        try:
            run(self.verification(), connection.steps(self.catalogue))
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.OperationalError):
                raise failure_of_check(error) from error
            raise
        return connection

    async def averified(self) -> OwnAsyncConnection:
        """As :meth:`verified`, awaited."""
        connection = await self.aconnect(settings=POOLED)
        self._unknown_settings |= settings_after(connection.info.server_version)
        connection.answers_by = answer_due()
        try:
            await arun(self.verification(), connection.steps(self.catalogue))
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.OperationalError):
                raise failure_of_check(error) from error
            raise
        return connection

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
            pool_size=self.pools.least,
        )

    def _remade(self, dsn: str | None, **options: Any) -> "Database":  # noqa: ANN401 - the constructor's own
        """Return a database of this kind, with this one's DSN if none is given; a framework's database overrides it."""
        return Database(dsn or self._given_dsn, **options)

    def close(self) -> None:
        """Close the blocking pool, and the connection that waits for the ends of jobs if no caller needs it."""
        self.ends.close()
        self.pools.close()

    async def aclose(self) -> None:
        """Close the running loop's pool, and what :meth:`close` says of the connection that waits for ends."""
        if self.ends.connected:
            await asyncio.to_thread(self.ends.close)
        await self.pools.aclose()

    def bounded(self, plan: Plan[T], settings: Mapping[str, str]) -> Plan[T]:
        """The plan as it is run on a connection with these settings: behind a pooler, a transaction brings its own bound."""
        return ended_if_idle(plan, settings) if self.behind_pooler and plan.kind.transaction else plan

    def connect_options(self, dsn: str, settings: Mapping[str, str] = NO_SETTINGS) -> dict[str, Any]:
        """How a connection is made: in autocommit mode, and with our defaults where the DSN says nothing."""
        named = conninfo_to_dict(dsn)
        options = {key: value for key, value in CONNECTION_DEFAULTS.items() if key not in named}
        known = {name: value for name, value in settings.items() if name not in self._unknown_settings}
        if known and (not self.behind_pooler or dsn == self._direct_dsn):
            options["options"] = startup_options(dsn, known)
        # In UTF8, all texts can be sent, whatever the DSN or PGCLIENTENCODING says.
        options["client_encoding"] = "UTF8"
        return {"autocommit": True, "prepare_threshold": None if self.behind_pooler else 2, **options}

    def _learns_unknown(
        self, error: ConnectionFailed, settings: Mapping[str, str], left_out: frozenset[str]
    ) -> bool:
        """Remember settings that the server does not know; whether this try sent one, and so another try helps.

        Several connections may be opened at the same time: another one may have learned of it during this try.
        """
        unknown = unknown_settings(str(error), settings)
        self._unknown_settings |= unknown
        return bool(unknown - left_out)
