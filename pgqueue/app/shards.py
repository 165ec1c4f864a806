"""A queue over several databases, as an app sees it: one of them as a queue, the home of a key, how all stand.

Where each job goes is decided in :mod:`pgqueue.store.shards.sharded`.
"""

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

from pgqueue.app.registry import Registry
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database
from pgqueue.store.shards.shard_databases import Shard
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import check_number
from pgqueue.values.shards import MOST_SHARDS, home_of, require_one_home

MADE_OF_THE_DATABASE = ("alerts", "control", "flows", "insight", "schedules", "shards", "workers")
"""What a queue makes once, and what asks its database."""


Q = TypeVar("Q", bound=Registry)


class Shards:
    """The databases of a queue. Each method has an async version with an ``a`` before its name."""

    def __init__(self, queue: Registry) -> None:
        """Made by ``queue.shards``."""
        self._queue = queue

    def list(self) -> Sequence[Shard]:
        """What each database says of itself now, in the order of ``PgQueue(shards=[...])``; one that does not answer says why."""
        return sharded_database(self._queue).shards()

    async def alist(self) -> Sequence[Shard]:
        """As :meth:`list`, awaited."""
        return await sharded_database(self._queue).ashards()

    def of_key(self, key: str) -> int:
        """The number of the shard on which a key lives: a unique key, or a limit's key as it is stored.

        Args:
            key: the key.
        """
        return home_of(key, sharded_database(self._queue).members())

    async def aof_key(self, key: str) -> int:
        """As :meth:`of_key`, awaited."""
        return home_of(key, await sharded_database(self._queue).amembers())


def with_one_home(queue: Registry) -> Callable[[NewJob], NewJob]:
    """A function that refuses a job whose keys could live on two shards, and returns every other job."""

    def check(job: NewJob) -> NewJob:
        require_one_home(job, queue.limiting)
        return job

    return check


def sharded_database(queue: Registry) -> ShardedDatabase:
    """The databases of a queue.

    Raises:
        NotInMemory: a test keeps it in memory.
        ConfigurationError: it has no shards.
    """
    database = queue.database.itself
    if database.in_memory:
        _ = database.dsn  # memory has no databases, and says what to use
    if not isinstance(database, ShardedDatabase):
        raise ConfigurationError("this queue has no shards: it is made without PgQueue(shards=[...])")
    return database


def checked_shard(number: int) -> int:
    """The number of a shard.

    Raises:
        InvalidOption: it cannot be one.
    """
    check_number("number", number, range(MOST_SHARDS))
    return number


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
