"""``spark.read.format("pgqueue")``: reads a table in parts, each row once.

In a Python process beside the driver, Spark asks which filters the reader takes, and for the list of parts. That process
decides once what is read, and writes finished statements into the parts. Then one task reads each part, on any machine.

PostgreSQL gets a filter only if it decides it exactly as Spark would; all others are returned to Spark. So text is
compared for equality only (its order depends on the database's collation), JSON is not compared, and a filter whose
value has another type than the column is returned.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption
from pgqueue.spark.reading.columns import Shape, check_schema
from pgqueue.spark.reading.fetching import fetch
from pgqueue.spark.reading.options import BatchOptions, ReadSource
from pgqueue.spark.reading.page_ranges import Dealer
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline.extract_where import ColumnCondition, ColumnKind, Operator, SparkTable

COMPARED: dict[type[spark.Filter], Operator] = {
    spark.EqualTo: Operator.EQUAL,
    spark.EqualNullSafe: Operator.SAME,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.AT_MOST,
    spark.GreaterThan: Operator.MORE,
    spark.GreaterThanOrEqual: Operator.AT_LEAST,
}
ORDERED = {Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST}
IN_ORDER = {ColumnKind.BIGINT, ColumnKind.INTEGER, ColumnKind.SMALLINT, ColumnKind.TIMESTAMP, ColumnKind.DATE}
PYTHON = {
    ColumnKind.BIGINT: int,
    ColumnKind.INTEGER: int,
    ColumnKind.SMALLINT: int,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.TEXT: str,
    ColumnKind.TIMESTAMP: datetime,
    ColumnKind.DATE: date,
}


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
        self._conditions = [
            *conditions_of(options.source),
            *([ColumnCondition("day", Operator.AT_LEAST, (options.first,))] if options.first else ()),
            *([ColumnCondition("day", Operator.AT_MOST, (options.last,))] if options.last else ()),
        ]

    def partitions(self) -> Sequence[InputPartition]:
        """Decide what is read, and by how many tasks.

        Raises:
            PgQueueError: the table cannot be read; no task has started.
        """
        source = self._options.source
        with extract.open_planner(source.database(), snapshot=self._options.snapshot) as planner:
            dealer = Dealer(planner, self._options, self._shape.wanted, self._conditions)
            return [InputPartition(task) for task in dealer.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        return read_part(self._options.source, self._shape, partition)


class FilteringReader(TableReader):
    """Reads a table once, and takes Spark's filters.

    Spark (4.1 to 4.3 at least) keeps one plan for each ``load()``, made with the last filter. So a DataFrame that is used
    with two filters, or with one and then without, would silently give the rows of the wrong filter. This reader is
    therefore used only with the option ``pushdown``, by which the user says that a ``load()`` is for one query.
    """

    def pushFilters(self, filters: list[spark.Filter]) -> list[spark.Filter]:  # noqa: N802 - Spark's name
        """Take the filters that PostgreSQL decides exactly as Spark would; return the others."""
        left = []
        for one in filters:
            condition = pushed_condition(self._options.source.table, one)
            if condition is None:
                left.append(one)
            else:
                self._conditions.append(condition)
        return left


def reader_of(options: BatchOptions, schema: StructType) -> TableReader:
    """The reader that the options ask for."""
    return (FilteringReader if options.pushdown else TableReader)(options, schema)


def pushed_condition(table: SparkTable, found: spark.Filter) -> ColumnCondition | None:
    """A filter as a condition for PostgreSQL; None: Spark evaluates it."""
    if isinstance(found, spark.Not):
        inner = pushed_condition(table, found.child)
        return None if inner is None else replace(inner, negated=not inner.negated)
    path: tuple[str, ...] = getattr(found, "attribute", ())
    kind = table.columns.get(path[0]) if len(path) == 1 else None
    if kind is None or kind is ColumnKind.JSON:
        return None
    return _column_condition(path[0], kind, found)


def conditions_of(source: ReadSource) -> list[ColumnCondition]:
    """The conditions for the rows that the options ask for."""
    return [ColumnCondition(column, Operator.IN, values) for column, values in source.only.items()]


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


def _column_condition(column: str, kind: ColumnKind, found: spark.Filter) -> ColumnCondition | None:
    match found:
        case spark.IsNull():
            return ColumnCondition(column, Operator.IS_NULL)
        case spark.IsNotNull():
            return ColumnCondition(column, Operator.IS_NULL, negated=True)
        case spark.In():
            return _exactly(ColumnCondition(column, Operator.IN, tuple(found.value)), kind)
    operator = COMPARED.get(type(found))
    if operator is None or (operator in ORDERED and kind not in IN_ORDER):
        return None
    return _exactly(ColumnCondition(column, operator, (found.value,)), kind)  # type: ignore[attr-defined]  # all of COMPARED have one


def _exactly(condition: ColumnCondition, kind: ColumnKind) -> ColumnCondition | None:
    said = bool(condition.values) and all(_tellable(value, kind) for value in condition.values)
    return condition if said else None


def _tellable(value: object, kind: ColumnKind) -> bool:
    if type(value) is not PYTHON[kind]:
        return False
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return not (isinstance(value, str) and "\0" in value)  # PostgreSQL's text cannot hold NUL
