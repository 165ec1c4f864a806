"""Plans for reading a whole table with many connections: what to read, where it is, and whether it stayed there.

Transaction numbers decide once which rows are read: those of transactions that had ended when the read was planned. They
are given by the next transaction's number and the numbers in progress, and no later commit adds to them. So any number of
statements, run at any later time, read the same set. A stream uses less: the *horizon*, the lowest transaction in
progress. All below it have ended, so a range of numbers below it is complete for ever. A table whose rows change, such as
``jobs``, has no such number: it is read in one statement, or in a snapshot that the user holds.

Where several statements read ranges of a table's pages, its file must not change until the last of them. So each
statement's transaction asks, after reading, which file it has read (``sql/pipeline/extract_kept.sql``). Its lock keeps the
file unchanged until then.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeVar, cast

import psycopg
from psycopg import sql

from pgqueue.errors import DatabaseError, PipelineError
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline.extract_where import DEAD, HISTORY, SparkTable
from pgqueue.store.plan import Plan, Statement, Steps, plan, run

T = TypeVar("T")
GROUPS_AT_ONCE = 10_000
ISOLATED = "set transaction isolation level repeatable read, read only"
_DAY_PARTITION = re.compile(rf"{HISTORY}_(\d{{8}})")


@dataclass(frozen=True)
class DatabaseState:
    """The state of the database at a moment.

    Attributes:
        system: the server's system identifier.
        database: the database's oid.
        horizon: the lowest transaction in progress: all below have ended.
        next: the next transaction's number.
        running: the transactions in progress; None: not known, as on a replica.
        at: the time.
    """

    system: str
    database: int
    horizon: int
    next: int
    running: list[int] | None
    at: datetime


@dataclass(frozen=True)
class Piece:
    """A table, or a partition of one.

    Attributes:
        oid: its number in the database.
        name: its name.
        table: its own name, or the name of the table of which it is a partition.
        file: the number of its file; it changes when the table is rewritten or emptied.
        pages: how many it has.
        day: the UTC day that it holds; None: any day.
    """

    oid: int
    name: str
    table: str
    file: int
    pages: int
    day: date | None


class Planner:
    """A connection to plan on: it runs plans, and writes the text of statements that tasks will send."""

    def __init__(self, connection: psycopg.Connection[Any], catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.connection = connection
        self._blocking = StepRunner(connection, catalogue)

    def run(self, plan: Plan[T]) -> T:
        """Run a plan."""
        return run(plan, self._blocking)

    def text(self, statement: sql.Composable) -> str:
        """A statement's text, with its values as literals."""
        return statement.as_string(self.connection)

    def explain(self, statement: sql.Composable) -> None:
        """Have the database plan a statement, which is not run.

        Raises:
            psycopg.Error: it is no statement, or names what does not exist.
        """
        self.connection.execute(sql.SQL("explain {}").format(statement), prepare=True)

    def kept(self, pieces: Iterable[Piece]) -> str:
        """The text of the statement that returns which of these pieces exist, and their files."""
        return _written_out("pipeline/extract_kept", self, {"pieces": [piece.oid for piece in pieces]})


@contextmanager
def open_planner(database: Database, *, snapshot: str | None = None) -> Iterator[Planner]:
    """A connection to plan on.

    Args:
        database: the database.
        snapshot: the name of an exported snapshot to plan in; None: the current state.

    Raises:
        ConnectionFailed: no connection could be made.
        SchemaError: the schema is missing, too old or too new.
        PipelineError: the snapshot is no longer held.
        DatabaseError: the database refused a statement.
    """
    with database.connect() as connection:
        planner = Planner(connection, database.catalogue)
        try:
            planner.run(database.verification())
            with connection.transaction():
                _see(connection, snapshot)
                yield planner
        except psycopg.Error as error:
            raise DatabaseError(f"the database refused: {str(error).strip()}") from error


@contextmanager
def export_snapshot(database: Database) -> Iterator[str]:
    """Export a snapshot and yield its name, by which other connections can use it. Vacuum keeps its rows until it ends."""
    with open_planner(database) as planner:
        planner.connection.execute(ISOLATED)
        yield planner.run(export())


