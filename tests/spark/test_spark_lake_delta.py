"""The tables as other programs read them: what changed, which files a filter needs, and how few requests an export makes."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from looking import ask
from pyarrow import dataset, parquet
from spark.lake_history import DAY, NEXT, died, ended, no_session
from spark.object_store import BUCKET, ObjectStore, serving
from spark.test_spark_erase import everything

from pgqueue import PgQueue
from pgqueue.spark.erasing import erase, of_key
from pgqueue.spark.lake.columns import ENDED
from pgqueue.spark.lake.compact import compact
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake

FEED = ExportOptions(change_data_feed=True)
SECRET = "ada@secret-4711.example"  # noqa: S105 - looked for


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def delta(lake: Lake) -> DeltaTable:
    return DeltaTable(f"{lake.uri}/{ENDED}")


def held(lake: Lake) -> Counter[tuple[int, int]]:
    """The rows of the table now, by id and transaction."""
    rows = delta(lake).to_pyarrow_table(columns=["id", "ended_in"]).to_pylist()
    return Counter((row["id"], row["ended_in"]) for row in rows)


class Follower:
    """A reader that is not ours: it applies the changes of each version to what it has."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.version = 0
        self.has = Counter[tuple[int, int]]()
        self.read = 0

    def follow(self) -> None:
        newest = delta(self.lake).version()
        if newest > self.version:
            feed = delta(self.lake).load_cdf(starting_version=self.version + 1, ending_version=newest)
            for row in pa.table(feed).to_pylist():
                self.has[row["id"], row["ended_in"]] += 1 if row["_change_type"] == "insert" else -1
                self.read += 1
        self.version = newest
        self.has = +self.has


def test_a_reader_that_follows_the_changes_has_each_row_through_exports_a_compaction_an_erasure_and_a_correction(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ids = ended(dsn, DAY, 6)
    died(dsn, DAY, 1)
    export(no_session, queue.database, lake, options=FEED)
    follower = Follower(lake)
    follower.follow()
    assert follower.has == held(lake) != Counter()

    ended(dsn, DAY, 3)
    ended(dsn, NEXT, 2)
    export(no_session, queue.database, lake)
    follower.follow()
    assert follower.has == held(lake)

    before = follower.read
    assert compact(queue.database, lake)
    follower.follow()
    assert follower.read == before, "a compaction changes no row"

    day = timedelta(days=1)
    erase(queue.database, lake, of_key("key 3"), reason="request 12", keep_files=day)
    assert "key 3" in everything(lake)
    follower.follow()
    assert follower.has == held(lake)
    erase(queue.database, lake, of_key("key 3"))
    assert "key 3" not in everything(lake)

    ask(dsn, "update pgqueue.job_history set priority = 9 where id = %(id)s", id=ids[0])
    export(no_session, queue.database, lake, options=ExportOptions(again=[DAY]))
    follower.follow()
    assert follower.has == held(lake)
    said = [one.get("userMetadata") for one in reversed(delta(lake).history())]
    assert [one for one in said if one] == [
        "export",
        "export",
        "compact",
        "erase: request 12",
        "export --again",
    ]


def test_the_feed_can_be_switched_on_later_and_stays_on(queue: PgQueue, dsn: str, lake: Lake) -> None:
    ended(dsn, DAY, 2)
    export(no_session, queue.database, lake)
    assert "delta.enableChangeDataFeed" not in delta(lake).metadata().configuration
    ended(dsn, NEXT, 2)
    export(no_session, queue.database, lake, options=FEED)
    version = delta(lake).version()
    export(no_session, queue.database, lake, options=FEED)
    assert delta(lake).metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert delta(lake).version() == version, "it is switched on once"


def test_bounds_in_the_log_let_a_reader_skip_files_and_hide_no_row(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAY, 20)
    died(dsn, DAY, 2)
    late = ended(dsn, DAY, 3, queue="late")
    export(no_session, queue.database, lake)
    ended(dsn, DAY, 5, queue="later" * 40)
    export(no_session, queue.database, lake)
    whole = delta(lake).to_pyarrow_table()
    rows = delta(lake).to_pyarrow_dataset()
    for name in whole.column_names:
        for value in {*whole[name].to_pylist()}:
            field = dataset.field(name)
            wanted = (
                field.is_null() if value is None else field == pa.scalar(value, whole.schema.field(name).type)
            )
            assert rows.to_table(filter=wanted).num_rows == whole.filter(wanted).num_rows, (name, value)
    logged = _logged(lake)
    assert all(
        set(one["minValues"]) | {"result", "errors", "meta"} >= {"id", "ended_at", "queue", "task"}
        for one in logged
    )
    assert {one["minValues"]["queue"] for one in logged} == {"late", "later" * 6 + "la"}
    assert min(late) >= min(one["minValues"]["id"] for one in logged)


def _logged(lake: Lake) -> list[dict[str, Any]]:
    """What the log says of the files."""
    log = Path(lake.uri.removeprefix("file://")) / ENDED / "_delta_log"
    lines = [json.loads(line) for path in log.glob("*.json") for line in path.read_text().splitlines()]
    return [json.loads(line["add"]["stats"]) for line in lines if "add" in line]


def test_no_value_of_a_job_stands_in_the_log(queue: PgQueue, dsn: str, lake: Lake) -> None:
    ended(dsn, DAY, 3)
    ask(
        dsn,
        "update pgqueue.job_history set unique_key = %(who)s, args = to_json(%(who)s::text), result = to_json(%(who)s::text),"
        " meta = jsonb_build_object('who', %(who)s::text), errors = jsonb_build_array(%(who)s::text)",
        who=SECRET,
    )
    export(no_session, queue.database, lake)
    for number in range(12):  # past a checkpoint
        ended(dsn, DAY, 1, queue=f"q{number}")
        export(no_session, queue.database, lake)
    root = Path(lake.uri.removeprefix("file://")) / ENDED / "_delta_log"
    found = [path for path in root.rglob("*") if path.is_file()]
    assert any("checkpoint.parquet" in path.name for path in found)
    for path in found:
        text = str(parquet.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text()
        assert SECRET not in text


def test_an_export_with_nothing_to_do_writes_nothing(queue: PgQueue, dsn: str, lake: Lake) -> None:
    ended(dsn, DAY, 3)
    ask(dsn, "insert into pgqueue.deploys values (now(), '1.0')")
    export(no_session, queue.database, lake)
    root = Path(lake.uri.removeprefix("file://"))
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert export(no_session, queue.database, lake) == []
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    ask(dsn, "insert into pgqueue.deploys values (now(), '1.1')")
    assert export(no_session, queue.database, lake) == []
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} != before, "a new deploy is added"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with serving() as served:
        for name, value in served.settings.items():
            monkeypatch.setenv(name, value)
        import boto3  # noqa: PLC0415 - as the settings say

        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield served


def test_a_month_of_small_days_takes_few_requests(queue: PgQueue, dsn: str, store: ObjectStore) -> None:
    for number in range(31):
        ended(dsn, DAY + timedelta(days=number), 5)
    before = store.requests()
    assert len(export(no_session, queue.database, Lake(f"s3://{BUCKET}/month"))) == 31
    assert store.requests() - before <= 300
