"""``df.write.format("pgqueue")`` in a real session: what becomes of columns, and that jobs really run.

``df.writeStream.format("pgqueue")``: each batch once, also when Spark does one again after a crash.
"""

import json
import pkgutil
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from looking import ask, until
from promises.processes import live_jobs
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from running import Running
from spark.sinking import attempts, batch, columns, orders, staged_rows

from pgqueue import PgQueue
from pgqueue.errors import PipelineError
from pgqueue.spark.source import PgQueueSource
from pgqueue.spark.writing.log import rejected_rows, writes
from pgqueue.spark.writing.writer import stage_partition, stream_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


SHOP = """
import os
from datetime import datetime
from decimal import Decimal
import psycopg
from pgqueue import Context, PgQueue
queue = PgQueue()

@queue.task(name="bill", queue="billing", priority=7, max_attempts=3)
def bill(ctx: Context, order_id: int, *, total: Decimal = Decimal(1), due: datetime | None = None) -> str:
    with ctx.transaction() as connection:
        connection.execute("insert into billed values (%s, %s, %s)", [order_id, total, due])
"""
EVERY_TYPE = """
    select true as a_bool, cast(7 as tinyint) as a_byte, bigint(1099511627776) as a_long, 1.5D as a_double,
           cast(0.5 as float) as a_float, cast(12.30 as decimal(9,2)) as a_decimal, 'größe "x" \\\\' as a_string,
           cast('ab' as binary) as a_binary, date '2026-11-21' as a_date,
           timestamp_ltz '2026-11-21 12:00:00.5+02:00' as an_instant, timestamp_ntz '2026-11-21 12:00:00' as a_local,
           interval '1' day as a_span, null as a_void, cast(null as int) as a_null,
           array(timestamp_ltz '2026-11-21 12:00:00+00:00', null) as instants, map('k', 1.5D, 'n', null) as a_map,
           map(3, array(1, 2)) as by_number, named_struct('x', 1, 'y', array(named_struct('z', 2.5D))) as a_struct
"""
IN_PYTHON: dict[str, Any] = {
    "a_bool": True,
    "a_byte": 7,
    "a_long": 1 << 40,
    "a_double": 1.5,
    "a_float": 0.5,
    "a_decimal": Decimal("12.30"),
    "a_string": 'größe "x" \\',
    "a_binary": b"ab",
    "a_date": date(2026, 11, 21),
    "an_instant": datetime(2026, 11, 21, 10, 0, 0, 500_000, tzinfo=UTC),
    "a_local": datetime(2026, 11, 21, 12),  # noqa: DTZ001 - a TIMESTAMP_NTZ has none
    "a_span": timedelta(days=1),
    "a_void": None,
    "a_null": None,
    "instants": [datetime(2026, 11, 21, 12, tzinfo=UTC), None],
    "a_map": {"k": 1.5, "n": None},
    "by_number": {3: [1, 2]},
    "a_struct": {"x": 1, "y": [{"z": 2.5}]},
}


def _write(frame: "DataFrame", dsn: str, **options: str) -> None:
    frame.write.format("pgqueue").options(task="bill", dsn=dsn, **options).mode("append").save()


