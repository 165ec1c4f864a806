"""Rows from PostgreSQL as Arrow batches, by ADBC: what a task of Spark's does, wherever it runs.

A task gets statements that were written out when the read was planned. Each is sent in a transaction of its own, and when
its last row is through, that transaction asks whether the tables that it read are the ones that were planned with.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqueue.errors import ConnectionFailed, DatabaseError, PipelineError
from pgqueue.store.dsn import CONNECTION_DEFAULTS
from pgqueue.store.pipeline.extract import snapshot_gone

NOT_THERE = {"42P01", "3F000", "42703"}
CLOSED = ("08", "57")


@dataclass(frozen=True)
class Kept:
    """What must still be there when it has been read.

    Attributes:
        statement: what tells the pieces that are, and their files.
        files: those that were planned with, by piece; None: any file will do.
        names: what the pieces are, for the message.
    """

    statement: str
    files: dict[int, int | None]
    names: dict[int, str]


@dataclass(frozen=True)
class Fetch:
    """A statement to send.

    Attributes:
        statement: it.
        before: statements to send before it, in its transaction.
        kept: what must still be there afterwards; None: nothing.
    """

    statement: str
    before: tuple[str, ...] = ()
    kept: Kept | None = None


def fetch(dsn: str, wanted: tuple[Fetch, ...]) -> Iterator[pa.RecordBatch]:
    """Send statements, one after the other, and yield what they give.

    Args:
        dsn: where the database is.
        wanted: what to send.

    Raises:
        ConnectionFailed: there is no connection to be had, or it was lost.
        PipelineError: what was planned with is no longer there.
        DatabaseError: the database refused a statement.
    """
    if not wanted:
        return
    try:
        with closing(adbc.connect(_with_defaults(dsn))) as connection:
            for one in wanted:
                yield from _fetch(connection, one)
    except adbc.Error as error:
        raise _failure(error) from None


def _fetch(connection: adbc.Connection, wanted: Fetch) -> Iterator[pa.RecordBatch]:
    with connection.cursor() as cursor:
        for statement in wanted.before:
            cursor.execute(statement)
        cursor.execute(wanted.statement)
        yield from cursor.fetch_record_batch()
        if wanted.kept is not None:
            cursor.execute(wanted.kept.statement)
            _check_kept(wanted.kept, dict(cursor.fetchall()))
    connection.rollback()


def _check_kept(kept: Kept, found: dict[int, int]) -> None:
    lost = [
        kept.names[piece]
        for piece, file in kept.files.items()
        if piece not in found or (file is not None and found[piece] != file)
    ]
    if lost:
        raise PipelineError(
            f"{', '.join(sorted(lost))} was dropped or rewritten while it was being read; load() it again"
        )


def _with_defaults(dsn: str) -> str:
    """The DSN with what every connection of ours says, where it does not say otherwise itself."""
    given = conninfo_to_dict(dsn)
    return make_conninfo(
        dsn, **{name: value for name, value in CONNECTION_DEFAULTS.items() if name not in given}
    )


def _failure(error: adbc.Error) -> DatabaseError | PipelineError:
    """What went wrong, in our words."""
    state, said = error.sqlstate or "", str(error).strip()
    if state in NOT_THERE:
        return PipelineError(f"what was to be read is no longer there: {said}; load() it again")
    if "snapshot" in said and state.startswith(("22", "42")):
        return snapshot_gone(said)
    if not state or state.startswith(CLOSED):
        return ConnectionFailed(f"no connection from this task to the database, or it was lost: {said}")
    return DatabaseError(f"the database refused: {said}")
