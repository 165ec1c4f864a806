"""``df.writeStream.format("pgqueue")``: each batch once, also when Spark does one again after a crash."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from spark.sinking import attempts, batch, columns, orders, staged_rows

from pgqueue.errors import PipelineError
from pgqueue.spark.writing.log import writes
from pgqueue.spark.writing.writer import stage_partition, stream_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class Orders:
    """A folder into which files of orders are put, and a query that enqueues them."""

    def __init__(self, spark: "SparkSession", folder: Path, dsn: str) -> None:
        self._spark = spark
        self._dsn = dsn
        self._inbox = folder / "inbox"
        self._inbox.mkdir()
        self.checkpoint = folder / "checkpoint"

    def put(self, name: str, *order_ids: object) -> None:
        lines = [json.dumps({"order_id": order_id}) for order_id in order_ids]
        (self._inbox / f"{name}.json").write_text("\n".join(lines))

    def run(self, **options: str) -> str:
        """Enqueue what has not been; the id of the query."""
        given = {"task": "bill", "dsn": self._dsn, "checkpointLocation": str(self.checkpoint), **options}
        read = self._spark.readStream.schema("order_id long").option("maxFilesPerTrigger", 1)
        query = (
            read.json(str(self._inbox))
            .selectExpr("order_id", "if(order_id < 0, 500, 0) as priority")
            .writeStream.format("pgqueue")
            .options(**given)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query.id

    def crash_before_the_checkpoint(self, number: int) -> None:
        """Leave things as a crash does that comes after the commit of a batch and before Spark has noted it."""
        for name in (f"{number}", f".{number}.crc"):
            (self.checkpoint / "commits" / name).unlink()


@pytest.fixture
def inbox(spark: "SparkSession", tmp_path: Path, dsn: str) -> Orders:
    return Orders(spark, tmp_path, dsn)


def test_a_batch_that_spark_does_again_after_a_crash_is_enqueued_once(inbox: Orders, dsn: str) -> None:
    inbox.put("1", 1, 2)
    inbox.run()
    inbox.put("2", 3, 4)
    query = inbox.run()
    inbox.crash_before_the_checkpoint(1)
    inbox.put("3", 5)

    assert inbox.run() == query

    assert sorted(orders(dsn)) == [1, 2, 3, 4, 5]
    found = [(one.run, one.batch, one.rows, one.enqueued, one.repeats is None) for one in writes(dsn)]
    assert found == [
        (query, 2, 1, 1, True),
        (query, 1, 2, 0, False),
        (query, 1, 2, 2, True),
        (query, 0, 2, 2, True),
    ]
    assert staged_rows(dsn) == attempts(dsn) == 0


def test_a_batch_with_a_bad_row_stops_the_query_and_goes_on_when_the_row_is_gone(
    inbox: Orders, dsn: str
) -> None:
    inbox.put("1", 1)
    inbox.run()
    inbox.put("2", 2, -3)

    with pytest.raises(StreamingQueryException, match="1 of 2 rows cannot be jobs of the task bill"):
        inbox.run()
    assert orders(dsn) == [1]
    assert staged_rows(dsn) == attempts(dsn) == 0
    inbox.put("2", 2, 3)
    inbox.run()

    assert sorted(orders(dsn)) == [1, 2, 3]


def test_a_stream_with_a_name_of_its_own_is_refused_when_it_starts(inbox: Orders, dsn: str) -> None:
    inbox.put("1", 1)

    with pytest.raises(StreamingQueryException, match="run='x': the batches of a stream are named by"):
        inbox.run(run="x")
    assert writes(dsn) == []


def test_the_same_batch_number_of_another_query_is_another_batch(dsn: str) -> None:
    for query in ("one", "two"):
        made = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)
        message = stage_partition(made.target, made.id, 0, iter([batch(order_id=[1])]), query)
        other = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)
        other.commit([message], 0)

    assert orders(dsn) == [1, 1]


def test_a_batch_that_failed_is_deleted_by_a_writer_that_did_not_stage_it(dsn: str) -> None:
    made = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)
    message = stage_partition(made.target, made.id, 0, iter([batch(order_id=[1])]), "query")
    other = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)

    other.abort([None, message], 0)

    assert staged_rows(dsn) == attempts(dsn) == 0


def test_a_batch_without_partitions_is_nothing_to_commit(dsn: str) -> None:
    made = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)

    made.commit([], 0)

    assert writes(dsn) == []


def test_a_batch_of_nobody_knows_which_query_is_refused(dsn: str) -> None:
    made = stream_writer({"task": "bill", "dsn": dsn}, columns("order_id"), overwrite=False)
    nothing: list[pa.RecordBatch] = []

    with pytest.raises(PipelineError, match="does not say which query"):
        made.write(iter(nothing))
