"""What an export reads from the database: rows that are final, through Arrow in this process, or with Spark.

This process reads days that are small, and the tables without days: PostgreSQL sends the rows by ADBC, as it sends them to Spark's
executors (:mod:`pgqueue.spark.reading.fetching`). Spark reads large days, and distributes their rows over files.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Self

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from pgqueue.spark.lake.columns import (
    DEPLOY_SCHEMA,
    DEPLOYS,
    ENDED_COLUMNS,
    ENDED_SCHEMA,
    WORKER_SCHEMA,
    WORKERS,
    hidden_column,
    hide,
    shown,
)
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.reading.fetching import Fetch, connect, fetch, fetch_over
from pgqueue.spark.reading.fitting import fit
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.extract_where import TABLES
from pgqueue.store.pipeline.lake import NOTHING_HIDDEN, HiddenValues, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_ROWS = 1_000_000
"""A day with more rows is left to Spark, which reads it with all cores of all its machines."""
MOST_BYTES = 512 << 20
"""A day whose rows need more memory than this is left to Spark, too: they are sorted in memory."""
ORDER = ("queue", "task", "ended_at", "id")


class _TooManyBytes(Exception):
    """A day's rows need more memory than :data:`MOST_BYTES`."""


def final_below(database: Database, barrier: int, wait: timedelta) -> tuple[int, Sequence[Session]]:
    """Wait until every transaction up to the number ``barrier`` has ended, or the time has passed.

    Args:
        database: where the transactions are.
        barrier: a number above those of all transactions in progress.
        wait: for how long.

    Returns:
        The number below which all transactions have ended, and the open ones up to ``barrier``.
    """
    look = Retrying(
        retry=retry_if_result(lambda lowest: lowest <= barrier),
        wait=wait_exponential(multiplier=0.05, max=1),
        stop=stop_after_delay(wait),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    lowest: int = look(lambda: database.run(plans.horizon()).xmin)
    return lowest, () if lowest > barrier else database.run(plans.in_the_way(barrier))


class DayReader:
    """Reads small days of a database, over one connection for each thread: to connect takes as long as to read a small day."""

    def __init__(self, database: Database, hidden: HiddenValues = NOTHING_HIDDEN) -> None:
        self._database = database
        self._hidden = hidden
        self._idle: deque[adbc.Connection] = deque()
        self._busy: set[adbc.Connection] = set()
        self._changes = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, once no thread reads any more."""
        while self._idle:
            self._idle.pop().close()

    def interrupt(self) -> None:
        """Have the reads that run in other threads fail."""
        with self._changes:  # no thread may close a connection meanwhile
            for connection in self._busy:
                with suppress(adbc.Error):  # what waits on a lost connection fails by itself
                    connection.adbc_cancel()

    def ended(self, day: date, *, since: int, below: int, dead: sql.Composable) -> pa.Table | None:
        """The jobs that ended on a day, in transactions from ``since`` to below ``below``, sorted as Spark would; None: too many bytes.

        ``dead`` is a condition that all the day's dead jobs meet, by which the database finds them. ADBC makes an error of its
        own of an interrupt, so the main thread should not call this.

        Raises:
            PipelineError: a value has no place in a lake.
            DatabaseError: the database refused the statement, or the connection was lost.
        """
        schema = shown(ENDED_SCHEMA, self._hidden)
        wanted = [where.on_day(TABLES["ended"], day), where.ended_between(since, below), dead]
        asked = _day_fetch(self._database, "ended", schema, wanted)
        try:
            with self._connected() as connection, closing(fetch_over(connection, asked)) as batches:
                found = [fit("ended", batch, schema) for batch in _of_a_small_day(batches)]
        except _TooManyBytes:
            return None
        rows = hide(pa.Table.from_batches(found, schema), ENDED_SCHEMA, self._hidden)
        return rows.sort_by([(name, "ascending") for name in ORDER])

    @contextmanager
    def _connected(self) -> Iterator[adbc.Connection]:
        """Lend a connection that no other thread uses. If the block raises, the connection is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._database.dsn)
        with self._changes:
            self._busy.add(connection)
        try:
            yield connection
        except BaseException:
            with self._changes:
                self._busy.remove(connection)
                connection.close()
            raise
        with self._changes:
            self._busy.remove(connection)
        self._idle.append(connection)


