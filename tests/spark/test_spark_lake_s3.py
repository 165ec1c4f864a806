"""A lake in an object store: through Arrow and deltalake, without a jar; requests may fail, and other writers commit."""

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

import boto3
import pyarrow as pa
import pytest
from spark.lake_history import DAY, NEXT, died, ended, history_ids, lake_ids
from spark.object_store import BUCKET, ObjectStore, serving

from pgqueue import PgQueue
from pgqueue.errors import LakeError
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.files import written_file
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
