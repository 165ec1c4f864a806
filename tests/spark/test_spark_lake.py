"""The lake: days go out whole, agree with the database, and only then are forgotten by it.

The lake takes every queue name that a job can have, and a day that cannot be exported stops no other day.
"""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from looking import ask
from psycopg.errors import DiskFull
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from spark.lake_history import DAY, ENDED, NEXT, died, ended, history_ids, lake_ids

from pgqueue import PgQueue
from pgqueue.errors import DaysNotExported, LakeError, NotVerified, PipelineError
from pgqueue.spark.lake import database_rows
from pgqueue.spark.lake.ahead import DAYS
from pgqueue.spark.lake.database_rows import final_below
from pgqueue.spark.lake.export import ExportedDay, ExportOptions, export
from pgqueue.spark.lake.files import arrow_schema
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.status import DayState, status
from pgqueue.spark.lake.verify import DayFinding, require_verified, verify
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pyspark.sql import SparkSession

    from pgqueue.store.pipeline.lake import Session
if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ENGINES = ("arrow", "spark")


def left_to(engine: str, monkeypatch: pytest.MonkeyPatch) -> "ModuleType | type[database_rows.DayReader]":
    """Have an engine export every day; what reads for it, with a function ``ended``."""
    monkeypatch.setattr(database_rows, "MOST_ROWS", -1 if engine == "spark" else database_rows.MOST_ROWS)
    return database_rows if engine == "spark" else database_rows.DayReader


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def _states(queue: PgQueue, lake: Lake) -> list[DayState]:
    return [one.state for one in status(queue.database, lake)]


def test_a_day_goes_out_is_verified_and_is_forgotten_by_the_database(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = [*ended(dsn, DAY, 40), *ended(dsn, DAY, 3, queue="a/b:c"), *died(dsn, DAY, 4)]
    ids += ended(dsn, NEXT, 5, partition=False)
    assert _states(queue, lake) == [DayState.CLOSED] * 2

    first, second = export(spark, queue.database, lake)
    assert (first.day, first.history, first.dead) == (DAY, 43, 4)
    assert (second.day, second.history, second.dead) == (NEXT, 5, 0)
    assert lake_ids(spark, lake) == sorted(ids)
    assert _states(queue, lake) == [DayState.EXPORTED] * 2
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING] * 2

    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    assert _states(queue, lake) == [DayState.VERIFIED] * 2
    assert verify(spark, queue.database, lake) == []
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED] * 2

    assert history_ids(dsn) == []
    assert ask(dsn, "select count(*) from pgqueue.dead_jobs") == [(4,)]
    assert _states(queue, lake) == [DayState.PRUNED] * 2
    assert export(spark, queue.database, lake) == []
    assert lake_ids(spark, lake) == sorted(ids)


def test_rows_that_come_late_are_added_before_and_after_the_day_was_pruned(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 10)
    for generation in (1, 2, 3):
        export(spark, queue.database, lake)
        verify(spark, queue.database, lake)
        if generation == 2:
            assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]
        ids += ended(dsn, DAY, generation, partition=generation == 1)
        assert _states(queue, lake) == [DayState.CLOSED]
        assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING]

    export(spark, queue.database, lake)
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]

    assert lake_ids(spark, lake) == sorted(ids)
    (day,) = lake.days()
    assert (day.generation, day.rows) == (4, len(ids))
    assert [batch.history.rows for batch in day.batches] == [10, 1, 2, 3]


def test_dead_jobs_that_are_retried_stay_in_the_lake_and_others_have_to_be_there_as_they_are(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = [*ended(dsn, DAY, 2), *died(dsn, DAY, 3)]
    export(spark, queue.database, lake)
    assert queue.retry(ids[-1])

    (found,) = verify(spark, queue.database, lake)
    assert (found.finding, found.dead, found.standing) == (DayFinding.VERIFIED, 3, 2)

    ask(dsn, "update pgqueue.dead_jobs set task = 'other' where id = %(id)s", id=ids[-2])
    (found,) = verify(spark, queue.database, lake, everything=True)
    assert found.finding is DayFinding.DIFFERS
    assert f"ids {ids[-2]}" in found.reason
    assert lake_ids(spark, lake) == sorted(ids)


def test_dead_jobs_that_go_between_count_and_read_are_counted_as_they_were_written(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*ended(dsn, DAY, 2), *died(dsn, DAY, 3)]
    module = left_to("spark", monkeypatch)
    read: Callable[..., Any] = module.ended

    def after_a_purge(*given: Any, **span: Any) -> Any:
        queue.control.dead(ids=ids[-1:]).purge()
        return read(*given, **span)

    monkeypatch.setattr(module, "ended", after_a_purge)
    (one,) = export(spark, queue.database, lake)

    assert (one.history, one.dead) == (2, 2)
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]
    assert lake_ids(spark, lake) == ids[:-1]


