"""The options of ``spark.read`` and ``spark.readStream``. An option that a read would ignore is refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.spark.options import TRUE_OR_FALSE, Options, count, day, truth
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import dsn_in_environment, replica_in_environment
from pgqueue.store.pipeline.extract_where import TABLES, SparkTable
from pgqueue.values.hints import remedy

ONLY: Mapping[str, tuple[str, ...]] = {
    "queue": (),
    "task": (),
    "outcome": ("succeeded", "cancelled", "dead"),
    "status": ("blocked", "scheduled", "ready", "running"),
}
"""Columns that an option can filter by, and their possible values; an empty tuple: any value."""
COMMON = ("dsn", "schema", "table", "columns", *ONLY)
BATCH = (*COMMON, "from", "to", "partitions", "pagesPerPartition", "snapshot", "where")
STREAM = (*COMMON, "startingFrom", "maxRowsPerBatch", "rowsPerPartition", "failOnDataLoss")
STREAMED = ("history", "dead", "ended")
EARLIEST, LATEST = "earliest", "latest"
ALL = "all"
"""In place of names of columns: also the long ones."""
PAGES_PER_PARTITION = 8_192
"""64 MB in pages of 8 kB: some 200,000 jobs with small arguments."""
ROWS_PER_BATCH = 1_000_000
ROWS_PER_PARTITION = 100_000


@dataclass(frozen=True, kw_only=True)
class ReadSource:
    """What is read, and from where.

    Attributes:
        dsn: where the database is.
        schema: where pgqueue's tables are.
        name: the table's name.
        columns: the columns to read; None: all that are not long.
        only: the values to read, by column.
    """

    dsn: str
    schema: str
    name: str
    columns: tuple[str, ...] | None
    only: Mapping[str, tuple[str, ...]]

    @property
    def table(self) -> SparkTable:
        """The table."""
        return TABLES[self.name]

    def database(self) -> Database:
        """The database."""
        return Database(self.dsn, schema=self.schema)


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """How a table is read once.

    Attributes:
        source: what is read.
        first: the first UTC day to read; None: no limit.
        last: the last UTC day to read; None: no limit.
        partitions: about how many partitions to make; None: as ``pages`` says.
        pages: how many of the table's pages go into a partition.
        snapshot: the name of an exported snapshot to read; None: none.
        where: an expression of PostgreSQL over the table's columns that is true for the rows to read; None: all.
    """

    source: ReadSource
    first: date | None
    last: date | None
    partitions: int | None
    pages: int
    snapshot: str | None
    where: str | None


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How a table is read as a stream.

    Attributes:
        source: what is read.
        starting: where a new query begins: EARLIEST, LATEST or a UTC day.
        rows_per_batch: the most rows in a batch; a transaction is not split.
        rows_per_partition: about how many rows of a batch make a partition.
        fail_on_data_loss: whether the query ends with an error when days were dropped unread.
    """

    source: ReadSource
    starting: str | date
    rows_per_batch: int
    rows_per_partition: int
    fail_on_data_loss: bool


def source_of(options: Options) -> ReadSource:
    """What is read, and from where.

    Raises:
        ConfigurationError: no database is named.
        InvalidOption: there is no such table.
    """
    name = _table(options)
    return ReadSource(
        dsn=database_of(options),
        schema=options.get("schema") or "pgqueue",
        name=name,
        columns=_columns(options, name),
        only=dict(_only(options, name)),
    )


def database_of(options: Options) -> str:
    """The DSN of the database to read.

    Raises:
        ConfigurationError: no database is named.
    """
    dsn = options.get("dsn") or replica_in_environment() or dsn_in_environment()
    if not dsn:
        raise ConfigurationError(
            'no database: give option("dsn", "postgresql://user@host/name"), or set PGQUEUE_DSN or DATABASE_URL '
            "where the session is started"
        )
    return Database(dsn).dsn


def batch_options(options: Options) -> BatchOptions:
    """The options of ``spark.read``.

    Raises:
        ConfigurationError: an option is missing, unknown or out of its range.
    """
    options.check_known(BATCH, elsewhere=STREAM, why="is for readStream")
    source = source_of(options)
    first, last = (options.read(name, day, "a day such as 2026-11-20") for name in ("from", "to"))
    if source.table.ended is None and (first or last):
        raise InvalidOption(
            f'"from" and "to" are days on which jobs ended, which table {source.name!r} does not have'
        )
    if first and last and first > last:
        raise InvalidOption(f"from {first} to {last} there is no day: swap them")
    partitions = options.read("partitions", count, "a number from 1 on")
    pages = options.read("pagesPerPartition", count, "a number of pages, from 1 on")
    if partitions and pages:
        raise InvalidOption('give "partitions" or "pagesPerPartition", not both: each follows from the other')
    return BatchOptions(
        source=source,
        first=first,
        last=last,
        partitions=partitions,
        pages=pages or PAGES_PER_PARTITION,
        snapshot=options.get("snapshot"),
        where=options.get("where"),
    )


def stream_options(options: Options) -> StreamOptions:
    """The options of ``spark.readStream``.

    Raises:
        ConfigurationError: an option is missing, unknown or out of its range.
    """
    options.check_known(STREAM, elsewhere=BATCH, why="is for read, not for readStream")
    source = source_of(options)
    if source.name not in STREAMED:
        raise InvalidOption(
            f"table {source.name!r} has no stream, because its rows change: use {', '.join(STREAMED)}, or read it repeatedly"
        )
    loss = options.read("failOnDataLoss", truth, TRUE_OR_FALSE)
    return StreamOptions(
        source=source,
        starting=options.read("startingFrom", _start, "earliest, latest or a day such as 2026-11-20")
        or EARLIEST,
        rows_per_batch=options.read("maxRowsPerBatch", count, "a number of rows, from 1 on")
        or ROWS_PER_BATCH,
        rows_per_partition=options.read("rowsPerPartition", count, "a number of rows, from 1 on")
        or ROWS_PER_PARTITION,
        fail_on_data_loss=loss is not False,
    )


def _table(options: Options) -> str:
    name = options.get("table")
    if name is None:
        raise InvalidOption(
            f'option "table" is missing: use {", ".join(TABLES)}; or give the option "results", with the name of a run'
        )
    if name not in TABLES:
        raise InvalidOption(f"there is no table {name!r}: {remedy(name, TABLES)}")
    return name


def _columns(options: Options, table: str) -> tuple[str, ...] | None:
    form = f"names, each once, with commas between them, such as id, queue, task; or {ALL}"
    asked = options.read("columns", names, form)
    return tuple(TABLES[table].columns) if [one.lower() for one in asked or ()] == [ALL] else asked


def _only(options: Options, table: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for column, values in ONLY.items():
        asked = options.read(column, names, "values, each once, with commas between them")
        if asked is None:
            continue
        if column not in TABLES[table].columns:
            raise InvalidOption(f"option {column!r}: table {table!r} has no such column")
        for value in asked:
            if values and value not in values:
                raise InvalidOption(f"option {column!r}: there is no {value!r}: {remedy(value, values)}")
        yield column, asked


def names(written: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    found = tuple(name.strip() for name in written.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError(written)
    return found


def _start(written: str) -> str | date:
    told = written.strip().lower()
    return told if told in {EARLIEST, LATEST} else day(told)
