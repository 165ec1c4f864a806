"""Each run of a step is a row: how long it took, how much it did, how it ended."""

from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from deltalake import write_deltalake
from looking import ask
from spark.lake_history import DAY, NEXT, ended, no_session

from pgqueue import PgQueue
from pgqueue.errors import DaysNotExported, LakeError, LakeOfAnother
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import erase, of_key
from pgqueue.spark.lake import steps as log
from pgqueue.spark.lake import table
from pgqueue.spark.lake.compact import compact
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import prune
from pgqueue.spark.lake.table import LakeTable
from pgqueue.spark.lake.verify import verify
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.store.pipeline.lake import Origin


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_every_step_logs_its_days_and_rows(queue: PgQueue, dsn: str, lake: Lake) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 4)
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)
    rollup(no_session, queue.database, lake, Config())
    rollup(no_session, None, lake, Config())
    erase(queue.database, lake, of_key("key 3"), dry_run=True)
    erase(queue.database, lake, of_key("key 3"), days=[DAY])
    compact(queue.database, lake)
    prune(queue.database, lake)

    found = log.steps(lake)
    assert [(one.step, one.days, one.rows, one.error) for one in found] == [
        ("export", 2, 8, None),
        ("verify", 2, 8, None),
        ("rollup", 2, 8, None),
        ("rollup", 0, 0, None),
        ("erase", 1, 1, None),
        ("compact", 0, 0, None),
        ("prune", 1, 4, None),
    ]
    assert all(one.seconds > 0 and one.cpu_seconds > 0 for one in found)
    assert [one.started_at for one in found] == sorted(one.started_at for one in found)


def test_a_step_that_fails_is_logged_with_its_error_and_what_it_did_before(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    (odd,) = ended(dsn, DAY, 1)
    ended(dsn, NEXT, 3)
    ask(dsn, "update pgqueue.job_history set run_at = 'infinity' where id = %(id)s", id=odd)
    with pytest.raises(DaysNotExported):
        export(no_session, queue.database, lake)
    assert [(one.step, one.days, one.rows, one.error) for one in log.steps(lake)] == [
        ("export", 1, 3, "DaysNotExported")
    ]


def test_nothing_is_written_to_the_lake_of_another_database(queue: PgQueue, lake: Lake) -> None:
    lake.create(Origin("1", 2, "theirs"))
    with pytest.raises(LakeOfAnother):
        export(no_session, queue.database, lake)
    assert log.steps(lake) == []


def test_a_log_that_cannot_be_written_stops_no_step(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(uri: str, *given: Any, **options: Any) -> None:
        if uri.endswith(f"/{log.STEPS}"):
            raise OSError("no space left on device")
        write_deltalake(uri, *given, **options)

    ended(dsn, DAY, 2)
    monkeypatch.setattr(table, "write_deltalake", full)
    assert [one.day for one in export(no_session, queue.database, lake)] == [DAY]
    assert "the run of export is not in the lake's log" in caplog.text
    assert "no space left on device" in caplog.text


def test_the_log_has_few_files_though_steps_run_often(
    queue: PgQueue, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "COMPACTED_AT", 3)
    for _ in range(8):
        export(no_session, queue.database, lake)
    assert len(log.steps(lake)) == 8
    there = LakeTable(lake.folder, log.STEPS).latest()
    assert there is not None
    assert len(there.file_uris()) <= 3


def test_a_lake_without_steps_and_a_folder_without_a_lake(lake: Lake) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        log.steps(lake)
    lake.create(Origin("1", 2, "pgqueue"))
    assert log.steps(lake) == []


def test_the_verb_shows_the_last_runs_with_their_cost(
    queue: PgQueue, dsn: str, lake: Lake, tmp_path: Path
) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text('[cost]\nper_run_second = 0.5\ncurrency = "EUR"\n')
    words = ("pipeline", "steps", "--lake", lake.uri)
    ended(dsn, DAY, 2)
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)

    found: Any = printed(pgqueue(*words, "--json", "--config", str(config)))
    assert [(one["step"], one["rows"], one["error"]) for one in found] == [
        ("export", 2, None),
        ("verify", 2, None),
    ]
    assert all(one["cost"] == pytest.approx(one["seconds"] / 2) for one in found)
    (last,) = printed(pgqueue(*words, "--json", "--last", "1"))
    assert (last["step"], last["cost"]) == ("verify", None)
    shown = pgqueue(*words, "--config", str(config)).stdout
    assert shown.splitlines()[0].split() == [
        "started",
        "step",
        "seconds",
        "cpu",
        "seconds",
        "days",
        "rows",
        "cost",
        "error",
    ]
    assert " EUR" in shown
