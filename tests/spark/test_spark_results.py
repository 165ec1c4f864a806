"""``option("results", run)``: a row for each row that was written, with what became of it; once, and as a stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from looking import ask
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from spark.sinking import batch, stream_batch, written

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.spark.options import Options
from pgqueue.spark.reading.result_stream import result_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

END = """
with gone as (delete from pgqueue.jobs where (meta #>> '{key,order_id}')::bigint %% 10 = any(%(which)s) returning *)
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts, max_attempts,
                                 outcome, queue, task, args, errors, result, meta)
select id, run_at, created_at, run_at + interval '2 seconds', run_at + interval '5 seconds', 0, 0, 2, 25, %(outcome)s, queue, task,
       '{}', '[{"type": "TimeoutError", "message": "slow"}]', json_build_object('paid', meta #> '{key,order_id}'), meta
from gone
"""
DIE = """
with gone as (delete from pgqueue.jobs where (meta #>> '{key,order_id}')::bigint %% 10 = any(%(which)s) returning *)
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts, max_attempts,
                               reason, queue, task, args, errors, meta)
select id, run_at, created_at, null, run_at + interval '5 seconds', 0, 0, 3, 3, 'exhausted', queue, task,
       '{}', '[{"type": "ValueError", "message": "no such order"}]', meta
from gone
"""


def end(dsn: str, *which: int, outcome: str = "succeeded") -> None:
    """End the jobs whose order ids end with these digits."""
    ask(dsn, END, which=[*which], outcome=outcome)


def die(dsn: str, *which: int) -> None:
    ask(dsn, DIE, which=[*which])


def results(spark: "SparkSession", dsn: str, run: str = "r1", **options: str) -> "DataFrame":
    return spark.read.format("pgqueue").options(dsn=dsn, results=run, **options).load()


def by_order(frame: "DataFrame") -> dict[int, "Row"]:
    rows = {row["order_id"]: row for row in frame.collect()}
    return dict(sorted(rows.items(), key=lambda one: (one[0] is None, one[0])))


def test_each_row_comes_back_with_what_became_of_it(spark: "SparkSession", queue: PgQueue, dsn: str) -> None:
    queue.enqueue_named("other", {})
    written(dsn, batch(order_id=[*range(5)]), run="r1", key="order_id")
    end(dsn, 0)
    die(dsn, 1)
    end(dsn, 2, outcome="cancelled")
    ask(
        dsn,
        "update pgqueue.jobs set status = 'running', claimed_at = run_at + interval '1 second', attempts = 1 "
        "where args ->> 'order_id' = '3'",
    )

    frame = results(spark, dsn)
    assert frame.columns == [
        "order_id", "job_id", "state", "result", "error_type", "error_message", "reason", "attempts", "waited", "ran", "ended_at",
    ]  # fmt: skip
    rows = by_order(frame)
    assert [row.state for row in rows.values()] == ["succeeded", "dead", "cancelled", "running", "ready"]
    good, dead, cancelled, running, ready = rows.values()
    assert (good.result, good.error_type, good.attempts, good.waited, good.ran) == (
        '{"paid" : 0}', None, 2, 2.0, 3.0,
    )  # fmt: skip
    assert (dead.error_type, dead.error_message, dead.reason) == ("ValueError", "no such order", "exhausted")
    assert (dead.attempts, dead.waited, dead.ran, dead.result) == (3, None, None, None)
    assert cancelled.error_type == "TimeoutError"
    assert (running.waited, running.ended_at) == (1.0, None)
    assert (ready.waited, ready.attempts) == (None, 0)
    assert good.ended_at is not None


def test_key_columns_have_the_types_that_they_had(spark: "SparkSession", dsn: str) -> None:
    frame = spark.sql(
        "select cast(7 as tinyint) as a_byte, 12.30bd as a_decimal, 'größe \"x\" \\\\' as a_string, cast('ab' as binary) as a_binary, "
        "date '2026-11-21' as a_date, timestamp_ltz '2026-11-21 12:00:00.5+02:00' as an_instant, 0.1D as a_double, true as a_bool, "
        "cast(null as long) as a_null, timestamp_ntz '2026-11-21 12:00:00' as a_local"
    )
    key = ",".join(frame.columns)
    frame.write.format("pgqueue").options(task="bill", dsn=dsn, run="r1", key=key).mode("append").save()

    found = results(spark, dsn).select(*frame.columns)
    assert found.schema.simpleString() == frame.schema.simpleString()
    assert found.collect() == frame.collect()
    assert found.collect()[0]["an_instant"].astimezone(UTC) == datetime(
        2026, 11, 21, 10, 0, 0, 500_000, tzinfo=UTC
    )
    assert (found.collect()[0]["a_decimal"], found.collect()[0]["a_date"]) == (
        Decimal("12.30"),
        date(2026, 11, 21),
    )


def test_what_has_no_record_any_more_is_a_row_too(spark: "SparkSession", dsn: str) -> None:
    written(dsn, batch(order_id=[*range(20)]), run="r1", key="order_id")
    end(dsn, 1, 2)
    ask(dsn, "delete from pgqueue.job_history where (meta #>> '{key,order_id}')::bigint in (2, 11)")
    ask(dsn, "delete from pgqueue.jobs where args ->> 'order_id' = '19'")

    rows = results(spark, dsn, rowsPerPartition="7").collect()
    assert len(rows) == len({row.job_id for row in rows}) == 20
    gone = [row for row in rows if row.state == "gone"]
    assert [(row.order_id, row.result) for row in gone] == [(None, None)] * 3
    assert results(spark, dsn, columns="order_id").where("order_id is null").count() == 3


def test_rejected_and_refused_rows_are_rows_too(spark: "SparkSession", dsn: str) -> None:
    written(
        dsn,
        batch(order_id=[1, 2, 3], unique_key=["a", "a", ""]),
        run="r1",
        key="order_id",
        onbadrow="divert",
    )

    rows = by_order(results(spark, dsn))
    assert [row.state for row in rows.values()] == ["ready", "rejected", "refused"]
    assert rows[2].job_id == rows[1].job_id
    assert rows[3].job_id is None
    assert "unique_key" in rows[3].error_message


def test_parts_are_divided_by_ids_and_long_columns_come_only_when_asked_for(
    spark: "SparkSession", dsn: str
) -> None:
    written(dsn, batch(order_id=[*range(95)]), run="r1", key="order_id")
    frame = results(spark, dsn, rowsPerPartition="10", columns="state,order_id")

    assert frame.columns == ["state", "order_id"]
    assert frame.rdd.getNumPartitions() == 10
    assert sorted(row.order_id for row in frame.collect()) == [*range(95)]


def test_a_result_is_read_as_the_type_that_is_asked_for(spark: "SparkSession", dsn: str) -> None:
    written(dsn, batch(order_id=[*range(3)]), run="r1", key="order_id")
    end(dsn, 1)
    schema = "order_id long, result struct<paid: long>"
    frame = spark.read.format("pgqueue").options(dsn=dsn, results="r1").schema(schema).load()

    assert by_order(frame.where("result.paid = 1")).keys() == {1}
    assert frame.where("result is null").count() == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"results": "r2"}, "there is no run 'r2'"),
        ({"results": ""}, 'option "results" is empty'),
        (
            {"results": "r1", "columns": "oder_id"},
            "results have no column 'oder_id'; did you mean 'order_id'",
        ),
        ({"results": "r1", "table": "history"}, "option 'table' does not go with results"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(
    spark: "SparkSession", dsn: str, options: dict[str, str], reason: str
) -> None:
    written(dsn, batch(order_id=[1]), run="r1", key="order_id")
    with pytest.raises(AnalysisException, match=reason):
        spark.read.format("pgqueue").options(dsn=dsn, **options).load().collect()


def test_writes_of_a_run_with_different_keys_are_read_without_them(spark: "SparkSession", dsn: str) -> None:
    stream_batch(dsn, "q", 0, 1, run="r1", key="order_id")
    stream_batch(dsn, "q", 1, 2, run="r1")

    with pytest.raises(AnalysisException, match="keep different key columns"):
        results(spark, dsn)
    assert results(spark, dsn, columns="job_id,state").count() == 2


class Stream:
    """A stream of results into files, with one checkpoint."""

    def __init__(
        self, spark: "SparkSession", dsn: str, folder: Path, *, columns_of: str | None = None, **options: str
    ) -> None:
        self._spark, self._folder, self._schema = spark, folder, columns_of
        self._options = {"dsn": dsn, "results": "r1", **options}

    def go_on(self) -> list[Any]:
        """Read what is there now, and stop; all rows so far."""
        source = self._spark.readStream.format("pgqueue").options(**self._options)
        stream = (source if self._schema is None else source.schema(self._schema)).load()
        query = (
            stream.writeStream.format("json")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .option("path", str(self._folder / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = self._spark.read.schema("order_id long, state string").json(str(self._folder / "out"))
        return sorted((row.order_id, row.state) for row in found.collect())


def test_a_stream_gives_each_job_once_when_it_has_ended(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    queue.enqueue_named("other", {})
    written(dsn, batch(order_id=[*range(40)]), run="r1", key="order_id")
    stream = Stream(spark, dsn, tmp_path)
    end(dsn, 1)
    first = [(one, "succeeded") for one in range(1, 40, 10)]
    assert stream.go_on() == first
    die(dsn, 2)
    both = sorted([*first, *((one, "dead") for one in range(2, 40, 10))])
    assert stream.go_on() == both
    assert stream.go_on() == both
    _forget_the_last_batch(tmp_path / "checkpoint")  # Spark does it again; the file sink has it already
    assert stream.go_on() == both


def _forget_the_last_batch(checkpoint: Path) -> None:
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()


def test_a_stream_sees_jobs_that_were_written_to_its_run_later(
    spark: "SparkSession", dsn: str, tmp_path: Path
) -> None:
    stream_batch(dsn, "q", 0, 1, run="r1", key="order_id")
    stream = Stream(spark, dsn, tmp_path)
    end(dsn, 1)
    assert stream.go_on() == [(1, "succeeded")]
    stream_batch(dsn, "q", 1, 2, run="r1", key="order_id")
    end(dsn, 2)
    assert stream.go_on() == [(1, "succeeded"), (2, "succeeded")]


def test_a_stream_with_a_schema_waits_for_its_run_and_reads_its_key(
    spark: "SparkSession", dsn: str, tmp_path: Path
) -> None:
    stream = Stream(spark, dsn, tmp_path, columns_of="order_id long, state string")
    assert stream.go_on() == []
    written(dsn, batch(order_id=[1, 2]), run="r1", key="order_id")
    end(dsn, 1)
    assert stream.go_on() == [(1, "succeeded")]


def test_a_stream_that_waited_for_its_run_is_refused_where_the_run_keeps_another_key(dsn: str) -> None:
    reader = result_stream(
        Options({"results": "r1", "dsn": dsn}), StructType().add("order_id", "long").add("state", "string")
    )
    start = reader.initialOffset()
    written(dsn, batch(order_id=[1], priority=[1]), run="r1", key="priority")
    with psycopg.connect(dsn) as connection:
        connection.execute(
            END.replace("{key,order_id}", "{key,priority}").encode(), {"which": [1], "outcome": "succeeded"}
        )
    with pytest.raises(InvalidOption, match="results have no column 'order_id'"):
        reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))


def test_a_job_behind_an_open_transaction_comes_after_it(
    spark: "SparkSession", dsn: str, tmp_path: Path, open_transaction: Callable[[], Any]
) -> None:
    written(dsn, batch(order_id=[1, 2]), run="r1", key="order_id")
    stream = Stream(spark, dsn, tmp_path)
    with open_transaction() as connection:
        connection.execute(END, {"which": [1], "outcome": "succeeded"})
        end(dsn, 2)
        assert stream.go_on() == []
    assert stream.go_on() == [(1, "succeeded"), (2, "succeeded")]


@pytest.fixture
def open_transaction(dsn: str) -> Callable[[], Any]:
    @contextmanager
    def opened() -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(dsn) as connection:
            yield connection

    return opened