def _see(connection: psycopg.Connection[Any], snapshot: str | None) -> None:
    if snapshot is None:
        return
    connection.execute(ISOLATED)
    try:
        connection.execute(in_snapshot(snapshot))
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
        raise snapshot_gone(str(error)) from error


def snapshot_gone(said: str) -> PipelineError:
    """The error to raise when a snapshot cannot be read."""
    return PipelineError(f"the snapshot is not held: {said.strip()}; keep it open until the read is over")


@plan
def look() -> Steps[DatabaseState]:
    """The state of the database now."""
    rows = yield Statement("pipeline/extract_state", {})
    return DatabaseState(*rows[0])


@plan
def pieces(table: SparkTable) -> Steps[list[Piece]]:
    """The pieces that hold a table's rows now."""
    rows = yield Statement("pipeline/extract_pieces", {"tables": list(table.of)})
    return [Piece(oid, name, of, file, pages, _day_of(name)) for oid, of, name, file, pages in rows]


@plan
def check_numbers(state: DatabaseState) -> Steps[None]:
    """Check that no row has the number of a future transaction: such numbers do not show which rows are final.

    Raises:
        PipelineError: there are such rows; they came from another server.
    """
    rows = yield Statement("pipeline/extract_ahead", {"next": state.next})
    if rows[0][0]:
        raise PipelineError(
            f"there are ended jobs whose ended_in is {state.next} or more, and this server has not reached that "
            "transaction: they came with a dump from another server. Set them to now: "
            f"update job_history and dead_jobs set ended_in = txid_current() where ended_in >= {state.next}"
        )


@plan
def news(table: SparkTable, start: int, end: int) -> Steps[list[tuple[int, int]]]:
    """The transactions of a range in which jobs ended, in order, with their numbers of jobs; at most GROUPS_AT_ONCE."""
    rows = yield Statement("pipeline/extract_news", {**_range(table, start, end), "limit": GROUPS_AT_ONCE})
    return [(transaction, jobs) for transaction, jobs in rows]


@plan
def cuts(table: SparkTable, start: int, end: int, *, rows: int) -> Steps[list[tuple[int, int]]]:
    """Divides a range of transactions into stretches of about ``rows`` rows: each one's first transaction, and its rows."""
    found = yield Statement("pipeline/extract_cuts", {**_range(table, start, end), "rows": rows})
    return [(first, jobs) for first, jobs in found]


@plan
def oldest_day(start: int) -> Steps[date | None]:
    """The day of the oldest job in the history that ended in transaction ``start`` or a later one."""
    rows = yield Statement("pipeline/extract_oldest", {"start": start})
    return cast("date | None", rows[0][0])


@plan
def first_of(table: SparkTable, day: date) -> Steps[int | None]:
    """The first transaction in which a job ended on a UTC day or later."""
    rows = yield Statement("pipeline/extract_first", {"day": day, **_sources(table)})
    return cast("int | None", rows[0][0])


@plan
def export() -> Steps[str]:
    """Export the transaction's snapshot; returns its name."""
    rows = yield Statement("pipeline/extract_snapshot", {})
    return str(rows[0][0])


def in_snapshot(name: str) -> sql.Composed:
    """The statement that gives a transaction another one's snapshot; the transaction must be ISOLATED first."""
    return sql.SQL("set transaction snapshot {}").format(sql.Literal(name))


def _written_out(name: str, planner: Planner, params: Mapping[str, object]) -> str:
    return psycopg.ClientCursor(planner.connection).mogrify(planner.catalogue[name], params)


def _range(table: SparkTable, start: int, end: int) -> dict[str, object]:
    return {"start": start, "end": end, **_sources(table)}


def _sources(table: SparkTable) -> dict[str, object]:
    return {"history": HISTORY in table.of, "dead": DEAD in table.of}


def _day_of(name: str) -> date | None:
    found = _DAY_PARTITION.fullmatch(name)
    return None if found is None else datetime.strptime(found[1], "%Y%m%d").replace(tzinfo=UTC).date()