@pytest.mark.parametrize("by", ENGINES)
def test_rows_of_the_history_that_were_not_written_are_noticed_before_the_history_is_dropped(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, *, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """What Spark's tasks wrote is counted at once; the one statement of a small day is compared by verify."""
    ids = ended(dsn, DAY, 5)
    module = left_to(by, monkeypatch)
    read: Callable[..., Any] = module.ended

    def without_one(*given: Any, **span: int) -> Any:
        rows = read(*given, **span)
        return rows.slice(1) if by == "arrow" else rows.limit(4)

    monkeypatch.setattr(module, "ended", without_one)
    if by == "spark":
        with pytest.raises(PipelineError, match=r"its files have 4 rows of the history .* held 5"):
            export(spark, queue.database, lake)
        assert lake.days() == []
        return
    export(spark, queue.database, lake)
    (found,) = verify(spark, queue.database, lake)
    assert found.finding is DayFinding.DIFFERS
    assert "the database holds more rows of its history than the lake: 5" in found.reason
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING]
    assert history_ids(dsn) == ids


def test_dead_jobs_that_spark_did_not_write_are_not_made_to_count(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(dsn, DAY, 5)
    module = left_to("spark", monkeypatch)
    read: Callable[..., Any] = module.ended
    monkeypatch.setattr(module, "ended", lambda *given, **span: read(*given, **span).limit(4))

    with pytest.raises(PipelineError, match=r"and 4 dead jobs, and the database held 0 and 5"):
        export(spark, queue.database, lake)
    assert lake.days() == []


def test_a_damaged_file_is_found_and_the_day_can_be_exported_again(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 6)
    export(spark, queue.database, lake)
    (file,) = lake.days()[0].files
    path = f"{lake.uri}/{file.path}".removeprefix("file://")
    rows = parquet.ParquetFile(path).read()
    parquet.write_table(rows.slice(1).append_column("more", rows.slice(1)["id"]), path)

    with pytest.raises(NotVerified, match=f"day {DAY}: its files hold 5 rows .* export --again {DAY}"):
        require_verified(verify(spark, queue.database, lake))
    Path(path).write_bytes(b"no Parquet")
    (found,) = verify(spark, queue.database, lake)
    assert "cannot be read" in found.reason
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING]

    export(spark, queue.database, lake, options=ExportOptions(again=[DAY]))
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]
    assert lake_ids(spark, lake) == ids
    prune(queue.database, lake)
    with pytest.raises(PipelineError, match="cannot be exported again"):
        export(spark, queue.database, lake, options=ExportOptions(again=[DAY]))


def test_history_that_changed_after_it_was_verified_is_not_dropped(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 4)
    export(spark, queue.database, lake)
    verify(spark, queue.database, lake)
    ask(dsn, "update pgqueue.job_history set result = '1' where id = %(id)s", id=ids[0])

    (one,) = prune(queue.database, lake)
    assert one.fate is Fate.REFUSED
    assert f"verify --day {DAY}" in one.reason
    (found,) = verify(spark, queue.database, lake, days=[DAY])
    assert "other rows of its history than the lake" in found.reason

    ask(dsn, "delete from pgqueue.job_history where id = %(id)s", id=ids[0])
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.REFUSED]
    assert history_ids(dsn) == ids[1:]


def test_files_that_changed_after_they_were_verified_are_not_verified_again(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAY, 4)
    export(spark, queue.database, lake)
    verify(spark, queue.database, lake)
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]
    (file,) = lake.days()[0].files
    path = f"{lake.uri}/{file.path}".removeprefix("file://")
    rows = parquet.ParquetFile(path).read()
    other = pa.array(["other"] * rows.num_rows)
    parquet.write_table(rows.set_column(rows.schema.get_field_index("task"), "task", other), path)

    (found,) = verify(spark, queue.database, lake, everything=True)
    assert found.finding is DayFinding.DIFFERS
    assert "its files were changed since they were verified at" in found.reason


def test_a_history_that_was_rewritten_with_the_same_values_is_dropped(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    """After a rewrite the versions of rows say nothing, and prune compares the values."""
    ended(dsn, DAY, 4)
    export(spark, queue.database, lake)
    verify(spark, queue.database, lake)
    (entry,) = lake.days()
    ask(dsn, "update pgqueue.job_history set result = result")
    assert entry.verified is not None
    assert queue.database.run(plans.versions(DAY, since=0)) != (4, entry.verified.versions)

    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]


