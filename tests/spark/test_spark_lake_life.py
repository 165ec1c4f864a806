"""The life of a lake: small files are merged, old days are dropped, and nothing else changes."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli.commands import pgqueue
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended, no_session

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.config import Config
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.compact import CompactedDay, compact
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.files import WrittenFile
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, drop, prune
from pgqueue.spark.lake.status import DayState, status
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.rollup.rollup import rollup

LATER = datetime(2028, 1, 20, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def rows(lake: Lake) -> list[dict[str, Any]]:
    found = lake.dataset(ENDED, ENDED_SCHEMA).to_table().sort_by("id").to_pylist()
    assert isinstance(found, list)
    return found


@pytest.fixture
def late(queue: PgQueue, dsn: str, lake: Lake) -> list[dict[str, Any]]:
    """A verified lake whose first day got three files, one for each export; its rows."""
    for _ in range(3):
        ended(dsn, DAY, 5, queue="mail")
        ended(dsn, DAY, 5, queue="bill")
        export(no_session, queue.database, lake)
    ended(dsn, NEXT, 5)
    died(dsn, NEXT, 2)
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)
    return rows(lake)


def test_small_files_become_one_and_the_day_stays_verified(
    queue: PgQueue, lake: Lake, late: list[dict[str, Any]]
) -> None:
    before = lake.days()

    assert compact(queue.database, lake) == [CompactedDay(day=DAY, before=3, after=1, rows=30)]

    assert rows(lake) == late
    (file,), _ = (entry.files for entry in lake.days())
    queues = lake.dataset(ENDED, ENDED_SCHEMA, [DAY]).to_table()["queue"].to_pylist()
    assert queues == sorted(queues)
    assert file.rows == 30
    assert [(one.generation, one.verified) for one in lake.days()] == [
        (one.generation, one.verified) for one in before
    ]
    assert verify(no_session, queue.database, lake) == []
    found = verify(no_session, queue.database, lake, everything=True)
    assert [one.finding for one in found] == [DayFinding.VERIFIED] * 2
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED] * 2
    assert compact(queue.database, lake) == []


def test_merged_files_have_at_most_as_many_rows_as_are_asked_for(
    queue: PgQueue, lake: Lake, late: list[dict[str, Any]]
) -> None:
    assert compact(queue.database, lake, rows_per_file=19) == []
    assert compact(queue.database, lake, rows_per_file=20, days=[NEXT]) == []
    (done,) = compact(queue.database, lake, rows_per_file=20)
    assert (done.before, done.after, done.rows) == (3, 2, 20)
    assert rows(lake) == late


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", ["written", "compacted"])
def test_a_compaction_that_was_killed_changes_no_row(
    queue: PgQueue, lake: Lake, late: list[dict[str, Any]], *, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def passed(_: Lake, name: str) -> None:
        if name == point:
            raise Killed

    monkeypatch.setattr(Lake, "passed", passed)
    with pytest.raises(Killed):
        compact(queue.database, lake)
    monkeypatch.undo()
    assert rows(lake) == late
    assert len(compact(queue.database, lake)) == (point == "written")
    assert rows(lake) == late
    assert {one.finding for one in verify(no_session, queue.database, lake, everything=True)} == {
        DayFinding.VERIFIED
    }


def test_a_merged_file_with_other_rows_is_not_committed(
    queue: PgQueue, lake: Lake, late: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Lake.write_rows

    def without_one(lake: Lake, table: str, day: date | None, rows: pa.Table) -> list[WrittenFile]:
        return write(lake, table, day, rows.slice(1))

    monkeypatch.setattr(Lake, "write_rows", without_one)
    with pytest.raises(LakeError, match="written with other rows"):
        compact(queue.database, lake)
    assert rows(lake) == late


@pytest.mark.usefixtures("late")
def test_old_days_are_dropped_once_the_database_has_nothing_of_them(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    rollup(no_session, queue.database, lake, Config())
    figures = ask(dsn, "select day, jobs from pgqueue.rollup_days order by 1, 2")
    keep = timedelta(days=729)

    (standing,) = drop(queue.database, lake, keep=keep, now=LATER)
    assert (standing.day, standing.fate) == (DAY, Fate.WAITING)
    assert "the database has rows of it" in standing.reason
    prune(queue.database, lake)
    (dropped,) = drop(queue.database, lake, keep=keep, now=LATER)
    assert (dropped.day, dropped.fate, dropped.rows) == (DAY, Fate.DROPPED, 30)

    assert [entry.day for entry in lake.days()] == [NEXT]
    assert {row["ended_at"].date() for row in rows(lake)} == {NEXT}
    assert [one.day for one in status(queue.database, lake)] == [NEXT]
    (dead,) = drop(queue.database, lake, keep=0, now=LATER)
    assert (dead.day, dead.reason) == (NEXT, "2 of its dead jobs are in the database: revive or purge them")
    assert rollup(no_session, queue.database, lake, Config()) == []
    assert ask(dsn, "select day, jobs from pgqueue.rollup_days order by 1, 2") == figures
    assert drop(queue.database, lake, keep=keep, now=LATER) == []
    with pytest.raises(InvalidOption, match="keep"):
        drop(queue.database, lake, keep=-1)


@pytest.mark.usefixtures("late")
def test_a_job_that_ran_on_a_dropped_day_and_ended_later_changes_only_the_later_day(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    rollup(no_session, queue.database, lake, Config())
    hours = "select hour, jobs, busy_seconds from pgqueue.rollup_hours where day = %(day)s order by 1, 2, 3"
    before = ask(dsn, hours, day=DAY)
    prune(queue.database, lake, days=[DAY])
    drop(queue.database, lake, keep=timedelta(days=729), now=LATER)
    ids = ended(dsn, NEXT, 1)
    ask(
        dsn,
        "update pgqueue.job_history set started_at = '2026-01-20 22:30Z' where id = any(%(ids)s)",
        ids=ids,
    )
    export(no_session, queue.database, lake)

    assert rollup(no_session, queue.database, lake, Config()) == [NEXT]
    assert ask(dsn, hours, day=DAY) == before


@pytest.mark.usefixtures("late")
def test_rows_that_come_after_their_day_was_dropped_are_exported_alone(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    prune(queue.database, lake)
    drop(queue.database, lake, keep=timedelta(days=729), now=LATER)
    assert export(no_session, queue.database, lake) == []

    ended(dsn, DAY, 2)
    assert [one.state for one in status(queue.database, lake)] == [DayState.CLOSED, DayState.PRUNED]
    assert [(one.day, one.history) for one in export(no_session, queue.database, lake)] == [(DAY, 2)]
    assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.VERIFIED]
    assert [one.fate for one in prune(queue.database, lake)] == [Fate.PRUNED]
    assert [entry.rows for entry in lake.days()] == [2, 7]


@pytest.mark.usefixtures("late")
def test_the_verbs_say_what_they_did(dsn: str, lake: Lake) -> None:
    result = pgqueue("pipeline", "compact", "--lake", lake.uri, dsn=dsn)
    assert (result.stdout, result.stderr) == (
        "1 day compacted: 30 rows\n",
        f"{DAY}: 3 files became 1; 30 rows\n",
    )
    ask(dsn, "delete from pgqueue.dead_jobs")
    result = pgqueue("pipeline", "prune", "--lake", lake.uri, "--keep-lake", "0d", dsn=dsn)
    assert result.stdout == "2 days pruned: 35 rows; 2 days dropped from the lake: 37 rows; 0 days kept\n"
    assert f"{NEXT}: dropped; 7 rows\n" in result.stderr
    assert lake.days() == []
