"""``pgqueue pipeline export | verify | prune | status | run``: what they say, and what they refuse.

Each run of a step is a row: how long it took, how much it did, how it ended.
"""

import json
import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cli.commands import pgqueue, printed
from deltalake import DeltaTable, write_deltalake
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended, history_ids, lake_ids, no_session

from pgqueue import PgQueue
from pgqueue.errors import DaysNotExported, LakeError, LakeOfAnother
from pgqueue.spark import pipeline_jobs
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import erase, of_key
from pgqueue.spark.lake import export as exporting
from pgqueue.spark.lake import steps as log
from pgqueue.spark.lake import table as lake_table
from pgqueue.spark.lake.compact import compact
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import prune
from pgqueue.spark.lake.table import LakeTable
from pgqueue.spark.lake.verify import verify
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from click.testing import Result
    from pyspark.sql import SparkSession


def _pipeline(dsn: str, *words: str, **env: str) -> "Result":
    return pgqueue("pipeline", *words, dsn=dsn, **env)


def test_the_verbs_say_what_they_did_to_people_and_to_programs(
    spark: "SparkSession", dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 3), *died(dsn, DAY, 1), *ended(dsn, NEXT, 2)]
    lake = str(tmp_path / "lake")

    (closed, _) = printed(_pipeline(dsn, "status", "--json", PGQUEUE_LAKE=lake))
    assert (closed["day"], closed["state"], closed["waiting"]) == (str(DAY), "closed", 4)

    result = _pipeline(dsn, "export", "--lake", lake)
    assert result.stdout.startswith("2 days exported: 6 rows, ")
    assert result.stderr.startswith(f"{DAY}: 3 rows of the history, 1 dead job; 1 file, ")
    assert _pipeline(dsn, "export", "--lake", lake).stdout == (
        "nothing to export: every closed day is in the lake\n"
    )

    found = printed(_pipeline(dsn, "verify", "--lake", lake, "--day", str(DAY), "--json"))
    assert [(one["day"], one["finding"], one["history"]) for one in found] == [(str(DAY), "verified", 3)]
    result = _pipeline(dsn, "verify", "--lake", lake)
    assert result.stdout == "1 day verified, 0 days differing\n"
    assert result.stderr == f"{NEXT}: verified; 2 rows of the history, 0 dead jobs\n"

    ask(dsn, "update pgqueue.job_history set task = 'x' where queue = 'mail' and finished_at >= '2026-01-21'")
    result = _pipeline(dsn, "prune", "--lake", lake, "--json")
    assert result.exit_code == 1
    assert [one["fate"] for one in json.loads(result.stdout)] == ["pruned", "refused"]
    assert f"{NEXT}: refused; its history has changed since it was verified" in result.stderr
    result = _pipeline(dsn, "verify", "--lake", lake, "--all")
    assert result.exit_code == 1
    assert result.stdout == "1 day verified, 1 day differing\n"

    assert [line.split()[:3] for line in _pipeline(dsn, "status", "--lake", lake).stdout.splitlines()] == [
        ["day", "state", "rows"],
        [str(DAY), "pruned", "4"],
        [str(NEXT), "verified", "2"],
    ]
    assert lake_ids(spark, Lake(lake)) == sorted(ids)


def test_a_day_that_is_not_exported_is_told_in_one_line_and_the_exit_code_is_1(
    spark: "SparkSession", dsn: str, tmp_path: Path
) -> None:
    (bad, *_), good = ended(dsn, DAY, 3), ended(dsn, NEXT, 2)
    ask(dsn, "update pgqueue.job_history set run_at = 'infinity' where id = %(id)s", id=bad)

    result = _pipeline(dsn, "export", "--lake", str(tmp_path / "lake"))

    assert result.exit_code == 1
    assert f"pgqueue: 1 of 2 days were not exported: day {DAY}: run_at of job {bad}: a time" in result.stderr
    assert max(map(len, result.stderr.splitlines())) < 500
    assert lake_ids(spark, Lake(tmp_path / "lake")) == good


@pytest.mark.usefixtures("spark")
def test_what_an_open_transaction_may_add_is_told(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, application_name="night batch") as writing:
        writing.execute("insert into pgqueue.queues (name) values ('other')")
        ended(dsn, DAY, 3)
        result = _pipeline(dsn, "export", "--lake", str(tmp_path / "lake"), "--wait", "0")
    assert (result.exit_code, result.stdout) == (0, ""), "not: every closed day is in the lake"
    assert "are left to the next export: " in result.stderr
    assert "night batch (postgres in database" in result.stderr


