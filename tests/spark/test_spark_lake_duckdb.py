"""Small days are verified by DuckDB in this process, large ones by Spark, with the same figures."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from spark.lake_history import DAY, NEXT, died, ended, no_session

from pgqueue import PgQueue
from pgqueue.errors import LakeError
from pgqueue.spark.lake import checksum, files
from pgqueue.spark.lake.checksum import InFiles
from pgqueue.spark.lake.columns import ENDED_COLUMNS, ENDED_SCHEMA
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.files import written_file
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = ["", "\x1e", "\x1f", "a\x1fb", "é 🎉  \n\t\\", "null", "{}", '{"n": 1e400}', "x" * 5000, "'; drop"]


def hostile(seed: int, count: int) -> pa.Table:
    """Ended jobs with every kind of value."""
    chance = random.Random(seed)  # noqa: S311 - made-up rows
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def value(field: pa.Field) -> Any:
        if field.name == "outcome":
            return chance.choice(["succeeded", "cancelled", "dead"])
        if chance.random() < 0.2:
            return None
        if pa.types.is_timestamp(field.type):
            return epoch + timedelta(microseconds=chance.randrange(-(10**16), 10**17))
        if pa.types.is_integer(field.type):
            most = 2 ** (field.type.bit_width - 1)
            return chance.choice([0, -1, most - 1, -most, chance.randrange(-most, most)])
        return chance.choice(TEXTS)

    rows = [{field.name: value(field) for field in ENDED_SCHEMA} for _ in range(count)]
    return pa.Table.from_pylist(rows, ENDED_SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "my lake é, 100 %"))


def test_both_engines_have_the_same_sums_of_every_kind_of_value(
    spark: "SparkSession", folder: Folder
) -> None:
    at = folder.at("ended")
    whole = [written_file(at, DAY, hostile(seed, 400)) for seed in range(3)]
    older = written_file(at, DAY, hostile(9, 50).drop_columns(["meta", "result"]))
    named = [one.path for one in (*whole, older)]

    rows = files.read(spark, at, dict.fromkeys(named, DAY), ENDED_COLUMNS)
    for pruned_below in (0, 10**12):
        found = checksum.in_files(at, named, ENDED_SCHEMA, pruned_below)
        assert found == checksum.of_frame(rows, pruned_below)
        assert sum(share.rows for share in found) == 1250
        assert found.history.rows > found.dead.rows > 0
        assert found.pruned.rows > 0
        assert found.standing.rows > 0


def test_a_day_without_files_has_no_rows(folder: Folder) -> None:
    assert checksum.in_files(folder.at("ended"), [], ENDED_SCHEMA, 0) == InFiles()


def test_a_small_day_is_verified_without_a_session_and_a_large_one_by_spark(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 9)
    died(dsn, DAY, 3)
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)

    (small,) = verify(no_session, queue.database, lake)
    assert (small.finding, small.history, small.dead) == (DayFinding.VERIFIED, 9, 3)
    monkeypatch.setattr(checksum, "MOST_ROWS", 11)
    with pytest.raises(AssertionError, match="a session was started"):
        verify(no_session, queue.database, lake, everything=True)
    assert verify(lambda: spark, queue.database, lake, everything=True) == [small]


@pytest.mark.parametrize("most", [0, checksum.MOST_ROWS])
def test_a_file_that_is_gone_or_no_parquet_is_said_in_one_line(
    spark: "SparkSession",
    queue: PgQueue,
    dsn: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(checksum, "MOST_ROWS", most)
    ended(dsn, DAY, 4)
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)
    (file,) = lake.days()[0].files
    path = tmp_path / "lake" / file.path
    for damage in (lambda: path.write_bytes(b"no Parquet, and long enough for a footer"), path.unlink):
        damage()
        (found,) = verify(spark, queue.database, lake)
        assert found.finding is DayFinding.DIFFERS
        assert found.reason.startswith("a file cannot be read: ")
        assert found.reason.endswith(f"`pgqueue pipeline export --again {DAY}`")
        assert "\n" not in found.reason


def test_a_file_that_cannot_be_read_is_a_lake_error(folder: Folder) -> None:
    with pytest.raises(LakeError, match="a file cannot be read"):
        checksum.in_files(folder.at("ended"), ["day=2026-01-20/gone.parquet"], ENDED_SCHEMA, 0)


def test_a_verify_needs_no_more_connections_of_the_pool_than_before_it_read_ahead(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = PgQueue(dsn, pool_size=1)
    queue.database.pools.hurry(1.0)
    for day in (DAY, NEXT):
        ended(dsn, day, 1)
    lake = Lake(tmp_path / "lake")
    export(no_session, queue.database, lake)
    with psycopg.connect(dsn) as other:
        other.execute(f"lock table pgqueue.job_history_{NEXT:%Y%m%d}".encode())

        def passed(_: Lake, point: str) -> None:
            if point == "noted":  # the first day; a thread waits for the second one
                other.rollback()

        monkeypatch.setattr(Lake, "passed", passed)
        assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    queue.close()
