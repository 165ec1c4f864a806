"""What an export reads from the database in this process, through Arrow: days that are small, and the tables without days.

PostgreSQL sends the rows by ADBC, as it sends them to Spark's executors (:mod:`pgqueue.spark.reading.fetching`). No Spark
session is started.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date
from threading import Lock
from typing import Self

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql.pandas.types import from_arrow_schema

from pgqueue.spark.lake.columns import DEPLOY_SCHEMA, DEPLOYS, ENDED_SCHEMA, WORKER_SCHEMA, WORKERS
from pgqueue.spark.lake.hidden import in_arrow, read
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.reading.columns import Shape
from pgqueue.spark.reading.fetching import Fetch, connect, fetch, fetch_over
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.extract_tables import TABLES
from pgqueue.store.pipeline.lake import NOTHING_HIDDEN, HiddenValues

MOST_ROWS = 1_000_000
"""A day with more rows is left to Spark, which reads it with all cores of all its machines."""
MOST_BYTES = 512 << 20
"""A day whose rows need more memory than this is left to Spark, too: they are sorted in memory."""
ORDER = ("queue", "task", "ended_at", "id")


class _TooManyBytes(Exception):
    """A day's rows need more memory than :data:`MOST_BYTES`."""


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
        schema = read(ENDED_SCHEMA, self._hidden)
        wanted = [where.on_day(TABLES["ended"], day), where.ended_between(since, below), dead]
        shape, asked = _day_fetch(self._database, "ended", schema, wanted)
        try:
            with self._connected() as connection, closing(fetch_over(connection, asked)) as batches:
                found = list(map(shape.fitted, _of_a_small_day(batches)))
        except _TooManyBytes:
            return None
        rows = in_arrow(pa.Table.from_batches(found, schema), ENDED_SCHEMA, self._hidden)
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
    shape, asked = _day_fetch(database, WORKERS, WORKER_SCHEMA)
    found = pa.Table.from_batches(map(shape.fitted, fetch(database.dsn, (asked,))), WORKER_SCHEMA)
    former = lake.entry(WORKERS, None)
    if former is not None:
        known = lake.rows(WORKERS, WORKER_SCHEMA)
        gone = known.filter(pc.invert(pc.is_in(known["id"], found["id"])))
        # a worker that only the lake knows, and that was alive, has been deleted by the database since
        last_seen = pc.coalesce(gone["ended_at"], pa.scalar(former.written_at, gone["ended_at"].type))
        place = WORKER_SCHEMA.get_field_index("ended_at")
        found = pa.concat_tables([found, gone.set_column(place, WORKER_SCHEMA.field(place), last_seen)])
    lake.replace(WORKERS, found)


def keep_deploys(database: Database, lake: Lake) -> None:
    """Replace the lake's deploys with the database's."""
    rows = [dict(zip(DEPLOY_SCHEMA.names, row, strict=True)) for row in database.run(plans.deploys())]
    lake.replace(DEPLOYS, pa.Table.from_pylist(rows, DEPLOY_SCHEMA))


def _of_a_small_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > MOST_BYTES:
            raise _TooManyBytes
        yield batch


def _day_fetch(
    database: Database, table: str, schema: pa.Schema, conditions: Iterable[sql.Composable] = ()
) -> tuple[Shape, Fetch]:
    """Return what to send for rows of a table as Spark sees it, in these columns, and how to fit the answer to them."""
    shape = Shape(table, from_arrow_schema(schema))
    asked = where.statement(TABLES[table], shape.wanted, conditions, database.catalogue)
    return shape, Fetch(asked.as_string(None))
