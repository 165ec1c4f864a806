"""The lake's tables are Delta tables: other engines read what counts, and a commit is all or nothing.

A lake in an object store: through Arrow and deltalake, without a jar; requests may fail, and other writers commit.
"""

import os
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from spark.lake_history import DAY, NEXT, died, ended, history_ids, lake_ids, no_session
from spark.object_store import BUCKET, ObjectStore, serving

from pgqueue import PgQueue
from pgqueue.errors import LakeError
from pgqueue.spark.lake import export as exporting
from pgqueue.spark.lake import files
from pgqueue.spark.lake import table as tables
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.files import WrittenFile, written_file
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.table import LakeTable
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32())])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with characters that a URL escapes."""
    return Folder(str(tmp_path / "my lake é, 100 %"))


def put(folder: Folder, day: date, *ids: int, **more: Any) -> WrittenFile:
    """Write a file of a table that does not name it yet."""
    rows = pa.table({"id": ids, **more}) if ids else COLUMNS.remove(1).empty_table()
    return written_file(folder.at("jobs"), day, rows)


def rows(table: LakeTable) -> dict[date | None, int]:
    return {day: sum(file.rows for file in found) for day, found in table.files().items()}


def test_other_engines_read_what_counts_and_nothing_else(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 3), *died(dsn, DAY, 2), *ended(dsn, NEXT, 4, queue="__HIVE_DEFAULT_PARTITION__")]
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)
    export(spark, queue.database, lake, options=ExportOptions(again=[DAY]))
    lake.write("ended", lake.ended(spark, [DAY]))  # a writer that is killed before its commit

    jobs = DeltaTable(tmp_path / "lake" / "ended").to_pyarrow_dataset()

    with duckdb.connect() as engine:
        engine.register("jobs", jobs)
        engine.execute("select day, queue, count(*) from jobs group by all order by all")
        counted = engine.fetchall()
    assert counted == [(DAY, "mail", 5), (NEXT, "__HIVE_DEFAULT_PARTITION__", 4)]
    assert sorted(jobs.to_table(columns=["id"])["id"].to_pylist()) == sorted(ids)
    assert jobs.schema.field("ended_at").type == pa.timestamp("us", "UTC")


def test_the_rows_of_files_are_the_same_through_spark_and_through_arrow(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ended(dsn, DAY, 20)
    ended(dsn, NEXT, 5, queue="other")
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)
    by_spark = lake.ended(spark)
    named = {
        file.path.removeprefix("ended/"): day
        for day, found in lake.table("ended").files().items()
        for file in found
    }
    wanted = files.arrow_schema(by_spark)

    given = pa.table({"path": [*named], "day": pa.array(named.values(), pa.date32())}).to_batches()
    by_arrow = pa.Table.from_batches(files._read(wanted, lake.folder.at("ended"), given), wanted)  # noqa: SLF001 - what an executor runs

    assert by_arrow.sort_by("id").to_pylist() == by_spark.toArrow().sort_by("id").to_pylist()


def test_a_commit_replaces_days_adds_columns_and_keeps_the_others(folder: Folder) -> None:
    table = LakeTable(folder, "jobs")
    assert (table.exists(), table.generation(DAY), table.files()) == (False, 0, {})
    table.commit(COLUMNS, [put(folder, DAY, 1, 2), put(folder, NEXT, 3)], {DAY: 1, NEXT: 1})
    table.commit(COLUMNS, [put(folder, DAY, 4)], {DAY: 2})
    assert rows(table) == {DAY: 3, NEXT: 1}
    wider = COLUMNS.append(pa.field("mood", pa.string()))
    table.commit(wider, [put(folder, DAY, 5, mood=["calm"])], {DAY: 3}, replaced=[DAY])
    table.commit(COLUMNS, [], {NEXT: 2}, replaced=[NEXT])

    assert rows(table) == rows(LakeTable(folder, "jobs")) == {DAY: 1}
    assert (table.generation(DAY), LakeTable(folder, "jobs").generation(NEXT)) == (3, 2)
    assert "mood" in table.schema().names
    assert all((Path(folder.uri.removeprefix("file://")) / one.path).exists() for one in table.files()[DAY])


def test_of_two_commits_of_a_generation_one_is_refused_whatever_was_seen_before(folder: Folder) -> None:
    first, second = LakeTable(folder, "jobs"), LakeTable(folder, "jobs")
    first.commit(COLUMNS, [put(folder, DAY, 1)], {DAY: 1})
    assert second.generation(DAY) == 1
    first.commit(COLUMNS, [put(folder, DAY, 2)], {DAY: 2})
    for generation in (1, 2):
        with pytest.raises(LakeError, match=f"has committed {DAY} .* meanwhile; nothing was committed"):
            second.commit(COLUMNS, [put(folder, DAY, 9)], {DAY: generation})
    assert rows(second) == {DAY: 2}


def test_a_commit_that_meets_another_one_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = LakeTable(folder, "jobs"), LakeTable(folder, "jobs")
    first.commit(COLUMNS, [put(folder, DAY, 1)], {DAY: 1})
    actions = tables._actions  # noqa: SLF001 - the moment after the last look, before the commit

    def meets(*given: Any) -> Any:
        monkeypatch.undo()
        first.commit(COLUMNS, [put(folder, DAY, 2)], {DAY: 2})
        return actions(*given)

    monkeypatch.setattr(tables, "_actions", meets)
    with pytest.raises(LakeError, match=r"another process has changed .* meanwhile"):
        second.commit(COLUMNS, [put(folder, DAY, 9)], {DAY: 2}, replaced=[DAY])
    assert rows(second) == {DAY: 2}


def test_a_column_of_another_type_is_refused_and_nothing_is_committed(folder: Folder) -> None:
    table = LakeTable(folder, "jobs")
    table.commit(COLUMNS, [put(folder, DAY, 1)], {DAY: 1})
    other = pa.schema([("id", pa.string()), ("day", pa.date32())])
    with pytest.raises(LakeError, match="column id of jobs is int64 in the lake and string here"):
        table.commit(other, [], {DAY: 2})
    assert table.generation(DAY) == 1


def test_files_that_do_not_count_are_swept_after_their_time(folder: Folder) -> None:
    table = LakeTable(folder, "jobs")
    assert table.sweep() == []
    table.commit(COLUMNS, [put(folder, DAY, 1)], {DAY: 1})
    stray = put(folder, DAY, 2)
    path = Path(folder.uri.removeprefix("file://")) / "jobs" / stray.path
    os.utime(path, (0.0, time.time() - 60))
    assert table.sweep() == []
    assert [Path(one).name for one in table.sweep(kept_hours=0)] == [path.name]
    assert not path.exists()
    assert rows(table) == {DAY: 1}


def test_other_readers_filter_by_every_column(folder: Folder) -> None:
    table = LakeTable(folder, "jobs")
    nothing = pa.nulls(2, pa.string())
    table.commit(
        pa.schema([*COLUMNS, ("outcome", pa.string()), ("reason", pa.string())]),
        [put(folder, DAY, 1, 2, outcome=["dead", "succeeded"], reason=nothing)],
        {DAY: 1},
    )
    found = table.latest()
    assert found is not None
    jobs = found.to_pyarrow_dataset()
    outcome, reason = pc.field("outcome"), pc.field("reason")
    for condition, ids in (
        (outcome == "dead", [1]),
        (~outcome.isin(["dead", "succeeded"]), []),
        (reason.is_null(), [1, 2]),
        ((pc.field("id") > 1) & (pc.field("day") == DAY), [2]),
        (pc.field("id") > 2, []),
    ):
        assert jobs.to_table(filter=condition)["id"].to_pylist() == ids


def test_a_path_that_is_taken_for_a_url_is_refused() -> None:
    for path, said in (("/data/my%20lake", "%20"), ("/data/lake#1", "#")):
        with pytest.raises(LakeError, match=f"{said} in a path is taken for a part of a URL"):
            Folder(path)


OURS = Origin("1", 2, "pgqueue")
URI = f"s3://{BUCKET}/history"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An empty bucket, which this process finds by its environment."""
    with serving() as found:
        for name, value in found.settings.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3", endpoint_url=found.url).create_bucket(Bucket=BUCKET)
        yield found


