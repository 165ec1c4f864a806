"""The lock by which one process at a time writes to a database's lake: an advisory lock on a connection of its own.

The server holds the lock and drops it with the connection, so a process that dies leaves nothing to clean up. If the
connection is lost meanwhile, :meth:`WriterLock.require_held` raises before the write takes effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue.errors import ConfigurationError, PipelineError
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import control
from pgqueue.store.pipeline import lake
from pgqueue.store.plan import run

LOCK_WAIT = 2.0
RETRY_AFTER = 0.05


class WriterLock:
    """Proof that no other process writes to the lake."""

    def __init__(self, connection: psycopg.Connection[Any], database: Database) -> None:
        self._runs = StepRunner(connection, database.catalogue)

    def require_held(self) -> None:
        """Check that the lock is still held.

        Raises:
            PipelineError: the connection was lost, and the lock with it.
        """
        try:
            run(control.clock(), self._runs)
        except psycopg.OperationalError as error:
            raise PipelineError(
                f"the connection that held the lake's lock was lost ({str(error).strip()}), and another process may "
                "write by now: nothing more was changed; run it again"
            ) from error


@contextmanager
def writer_lock(database: Database) -> Iterator[WriterLock]:
    """Hold the lock of the database's lake for the length of the block.

    Args:
        database: the lake's database; behind a transaction pooler its direct DSN is used, because advisory locks do not
            work through a pooler.

    Raises:
        PipelineError: another process is writing; the message names the pid of its connection.
        ConfigurationError: there is only a pooler.
        ConnectionFailed: no connection could be made.
    """
    dsn = database.listen_dsn
    if dsn is None:
        raise ConfigurationError(
            "the lake is locked on a connection of its own, which a transaction pooler does not give: "
            "say --direct-dsn (or PGQUEUE_DIRECT_DSN) with the server's own address"
        )
    with database.connect(dsn) as connection:
        runs = StepRunner(connection, database.catalogue)
        if not _take_lock(runs):
            others = "; ".join(map(str, run(lake.holder(), runs))) or "it has just ended"
            raise PipelineError(
                f"another process is writing to this database's lake ({others}): wait for it to end, or end it "
                "with select pg_terminate_backend(pid)"
            )
        yield WriterLock(connection, database)


def _take_lock(runs: StepRunner) -> bool:
    # The server may notice a closed or dead holder late.
    retried = Retrying(
        retry=retry_if_result(lambda free: not free),
        wait=wait_fixed(RETRY_AFTER),
        stop=stop_after_delay(LOCK_WAIT),
        retry_error_callback=lambda _: False,
    )
    taken: bool = retried(run, lake.lock(), runs)
    return taken
