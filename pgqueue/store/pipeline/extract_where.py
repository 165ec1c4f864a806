"""The tables that Spark reads, with their columns; and the statements over them, with only the wanted columns and rows.

A table's own statement is wrapped in a select of the wanted columns, with the conditions after it. PostgreSQL plans this
as if only those columns had been written: other columns are not computed, and a condition can use its index or its pages.
Names come from the tables, values are psycopg's literals; no other text is added but a user's own expression.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from psycopg import sql

from pgqueue.store import columns
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.columns import Type

HISTORY = "job_history"
DEAD = "dead_jobs"


class ColumnKind(StrEnum):
    """The kind of a column's values."""

    BIGINT = "bigint"
    INTEGER = "integer"
    SMALLINT = "smallint"
    BOOLEAN = "boolean"
    TEXT = "text"
    JSON = "json, as text"
    TIMESTAMP = "timestamp"
    DATE = "date"


@dataclass(frozen=True, kw_only=True)
class SparkTable:
    """A table as Spark sees it.

    Attributes:
        statement: its file in ``sql/``.
        of: the database's tables from which it is made.
        columns: its columns, in order.
        ended: the column with the time of a job's end, from which ``day`` is made; None: its jobs have not ended.
    """

    statement: str
    of: tuple[str, ...]
    columns: Mapping[str, ColumnKind]
    ended: str | None = None


KINDS: Mapping[Type, ColumnKind] = {
    Type.BIGINT: ColumnKind.BIGINT,
    Type.INTEGER: ColumnKind.INTEGER,
    Type.SMALLINT: ColumnKind.SMALLINT,
    Type.BOOLEAN: ColumnKind.BOOLEAN,
    Type.TEXT: ColumnKind.TEXT,
    Type.UUID: ColumnKind.TEXT,
    Type.JSON: ColumnKind.JSON,
    Type.JSONB: ColumnKind.JSON,
    Type.TIMESTAMP: ColumnKind.TIMESTAMP,
}


def _kinds(described: columns.Columns) -> dict[str, ColumnKind]:
    return {name: KINDS[kind] for name, kind, _ in described if name not in columns.NOT_READ}


def _insert_columns(kinds: Mapping[str, ColumnKind], after: str, **more: ColumnKind) -> dict[str, ColumnKind]:
    found: dict[str, ColumnKind] = {}
    for name, kind in kinds.items():
        found[name] = kind
        if name == after:
            found |= more
    return found


def _table(name: str, *of: str, ended: str | None = None, has: Mapping[str, ColumnKind]) -> SparkTable:
    return SparkTable(statement=name, of=of, columns=has, ended=ended)


TABLES: Mapping[str, SparkTable] = {
    "history": _table(
        "pipeline/extract_history",
        HISTORY,
        ended="finished_at",
        has=_insert_columns(_kinds(columns.HISTORY), "finished_at", day=ColumnKind.DATE),
    ),
    "dead": _table(
        "pipeline/extract_dead",
        DEAD,
        ended="died_at",
        has=_insert_columns(_kinds(columns.DEAD), "died_at", day=ColumnKind.DATE),
    ),
    "jobs": _table("pipeline/extract_jobs", "jobs", has=_kinds(columns.JOBS)),
    "ended": _table(
        "pipeline/extract_ended",
        HISTORY,
        DEAD,
        ended="ended_at",
        has=_kinds(columns.ENDED) | {"day": ColumnKind.DATE},
    ),
    "workers": _table(
        "pipeline/extract_workers",
        "workers",
        "former_workers",
        has={
            "id": ColumnKind.TEXT,
            "started_at": ColumnKind.TIMESTAMP,
            "ended_at": ColumnKind.TIMESTAMP,
            "concurrency": ColumnKind.INTEGER,
            "host": ColumnKind.TEXT,
            "version": ColumnKind.TEXT,
            "queues": ColumnKind.JSON,
        },
    ),
}

RESULTS = _table("pipeline/extract_results", HISTORY, DEAD, has={})
"""What became of jobs; :mod:`pgqueue.spark.reading.result_rows` has its columns."""
UNQUEUED = _table("pipeline/extract_unqueued", has={})
"""The rows of runs that did not become jobs, in the same shape."""

TRANSACTION = "ended_in"
A_DAY = timedelta(days=1)