@pytest.fixture
def executors(spark: "SparkSession", store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The same for Spark's executors, whose processes have an environment of their own."""
    for name, value in store.settings.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return store


def test_days_go_to_an_object_store_are_verified_and_pruned_though_its_requests_fail_at_first(
    spark: "SparkSession", queue: PgQueue, dsn: str, executors: ObjectStore
) -> None:
    ids = [*ended(dsn, DAY, 30), *died(dsn, DAY, 2), *ended(dsn, NEXT, 5)]
    executors.fail_first()
    lake = Lake(URI)

    assert [one.day for one in export(spark, queue.database, lake)] == [DAY, NEXT]
    ids += ended(dsn, NEXT, 2)
    assert [(one.day, one.generation) for one in export(spark, queue.database, Lake(URI))] == [(NEXT, 2)]
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED] * 2

    assert executors.failed() > 20
    assert history_ids(dsn) == []
    assert lake_ids(spark, lake) == sorted(ids)
    assert [row["day"] for row in lake.ended(spark, [NEXT]).select("day").distinct().collect()] == [NEXT]


def test_an_export_whose_credentials_end_stops_and_says_how_far_it_came(
    queue: PgQueue, dsn: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "TOGETHER", 1)  # each day is a commit
    days = [DAY + timedelta(days=number) for number in range(5)]
    for day in days:
        ended(dsn, day, 2)
    with pytest.raises(
        LakeError, match=r"stopped after [1-3] of 5 days, since the lake s3://.* fails: "
    ) as told:
        export(no_session, queue.database, Lake(URI), tell=lambda _: store.deny())
    assert "run it again" in str(told.value)


