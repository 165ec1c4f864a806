"""The pipeline's demo: real jobs and made-up ones through every step, and a verdict that sees what is wrong."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cli.commands import pgqueue, printed
from rich.console import Console

from pgqueue import PgQueue
from pgqueue.cli.demo import Screen
from pgqueue.cli.pipeline import demo as demos
from pgqueue.spark.config import load
from pgqueue.spark.demo import demo as taken
from pgqueue.spark.demo import tasks
from pgqueue.spark.demo.days import Wish
from pgqueue.spark.demo.demo import tomorrow
from pgqueue.spark.demo.planned import story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED = story(Wish(rows=6, days=2, until=date(2026, 3, 29)))
MADE = [(day.first_id + number, "succeeded") for day in PLANNED.days for number in range(1, day.rows + 1)]
REAL = {1: "succeeded", 2: "dead"}
SMALL = ("--jobs", "520", "--rows", "400", "--days", "1", "--no-open", "--json")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
def test_every_job_that_ended_is_in_the_lake_once_and_the_report_is_there(tmp_path: Path) -> None:
    told = pgqueue("pipeline", "demo", str(tmp_path / "demo"), *SMALL)
    verdict = printed(told)
    assert verdict == {
        "ended": 920, "in_lake": 920, "lost": [], "doubled": [], "unknown": [], "otherwise": []
    }  # fmt: skip
    assert "All 920 jobs that ended are in the lake, each once." in told.stderr
    assert "2 of them are dead, as planned" in told.stderr
    (line,) = [one for one in told.stderr.splitlines() if one.startswith(sys.executable)]
    opened = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 - pasted, as a user does
    assert "webhooks" in opened.stdout
    assert "succeeded" in opened.stdout
    (page,) = (tmp_path / "demo" / "lake" / "report").glob("*.html")
    assert f"The report is {page}" in told.stderr.replace("\n", "")


def test_a_job_that_the_lake_lacks_ends_the_demo_with_1_and_its_id(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark

    def pipeline(*_: Any) -> demos.DemoReport:
        return demos.DemoReport(page=str(tmp_path / "page.html"))

    monkeypatch.setattr(demos, "_pipeline", pipeline)
    monkeypatch.setattr(taken, "in_lake", lambda _: MADE)
    monkeypatch.setattr(demos, "story", lambda _: PLANNED)
    told = pgqueue("pipeline", "demo", str(tmp_path / "demo"), *SMALL)
    assert told.exit_code == 1
    assert "BROKEN 520 jobs are not in the lake, such as 1, 2, 3, 4, 5" in told.stderr
    assert "All " not in told.stderr


def test_a_step_that_fails_for_good_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: Any) -> Any:
        raise LookupError("no such thing")

    monkeypatch.setattr("pgqueue.spark.demo.demo.work", lambda *_: {"export": nowhere})
    told = pgqueue("pipeline", "demo", str(tmp_path / "demo"), *SMALL)
    assert told.exit_code == 2
    assert "a step failed: no such thing" in told.stderr


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        pytest.param([*MADE, (1, "succeeded"), (2, "dead")], {}, id="all is well"),
        pytest.param([*MADE, (1, "succeeded")], {"lost": [2]}, id="a real job is not there"),
        pytest.param([*MADE[1:], *REAL.items()], {"lost": [MADE[0][0]]}, id="a made-up one is not there"),
        pytest.param([*MADE, *REAL.items(), (1, "succeeded")], {"doubled": [1]}, id="one is there twice"),
        pytest.param([*MADE, *REAL.items(), (9, "dead")], {"unknown": [9]}, id="one is from nowhere"),
        pytest.param([*MADE, (1, "dead"), (2, "dead")], {"otherwise": [1]}, id="one ended otherwise"),
    ],
)
def test_the_verdict_names_what_is_wrong(found: list[tuple[int, str]], wrong: dict[str, list[int]]) -> None:
    verdict = taken.judge(REAL, PLANNED, found)
    told = {name: getattr(verdict, name) for name in ("lost", "doubled", "unknown", "otherwise")}
    assert {name: ids for name, ids in told.items() if ids} == wrong
    assert len(verdict.complaints()) == len(wrong)
    assert verdict.ended == 8


def test_real_jobs_end_as_they_are_meant_to(queue: PgQueue, dsn: str, tmp_path: Path) -> None:
    del queue
    real = demos._real_day(dsn, tmp_path, 520, Screen(Console(quiet=True)))  # noqa: SLF001 - the very jobs
    with psycopg.connect(dsn) as connection:
        found: dict[int, str] = dict(
            connection.execute(
                "select id, outcome from pgqueue.job_history union all select id, 'dead' from pgqueue.dead_jobs"
            ).fetchall()
        )
        retried = connection.execute("select count(*) from pgqueue.job_history where attempts = 2").fetchone()
    assert found == real
    letters = 520 // 2
    hopeless = {number for number in range(letters) if number % tasks.DEAD_EVERY == 0}
    unsteady = {number for number in range(letters) if number % tasks.FLAKY_EVERY == 0} - hopeless
    assert sum(end == "dead" for end in real.values()) == len(hopeless)
    assert retried == (len(unsteady),)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    told = pgqueue("pipeline", "demo", str(tmp_path), *SMALL)
    assert told.exit_code == 2
    assert "is not empty, and not from an earlier demo" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_folder_of_an_earlier_demo_is_made_again(tmp_path: Path) -> None:
    folder = taken.fresh(tmp_path / "demo")
    (folder / "lake").mkdir()
    (folder / "lake" / "stale").touch()
    taken.fresh(tmp_path / "demo")
    assert sorted(path.name for path in folder.iterdir()) == [taken.MARK, "pipeline.toml"]
    assert load(folder / "pipeline.toml").tenant == "$.tenant"


def test_today_is_closed_for_the_export_whatever_the_hour() -> None:
    night = datetime(2026, 3, 28, 23, 59, 59, tzinfo=UTC)
    assert tomorrow(night) == datetime(2026, 3, 29, 0, 5, tzinfo=UTC)
    assert tomorrow(night.replace(hour=0)) == tomorrow(night)


def test_the_page_is_opened_where_somebody_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not demos._has_display()  # noqa: SLF001 - the part under test
    monkeypatch.setitem(os.environ, "WAYLAND_DISPLAY", "wayland-0")
    assert demos._has_display()  # noqa: SLF001 - the part under test
