"""A lake that an earlier release wrote is brought to Delta tables: every row, under the generations that it had."""

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pytest
from looking import ask
from pyarrow import parquet
from spark.lake_history import DAY, NEXT, died, ended, lake_ids

from pgqueue import PgQueue
from pgqueue.errors import LakeError, LakeOfAnother
from pgqueue.spark.lake.convert import Converted, convert
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import Finding, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "邮" * 83


class Killed(BaseException):
    """The process is no more."""


class Mortal(Lake):
    """A lake whose process dies after it has converted a day."""

    def passed(self, point: str) -> None:
        if point == "day converted":
            raise Killed(point)


def folder_of(queue: str) -> str:
    """The folder of a queue in the earlier release, and whether its files have the queue's name."""
    if not queue:
        return "__HIVE_DEFAULT_PARTITION__"
    return f"~{hashlib.sha256(queue.encode()).hexdigest()}" if queue == LONG else quote(queue, safe="")


def write(place: Path, path: str, rows: pa.Table) -> dict[str, Any]:
    """A file of the earlier release; what its manifest says of it."""
    (place / path).parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(rows, place / path)
    return {"path": path, "rows": rows.num_rows, "bytes": (place / path).stat().st_size}


def of_earlier_release(place: Path, lake: Lake, spark: "SparkSession") -> Lake:
    """The same lake as the earlier release would have written it."""
    about = place / "_pgqueue"
    for table in ("ended", "rollup/hours"):
        (about / table).mkdir(parents=True)
    marker = json.loads(msgspec.json.encode(lake.marker()))
    (about / "lake.json").write_text(json.dumps({**marker, "format": 1}))
    for entry in lake.days():
        assert entry.day is not None
        rows = lake.ended(spark, [entry.day]).drop("day", "meta").toArrow()
        files = []
        for queue in rows["queue"].unique().to_pylist():
            of_queue = rows.filter(pa.compute.equal(rows["queue"], queue)).drop_columns(["queue"])
            if queue == LONG:
                of_queue = of_queue.append_column("queue_name", pa.array([queue] * of_queue.num_rows))
            path = f"ended/day={entry.day}/queue={folder_of(queue)}/1-part.parquet"
            files.append(write(place, path, of_queue))
        told = {
            **json.loads(msgspec.json.encode(entry)),
            "files": files,
            "columns": {},
            "queues": {},
            "format": 1,
        }
        (about / "ended" / f"{entry.day}.json").write_text(json.dumps(told))
    common = {"generation": 3, "written_at": "2026-01-22T00:00:00Z", "columns": {}, "format": 1}
    hours = write(place, f"rollup/hours/day={DAY}/3-part.parquet", pa.table({"jobs": [1, 2]}))
    for day, files in ((DAY, [hours]), (NEXT, [])):
        manifest = {
            **common,
            "table": "rollup/hours",
            "day": str(day),
            "files": files,
            "made_from": {"ended": "1"},
        }
        (about / "rollup/hours" / f"{day}.json").write_text(json.dumps(manifest))
    workers = write(place, "workers/1-part.parquet", lake.workers(spark).toArrow())
    manifest = {**common, "table": "workers", "day": None, "files": [workers]}
    (about / "workers.json").write_text(json.dumps(manifest))
    write(
        place, "ended/day=2026-01-20/queue=mail/2-killed.parquet", pa.table({"id": [1]})
    )  # no manifest names it
    (place / "_staging").mkdir()
    return Lake(place)


@pytest.fixture
def former(spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path) -> tuple[Lake, list[int]]:
    """A lake of the earlier release, and the jobs in it."""
    ids = [
        *ended(dsn, DAY, 3),
        *ended(dsn, DAY, 2, queue=LONG),
        *ended(dsn, DAY, 2, queue="a/b=c %"),
        *died(dsn, DAY, 1),
    ]
    ids += ended(dsn, NEXT, 4)
    ask(
        dsn,
        "insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version, queues) "
        "values (gen_random_uuid(), now() + interval '1 hour', 1, 4, 'host', '0', '{mail}')",
    )
    lake = Lake(tmp_path / "new")
    export(spark, queue.database, lake)
    return of_earlier_release(tmp_path / "former", lake, spark), sorted(ids)