def test_a_commit_that_comes_second_is_refused_and_nothing_is_lost(store: ObjectStore) -> None:
    assert store.url
    lake, other = Lake(URI), Lake(URI)
    lake.create(OURS)
    columns = pa.schema([("id", pa.int64()), ("day", pa.date32())])

    def written(number: int) -> None:
        one = Lake(URI)
        file = written_file(one.folder.at("ended"), DAY, pa.table({"id": [number]}))
        one.table("ended").commit(columns, [file], {DAY: number})

    written(1)
    second = other.table("ended")
    assert second.generation(DAY) == 1
    file = written_file(other.folder.at("ended"), DAY, pa.table({"id": [9]}))
    written(2)
    with pytest.raises(LakeError, match="meanwhile"):
        second.commit(columns, [file], {DAY: 2})
    with pytest.raises(LakeError, match="meanwhile"):
        lake.table("ended").commit(columns, [file], {DAY: 1})
    assert [one.rows for one in lake.table("ended").files()[DAY]] == [1, 1]


def test_a_bucket_that_is_not_there_is_named(store: ObjectStore) -> None:
    assert store.url
    with pytest.raises(LakeError, match=r"s3://nowhere/history.*check --lake"):
        Lake("s3://nowhere/history").create(OURS)


def test_the_address_can_be_a_part_of_the_uri(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    host = store.url.removeprefix("http://")
    lake = Lake(f"{URI}?endpoint_override={host}&scheme=http&region=us-east-1")
    lake.create(OURS)
    lake.table("rollup/hours").commit(pa.schema([("n", pa.int64()), ("day", pa.date32())]), [], {DAY: 1})
    assert lake.uri == URI
    assert lake.table("rollup/hours").generation(DAY) == 1
    assert lake.table("rollup/hours").generation(date(2026, 1, 1)) == 0