def statement(
    table: SparkTable,
    columns: Sequence[str],
    conditions: Iterable[sql.Composable],
    catalogue: Catalogue,
    *,
    expression: str | None = None,
) -> sql.Composed:
    """A table's own statement, wrapped: these columns, in this order, of the rows that meet every condition.

    A user's expression chooses among these rows, in a select around them: whatever it is, it adds none.
    """
    if expression is not None:
        rows = statement(table, [*table.columns], conditions, catalogue)
        return sql.SQL("select {} from ({}) as extracted where ({}\n)").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), rows, sql.SQL(expression)
        )
    return sql.SQL("select {} from ({}) as extracted where {}").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(catalogue[table.statement].decode()),
        sql.SQL(" and ").join([sql.SQL("true"), *conditions]),
    )


def only(values: Mapping[str, Sequence[str]]) -> list[sql.Composable]:
    """Rows with one of these values, for each column that is named."""
    return [
        sql.SQL("({} in ({}))").format(sql.Identifier(column), sql.SQL(", ").join(map(sql.Literal, wanted)))
        for column, wanted in values.items()
    ]


def between_days(table: SparkTable, first: date | None, last: date | None) -> list[sql.Composable]:
    """Rows of these UTC days; None: no limit. The time is compared, by which PostgreSQL finds partitions."""
    ended = sql.Identifier(str(table.ended))
    return [
        *([sql.SQL("({} >= {})").format(ended, _midnight(first))] if first else ()),
        *([sql.SQL("({} < {})").format(ended, _midnight(last, after=1))] if last else ()),
    ]


def on_day(table: SparkTable, day: date) -> sql.Composable:
    """Rows of a UTC day."""
    return _within(str(table.ended), day, day)


def on_no_day(table: SparkTable, days: Iterable[date]) -> sql.Composable:
    """Rows of none of these UTC days: rows outside all known partitions."""
    return sql.SQL("(not {})").format(
        sql.SQL("({})").format(
            sql.SQL(" or ").join(
                [sql.SQL("false"), *(_within(str(table.ended), *run) for run in _runs(days))]
            )
        )
    )


def from_source(source: str) -> sql.Composable:
    """Rows of one source of the table ``ended``."""
    return sql.SQL("source = {}").format(sql.Literal(source))


def in_pages(part: int, first: int, before: int | None) -> sql.Composable:
    """Rows in a range of pages of a table or partition, named by its oid; without an end, to its last page."""
    found = sql.SQL("part = {} and place >= {}::tid").format(sql.Literal(part), sql.Literal(f"({first},0)"))
    if before is None:
        return found
    return sql.SQL("{} and place < {}::tid").format(found, sql.Literal(f"({before},0)"))


def ended_before(after: int, running: Iterable[int]) -> sql.Composable:
    """Rows that ended in a transaction below a number, and not in one of those in progress."""
    column = sql.Identifier(TRANSACTION)
    known = [sql.SQL("{} < {}").format(column, sql.Literal(after))]
    known += [sql.SQL("{} <> {}").format(column, sql.Literal(number)) for number in running]
    return sql.SQL(" and ").join(known)


def ended_between(start: int, end: int, *, share: int = 0, of: int = 1) -> sql.Composable:
    """Rows that ended in a transaction of a range without its end; or one of several shares of these, by id."""
    found = sql.SQL("{0} >= {1} and {0} < {2}").format(
        sql.Identifier(TRANSACTION), sql.Literal(start), sql.Literal(end)
    )
    if of == 1:
        return found
    return sql.SQL("{} and mod(id, {}) = {}").format(found, sql.Literal(of), sql.Literal(share))


def dead_within(first: int, last: int, or_from: int) -> sql.Composable:
    """Of the dead jobs in the table ``ended``, those of transactions from ``first`` to ``last``, or from ``or_from`` on."""
    return sql.SQL("(source <> 'dead' or ended_in between {} and {} or ended_in >= {})").format(
        sql.Literal(first), sql.Literal(last), sql.Literal(or_from)
    )


def _within(ended: str, first: date, last: date) -> sql.Composable:
    return sql.SQL("({0} >= {1} and {0} < {2})").format(
        sql.Identifier(ended), _midnight(first), _midnight(last, after=1)
    )


def _midnight(day: date, *, after: int = 0) -> sql.Composable:
    # PostgreSQL adds the days, because its calendar goes past the year 9999.
    return sql.SQL("(({} + {})::timestamp at time zone 'UTC')").format(sql.Literal(day), sql.Literal(after))


def _runs(days: Iterable[date]) -> list[tuple[date, date]]:
    """Return groups of consecutive days: the first and the last day of each."""
    runs: list[tuple[date, date]] = []
    for day in sorted(days):
        if runs and day - runs[-1][1] == A_DAY:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs
