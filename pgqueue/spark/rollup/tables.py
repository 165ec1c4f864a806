"""The roll-up tables of a lake: their columns, what computes them, and their rows as PostgreSQL reads them.

DuckDB computes small days in this process, Spark large ones, from the same statements (``statements/*.sql``), which are in Spark's
SQL. ``{name}`` in one is a table that is given to it, ``:name`` a value. DuckDB runs them with macros for Spark's functions, see
:mod:`pgqueue.spark.rollup.in_duckdb`.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
from pyarrow import csv, parquet

from pgqueue.store.pipeline.rollups import ROLLUPS

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.lake.records import DayRecord

T = TypeVar("T")
BUSY = "busy"
FOLDER = "rollup"
"""The folder of the tables, below the lake's."""
INSTANT = pa.timestamp("us", "UTC")
KINDS: Mapping[str, pa.DataType] = {
    "day": pa.date32(),
    "concurrency": pa.int32(),
    **dict.fromkeys(("hour", "first_at", "last_at"), INSTANT),
    **dict.fromkeys(
        ("queue", "task", "tenant", "error_type", "reason", "sample", "worker_id", "host"), pa.string()
    ),
    **dict.fromkeys(
        ("jobs", "succeeded", "cancelled", "dead", "attempts", "retries", "failures", "busy"), pa.int64()
    ),
    **dict.fromkeys(("slo_good", "slo_total"), pa.int64()),
    **dict.fromkeys(("wait_sketch", "run_sketch"), pa.binary()),
}
"""The types of columns; of the others: seconds, shares and costs."""


def _schema(*columns: str) -> pa.Schema:
    return pa.schema([(name, KINDS.get(name, pa.float64())) for name in columns])


SCHEMAS: Mapping[str, pa.Schema] = {
    BUSY: _schema("day", "hour", "queue", "task", "worker_id", "busy"),
    **{table: _schema(*columns) for table, columns in ROLLUPS.items()},
}
"""The columns of each table; all but ``busy`` are PostgreSQL's tables, too."""
PROMISES = pa.schema(
    [
        ("queue", pa.string()),
        ("task", pa.string()),
        ("wait", pa.int64()),
        ("run", pa.int64()),
        ("objective", pa.float64()),
    ]
)
"""The promises as the statements read them: a task's own, or of its queue where the task is null; times in microseconds."""
DAYS = pa.schema([("day", pa.date32())])


def folder(table: str) -> str:
    """Where a table is below the lake, such as ``rollup/hours``."""
    return f"{FOLDER}/{table}"


class Engine(Protocol[T]):
    """Computes tables; ``T`` is what names one, computed or yet to compute."""

    def ended(self, days: Iterable[date]) -> T:
        """The ended jobs of some days; a day that is not in the lake gives no rows."""

    def failed(self, days: Iterable[date]) -> T:
        """Their failed attempts, as :data:`pgqueue.spark.rollup.attempts.FAILED`."""

    def of_days(self, table: str, days: Iterable[date]) -> T:
        """A roll-up table's rows of some days."""

    def workers(self) -> T:
        """All workers that ever ran."""

    def small(self, rows: pa.Table) -> T:
        """Rows that are made in this process."""

    def run(self, statement: str, /, values: Mapping[str, object] | None = None, **tables: T) -> T:
        """The result of a statement."""

    def kept(self, rows: T) -> AbstractContextManager[T]:
        """The same rows, computed only once within the block."""

    def fetched(self, rows: T) -> pa.Table:
        """A few rows, in this process."""

    def replace(
        self, table: str, days: Sequence[date], rows: T, made_from: Mapping[date, Mapping[str, str]]
    ) -> None:
        """Replace some days of a roll-up table with rows, in one commit."""


@cache
def statement(name: str) -> str:
    """The text of a statement, by its file's name."""
    return (files("pgqueue.spark.rollup") / "statements" / f"{name}.sql").read_text(encoding="utf-8")


def rows_of(lake: "Lake", entry: "DayRecord", columns: Sequence[str]) -> Iterator[bytes]:
    """The rows of a table's day, a batch at a time.

    Args:
        lake: the lake of the files.
        entry: the day.
        columns: the columns, in order; ``day`` is the day itself.
    """
    for file in entry.files:
        read = parquet.ParquetFile(io.BytesIO(lake.folder.read(file.path)))
        for batch in read.iter_batches():
            given = {name: batch.column(name) for name in batch.schema.names}
            given["day"] = pa.repeat(pa.scalar(entry.day, pa.date32()), batch.num_rows)
            yield _csv(pa.table({name: _text_array(given[name]) for name in columns}))


def _csv(table: pa.Table) -> bytes:
    """CSV with nothing for null, and quotes for an empty string, as PostgreSQL reads them."""
    written = io.BytesIO()
    csv.write_csv(table, written, csv.WriteOptions(include_header=False))
    return written.getvalue()


def _text_array(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):  # in UTC, with or without a zone in the file
        return values.cast(pa.timestamp("us", tz=values.type.tz)).cast(INSTANT)
    if pa.types.is_binary(values.type):
        return pa.array(
            [None if one is None else rf"\x{one.hex()}" for one in values.to_pylist()], pa.string()
        )
    return values
