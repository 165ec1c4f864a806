"""A database with a streaming replica, which answers plans that only look: ``@plan(reads=True)``.

All else is the primary's: what writes, what an app must see as it has just committed it, and what runs on the caller's
connection or in a job's open transaction. The primary is asked, too, where the replica

- does not answer, or its tables are not of this release yet: one line is logged, and the replica is tried again
  :data:`AGAIN_AFTER` seconds later;
- cancels the query, because it is in the way of what it replays: a standby does that after ``max_standby_streaming_delay``;
- has no record of what is asked: the primary may have it since a moment.
"""

import logging
import time
from typing import Any, TypeVar

import psycopg

from pgqueue.errors import ConfigurationError, DatabaseError, NotGranted
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import connect_within
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.plan import Plan, Statement, Steps, plan
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.shards import ReplicaStatus
from pgqueue.values.shards import status as status_of

T = TypeVar("T")
log = logging.getLogger("pgqueue.replica")

AGAIN_AFTER = 10.0
"""Seconds for which a replica that did not answer is not asked."""
CONNECT_WITHIN = 3
"""Seconds that a look waits for a connection to the replica before the primary is asked."""
CANCELLED = ("40001", "40P01", "57014")
"""SQLSTATEs of a query that a standby cancelled: it answers others."""


class ReplicatedDatabase(Database):
    """A primary, and a replica that answers looks.

    Attributes:
        replica: the replica, as a database of its own.
        asked: whether a plan was to be answered by the replica.
    """

    def __init__(self, dsn: str | None = None, *, replica: str, **options: Any) -> None:  # noqa: ANN401 - Database's own
        super().__init__(dsn, **options)
        self._given_replica = replica
        pooling = {
            name: options[name] for name in ("schema", "behind_pooler", "pool_size") if name in options
        }
        self.replica = Database(connect_within(replica, CONNECT_WITHIN), **pooling)
        self.replica.pools.hurry(CONNECT_WITHIN)
        self._away_until = 0.0
        self._said = ""
        self.asked = False

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`Database.run` does; one that only looks, on the replica."""
        if self._is_for_replica(plan, connection):
            try:
                found = self.replica.run(plan)
            except NotGranted:
                raise
            except DatabaseError as error:
                self._note(error)
            else:
                self._note(None)
                if found is not None:
                    return found
        return super().run(plan, connection)

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        if self._is_for_replica(plan, connection):
            try:
                found = await self.replica.arun(plan)
            except NotGranted:
                raise
            except DatabaseError as error:
                self._note(error)
            else:
                self._note(None)
                if found is not None:
                    return found
        return await super().arun(plan, connection)

    def replica_status(self) -> ReplicaStatus:
        """How far the replica is behind, by both servers' logs."""
        if (away := self._is_away()) is not None:
            return away
        try:
            written = super().run(_written_position())
        except (DatabaseError, psycopg.Error):
            written = None
        try:
            return self.replica.run(_replayed_position(written))
        except (DatabaseError, psycopg.Error) as error:
            return ReplicaStatus(answers=False, error=str(error))

    async def areplica_status(self) -> ReplicaStatus:
        """As :meth:`replica_status`, awaited."""
        if (away := self._is_away()) is not None:
            return away
        try:
            written = await super().arun(_written_position())
        except (DatabaseError, psycopg.Error):
            written = None
        try:
            return await self.replica.arun(_replayed_position(written))
        except (DatabaseError, psycopg.Error) as error:
            return ReplicaStatus(answers=False, error=str(error))

    def close(self) -> None:
        """Close the connections to both."""
        self.replica.close()
        super().close()

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        await self.replica.aclose()
        await super().aclose()

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        if dsn:  # another primary: this replica is not its
            return Database(dsn, **options)
        return ReplicatedDatabase(self._given_dsn, replica=self._given_replica, **options)

    def _is_for_replica(self, plan: Plan[Any], connection: object) -> bool:
        if not plan.kind.reads or connection is OWN_CONNECTION or self.joins(connection):
            return False
        self.asked = True
        return time.monotonic() >= self._away_until

    def _is_away(self) -> ReplicaStatus | None:
        """Return the answer for a replica that is not asked now; None: it is asked."""
        if time.monotonic() >= self._away_until:
            return None
        return ReplicaStatus(answers=False, error=self._said)

    def _note(self, error: DatabaseError | None) -> None:
        cause = None if error is None else error.__cause__
        if isinstance(cause, psycopg.Error) and cause.sqlstate in CANCELLED:
            log.info("the replica cancelled a query; the primary answers it", extra={"error": str(error)})
            return
        if error is None:
            if self._away_until:
                self._away_until = 0.0
                log.info("the replica answers again")
            return
        if not self._away_until:
            log.warning(
                "the replica does not answer; looks are answered by the primary", extra={"error": str(error)}
            )
        self._said = str(error)
        self._away_until = time.monotonic() + AGAIN_AFTER


def with_replica(database: Database, replica: str) -> Database:
    """The same database, with a replica that answers looks.

    Raises:
        ConfigurationError: it is a framework's, whose connections are the framework's; or several, which have no replica.
    """
    if isinstance(database, ShardedDatabase):
        raise ConfigurationError(
            "no replica is read for a queue with shards: name the replica of one shard as the database of this command (--dsn)"
        )
    if type(database) not in {Database, ReplicatedDatabase}:
        raise ConfigurationError(
            "a replica can be read where the queue is a PgQueue, and this app's is a framework's: name the replica as the "
            "database of this command (--dsn), without --app"
        )
    return ReplicatedDatabase(
        database._given_dsn,  # noqa: SLF001 - of the same class
        replica=replica,
        schema=database.catalogue.schema,
        direct_dsn=database._given_direct_dsn,  # noqa: SLF001 - of the same class
        behind_pooler=database.behind_pooler,
        pool_size=database.pools.least,
    )


@plan
def _written_position() -> Steps[str | None]:
    rows = yield Statement("replica/written", {})
    return None if rows[0][0] is None else str(rows[0][0])


@plan
def _replayed_position(written: str | None) -> Steps[ReplicaStatus]:
    rows = yield Statement("replica/replayed", {"written": written})
    replays, left, age = rows[0]
    return status_of(replays=replays, bytes_left=left, age=age)
