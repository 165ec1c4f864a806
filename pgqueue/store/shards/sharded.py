"""A queue over several databases.

:class:`ShardedDatabase` stands where a :class:`~pgqueue.store.connections.database.Database` stands, so all above asks it the same plans. Where each
plan goes is decided in :mod:`pgqueue.store.shards.routes`, and what is known of the databases is in :mod:`pgqueue.store.shards.shard_databases`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

import psycopg

from pgqueue.errors import ConfigurationError, ConnectionFailed, WrongShard
from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import connect_within
from pgqueue.store.connections.open_transaction import OWN_CONNECTION, open_transaction
from pgqueue.store.drive import adrive, drive
from pgqueue.store.plan import Plan
from pgqueue.store.shards.routes import on_callers, route
from pgqueue.store.shards.shard_databases import Route, Shard, ShardDatabases, ShardPlan
from pgqueue.values.shards import shard_of_id

T = TypeVar("T")

CONNECT_WITHIN = 5
"""Seconds that a call waits for a connection to a shard."""
GUARDED = "PQ001"
"""The SQLSTATE with which a shard's guard refuses a transaction that has added a job with a key of another shard."""


class ShardMember(Database):
    """One of the databases."""

    dsn_settings = "PgQueue(shards=[...])"

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """As :meth:`Database.run`.

        Raises:
            WrongShard: the shard's guard has refused a job whose key lives on another one.
        """
        with _guard_refusals():
            return super().run(plan, connection)

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """As :meth:`run`, awaited."""
        with _guard_refusals():
            return await super().arun(plan, connection)


class ShardedDatabase(Database):
    """The databases of one queue.

    Attributes:
        databases: they, in the order in which they were given. Which shard each is, it says itself.
    """

    def __init__(self, dsns: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - Database's own
        """Nothing is connected until something is run.

        ``options`` are those of :class:`~pgqueue.store.connections.database.Database`, and hold for each database.
        """
        given = [connect_within(dsn, CONNECT_WITHIN) for dsn in dsns]
        if not given or len({*given}) < len(given):
            raise ConfigurationError(f"shards={len(given)} DSNs: give each database once, and at least one")
        super().__init__(given[0], **options)
        self.databases: list[Database] = [ShardMember(dsn, **options) for dsn in given]
        for one in self.databases:
            one.pools.hurry(CONNECT_WITHIN)
        self._places = ShardDatabases(self.databases)

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan on the shard or shards that it is about; see :meth:`Database.run`."""
        return cast("T", drive(self._route(plan, connection), ShardPlan.run))

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        return cast("T", await adrive(self._route(plan, connection), ShardPlan.arun))

    @property
    def in_job_transaction(self) -> bool:
        """Whether a job has a transaction open here, on any shard."""
        return self._joined() is not None

    def of_job(self, job_id: int) -> Database:
        """The database of a job.

        Raises:
            ShardDown: its shard does not answer, or is not in the list.
        """
        return self.of_number(shard_of_id(job_id))

    def of_number(self, number: int) -> Database:
        """The database of a shard.

        Raises:
            ShardDown: it does not answer, or is not in the list.
        """
        return drive(self._places.at(number), ShardPlan.run)

    def members(self) -> Sequence[int]:
        """The numbers of the shards on which keys live, in the order in which they were added."""
        return drive(self._places.map(), ShardPlan.run).members

    async def aof_number(self, number: int) -> Database:
        """As :meth:`of_number`, awaited."""
        return await adrive(self._places.at(number), ShardPlan.arun)

    async def amembers(self) -> Sequence[int]:
        """As :meth:`members`, awaited."""
        return (await adrive(self._places.map(), ShardPlan.arun)).members

    def shards(self) -> list[Shard]:
        """What each database says of itself now."""
        self._places.forget()
        return drive(self._places.known(), ShardPlan.run)

    def forget(self) -> None:
        """Ask the databases again what they are, when it is next needed."""
        self._places.forget()

    async def ashards(self) -> list[Shard]:
        """As :meth:`shards`, awaited."""
        self._places.forget()
        return await adrive(self._places.known(), ShardPlan.arun)

    def verify(self) -> None:
        """Check that a shard answers, and that the tables of those that answer are of this release.

        Raises:
            ConnectionFailed: none answers.
        """
        failures = []
        for one in self.databases:
            try:
                one.verify()
            except ConnectionFailed as error:
                failures.append(error)
        if len(failures) == len(self.databases):
            raise failures[0]

    def connect(self, dsn: str | None = None, **options: Any) -> OwnConnection:  # noqa: ANN401 - Database's own
        """Refuse: a connection leads to one shard.

        Raises:
            ConfigurationError: always, but for a DSN.
        """
        if dsn is None:
            raise _one_shard()
        return super().connect(dsn, **options)

    async def aconnect(self, dsn: str | None = None, **options: Any) -> OwnAsyncConnection:  # noqa: ANN401 - as above
        """As :meth:`connect`, awaited."""
        if dsn is None:
            raise _one_shard()
        return await super().aconnect(dsn, **options)

    def pooled(self) -> NoReturn:
        """Refuse, as :meth:`connect`."""
        raise _one_shard()

    def apooled(self) -> NoReturn:
        """Refuse, as :meth:`connect`."""
        raise _one_shard()

    @property
    def listen_dsn(self) -> str | None:
        """Refuse, as :meth:`connect`."""
        raise _one_shard()

    def close(self) -> None:
        """Close the connections to all."""
        for one in self.databases:
            one.close()

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        for one in self.databases:
            await one.aclose()

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        """Return the same shards with other options; with a DSN, that one database."""
        return (
            Database(dsn, **options)
            if dsn
            else ShardedDatabase([one.dsn for one in self.databases], **options)
        )

    def _joined(self) -> Database | None:
        return next((one for one in self.databases if open_transaction(one) is not None), None)

    def _route(self, plan: Plan[Any], connection: object) -> Route[Any]:
        joined = self._joined() if connection is None else None
        if joined is not None or (connection is not None and connection is not OWN_CONNECTION):
            return on_callers(joined or self.databases[0], plan, connection)
        return route(self._places, plan)


@contextmanager
def _guard_refusals() -> Iterator[None]:
    """Raise WrongShard in place of the driver's error with which a shard's guard refuses a key."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == GUARDED:
            raise WrongShard(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
        raise


def _one_shard() -> ConfigurationError:
    return ConfigurationError(
        "this is done on one shard: use queue.shard(n), the queue on one shard; in the shell give --dsn of one database"
    )
