"""``spark.read.format("pgqueue")``: reads a table in parts, each row once.

In a Python process beside the driver, Spark asks which filters the reader takes, and for the list of parts. That process
decides once what is read, and writes finished statements into the parts. Then one task reads each part, on any machine.

PostgreSQL gets the conditions of the options, and none of Spark's filters. Spark (4.1 to 4.3 at least) keeps one plan of a Python
source for each ``load()``, made with the last filter that the source took: a DataFrame that is used with two filters, or with one
and later without, would get the rows of the wrong filter, and the source is not asked when there is none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption
from pgqueue.spark.reading.columns import Shape, check_schema
from pgqueue.spark.reading.fetching import fetch
from pgqueue.spark.reading.options import BatchOptions, ReadSource
from pgqueue.spark.reading.page_ranges import Dealer
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import extract


@contextmanager
def snapshot(dsn: str | None = None, *, schema: str = "pgqueue") -> Iterator[str]:
    """Export a snapshot of the database, so that many tasks read several tables, or a changing table, as of one moment.

    ``with snapshot() as name: spark.read.format("pgqueue").option("snapshot", name)...``; the reads must end before the
    block does, and Spark reads only when an action runs on the DataFrame. While the block is open, vacuum cannot remove
    rows that became old since its start: keep it open only for the read.

    Args:
        dsn: where the database is; by default what PGQUEUE_DSN or DATABASE_URL says.
        schema: where pgqueue's tables are.

    Yields:
        The snapshot's name, for the option ``snapshot``.

    Raises:
        ConnectionFailed: no connection could be made.
        SchemaError: the schema is missing, too old or too new.
    """
    with extract.export_snapshot(Database(dsn, schema=schema)) as name:
        yield name


class TableReader(DataSourceReader):
    """Reads a table once."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        """Check the options and the schema; the database is not asked."""
        self._options = options
        self._shape = shape_of(options.source, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Decide what is read, and by how many tasks.

        Raises:
            PgQueueError: the table cannot be read; no task has started.
        """
        source = self._options.source
        with extract.open_planner(source.database(), snapshot=self._options.snapshot) as planner:
            dealer = Dealer(planner, self._options, self._shape.wanted)
            return [InputPartition(task) for task in dealer.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        return read_part(self._options.source, self._shape, partition)


def shape_of(source: ReadSource, schema: StructType) -> Shape:
    """The shape of a read's rows, checked.

    Raises:
        InvalidOption: the schema does not fit the table, or does not go with the option ``columns``.
    """
    check_schema(source.name, schema)
    if source.columns is not None and source.columns != tuple(schema.fieldNames()):
        raise InvalidOption(
            f'option "columns" says {", ".join(source.columns)}, and the schema says '
            f"{', '.join(schema.fieldNames())}: give one of the two"
        )
    return Shape(source.name, schema)


def read_part(source: ReadSource, shape: Shape, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a part; no rows for the empty part that Spark makes when there are no parts."""
    for batch in fetch(source.dsn, partition.value or ()):
        yield shape.fitted(batch)
