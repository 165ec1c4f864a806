"""Plans of reading a whole table with many hands: what there is to read, where it lies, and whether it stayed there.

Which rows there are to read is decided once, by the numbers of transactions: those that had ended when the read was planned
are named by the next one's number and by those that were in progress, and no commit that comes later adds to them. So any
number of statements, run at any time after, read the same set. A stream goes by less: the *horizon*, the lowest transaction
in progress. All below have ended, so a range of numbers below it is a set that is complete for ever. A table whose rows change, such as ``jobs``, has no such number: it is read in one statement, or
in a snapshot that somebody holds.

Where a table's pages are dealt out to several statements, its file must stay the same until the last of them: each tells,
in its own transaction and after it has read, which file it has read (``sql/pipeline/extract_kept.sql``). That transaction's lock
keeps the file as it is in the meantime.
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
from pgqueue.store import schema
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connection import Blocking
from pgqueue.store.database import Database
from pgqueue.store.pipeline.extract_tables import DEAD, HISTORY, Table
from pgqueue.store.plan import Plan, Statement, Steps, plan, run

T = TypeVar("T")
GROUPS_AT_ONCE = 10_000
ISOLATED = "set transaction isolation level repeatable read, read only"
_DAY_PARTITION = re.compile(rf"{HISTORY}_(\d{{8}})")


@dataclass(frozen=True)
class State:
    """The database at a moment.

    Attributes:
        system: the server's system identifier.
        database: the database's oid.
        horizon: the lowest transaction in progress: all below have ended.
        next: the transaction that comes next.
        running: those in progress; None: which they are is not known, as on a replica.
        at: when this was.
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
        table: the name of the table that it is, or is a partition of.
        file: the number of its file; another one, after it was rewritten or emptied.
        pages: how many it has.
        day: the UTC day that it holds; None: any.
    """

    oid: int
    name: str
    table: str
    file: int
    pages: int
    day: date | None


class Planner:
    """A connection to plan on: it runs plans, and writes out statements that others will send."""

    def __init__(self, connection: psycopg.Connection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection."""
        self.catalogue = catalogue
        self.connection = connection
        self._blocking = Blocking(connection, catalogue)

    def run(self, plan: Plan[T]) -> T:
        """Run a plan."""
        return run(plan, self._blocking)

    def text(self, statement: sql.Composable) -> str:
        """A statement as it is sent, its values written out."""
        return statement.as_string(self.connection)

    def kept(self, pieces: Iterable[Piece]) -> str:
        """The statement that tells which of these pieces are there, and in which files."""
        return _written_out("pipeline/extract_kept", self, {"pieces": [piece.oid for piece in pieces]})


@contextmanager
def planning(database: Database, *, snapshot: str | None = None) -> Iterator[Planner]:
    """A connection to plan on.

    Args:
        database: where to.
        snapshot: the name of an exported snapshot, to plan with what it sees; None: with what there is.

    Raises:
        ConnectionFailed: there is none to be had.
        SchemaError: the schema is missing, too old or too new.
        PipelineError: nobody holds the snapshot.
        DatabaseError: the database refused a statement.
    """
    with database.connect() as connection:
        planner = Planner(connection, database.catalogue)
        try:
            planner.run(schema.verify(database.catalogue.schema))
            with connection.transaction():
                _see(connection, snapshot)
                yield planner
        except psycopg.Error as error:
            raise DatabaseError(f"the database refused: {str(error).strip()}") from error


@contextmanager
def exported(database: Database) -> Iterator[str]:
    """Hold a snapshot, by the name under which others can read what it sees. Vacuum keeps what it sees until it ends."""
    with planning(database) as planner:
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
    """What to raise when a snapshot cannot be read."""
    return PipelineError(f"the snapshot is not held: {said.strip()}; keep it open until the read is over")


@plan
def look() -> Steps[State]:
    """The database as it is now."""
    rows = yield Statement("pipeline/extract_state", {})
    return State(*rows[0])


@plan
def pieces(table: Table) -> Steps[list[Piece]]:
    """Where a table's rows lie now."""
    rows = yield Statement("pipeline/extract_pieces", {"tables": list(table.of)})
    return [Piece(oid, name, of, file, pages, _day_of(name)) for oid, of, name, file, pages in rows]


@plan
def check_numbers(state: State) -> Steps[None]:
    """Check that no row has ended in a transaction to come: by such numbers nobody can tell which rows are final.

    Raises:
        PipelineError: there are such rows; they came from another server.
    """
    rows = yield Statement("pipeline/extract_ahead", {"next": state.next})
    if rows[0][0]:
        raise PipelineError(
            f"there are ended jobs whose ended_in is {state.next} or more, and this server has not come to that "
            "transaction: they came with a dump from another one. Let them count as ended now: "
            f"update job_history and dead_jobs set ended_in = txid_current() where ended_in >= {state.next}"
        )


@plan
def news(table: Table, start: int, end: int) -> Steps[list[tuple[int, int]]]:
    """The transactions of a range in which jobs ended, in order, each with how many; at most GROUPS_AT_ONCE of them."""
    rows = yield Statement("pipeline/extract_news", {**_range(table, start, end), "limit": GROUPS_AT_ONCE})
    return [(transaction, jobs) for transaction, jobs in rows]


@plan
def cuts(table: Table, start: int, end: int, *, rows: int) -> Steps[list[tuple[int, int]]]:
    """A range of transactions in stretches of about so many rows: each one's first transaction, and its rows."""
    found = yield Statement("pipeline/extract_cuts", {**_range(table, start, end), "rows": rows})
    return [(first, jobs) for first, jobs in found]


@plan
def oldest_day(start: int) -> Steps[date | None]:
    """The day of the oldest job in the history that ended in a transaction or a later one."""
    rows = yield Statement("pipeline/extract_oldest", {"start": start})
    return cast("date | None", rows[0][0])


@plan
def first_of(table: Table, day: date) -> Steps[int | None]:
    """The first transaction in which a job ended on a UTC day or later."""
    rows = yield Statement("pipeline/extract_first", {"day": day, **_sources(table)})
    return cast("int | None", rows[0][0])


@plan
def export() -> Steps[str]:
    """Export the transaction's snapshot; returns its name."""
    rows = yield Statement("pipeline/extract_snapshot", {})
    return str(rows[0][0])


def in_snapshot(name: str) -> sql.Composed:
    """The statement that makes a transaction, which is to be ISOLATED first, see what another one sees."""
    return sql.SQL("set transaction snapshot {}").format(sql.Literal(name))


def _written_out(name: str, planner: Planner, params: Mapping[str, object]) -> str:
    return psycopg.ClientCursor(planner.connection).mogrify(planner.catalogue[name], params)


def _range(table: Table, start: int, end: int) -> dict[str, object]:
    return {"start": start, "end": end, **_sources(table)}


def _sources(table: Table) -> dict[str, object]:
    return {"history": HISTORY in table.of, "dead": DEAD in table.of}


def _day_of(name: str) -> date | None:
    found = _DAY_PARTITION.fullmatch(name)
    return None if found is None else datetime.strptime(found[1], "%Y%m%d").replace(tzinfo=UTC).date()