def test_prune_reads_no_values_of_rows_that_are_as_they_were(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 4)
    export(spark, queue.database, lake)
    verify(spark, queue.database, lake)
    monkeypatch.delattr(plans, "contents")

    assert [(one.fate, one.rows) for one in prune(queue.database, lake)] == [(Fate.PRUNED, 4)]


def test_history_that_was_dropped_before_it_was_verified_is_called_gone(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 4)
    export(spark, queue.database, lake)
    ask(dsn, "select pgqueue.drop_history_days(%(day)s)", day=NEXT)

    (found,) = verify(spark, queue.database, lake)
    assert (found.finding, found.reason) == (DayFinding.GONE, "")
    assert lake.days()[0].verified_at is None
    assert lake_ids(spark, lake) == ids


def test_a_large_queue_makes_several_files_and_a_small_one_makes_one(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, tmp_path: Path
) -> None:
    ended(dsn, DAY, 90, queue="big")
    for number in range(5):
        ended(dsn, DAY, 2, queue=f"small-{number}")

    export(spark, queue.database, lake, options=ExportOptions(rows_per_file=20))

    (day,) = lake.days()
    held = [set(parquet.read_table(tmp_path / "lake" / file.path)["queue"].to_pylist()) for file in day.files]
    assert held.count({"big"}) == 5
    assert [names for names in held if names != {"big"}] == [{f"small-{n}" for n in range(5)}]
    assert max(file.rows for file in day.files) < 40


def test_workers_are_remembered_when_the_database_has_forgotten_them(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ask(
        dsn,
        "insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version, queues) "
        "select gen_random_uuid(), now() + interval '1 hour', 1, 4, host, '0', '{mail}' "
        "from unnest('{a,b,c}'::text[]) as host",
    )
    ask(dsn, "insert into pgqueue.deploys (version) values ('1.4.0')")
    export(spark, queue.database, lake)
    ask(dsn, "delete from pgqueue.workers where host <> 'a'")
    ask(dsn, "delete from pgqueue.former_workers where host = 'b'")
    export(spark, queue.database, lake)

    workers = {row["host"]: row["ended_at"] for row in lake.workers(spark).collect()}
    assert sorted(workers) == ["a", "b", "c"]
    assert [host for host, ended_at in sorted(workers.items()) if ended_at is None] == ["a"]
    assert [row["version"] for row in lake.deploys(spark).collect()] == ["1.4.0"]


def test_files_of_other_releases_are_read_as_far_as_they_go(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 2)
    export(spark, queue.database, lake)
    (day,) = lake.days()
    other = lake.ended(spark).drop("result", "reason").withColumn("mood", F.lit("calm"))
    written = lake.write("ended", other)
    lake.commit(arrow_schema(other), written, [msgspec.structs.replace(day, generation=2)], replaced=[DAY])

    assert [row["result"] for row in lake.ended(spark).collect()] == [None, None]
    assert lake_ids(spark, lake) == ids
    export(spark, queue.database, lake, options=ExportOptions(again=[DAY]))
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]

    wider = lake.ended(spark).withColumn("collisions", F.col("collisions").cast("bigint"))
    with pytest.raises(LakeError, match="column collisions of ended is int32 in the lake and int64 here"):
        lake.commit(arrow_schema(wider), written, [msgspec.structs.replace(day, generation=4)])


def test_rows_of_an_open_transaction_are_left_to_the_next_export_and_keep_their_day(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    early = ended(dsn, DAY, 4)
    barrier = queue.database.run(plans.barrier())
    final_below(queue.database, barrier, timedelta(minutes=1))  # of other databases of the server
    left: list[Session] = []
    with psycopg.connect(dsn, application_name="night batch") as writing:
        rows = writing.execute(ENDED, {"day": DAY, "count": 2, "queue": "mail"}).fetchall()
        late = [*(row[0] for row in rows), *ended(dsn, DAY, 3)]

        (one,) = export(spark, queue.database, lake, options=ExportOptions(wait=0), tell_open=left.extend)

        assert (one.day, one.history) == (DAY, 4)
        assert "night batch" in {session.application for session in left}
        assert lake_ids(spark, lake) == early
        assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]
        assert [one.fate for one in prune(queue.database, lake)] == [Fate.WAITING]
        assert ask(dsn, "select pgqueue.drop_history_days(%(day)s)", day=NEXT) == [(0,)]
        again = export(
            spark, queue.database, lake, options=ExportOptions(wait=0, again=[DAY]), tell_open=left.extend
        )
        assert [one.history for one in again] == [4]
    ended(dsn, NEXT, 1)
    assert [one.history for one in export(spark, queue.database, lake)] == [5, 1]
    assert lake_ids(spark, lake, [DAY]) == sorted([*early, *late])
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED] * 2


