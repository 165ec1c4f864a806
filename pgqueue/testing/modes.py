"""Where a queue keeps its jobs for the length of a test. An app's code stays as it is: only its queue is changed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pgqueue.app.database_for_tests import Replace, replace_databases
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.store.audit import unaudited
from pgqueue.store.connections.database import Database
from pgqueue.store.plan import Plan
from pgqueue.testing.clock import Clock
from pgqueue.testing.draining import adrain, drain
from pgqueue.testing.memory import Memory
from pgqueue.testing.standin import StandIn, UnpooledDatabase, swap_database

T = TypeVar("T")

log = logging.getLogger("pgqueue")


def every_queue(mode: str | None) -> None:
    """Have every queue that is made from now on keep its jobs in memory; call it before the app is imported.

    Args:
        mode: ``memory``: jobs wait for a ``drain``; ``eager``: an enqueue runs its job at once; None: queues
            use their databases again.

    Raises:
        ConfigurationError: the mode is another.
    """
    replace_databases(None if mode is None else _keeps_in_memory(mode))


@contextmanager
def in_memory(queue: PgQueue, *, clock: Clock | None = None) -> Iterator[Memory]:
    """Keep a queue's jobs in memory for the length of a block; no database is needed.

    A ``connection`` given to an enqueue is ignored, since there is no transaction to join: the job stays even
    if the caller rolls back.

    Args:
        queue: the app's.
        clock: what time it is for jobs; by default one that stands still at the present.

    Yields:
        The memory, empty at the beginning, with its ``clock``.
    """
    with swap_database(queue, Memory(queue, clock)) as memory:
        yield memory


@contextmanager
def eager(queue: PgQueue, *, clock: Clock | None = None, raises: bool = True) -> Iterator[Memory]:
    """Have every enqueue run its job at once, in the caller, for the length of a block; without a database.

    A job for later waits in memory until a ``drain`` at its time, and so does one that is to be retried.

    Args:
        queue: the app's.
        clock: what time it is for jobs; by default one that stands still at the present.
        raises: whether an enqueue raises what its job raised.

    Yields:
        The memory, empty at the beginning, with its ``clock``.
    """
    with swap_database(queue, Eager(queue, clock, raises=raises)) as memory:
        yield memory


@contextmanager
def in_database(queue: PgQueue, dsn: str, *, clock: Clock | None = None) -> Iterator[PgQueue]:
    """Have a queue use another database for the length of a block.

    Args:
        queue: the app's.
        dsn: of a PostgreSQL database with the schema in it.
        clock: what time it is for jobs; by default the database's own.

    Yields:
        The queue.
    """
    real = UnpooledDatabase(dsn, schema=queue.database.catalogue.schema)
    try:
        with swap_database(queue, StandIn(real, clock=clock)):
            yield queue
    finally:
        real.close()


@contextmanager
def in_transaction(queue: PgQueue, connection: object, *, clock: Clock | None = None) -> Iterator[PgQueue]:
    """Do what a queue does on one connection, in its transaction, for the length of a block.

    What is rolled back at the end of a test takes its jobs along. A task's ``ctx.transaction()`` is a
    savepoint there.

    Args:
        queue: the app's.
        connection: any that jobs can be enqueued on; a blocking one serves the awaited methods, too.
        clock: what time it is for jobs; by default the database's own.

    Yields:
        The queue.
    """
    with swap_database(queue, StandIn(_real(queue), clock=clock, connection=connection)):
        yield queue


def _real(queue: PgQueue) -> Database:
    """Return the queue's database; where the queue is in memory, one that is never connected to."""
    if isinstance(queue.database, Memory):
        return Database("", schema=queue.database.catalogue.schema)
    return queue.database


class Eager(Memory):
    """Memory that is drained after each enqueue and each signal, by the caller."""

    def __init__(self, queue: PgQueue, clock: Clock | None = None, *, raises: bool = True) -> None:
        """``clock``: None: a clock that stands still at the present. ``raises``: an enqueue raises what its job raised."""
        super().__init__(queue, clock)
        self._queue = queue
        self._raises = raises

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan, and run what is due if it was an enqueue or a signal."""
        enqueued = unaudited(plan).kind.adds
        answer = super().run(plan, connection)
        if enqueued:
            drain(self._queue, raises=self._raises)
        return answer

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan, and run what is due if it was an enqueue or a signal."""
        enqueued = unaudited(plan).kind.adds
        answer = super().run(plan, connection)
        if enqueued:
            await adrain(self._queue, raises=self._raises)
        return answer


MODES: dict[str, Callable[[Any], Memory]] = {"memory": Memory, "eager": Eager}


def _keeps_in_memory(mode: str) -> Replace:
    if mode not in MODES:
        raise ConfigurationError(f"every_queue({mode!r}): use {' or '.join(map(repr, MODES))}, or None")

    def replace(queue: object, database: Database) -> Database:  # noqa: ARG001 - the hook's signature
        log.warning("jobs are kept in memory, for tests: mode=%s", mode)
        return MODES[mode](queue)

    return replace
