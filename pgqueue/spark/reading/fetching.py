"""Reads rows from PostgreSQL as Arrow batches, by ADBC, in a Spark task on any machine.

A task gets finished statements from the plan. It sends each one in its own transaction. After the last row, that
transaction checks that the tables it read are the ones of the plan.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqueue.errors import ConnectionFailed, DatabaseError, PipelineError
from pgqueue.store.connections.dsn import CONNECTION_DEFAULTS
from pgqueue.store.pipeline.extract import snapshot_gone

NOT_THERE = {"42P01", "3F000", "42703"}
CLOSED = ("08", "57")


@dataclass(frozen=True)
class KeptPieces:
    """The pieces that must still exist after they were read.

    Attributes:
        statement: returns the pieces that exist, and their files.
        files: the files of the plan, by piece; None: any file is accepted.
        names: the pieces' names, for the message.
    """

    statement: str
    files: dict[int, int | None]
    names: dict[int, str]


@dataclass(frozen=True)
class Fetch:
    """A statement to send.

    Attributes:
        statement: its text.
        before: statements to send before it, in its transaction.
        kept: what must still exist afterwards; None: no check.
    """

    statement: str
    before: tuple[str, ...] = ()
    kept: KeptPieces | None = None


def fetch(dsn: str, wanted: tuple[Fetch, ...]) -> Iterator[pa.RecordBatch]:
    """Send statements, one after the other, over a connection of their own, and yield their rows.

    Args:
        dsn: where the database is.
        wanted: what to send.

    Raises:
        ConnectionFailed: no connection could be made, or it was lost.
        PipelineError: a table or partition of the plan no longer exists.
        DatabaseError: the database refused a statement.
    """
    if not wanted:
        return
    with closing(connect(dsn)) as connection:
        for one in wanted:
            yield from fetch_over(connection, one)


def connect(dsn: str) -> adbc.Connection:
    """A connection with the settings of every pgqueue connection.

    Raises:
        ConnectionFailed: no connection could be made.
    """
    with _errors():
        return adbc.connect(_with_defaults(dsn))


def fetch_over(connection: adbc.Connection, wanted: Fetch) -> Generator[pa.RecordBatch, None, None]:
    """Send a statement over a connection, and yield its rows. If not all rows are taken, the connection is of no more use.

    Raises:
        ConnectionFailed, PipelineError, DatabaseError: as :func:`fetch`.
    """
    with _errors(), connection.cursor() as cursor:
        for statement in wanted.before:
            cursor.execute(statement)
        cursor.execute(wanted.statement)
        yield from cursor.fetch_record_batch()
        if wanted.kept is not None:
            cursor.execute(wanted.kept.statement)
            _check_kept(wanted.kept, dict(cursor.fetchall()))
    with _errors():
        connection.rollback()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except adbc.Error as error:
        raise _failure(error) from None


def _check_kept(kept: KeptPieces, found: dict[int, int]) -> None:
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
    given = conninfo_to_dict(dsn)
    return make_conninfo(
        dsn, **{name: value for name, value in CONNECTION_DEFAULTS.items() if name not in given}
    )


def _failure(error: adbc.Error) -> DatabaseError | PipelineError:
    state, said = error.sqlstate or "", str(error).strip()
    if state in NOT_THERE:
        return PipelineError(f"a table or partition to read no longer exists: {said}; load() it again")
    if "snapshot" in said and state.startswith(("22", "42")):
        return snapshot_gone(said)
    if not state or state.startswith(CLOSED):
        return ConnectionFailed(f"this Spark task has no connection to the database, or lost it: {said}")
    return DatabaseError(f"the database refused a statement of this read: {said}")