MANY = [DAY + timedelta(days=number) for number in range(6)]
READ_AHEAD = DAYS + 1
"""The day that is committed, and those that are read meanwhile."""
NAMES = [
    "邮" * 83,
    "/" * 200,
    "a" * 200,
    "é" * 124,
    "__HIVE_DEFAULT_PARTITION__",
    "~tilde",
    "a=b/c%2F",
    "mail",
]
"""Allowed names, at the limits of 200 letters and 249 bytes among them, and those that file systems or Spark dislike."""


def test_every_allowed_name_goes_out_comes_back_and_is_verified(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    for number, name in enumerate(NAMES, start=1):
        ended(dsn, DAY, number, queue=name)
    died(dsn, DAY, 1, queue=NAMES[0])
    export(spark, queue.database, lake)
    expected = {name: number for number, name in enumerate(NAMES, start=1)} | {NAMES[0]: 2}
    assert {
        row["queue"]: row["count"] for row in lake.ended(spark).groupBy("queue").count().collect()
    } == expected
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED]


def test_a_day_that_cannot_be_exported_is_told_and_the_days_after_it_are_exported(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ended(dsn, DAY, 4), ended(dsn, NEXT, 3)

    def unreadable(reader: database_rows.DayReader, day: date, **asked: Any) -> pa.Table | None:
        if day == DAY:
            raise ValueError("no such number")
        return read(reader, day, **asked)

    read = database_rows.DayReader.ended
    monkeypatch.setattr(database_rows.DayReader, "ended", unreadable)
    told: list[ExportedDay] = []
    with pytest.raises(PipelineError, match=rf"^1 of 2 days were not exported: day {DAY}: no such number"):
        export(spark, queue.database, lake, tell=told.append)
    assert [one.day for one in told] == [NEXT]
    assert lake_ids(spark, lake) == sorted(second)
    monkeypatch.undo()
    assert [one.day for one in export(spark, queue.database, lake)] == [DAY]
    assert lake_ids(spark, lake) == sorted(first + second)


def test_a_row_that_no_lake_can_hold_is_named_with_its_day_and_the_days_after_it_are_exported(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake
) -> None:
    first, second = ended(dsn, DAY, 4), ended(dsn, NEXT, 3)
    (odd,) = died(dsn, DAY, 1)
    ask(dsn, "update pgqueue.job_history set run_at = 'infinity' where id = %(id)s", id=first[1])
    ask(dsn, "update pgqueue.dead_jobs set started_at = '-infinity' where id = %(id)s", id=odd)

    with pytest.raises(DaysNotExported) as told:
        export(spark, queue.database, lake)

    said = f"1 of 2 days were not exported: day {DAY}: run_at of job {first[1]}, started_at of job {odd}: a time that"
    assert str(told.value).startswith(said)
    assert "\n" not in str(told.value)
    assert lake_ids(spark, lake) == sorted(second)
    ask(dsn, "update pgqueue.job_history set run_at = created_at where id = %(id)s", id=first[1])
    ask(dsn, "update pgqueue.dead_jobs set started_at = created_at where id = %(id)s", id=odd)
    assert [one.day for one in export(spark, queue.database, lake)] == [DAY]
    assert lake_ids(spark, lake) == sorted([*first, odd, *second])


@pytest.mark.parametrize("days", [MANY, [DAY]], ids=["days are left", "the last day"])
def test_an_export_whose_database_is_gone_tries_no_days_but_those_that_are_read_and_blames_none(
    spark: "SparkSession", queue: PgQueue, lake: Lake, monkeypatch: pytest.MonkeyPatch, days: list[date]
) -> None:
    for one in days:
        ended(queue.database.dsn, one, 1)
    tried = []

    def cut(_: database_rows.DayReader, day: date, **__: int) -> None:
        tried.append(day)
        for holder in queue.database.run(plans.holder()):
            ask(queue.database.dsn, "select pg_terminate_backend(%(pid)s, 10000)", pid=holder.pid)
        raise OSError("the server closed the connection")

    monkeypatch.setattr(database_rows.DayReader, "ended", cut)
    with pytest.raises(PipelineError, match="held the lake's lock was lost"):
        export(spark, queue.database, lake)
    assert set(tried) <= set(days[:READ_AHEAD])


def test_a_server_that_fails_is_not_a_bad_day_and_is_not_asked_for_all_others(
    spark: "SparkSession", queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in MANY:
        ended(dsn, one, 1)
    tried = []

    def full(_: database_rows.DayReader, day: date, **__: int) -> None:
        tried.append(day)
        raise DiskFull("could not extend file")

    monkeypatch.setattr(database_rows.DayReader, "ended", full)
    with pytest.raises(DiskFull, match="could not extend file"):
        export(spark, queue.database, lake)
    assert DAY in tried
    assert set(tried) <= set(MANY[:READ_AHEAD])
