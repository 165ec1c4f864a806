"""Writing by hand: what Spark does with a writer, without Spark; and questions to the database."""

from collections.abc import Sequence
from typing import Any, LiteralString

import pyarrow as pa
from looking import ask
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from pgqueue.spark.writing.log import writes
from pgqueue.spark.writing.writer import JobsWriter, StagedPart, stage_partition, stream_writer, writer
from pgqueue.store.pipeline.sink import Write

KINDS: dict[str, DataType] = {
    "order_id": types.LongType(),
    "queue": types.StringType(),
    "priority": types.IntegerType(),
    "max_attempts": types.IntegerType(),
    "run_at": types.TimestampType(),
    "unique_key": types.StringType(),
    "body": types.StringType(),
}
"""The types of the columns that most of these tests have."""


def columns(*names: str) -> StructType:
    """Columns by their names, of the types in KINDS."""
    made = StructType()
    for name in names:
        made.add(name, KINDS[name])
    return made


def batch(**values: Sequence[Any]) -> pa.RecordBatch:
    """Rows as Spark hands them to a writer."""
    return pa.RecordBatch.from_pydict(
        {name: pa.array(column, type=_ARROW.get(name)) for name, column in values.items()}
    )


_ARROW = {
    "order_id": pa.int64(),
    "priority": pa.int32(),
    "max_attempts": pa.int32(),
    "run_at": pa.timestamp("us", "UTC"),
    "unique_key": pa.string(),
    "queue": pa.string(),
}


def writing(dsn: str, *names: str, **options: str) -> JobsWriter:
    """A writer of a DataFrame with these columns."""
    return writer({"task": "bill", "dsn": dsn, **options}, columns(*names), overwrite=False)


def staged(made: JobsWriter, partition: int, *batches: pa.RecordBatch) -> StagedPart:
    return stage_partition(made.target, made.new.id, partition, iter(batches))


def written(dsn: str, *batches: pa.RecordBatch, **options: str) -> Write:
    """A whole write, a batch to a partition; what was recorded."""
    made = writing(dsn, *batches[0].schema.names, **options)
    made.commit([staged(made, number, one) for number, one in enumerate(batches)])
    return writes(dsn, limit=1)[0]


def stream_batch(dsn: str, query: str, number: int, *order_ids: int, **options: str) -> None:
    """A whole batch of a stream."""
    made = stream_writer({"task": "bill", "dsn": dsn, **options}, columns("order_id"), overwrite=False)
    message = stage_partition(made.target, made.id, 0, iter([batch(order_id=[*order_ids])]), query)
    made.commit([message], number)


def orders(dsn: str) -> list[int]:
    """The order ids of the live jobs, in the order in which they stand in line."""
    statement: LiteralString = (
        "select (args->>'order_id')::bigint from pgqueue.jobs order by queue, -priority, run_at, id"
    )
    return [row[0] for row in ask(dsn, statement)]


def staged_rows(dsn: str) -> int:
    count: int = ask(dsn, "select count(*) from pgqueue.sink_rows")[0][0]
    return count


def attempts(dsn: str) -> int:
    count: int = ask(dsn, "select count(*) from pgqueue.sink_attempts")[0][0]
    return count
