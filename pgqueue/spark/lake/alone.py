"""One process at a time writes to a database's lake: it holds an advisory lock on a connection of its own.

The lock is the server's, so it ends with the connection: a process that dies leaves nothing behind that somebody would
have to clear up. Should the connection be lost meanwhile, :meth:`Alone.still` says so before anything is made to count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue.errors import ConfigurationError, PipelineError
from pgqueue.store import control
from pgqueue.store.connection import Blocking
from pgqueue.store.database import Database
from pgqueue.store.pipeline import lake
from pgqueue.store.plan import run

PATIENCE = 2.0
LOOK_AGAIN = 0.05


class Alone:
    """Proof that nobody else writes to the lake."""

    def __init__(self, connection: psycopg.Connection[Any], database: Database) -> None:
        """Made by :func:`alone`."""
        self._runs = Blocking(connection, database.catalogue)

    def still(self) -> None:
        """Make sure that it is still so.

        Raises:
            PipelineError: the connection was lost, and the lock with it.
        """
        try:
            run(control.clock(), self._runs)
        except psycopg.OperationalError as error:
            raise PipelineError(
                f"the connection that held the lake's lock was lost ({str(error).strip()}), and somebody else may be "
                "writing by now: nothing more was changed; run it again"
            ) from error


@contextmanager
def alone(database: Database) -> Iterator[Alone]:
    """Be the only one who writes to the database's lake for the length of the block.

    Args:
        database: whose lake; behind a transaction pooler its direct DSN is used, for locks do not work through one.

    Raises:
        PipelineError: somebody else is writing; the message names the pid of their connection.
        ConfigurationError: there is only a pooler.
        ConnectionFailed: there is no connection to be had.
    """
    dsn = database.listen_dsn
    if dsn is None:
        raise ConfigurationError(
            "the lake is locked on a connection of its own, which a transaction pooler does not give: "
            "say --direct-dsn (or PGQUEUE_DIRECT_DSN) with the server's own address"
        )
    with database.connect(dsn) as connection:
        runs = Blocking(connection, database.catalogue)
        if not _taken(runs):
            others = "; ".join(map(str, run(lake.holder(), runs))) or "it has just ended"
            raise PipelineError(
                f"somebody else is writing to this database's lake ({others}): wait for it to end, or end it "
                "with select pg_terminate_backend(pid)"
            )
        yield Alone(connection, database)


def _taken(runs: Blocking) -> bool:
    """Take the lock. The server may not have noticed yet that a former holder has closed its connection, or died."""
    patient = Retrying(
        retry=retry_if_result(lambda free: not free),
        wait=wait_fixed(LOOK_AGAIN),
        stop=stop_after_delay(PATIENCE),
        retry_error_callback=lambda _: False,
    )
    taken: bool = patient(run, lake.lock(), runs)
    return taken