@pytest.fixture
def shop(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An app that this process, the driver and the executors can import."""
    return _app(spark, SHOP, tmp_path, monkeypatch)


def _app(spark: "SparkSession", source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the queue of an app of this source is found."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"shop_{uuid.uuid4().hex}"
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    spark.sparkContext.addPyFile(str(path))
    spark.dataSource.register(PgQueueSource)  # it takes the list of files along
    return f"{name}:queue"


# A task without annotations is the point: its values arrive as JSON has them, of which an enqueue warns.
@pytest.mark.filterwarnings("ignore::pgqueue.errors.PgQueueWarning")
def test_every_type_arrives_in_the_form_that_an_enqueue_of_the_same_values_has(
    spark: "SparkSession", dsn: str, queue: PgQueue
) -> None:
    def anything(**fields: Any) -> None: ...

    anything_at_all = queue.task(name="bill")(anything)
    _write(spark.sql(EVERY_TYPE), dsn)

    ((args,),) = ask(dsn, "select args from pgqueue.jobs")
    expected = json.loads(anything_at_all.call(**IN_PYTHON).job.args)["fields"]
    assert args == expected
    assert {name: type(value) for name, value in args.items()} == {
        name: type(value) for name, value in expected.items()
    }


def test_columns_of_reserved_names_say_how_each_job_is_queued(spark: "SparkSession", dsn: str) -> None:
    frame = spark.sql("""
        select * from values
            (1, 'mail', 5S, timestamp_ltz '2030-01-01 00:00:00+00:00', 2L, 'a'), (2, null, null, null, null, null)
        as t (order_id, queue, priority, run_at, max_attempts, unique_key) order by order_id""")

    _write(frame, dsn, queue="bulk", priority="-3", max_attempts="9")

    statement = (
        "select args, queue, priority, status, max_attempts, unique_key, run_at > now(), task "
        "from pgqueue.jobs order by id"
    )
    assert ask(dsn, statement) == [
        ({"order_id": 1}, "mail", 5, "scheduled", 2, "a", True, "bill"),
        ({"order_id": 2}, "bulk", -3, "ready", 9, None, False, "bill"),
    ]


@pytest.mark.parametrize(
    "column",
    ["named_struct('order_id', id, 'lines', array(1, 2))", "format_string('{\"order_id\": %d,\\n \"lines\": [1, 2]}', id)"],
    ids=["struct", "JSON"],
)  # fmt: skip
def test_one_column_may_hold_all_arguments(spark: "SparkSession", dsn: str, column: str) -> None:
    frame = spark.range(2).selectExpr(f"{column} as body", "'mail' as queue")

    _write(frame, dsn, args="body")

    assert ask(dsn, "select args, queue from pgqueue.jobs order by id") == [
        ({"order_id": 0, "lines": [1, 2]}, "mail"),
        ({"order_id": 1, "lines": [1, 2]}, "mail"),
    ]


async def test_a_worker_runs_what_a_dataframe_enqueued_by_the_tasks_own_defaults(
    spark: "SparkSession", dsn: str, shop: str, running: Running
) -> None:
    frame = spark.range(100).selectExpr(
        "id as order_id", "cast(id as decimal(9,2)) as total", "timestamp_millis(id) as due"
    )
    _write(frame, dsn, app=shop)
    ask(dsn, "create table billed (order_id bigint, total numeric, due timestamptz)")
    found = ask(dsn, "select distinct queue, priority, max_attempts from pgqueue.jobs")

    app: PgQueue = pkgutil.resolve_name(shop)
    app.database = app.database.but(dsn=dsn)
    async with running(app, concurrency=2):
        await until(lambda: not live_jobs(dsn))
    app.close()

    assert found == [("billing", 7, 3)]
    statement = "select count(*), sum(total), max(due) from billed"
    assert ask(dsn, statement) == [(100, Decimal(4950), datetime.fromtimestamp(0.099, UTC))]


def test_jobs_of_a_limited_task_wait_in_their_lanes_though_no_worker_has_stored_its_limits(
    spark: "SparkSession", dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that may not store them writes as before: then a worker has to have started."""
    limited = SHOP.replace("max_attempts=3)", 'max_attempts=3, limit=Limit(1, by="total"))')
    limited = limited.replace("import Context, PgQueue", "import Context, Limit, PgQueue")
    name = _app(spark, limited, tmp_path, monkeypatch)
    frame = spark.sql("select id as order_id, cast(id % 2 + 1 as decimal(9,2)) as total from range(4)")
    ask(dsn, "drop role if exists app_sink; create role app_sink; grant usage on schema pgqueue to app_sink")
    ask(
        dsn,
        "grant all on all tables in schema pgqueue to app_sink; revoke all on pgqueue.limits from app_sink",
    )
    ask(dsn, "grant all on all sequences in schema pgqueue to app_sink")
    ask(dsn, "grant execute on function pgqueue.put_in_lanes(bigint[]) to app_sink")

    _write(frame, f"{dsn}&options=-crole%3Dapp_sink", app=name)
    without = ask(dsn, "select status, count(*) from pgqueue.jobs group by 1")
    _write(frame, dsn, app=name)

    assert without == [("ready", 4)]
    waiting = "select status, count(*) from pgqueue.jobs where in_lane and lane like '%%bill%%' group by lane, status"
    assert ask(dsn, waiting) == [("blocked", 2)] * 2


def test_a_rerun_of_the_whole_program_enqueues_nothing_twice(spark: "SparkSession", dsn: str) -> None:
    frame = spark.range(10).selectExpr("id as order_id", "concat('order ', id % 4) as unique_key").coalesce(1)

    for _ in range(2):
        _write(frame, dsn, run="2026-11-21")

    repeat, first = writes(dsn, run="2026-11-21")
    assert (first.rows, first.enqueued, first.rejected, first.repeats) == (10, 4, 6, None)
    assert (repeat.rows, repeat.enqueued, repeat.repeats) == (0, 0, first.id)
    assert [one.place for one in rejected_rows(first.id, dsn)] == [5, 6, 7, 8, 9, 10]
    assert orders(dsn) == [0, 1, 2, 3]


def test_jobs_stand_in_line_in_the_order_of_a_sorted_dataframe(spark: "SparkSession", dsn: str) -> None:
    frame = spark.range(50, numPartitions=2).selectExpr("(id * 7) % 50 as order_id").orderBy("order_id")

    spark.conf.set("spark.sql.adaptive.enabled", "false")  # else so few rows are one partition
    try:
        assert frame.rdd.getNumPartitions() == 2
        _write(frame, dsn)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")

    assert orders(dsn) == list(range(50))


def test_one_bad_row_refuses_the_dataframe_by_row_and_column(spark: "SparkSession", dsn: str) -> None:
    frame = spark.range(10, numPartitions=2).selectExpr(
        "id as order_id", "if(id % 5 = 3, double('nan'), 1.5D) as total"
    )

    with pytest.raises(AnalysisException) as refused:
        _write(frame, dsn, run="monday")

    said = str(refused.value)
    assert "RowsRefused: 2 of 10 rows cannot be jobs of the task bill; nothing was enqueued" in said
    assert "row 4 of partition 0 (order_id=3): column 'total': nan has no JSON form" in said
    assert "row 4 of partition 1 (order_id=8): column 'total': nan has no JSON form" in said
    assert (orders(dsn), writes(dsn), staged_rows(dsn), attempts(dsn)) == ([], [], 0, 0)


def test_a_task_that_fails_after_it_has_staged_rows_enqueues_nothing_and_leaves_nothing(
    spark: "SparkSession", dsn: str
) -> None:
    frame = spark.range(10, numPartitions=1).selectExpr(
        "if(id = 9, cast(raise_error('order 9 is broken') as bigint), id) as order_id"
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")  # eight rows are staged by then

    try:
        with pytest.raises(PySparkException, match="order 9 is broken"):
            _write(frame, dsn)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert (orders(dsn), writes(dsn), staged_rows(dsn), attempts(dsn)) == ([], [], 0, 0)


def test_what_cannot_be_is_told_before_any_row_is_computed(spark: "SparkSession", dsn: str) -> None:
    frame = spark.range(1).selectExpr(
        "if(id < 1, raise_error('a row was computed'), null) as y", "make_ym_interval(1, 2) as x"
    )

    with pytest.raises(AnalysisException, match="RowsRefused: column 'x' is of type interval year to month"):
        _write(frame, dsn)


def test_save_modes_other_than_append_are_refused(spark: "SparkSession", dsn: str) -> None:
    frame = spark.range(1)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("pgqueue").options(task="bill", dsn=dsn).save()
    with pytest.raises(AnalysisException, match=r'InvalidOption: mode "overwrite": jobs are only ever added'):
        frame.write.format("pgqueue").options(task="bill", dsn=dsn).mode("overwrite").save()
    assert orders(dsn) == []


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


def test_a_stream_may_name_the_run_of_its_batches(inbox: Orders, dsn: str) -> None:
    inbox.put("1", 1)

    inbox.run(run="x")
    assert [(one.run, one.batch, one.enqueued) for one in writes(dsn)] == [("x", 0, 1)]


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
