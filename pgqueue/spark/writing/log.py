"""Lists the writes and their rejected rows. It uses plain SQL, without Spark."""

from typing import TypeVar
from uuid import UUID

from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import sink
from pgqueue.store.pipeline.sink import RefusedRow, RejectedRow, Write
from pgqueue.store.plan import Plan
from pgqueue.store.plan import run as run_plan

T = TypeVar("T")


def writes(
    dsn: str | None = None,
    *,
    run: str | None = None,
    task: str | None = None,
    limit: int = 100,
    schema: str = "pgqueue",
) -> list[Write]:
    """The latest writes of DataFrames and of batches of streams, newest first.

    Args:
        dsn: where the database is; by default PGQUEUE_DSN or DATABASE_URL in the environment.
        run: only writes of this name; of a stream that names no run: the id of its query.
        task: only writes of this task.
        limit: at most this many writes.
        schema: the database schema in which the tables are.

    Raises:
        DatabaseError: the database cannot be reached, or its schema is missing.
    """
    return _ask(dsn, schema, sink.writes(run=run, task=task, limit=limit))


def rejected_rows(
    write: UUID, dsn: str | None = None, *, limit: int = 1_000, schema: str = "pgqueue"
) -> list[RejectedRow]:
    """The rows of a write that were rejected because their unique key was taken, in order; kept for 30 days.

    Args:
        write: the ``id`` of a :class:`Write`.
        dsn: as for :func:`writes`.
        limit: at most this many rows.
        schema: as for :func:`writes`.

    Raises:
        DatabaseError: as for :func:`writes`.
    """
    return _ask(dsn, schema, sink.rejected_rows(write, limit=limit))


def refused_rows(
    write: UUID, dsn: str | None = None, *, limit: int = 1_000, schema: str = "pgqueue"
) -> list[RefusedRow]:
    """The rows of a write with ``onBadRow="divert"`` that cannot be jobs, in order; kept for 30 days.

    Args:
        write: the ``id`` of a :class:`Write`.
        dsn: as for :func:`writes`.
        limit: at most this many rows.
        schema: as for :func:`writes`.

    Raises:
        DatabaseError: as for :func:`writes`.
    """
    return _ask(dsn, schema, sink.refused_rows(write, limit=limit))


def _ask(dsn: str | None, schema: str, plan: Plan[T]) -> T:
    database = Database(dsn, schema=schema)
    with database.connect() as connection:
        return run_plan(plan, StepRunner(connection, database.catalogue))
