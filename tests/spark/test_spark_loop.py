"""``pgqueue.spark.apply``: rows become jobs, are waited for, and come back with their results; once, whatever is started again."""

import asyncio
import io
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from looking import ask
from pyspark.sql.functions import lit, raise_error
from pyspark.sql.types import StructType
from spark.sinking import batch, written

import pgqueue.spark
from pgqueue import PgQueue, Worker
from pgqueue.errors import ConfigurationError, ConnectionFailed, InvalidOption, RowsRefused
from pgqueue.spark.apps import find_app
from pgqueue.spark.loop.progress import Pace, Progress, ProgressLine
from pgqueue.spark.loop.runs import opened
from pgqueue.spark.loop.waiting import wait_for
from pgqueue.spark.writing.target import decide, read_options
from pgqueue.values.insight.runs import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def shop(queue: PgQueue) -> PgQueue:
    @queue.task(name="bill", max_attempts=2)
    def bill(order_id: int) -> dict[str, int]:
        if order_id % 10 == 3:
            raise ValueError(f"no such order: {order_id}")
        return {"paid": order_id * 100}

    return queue


@contextmanager
def worked(queue: PgQueue) -> Iterator[None]:
    """A worker, in a thread of its own, for the length of the block."""
    stop = threading.Event()

    async def work() -> None:
        worker = Worker(queue, concurrency=10)
        running = asyncio.ensure_future(worker.run())
        await asyncio.to_thread(stop.wait)
        worker.stop()
        await running

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def orders(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(count).selectExpr("id as order_id")


def test_rows_come_back_with_the_results_of_their_jobs(
    spark: "SparkSession", shop: PgQueue, dsn: str
) -> None:
    looks: list[Progress] = []
    with worked(shop):
        found = pgqueue.spark.apply(
            orders(spark, 30),
            "bill",
            key="order_id",
            run="r1",
            dsn=dsn,
            progress=looks.append,
            options={"max_attempts": 1},
        )
        rows = {row.order_id: row for row in found.collect()}

    assert found.columns[:3] == ["order_id", "job_id", "state"]
    assert [*sorted(rows)] == [*range(30)]
    dead = [order for order, row in rows.items() if row.state == "dead"]
    assert sorted(dead) == [3, 13, 23]
    assert rows[3].error_message == "no such order: 3"
    assert rows[4].result == {"paid": 400}, "as the task's annotation says"
    assert {row.result_misfit for row in rows.values()} == {None}
    plain = pgqueue.spark.results(spark, "r1", dsn=dsn, typed=False).where("order_id = 4")
    assert [row.result for row in plain.collect()] == ['{"paid":400}']
    assert (looks[-1].done, looks[-1].dead, looks[-1].waiting, looks[-1].jobs) == (27, 3, 0, 30)
    run = pgqueue.spark.status("r1", dsn)
    assert (run.succeeded, run.dead, run.live) == (27, 3, 0)
    assert pgqueue.spark.results(spark, "r1", dsn=dsn, columns=["state"]).distinct().count() == 2


def test_the_same_run_again_enqueues_nothing_and_waits_on(
    spark: "SparkSession", shop: PgQueue, dsn: str
) -> None:
    first = pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn, wait=False)
    assert {row.state for row in first.collect()} == {"ready"}
    with pytest.raises(TimeoutError, match="3 of 3 jobs have not ended; they go on"):
        pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn, wait=0)
    with worked(shop):
        again = pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn, wait=60)
        assert [row.result for row in again.where("order_id = 1").collect()] == [{"paid": 100}]
    assert ask(dsn, "select count(*) from pgqueue.all_jobs")[0][0] == 3


def test_rows_that_came_or_went_between_two_calls_show_it(spark: "SparkSession", dsn: str) -> None:
    pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn, wait=False)
    changed = orders(spark, 5).where("order_id <> 1")
    found = pgqueue.spark.apply(changed, "bill", key="order_id", run="r1", dsn=dsn, wait=False)

    states = {row.order_id: row.state for row in found.collect()}
    assert states == {0: "ready", 2: "ready", 3: None, 4: None}
    assert pgqueue.spark.status("r1", dsn).jobs == 3


def test_a_key_that_does_not_tell_rows_apart_is_refused_before_anything_is_enqueued(
    spark: "SparkSession", dsn: str
) -> None:
    doubled = spark.sql(
        "select * from values (1, 'a'), (1, 'b'), (2, 'c'), (null, 'd') as t (order_id, kind)"
    )
    with pytest.raises(RowsRefused, match="order_id=1 in 2 rows") as refused:
        pgqueue.spark.apply(doubled, "bill", key="order_id", run="r1", dsn=dsn)
    assert "order_id=None in 1 rows" in str(refused.value)
    with pytest.raises(InvalidOption, match=r"has no such column.*monotonically_increasing_id"):
        pgqueue.spark.apply(doubled, "bill", key="row", run="r1", dsn=dsn)
    assert ask(dsn, "select count(*) from pgqueue.sink_writes")[0][0] == 0
    several = doubled.where("order_id is not null")
    found = pgqueue.spark.apply(several, "bill", key=["order_id", "kind"], run="r1", dsn=dsn, wait=False)
    assert found.where("state = 'ready'").count() == 3


