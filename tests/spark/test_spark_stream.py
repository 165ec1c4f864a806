"""``spark.readStream.format("pgqueue")`` in a real session: with writers at work, restarts, and batches that are done twice."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from spark.extracts import Connection, add_dead, add_history, number_of, settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = dict[int, list[int]]


@pytest.fixture
def writers(dsn: str) -> Iterator[list[Connection]]:
    with ExitStack() as opened:
        yield [opened.enter_context(psycopg.connect(dsn)) for _ in range(3)]


def run(
    spark: "SparkSession",
    dsn: str,
    checkpoint: Path,
    then: Callable[["DataFrame", int], None],
    **options: str,
) -> None:
    """Read what there is as a stream, with a checkpoint."""
    query = (
        spark.readStream.format("pgqueue")
        .options(dsn=dsn, table="ended", columns="id", **options)
        .load()
        .writeStream.foreachBatch(then)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_restarts_and_batches_done_twice_end_in_the_same_set(
    spark: "SparkSession", dsn: str, connection: Connection, writers: list[Connection], tmp_path: Path
) -> None:
    done: Batches = {}
    twice: Batches = {}

    def take(rows: "DataFrame", batch: int) -> None:
        if batch in done:
            twice[batch] = done[batch]
        done[batch] = sorted(row["id"] for row in rows.collect())

    def take_and_break(rows: "DataFrame", batch: int) -> None:
        take(rows, batch)
        raise RuntimeError("after the batch was written, before it was committed")

    add_history(writers[0], range(100))
    add_history(writers[1], range(100, 110))
    writers[1].commit()
    run(spark, dsn, tmp_path, take)
    assert done == {0: []}  # the first transaction is open: what came after it waits

    add_dead(writers[1], range(110, 120))
    add_history(writers[2], range(120, 130))
    writers[2].rollback()
    writers[0].commit()
    settle(connection, until=number_of(writers[1]))
    with pytest.raises(StreamingQueryException, match="before it was committed"):
        run(spark, dsn, tmp_path, take_and_break)
    assert done == {0: [], 1: list(range(110))}
    add_history(writers[2], range(130, 140))
    writers[2].commit()
    writers[1].commit()
    settle(connection)
    run(spark, dsn, tmp_path, take, maxRowsPerBatch="10")

    assert twice == {1: list(range(110))}
    assert done[1] == twice[1]
    assert sorted(found for batch in done.values() for found in batch) == [*range(120), *range(130, 140)]
    assert [len(done[batch]) for batch in sorted(done)] == [0, 110, 10, 10]
