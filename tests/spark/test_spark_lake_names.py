"""The lake takes every queue name that a job can have, and a day that cannot be exported stops no other day."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from looking import ask
from psycopg.errors import DiskFull
from spark.lake_history import DAY, NEXT, died, ended, lake_ids

from pgqueue import PgQueue
from pgqueue.errors import DaysNotExported, PipelineError
from pgqueue.spark.lake import database_rows
from pgqueue.spark.lake.ahead import DAYS
from pgqueue.spark.lake.export import ExportedDay, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


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
            raise OSError("File name too long")
        return read(reader, day, **asked)

    read = database_rows.DayReader.ended
    monkeypatch.setattr(database_rows.DayReader, "ended", unreadable)
    told: list[ExportedDay] = []
    with pytest.raises(
        PipelineError, match=rf"^1 of 2 days were not exported: day {DAY}: File name too long"
    ):
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
    spark: "SparkSession",
    queue: PgQueue,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    days: list[date],
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
