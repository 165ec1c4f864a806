"""What an export reads from the database in this process, through Arrow: days that are small, and the tables without days.

PostgreSQL sends the rows by ADBC, as it sends them to Spark's executors (:mod:`pgqueue.spark.reading.fetching`). No Spark
session is started.
"""

from collections.abc import Generator, Iterable
from contextlib import closing
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql.pandas.types import from_arrow_schema

from pgqueue.spark.lake.lake import DEPLOY_SCHEMA, DEPLOYS, ENDED_SCHEMA, WORKER_SCHEMA, WORKERS, Lake
from pgqueue.spark.reading.columns import Shape
from pgqueue.spark.reading.fetching import Fetch, fetch
from pgqueue.store.database import Database
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.extract_tables import TABLES

MOST_ROWS = 200_000
"""A day with more rows is left to Spark, which reads it with all cores of all its machines."""
MOST_BYTES = 256 << 20
"""A day whose rows need more memory than this is left to Spark, too: they are sorted in memory."""
ORDER = ("queue", "task", "ended_at", "id")


def ended(database: Database, day: date, *, since: int, below: int) -> pa.Table | None:
    """The jobs that ended on a day, in transactions from ``since`` to below ``below``, sorted as Spark would; None: too many bytes.

    Raises:
        PipelineError: a value has no place in a lake.
        DatabaseError: the database refused the statement, or the connection was lost.
    """
    found: list[pa.RecordBatch] = []
    wanted = [where.on_day(TABLES["ended"], day), where.ended_between(since, below)]
    with closing(_batches(database, "ended", ENDED_SCHEMA, wanted)) as batches:
        size = 0
        for batch in batches:
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            found.append(batch)
    rows = pa.Table.from_batches(found, ENDED_SCHEMA)
    return rows.sort_by([(name, "ascending") for name in ORDER])


def keep_workers(database: Database, lake: Lake) -> None:
    """Add the database's workers to the lake's: the database deletes old ones in time, the lake keeps them."""
    found = pa.Table.from_batches(_batches(database, WORKERS, WORKER_SCHEMA), WORKER_SCHEMA)
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


def _batches(
    database: Database, table: str, schema: pa.Schema, conditions: Iterable[sql.Composable] = ()
) -> Generator[pa.RecordBatch, None, None]:
    """Rows of a table as Spark sees it, in these columns."""
    shape = Shape(table, from_arrow_schema(schema))
    asked = where.statement(TABLES[table], shape.wanted, conditions, database.catalogue)
    for batch in fetch(database.dsn, (Fetch(asked.as_string(None)),)):
        yield shape.fitted(batch)