def keep_workers(database: Database, lake: Lake) -> None:
    """Add the database's workers to the lake's: the database deletes old ones in time, the lake keeps them."""
    read = fetch(database.dsn, (_day_fetch(database, WORKERS, WORKER_SCHEMA),))
    found = pa.Table.from_batches((fit(WORKERS, batch, WORKER_SCHEMA) for batch in read), WORKER_SCHEMA)
    former = lake.entry(WORKERS, None)
    if former is not None:
        known = lake.rows(WORKERS, WORKER_SCHEMA)
        gone = known.filter(pc.invert(pc.is_in(known["id"], found["id"])))
        # a worker that only the lake knows, and that was alive, has been deleted by the database since
        last_seen = pc.coalesce(gone["ended_at"], pa.scalar(former.written_at, gone["ended_at"].type))
        place = WORKER_SCHEMA.get_field_index("ended_at")
        found = pa.concat_tables([found, gone.set_column(place, WORKER_SCHEMA.field(place), last_seen)])
        if _has_same(known, found):
            return
    lake.replace(WORKERS, found)


def keep_deploys(database: Database, lake: Lake) -> None:
    """Replace the lake's deploys with the database's."""
    rows = [dict(zip(DEPLOY_SCHEMA.names, row, strict=True)) for row in database.run(plans.deploys())]
    found = pa.Table.from_pylist(rows, DEPLOY_SCHEMA)
    if lake.entry(DEPLOYS, None) is None or not _has_same(lake.rows(DEPLOYS, DEPLOY_SCHEMA), found):
        lake.replace(DEPLOYS, found)


def _has_same(known: pa.Table, found: pa.Table) -> bool:
    """Whether two tables have the same rows, in any order; the first column names each row."""
    one, other = (rows.sort_by(rows.column_names[0]).combine_chunks() for rows in (known, found))
    return bool(one.equals(other))


def ended(
    spark: "SparkSession", database: Database, day: date, *, since: int, below: int, hidden: HiddenValues
) -> "DataFrame":
    """The jobs that ended on a day, in transactions from ``since`` to below ``below``, as the lake holds them."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - small days need no PySpark

    place = {"dsn": database.dsn, "schema": database.catalogue.schema, "table": "ended"}
    columns = ",".join(name for name in ENDED_COLUMNS if name not in hidden.left_out)
    days = {"from": str(day), "to": str(day), "columns": columns}
    rows = spark.read.format("pgqueue").options(**place, **days).load()
    final = rows.where(f.col("ended_in").between(since, below - 1))
    return final.select(*(hidden_column(name, hidden) for name in ENDED_COLUMNS))


def dead(database: Database, day: date, *, below: int, hidden: HiddenValues) -> Iterator[pa.RecordBatch]:
    """The dead jobs of a day that are still in ``dead_jobs``, as the lake holds them."""
    schema = shown(ENDED_SCHEMA, hidden)
    wanted = [where.on_day(TABLES["ended"], day), where.ended_between(0, below), where.from_source("dead")]
    for batch in fetch(database.dsn, (_day_fetch(database, "ended", schema, wanted),)):
        rows = pa.Table.from_batches([fit("ended", batch, schema)])
        yield from hide(rows, ENDED_SCHEMA, hidden).to_batches()


def arrange_rows(frame: "DataFrame", queues: Mapping[str, int], rows_per_file: int) -> "DataFrame":
    """Rows distributed so that a large queue makes several files and a small one makes one.

    Args:
        frame: ended jobs.
        queues: how many rows each queue has.
        rows_per_file: about the most rows in a file.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - small days need no PySpark

    large = {queue: -(-rows // rows_per_file) for queue, rows in queues.items() if rows > rows_per_file}
    small = sum(rows for queue, rows in queues.items() if queue not in large)
    shared = max(1, -(-small // rows_per_file))
    place, first = f.pmod(f.xxhash64("queue"), f.lit(shared)), shared
    for queue, files in large.items():
        spread = f.lit(first) + f.pmod(f.xxhash64("id"), f.lit(files))
        place, first = f.when(f.col("queue") == queue, spread).otherwise(place), first + files
    return frame.repartitionById(first, place.cast("int")).sortWithinPartitions("day", *ORDER)


def _of_a_small_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > MOST_BYTES:
            raise _TooManyBytes
        yield batch


def _day_fetch(
    database: Database, table: str, schema: pa.Schema, conditions: Iterable[sql.Composable] = ()
) -> Fetch:
    """Return what to send for rows of a table as Spark sees it, in these columns."""
    asked = where.statement(TABLES[table], schema.names, conditions, database.catalogue)
    return Fetch(asked.as_string(None))