def test_a_lake_of_the_earlier_release_is_refused_and_then_converted_and_verified(
    spark: "SparkSession", queue: PgQueue, dsn: str, former: tuple[Lake, list[int]], tmp_path: Path
) -> None:
    lake, ids = former
    with pytest.raises(LakeError, match="run `pgqueue pipeline convert`"):
        lake.days()
    with pytest.raises(Killed):
        convert(queue.database, Mortal(tmp_path / "former"))

    told: list[Converted] = []
    found = convert(queue.database, lake, tell=told.append)

    assert told == found
    assert sorted((one.table, one.day, one.rows) for one in found if one.day) == [
        ("ended", NEXT, 4),
        ("rollup/hours", DAY, 2),
        ("rollup/hours", NEXT, 0),
    ]
    assert lake_ids(spark, lake) == ids
    assert {row["queue"] for row in lake.ended(spark).collect()} == {"mail", LONG, "a/b=c %"}
    assert [one.finding for one in verify(spark, queue.database, lake)] == [Finding.VERIFIED] * 2
    assert [(one.day, one.generation, one.made_from) for one in lake.entries("rollup/hours")] == [
        (DAY, 3, {"ended": "1"}),
        (NEXT, 3, {"ended": "1"}),
    ]
    assert [row["host"] for row in lake.workers(spark).collect()] == ["host"]
    assert convert(queue.database, lake) == []

    ids += ended(dsn, DAY, 1)
    assert [(one.day, one.generation) for one in export(spark, queue.database, lake)] == [(DAY, 2)]
    assert lake_ids(spark, lake) == sorted(ids)
    for table in ("ended", "workers", "rollup/hours"):
        lake.sweep(table, kept_hours=0)
    left = [
        path
        for path in lake.folder.paths()
        if "queue=" in path or path.endswith((f"{DAY}.json", "workers.json"))
    ]
    assert left == []


def test_a_file_that_is_missing_or_has_other_rows_than_its_manifest_says_is_named(
    queue: PgQueue, former: tuple[Lake, list[int]], tmp_path: Path
) -> None:
    lake, _ = former
    (file,) = (tmp_path / "former" / "ended" / f"day={NEXT}").rglob("*.parquet")
    rows = parquet.ParquetFile(file).read()
    parquet.write_table(rows.slice(1), file)
    with pytest.raises(LakeError, match=f"ended {NEXT} has 3 rows in its files, and 4 in its manifest"):
        convert(queue.database, lake)
    file.unlink()
    with pytest.raises(LakeError, match=f"a file of ended {NEXT} cannot be read"):
        convert(queue.database, lake)


def test_what_is_no_lake_of_this_database_is_not_converted(
    queue: PgQueue, former: tuple[Lake, list[int]], tmp_path: Path
) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        convert(queue.database, Lake(tmp_path / "nowhere"))
    marker = tmp_path / "former" / "_pgqueue" / "lake.json"
    said = json.loads(marker.read_text())
    said["origin"]["schema"] = "other"
    marker.write_text(json.dumps(said))
    with pytest.raises(LakeOfAnother):
        convert(queue.database, former[0])
    marker.write_text("{")
    with pytest.raises(LakeError, match="cannot be read as one of ours"):
        convert(queue.database, former[0])


def test_the_command_says_what_it_converted(dsn: str, former: tuple[Lake, list[int]]) -> None:
    from cli.commands import pgqueue  # noqa: PLC0415 - only here

    done = pgqueue("--dsn", dsn, "pipeline", "convert", "--lake", former[0].uri)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "5 days converted: 15 rows\n"
    assert f"ended {date(2026, 1, 21)}: 4 rows" in done.stderr
    again = pgqueue("--dsn", dsn, "pipeline", "convert", "--lake", former[0].uri)
    assert again.stdout == "0 days converted: 0 rows\n"