def test_a_run_of_another_task_or_key_is_not_taken_for_this_one(spark: "SparkSession", dsn: str) -> None:
    frame = orders(spark, 3).selectExpr("order_id", "order_id as other")
    pgqueue.spark.apply(frame, "bill", key="order_id", run="r1", dsn=dsn, wait=False)
    with pytest.raises(InvalidOption, match="names a write of the task 'bill'"):
        pgqueue.spark.apply(frame, "ship", key="order_id", run="r1", dsn=dsn, wait=False)
    with pytest.raises(InvalidOption, match="was written with the key order_id"):
        pgqueue.spark.apply(frame, "bill", key="other", run="r1", dsn=dsn, wait=False)


@pytest.mark.parametrize(
    ("name", "key"),
    [("State", "order_id"), ("State", "State"), ("result_misfit", "order_id"), ("job_id", "order_id")],
)
def test_a_column_that_results_have_is_refused_before_anything_is_enqueued(
    spark: "SparkSession", dsn: str, name: str, key: str
) -> None:
    frame = orders(spark, 3).selectExpr("order_id", f"'x' || order_id as {name}")
    with pytest.raises(InvalidOption, match="results have a column of this name"):
        pgqueue.spark.apply(frame, "bill", key=key, run="r1", dsn=dsn, arguments=["order_id"])
    assert ask(dsn, "select count(*) from pgqueue.jobs") == [(0,)]


@pytest.mark.usefixtures("queue")
def test_names_of_columns_may_have_dots_and_quotes(spark: "SparkSession", dsn: str) -> None:
    frame = orders(spark, 3).selectExpr("order_id", "order_id as `a.b`", "order_id as `c``d`", "'x' as `e.f`")
    found = pgqueue.spark.apply(
        frame, "bill", key=["a.b", "c`d"], run="r1", dsn=dsn, wait=False, arguments=["order_id", "e.f"]
    )
    rows = found.orderBy("order_id").collect()
    assert [(row["a.b"], row["c`d"], row["e.f"], row.state) for row in rows] == [
        (n, n, "x", "ready") for n in range(3)
    ]


def test_what_is_wrong_with_the_options_is_told_before_the_rows_are_computed(
    spark: "SparkSession", dsn: str
) -> None:
    frame = orders(spark, 3).withColumn("failing", raise_error(lit("computed")))
    for run, options in (
        ("", {}),
        ("r1", {"priority": 500}),
        ("r1", {"prio": 5}),
        ("r1", {"args": "order_id"}),
    ):
        with pytest.raises((ConfigurationError, RowsRefused)):
            pgqueue.spark.apply(frame, "bill", key="order_id", run=run, dsn=dsn, options=options)


def test_a_row_that_cannot_be_a_job_is_an_error_of_ours(spark: "SparkSession", dsn: str) -> None:
    frame = orders(spark, 3).selectExpr("order_id", "if(order_id = 2, double('nan'), 1.5D) as value")
    with pytest.raises(RowsRefused, match=r"^1 of 3 rows cannot be jobs .* make it null, or filter it out$"):
        pgqueue.spark.apply(frame, "bill", key="order_id", run="r1", dsn=dsn)


def test_rows_that_were_rejected_or_diverted_come_back_and_say_so(spark: "SparkSession", dsn: str) -> None:
    frame = spark.sql(
        "select * from values (1, 'a', 1.5D), (2, 'a', 2.5D), (3, 'b', double('nan')) as t (order_id, unique_key, total)"
    ).coalesce(1)
    found = pgqueue.spark.apply(
        frame, "bill", key="order_id", run="r1", dsn=dsn, wait=False, options={"onBadRow": "divert"}
    )
    states = {row.order_id: row.state for row in found.collect()}
    assert states == {1: "ready", 2: "rejected", 3: "refused"}


def test_jobs_whose_history_was_deleted_are_told(
    spark: "SparkSession", shop: PgQueue, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn, wait=False)
    pgqueue.spark.cancel("r1", dsn, by="ada")
    ask(dsn, "delete from pgqueue.job_history where args ->> 'order_id' = '1'")
    with caplog.at_level(logging.WARNING, "pgqueue.spark"):
        found = pgqueue.spark.apply(orders(spark, 3), "bill", key="order_id", run="r1", dsn=dsn)
    assert "1 of the 3 jobs of run 'r1' have no record any more" in caplog.text
    assert {row.order_id: row.state for row in found.collect()} == {0: "cancelled", 1: None, 2: "cancelled"}
    (entry,) = [one for one in shop.insight.audit() if one.action == "cancel"]
    assert (entry.by, entry.jobs) == ("ada", 3)


def test_an_unknown_run_has_no_status_and_nothing_to_cancel(dsn: str) -> None:
    for ask_for in (pgqueue.spark.status, pgqueue.spark.cancel):
        with pytest.raises(InvalidOption, match="there is no run 'r9'"):
            ask_for("r9", dsn)


