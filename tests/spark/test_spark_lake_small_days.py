"""Many small days leave few files, and small ones."""

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from looking import ask
from pyarrow import parquet
from spark.lake_history import DAY, ended, no_session

from pgqueue import PgQueue
from pgqueue.spark.config import Config
from pgqueue.spark.lake import verify as verifying
from pgqueue.spark.lake.export import MANY_FILES, export
from pgqueue.spark.lake.files import FEW_ROWS
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, VerifyResult, verify
from pgqueue.spark.rollup.rollup import rollup

DAYS = [DAY + timedelta(days=number) for number in range(6)]


@pytest.fixture
def lake(queue: PgQueue, dsn: str, tmp_path: Path) -> Lake:
    """Six exported days of 25 jobs."""
    for day in DAYS:
        ended(dsn, day, 25)
    made = Lake(tmp_path)
    export(no_session, queue.database, made)
    return made


def recorded(dsn: str) -> set[date]:
    """The days that the database has recorded as verified."""
    return {row[0] for row in ask(dsn, "select day from pgqueue.lake_days")}


def test_days_that_agree_are_recorded_in_one_commit(queue: PgQueue, dsn: str, lake: Lake) -> None:
    records = DeltaTable(f"{lake.uri}/_pgqueue/records")
    before = records.version()

    found = verify(no_session, queue.database, lake)

    records.update_incremental()
    assert records.version() == before + 1
    assert {one.finding for one in found} == {DayFinding.VERIFIED}
    assert recorded(dsn) == set(DAYS)
    assert verify(no_session, queue.database, Lake(lake.uri.removeprefix("file://"))) == []


@pytest.mark.parametrize("every", [-1.0, 1e9])
def test_a_day_is_told_only_when_it_is_recorded(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch, every: float
) -> None:
    monkeypatch.setattr(verifying, "NOTE_EVERY", every)
    told: list[date] = []

    def tell(one: VerifyResult) -> None:
        told.append(one.day)
        assert set(told) <= recorded(dsn)

    verify(no_session, queue.database, lake, tell=tell)
    assert told == DAYS


def test_a_verify_that_fails_in_the_middle_records_no_day_that_differs(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ask(dsn, "update pgqueue.job_history set priority = 99 where finished_at::date = %(day)s", day=DAYS[2])
    found = verify(no_session, queue.database, lake)
    assert [one.finding is DayFinding.DIFFERS for one in found] == [day == DAYS[2] for day in DAYS]
    assert recorded(dsn) == {*DAYS} - {DAYS[2]}


def test_late_rows_of_a_day_end_in_one_file(queue: PgQueue, dsn: str, lake: Lake) -> None:
    verify(no_session, queue.database, lake)
    files = []
    for _ in range(MANY_FILES):
        ended(dsn, DAYS[0], 2)
        export(no_session, queue.database, lake)
        files.append(len(lake.days()[0].files))
    assert files == [*range(2, MANY_FILES), 1, 2]
    assert lake.days()[0].rows == 25 + 2 * MANY_FILES
    assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.VERIFIED]


def test_files_of_few_rows_are_small_and_have_their_bounds_in_the_log(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAYS[0], FEW_ROWS, queue="other")
    export(no_session, queue.database, lake)
    rollup(no_session, None, lake, Config())
    root = Path(lake.uri.removeprefix("file://"))
    first = next(one for one in lake.days() if one.day == DAYS[0])
    small, large = sorted(first.files, key=lambda file: file.rows)
    footers = [parquet.ParquetFile(root / file.path) for file in (small, large)]
    assert [b"ARROW:schema" in (one.metadata.metadata or {}) for one in footers] == [False, True]
    assert footers[0].schema_arrow.equals(footers[1].schema_arrow)
    log = lake.table("ended").latest()
    assert log is not None
    lowest = pa.table(log.get_add_actions(flatten=True))["min.queue"].to_pylist()
    assert set(lowest) == {"mail", "other"}
    assert all(file.bytes < 4_000 for day in lake.entries("rollup/days")[1:] for file in day.files)
