"""A queue over several databases, as an app sees it: one of them as a queue, the home of a key, how all stand.

Where each job goes is decided in :mod:`pgqueue.store.shards.sharded`.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from pgqueue.app.schedules.declarations import Declarations
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database
from pgqueue.store.shards.shard_databases import Shard
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.shards import home_of, require_one_home

MADE_OF_THE_DATABASE = ("alerts", "control", "flows", "insight", "schedules", "workers")
"""What a queue makes once, and what asks its database."""


Q = TypeVar("Q", bound="ShardMethods")


class ShardMethods(Declarations):
    """The shards of a queue."""

    def shard(self, number: int) -> Self:
        """The queue on one shard: all that is not done over several shards is done there.

        Args:
            number: which shard; each database says its own.

        Raises:
            ShardDown: it does not answer, or is not in the list.
            ConfigurationError: the queue has no shards.
        """
        return on_database(self, sharded_database(self).of_number(number))

    async def ashard(self, number: int) -> Self:
        """As :meth:`shard`, awaited."""
        return on_database(self, await sharded_database(self).aof_number(number))

    def shard_of(self, key: str) -> int:
        """The number of the shard on which a key lives: a unique key, or a limit's key as it is stored.

        Args:
            key: the key.
        """
        sharded = sharded_database(self)
        return home_of(key, sharded.members())

    async def ashard_of(self, key: str) -> int:
        """As :meth:`shard_of`, awaited."""
        return home_of(key, await sharded_database(self).amembers())

    def shards(self) -> Sequence[Shard]:
        """What each database says of itself now, in the order of the list; one that does not answer says why."""
        return sharded_database(self).shards()

    async def ashards(self) -> Sequence[Shard]:
        """As :meth:`shards`, awaited."""
        return await sharded_database(self).ashards()

    def _with_one_home(self) -> Callable[[NewJob], NewJob]:
        """Return a function that refuses a job whose keys could live on two shards, and returns every other job."""

        def check(job: NewJob) -> NewJob:
            require_one_home(job, self.limiting)
            return job

        return check


def sharded_database(queue: ShardMethods) -> ShardedDatabase:
    """The databases of a queue.

    Raises:
        ConfigurationError: it has no shards.
    """
    database = queue.database.itself
    if not isinstance(database, ShardedDatabase):
        raise ConfigurationError("this queue has no shards: it is made without PgQueue(shards=[...])")
    return database


def on_database(queue: Q, database: Database) -> Q:
    """The same queue, its tasks and hooks, on one of its databases.

    Args:
        queue: the queue.
        database: which.
    """
    one = copy.copy(queue)
    for name in MADE_OF_THE_DATABASE:
        one.__dict__.pop(name, None)
    one.database = database
    return one