@pytest.mark.parametrize(
    ("dsn", "schema"), [(None, None), (None, "two"), ("host=there", None), ("host=there", "two")]
)
def test_a_run_is_looked_up_where_a_write_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str | None, schema: str | None
) -> None:
    (tmp_path / "loop_shop.py").write_text(
        "from pgqueue import PgQueue\nqueue = PgQueue('host=own', schema='one')\n@queue.task(name='bill')\ndef bill(order_id): ..."
    )
    monkeypatch.syspath_prepend(tmp_path)
    find_app.cache_clear()
    given = {"app": "loop_shop:queue", "dsn": dsn, "schema": schema}
    options = read_options({"task": "bill", **{name: one for name, one in given.items() if one}})
    target = decide(options, StructType().add("order_id", "long"))
    with opened(dsn, schema, "loop_shop:queue") as queue:
        found = queue.database
    assert (
        (found.dsn, found.catalogue.schema)
        == (target.dsn, target.schema)
        == (dsn or "host=own", schema or "one")
    )


def test_an_interrupt_leaves_the_jobs_and_says_how_to_go_on(
    queue: PgQueue, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(dsn, batch(order_id=[1, 2]), run="r1", key="order_id")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "pgqueue.spark"), pytest.raises(KeyboardInterrupt):
        wait_for(queue, "r1", progress=interrupt)
    assert "Call apply() with the same run again" in caplog.text
    assert ask(dsn, "select count(*) from pgqueue.jobs")[0][0] == 2


def test_a_run_that_no_worker_starts_is_told_once_and_where_the_wait_ends(
    queue: PgQueue, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(dsn, batch(order_id=[1, 2]), run="r1", key="order_id")
    first = ask(dsn, "select min(id) from pgqueue.jobs")[0][0]
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(TimeoutError, match=rf"has the task bill and serves its queue.*`pgqueue why {first}`"):
        wait_for(queue, "r1", seconds=100, progress=False, clock=lambda: now[0], sleep=sleep)
    assert caplog.text.count("no job has started yet") == 1
    ask(dsn, "update pgqueue.jobs set status = 'scheduled', run_at = now() + interval '1 day' returning id")
    with pytest.raises(TimeoutError, match=r"to wait on$"):
        wait_for(queue, "r1", seconds=100, progress=False, clock=lambda: now[0], sleep=sleep)


def test_waiting_outlives_a_database_that_is_away(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written(dsn, batch(order_id=[1]), run="r1", key="order_id")
    pgqueue.spark.cancel("r1", dsn)
    real, failing = queue.database.run, [ConnectionFailed("away"), ConnectionFailed("away")]

    def run(plan: Any) -> Any:
        if failing:
            raise failing.pop()
        return real(plan)

    monkeypatch.setattr(queue.database, "run", run)
    slept: list[float] = []
    wait_for(queue, "r1", progress=False, sleep=slept.append)
    assert len(slept) == 2
    assert caplog.text.count("the database cannot be reached: away; run 'r1' goes on by itself") == 1


def test_a_wait_with_an_end_ends_although_the_database_is_away() -> None:
    """The server takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away = PgQueue(f"postgresql://shop@127.0.0.1:{silent.getsockname()[1]}/shop")
        with pytest.raises(TimeoutError, match=r"run 'r1': the database cannot be reached.*the jobs go on"):
            wait_for(away, "r1", seconds=1, progress=False)


def _run(ended: int, *, dead: int = 0) -> Run:
    at = datetime(2026, 11, 29, tzinfo=UTC)
    return Run(
        name="r1", tasks=("bill",), writes=1, first_at=at, last_at=at, rows=1_000, jobs=1_000,
        rejected=0, refused=0, changed=0, blocked=0, scheduled=0, running=0, ready=1_000 - ended - dead, dead=dead, ended=ended,
    )  # fmt: skip


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    pace = Pace()
    assert pace.progress(_run(0), 0.0).rate is None
    assert pace.progress(_run(100), 10.0).rate == 10.0
    found = pace.progress(_run(700, dead=100), 40.0)
    assert found.rate == pytest.approx(700 / 30)
    assert found.seconds_left == pytest.approx(200 / (700 / 30))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_and_a_file_a_line_now_and_then() -> None:
    terminal, file, now = Terminal(), io.StringIO(), [0.0]
    for stream in (terminal, file):
        line, pace = ProgressLine(stream, lambda: now[0]), Pace()
        for second in range(25):
            now[0] = float(second)
            line(pace.progress(_run(10 * second), now[0]))
        line.close()
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().count("\r") == 25
    said = file.getvalue().splitlines()
    assert [one.split(",")[0] for one in said] == ["r1: 0 %", "r1: 10 %", "r1: 20 %", "r1: 24 %"], (
        "the last look, too"
    )
    assert said[-2] == "r1: 20 %, 200 of 1,000 done, 0 running, 0 dead, 10.0/s, 80 s left"