def test_an_error_of_spark_is_told_in_one_line(
    spark: "SparkSession", dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        spark.sql("select assert_true(false, 'no such day') from range(9)").collect()

    monkeypatch.setattr(exporting, "export", fail)
    result = _pipeline(dsn, "export", "--lake", str(tmp_path / "lake"))
    assert result.exit_code == 2
    (said,) = result.stderr.splitlines()
    assert said.startswith("pgqueue: error: Spark refused: ")
    assert "no such day" in said


@pytest.mark.timeout(400)
def test_run_takes_the_chain_from_the_history_to_the_report(
    spark: "SparkSession", dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ended(dsn, DAY, 5)
    monkeypatch.setattr(pipeline_jobs, "_session", lambda: spark)

    result = _pipeline(dsn, "run", "--lake", str(tmp_path / "lake"))

    assert result.exit_code == 0, result.stderr
    said = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert said == [name for name in pipeline_jobs.WORK for _ in ("begun", "done")], result.stderr
    assert set(ids).isdisjoint(history_ids(dsn))
    lake = Lake(tmp_path / "lake")
    assert lake_ids(spark, lake) == ids
    assert lake.entries("rollup/hours")
    assert [path for path in lake.folder.paths("report") if path.endswith(".html")]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["export"], "no lake: give --lake, set PGQUEUE_LAKE"),
        (["export", "--lake", "/x", "--again", "monday"], "'monday': use a day such as"),
        (["verify", "--lake", "/nowhere/lake"], "is no lake: run `pgqueue pipeline export` first"),
        (["prune", "--lake", "/nowhere/lake", "--keep", "soon"], "'soon' is no length of time"),
        (["run", "--config", "/nowhere.toml"], "cannot be read"),
        (["status", "--lake", "/x["], "Spark takes [ in a path for a pattern"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_what_makes_no_sense_is_refused_in_a_line(dsn: str, words: list[str], complaint: str) -> None:
    result = _pipeline(dsn, *words)

    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_database_that_is_not_there_is_said_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(**_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("pgqueue.spark.session.session", started)
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    for verb in ("export", "verify", "prune", "status", "run"):
        result = _pipeline(nowhere, verb, "--lake", str(tmp_path))
        assert result.exit_code == 2
        assert "cannot connect to" in result.stderr


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
        ("erase", 1, 1, None),
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
    def full(table: str | DeltaTable, *args: Any, **options: Any) -> None:
        if isinstance(table, DeltaTable) and table.table_uri.rstrip("/").endswith("/steps"):
            raise OSError("no space left on device")
        write_deltalake(table, *args, **options)

    ended(dsn, DAY, 2)
    monkeypatch.setattr(lake_table, "write_deltalake", full)
    assert [one.day for one in export(no_session, queue.database, lake)] == [DAY]
    assert "the run of export is not in the lake's log" in caplog.text
    assert "no space left on device" in caplog.text


def test_the_log_has_few_files_though_steps_run_often(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_table, "COMPACTED_AT", 3)
    for number in range(8):
        ended(dsn, DAY, 1, queue=f"q{number}")
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
        "(UTC)",
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


def test_a_trial_ends_with_leave_and_history_goes_by_its_age_again(dsn: str, tmp_path: Path) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 2)
    lake, other = str(tmp_path / "lake"), str(tmp_path / "other")
    begins = f"this database keeps each day of its history until it is verified in file://{lake} and pruned"
    for place, said in ((lake, True), (lake, False)):
        _pipeline(dsn, "export", "--lake", place)
        verified = _pipeline(dsn, "verify", "--lake", place, "--day", str(DAY))
        assert (f"from now on {begins}; `pgqueue pipeline leave` ends this" in verified.stderr) is said
    assert begins in _pipeline(dsn, "status", "--lake", lake).stderr
    assert _days_by_age(dsn) == [DAY]

    refused = _pipeline(dsn, "leave", "--lake", other)
    assert refused.exit_code == 2
    assert (
        f"no day of this database is verified in file://{other}: days are verified in file://{lake}"
        in refused.stderr
    )
    shutil.rmtree(lake)
    left = _pipeline(dsn, "leave", "--lake", lake, "--by", "ann", "--why", "it was a trial")
    assert left.stdout == f"1 day of the history is verified in file://{lake} no longer\n"
    assert "by its age again" in left.stderr
    assert ask(dsn, "select said_by, action, target, details ->> 'why' from pgqueue.audit") == [
        ("ann", "lake left", f"file://{lake}", "it was a trial")
    ]
    assert _days_by_age(dsn) == [DAY, NEXT]
    assert "none is verified in any lake" in _pipeline(dsn, "leave", "--lake", lake).stderr


def _days_by_age(dsn: str) -> list[date]:
    """The days that workers would drop once they are old."""
    found = ask(
        dsn,
        "select distinct finished_at::date as day from pgqueue.job_history"
        " where pgqueue.is_history_day_out(finished_at::date) order by day",
    )
    return [day for (day,) in found]


def test_another_lake_still_keeps_the_history(dsn: str, tmp_path: Path) -> None:
    ended(dsn, DAY, 2)
    lake, other = str(tmp_path / "lake"), str(tmp_path / "other")
    _pipeline(dsn, "export", "--lake", lake)
    _pipeline(dsn, "verify", "--lake", lake)
    ask(
        dsn,
        "insert into pgqueue.lake_days select %(next)s, 1, 0, 0, 1, 0, now(), %(lake)s",
        next=NEXT,
        lake=f"file://{other}",
    )
    left = _pipeline(dsn, "leave", "--lake", lake)
    assert f"history is still kept for another lake: days are verified in file://{other}" in left.stderr
