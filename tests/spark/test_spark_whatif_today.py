"""What-if replays the settings that the jobs had first, and says of each figure whether it is predicted."""

import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from cli.commands import pgqueue
from spark.rollup_days import Job, at, job, new_lake, put
from spark.test_spark_report import Outline

from pgqueue.spark.lake.columns import WORKER_SCHEMA, WORKERS
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.course import Course
from pgqueue.spark.whatif.jobs import SECOND
from pgqueue.spark.whatif.page import checked, page
from pgqueue.spark.whatif.replay import Slots
from pgqueue.spark.whatif.settings import ReplaySettings, read_limit
from pgqueue.spark.whatif.today import gap_of
from pgqueue.spark.whatif.trust import (
    BETWEEN,
    FIGURES,
    TOO_SHORT,
    TOO_SHORT_TODAY,
    WAITED_LESS,
    WAITED_LONGER,
)
from pgqueue.spark.whatif.whatif import ReplayComparison, whatif

DAY = date(2026, 11, 20)
NOON = at("20 12:00:00")
ALL_DAY = (at("20 00:00:00"), at("21 00:00:00"))
Workers = Sequence[tuple[datetime, datetime | None, int, list[str] | None]]
"""Since when, until when, slots, queues."""


def seconds(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def ran(ready: float, started: float, lasted: float, **given: Any) -> Job:
    """A job, in seconds after noon."""
    return job(seconds(started + lasted), ran=lasted, waited=started - ready, **given)


def line(count: int, *, slots: int, lasts: float = 10.0, free: float = 0.0, start: float = 0.0) -> list[Job]:
    """Jobs that were all ready at noon and ran on so many slots in turn.

    Args:
        count: how many.
        slots: how many ran at once.
        lasts: for how long each ran, in seconds.
        free: how long a slot was free between two of them.
        start: how much later all of them were recorded.
    """
    return [ran(0, number // slots * (lasts + free) + start, lasts, id=number) for number in range(count)]


def lake_of(folder: Path, jobs: Sequence[Job], workers: Workers) -> Lake:
    lake = new_lake(Lake(folder / "lake"))
    put(lake, DAY, jobs)
    rows = [
        {"id": str(uuid4()), "started_at": since, "ended_at": until, "concurrency": slots, "host": "a", "version": "1"}
        | {"queues": None if queues is None else json.dumps(queues)}
        for since, until, slots, queues in workers
    ]  # fmt: skip
    if rows:
        lake.replace(WORKERS, pa.Table.from_pylist(rows, WORKER_SCHEMA))
    return lake


def one_worker(slots: int) -> Workers:
    return [(*ALL_DAY, slots, None)]


def asked(
    lake: Lake, *, limits: Sequence[str] = (), had: Sequence[str] = (), **given: Any
) -> ReplayComparison:
    settings = ReplaySettings(
        **({"workers": 1, "concurrency": 4} | given),
        limits=tuple(map(read_limit, limits)),
        had=tuple(map(read_limit, had)),
    )
    return whatif(lake, [DAY], settings)


def all_of(why: str) -> dict[str, str]:
    return dict.fromkeys(FIGURES, why)


def test_the_same_settings_are_replayed_first_and_the_error_is_told(tmp_path: Path) -> None:
    found = asked(lake_of(tmp_path, line(40, slots=2), one_worker(2)), concurrency=4)

    assert found.check is not None
    assert (found.check.workers, found.check.slots) == (1, 2)
    assert found.check.replayed == found.was
    assert found.check.off == dict.fromkeys(FIGURES, 0.0)
    assert found.doubts == {}
    assert (found.was.max, found.would_be.max) == (190, 90)
    first = next(checked(found))
    assert "The same settings replayed (at most 1 worker with 2 slots at once)" in first
    assert "recorded 90 s/3 min/3.2 min, replayed 90 s/3 min/3.2 min; off by p50 0%, p95 0%, p99 0%" in first


def test_the_error_is_that_of_the_recorded_figures(tmp_path: Path) -> None:
    jobs = [ran(0, 10 * (number // 2) * 1.1, 10, id=number) for number in range(40)]
    found = asked(lake_of(tmp_path, jobs, one_worker(2)))

    assert found.check is not None
    # A tenth of the slots' time was free between two jobs: that is measured, and replayed.
    assert found.check.gap == pytest.approx(1.0, abs=0.06)
    assert found.check.off["p99"] == pytest.approx(0, abs=0.02)


def test_a_lake_that_knows_no_worker_says_that_the_error_is_not_known(tmp_path: Path) -> None:
    found = asked(lake_of(tmp_path, line(40, slots=2), []), concurrency=4)
    assert (found.check, found.doubts) == (None, {})
    assert "how far these figures are off is not known" in "".join(checked(found))

    gone = [(at("19 00:00:00"), at("19 23:00:00"), 2, None)]
    assert asked(lake_of(tmp_path / "gone", line(40, slots=2), gone)).check is None
    elsewhere = [(*ALL_DAY, 2, ["pages", "!mail"])]
    assert asked(lake_of(tmp_path / "elsewhere", line(40, slots=2), elsewhere)).check is None


def test_workers_come_and_go_in_the_replay_of_their_time(tmp_path: Path) -> None:
    """One slot until 12:01, three until 12:02, then none until 12:10, and from then on a worker that is still alive."""
    workers: Workers = [
        (at("20 00:00:00"), seconds(120), 1, None),
        (seconds(60), seconds(120), 2, ["ma*"]),
        (seconds(60), seconds(600), 9, ["pages"]),
        (seconds(600), None, 1, None),
    ]
    starts = [*(10 * number for number in range(6)), *(60 + 10 * (number // 3) for number in range(18))]
    starts += [600 + 10 * number for number in range(4)]
    jobs = [ran(0, start, 10, id=number) for number, start in enumerate(starts)]
    found = asked(lake_of(tmp_path, jobs, workers))

    assert found.check is not None
    assert (found.check.slots, found.check.workers) == (3, 2)
    assert found.check.replayed == found.was
    assert found.doubts == {}


def test_what_waits_when_the_last_worker_goes_runs_on_its_slots(tmp_path: Path) -> None:
    """The row of a worker that came later is not in the lake yet."""
    found = asked(lake_of(tmp_path, line(40, slots=2), [(at("20 00:00:00"), seconds(50), 2, None)]))
    assert found.check is not None
    assert found.check.replayed == found.was


def test_a_queue_that_was_paused_for_an_hour_is_not_predicted(tmp_path: Path) -> None:
    jobs = [ran(number, 3_600 + number, 0.5, id=number) for number in range(100)]
    found = asked(lake_of(tmp_path, jobs, one_worker(4)), concurrency=1)

    assert found.doubts.keys() == {*FIGURES}
    assert {*found.doubts.values()} <= {TOO_SHORT, WAITED_LONGER}
    again = asked(lake_of(tmp_path / "more", [*jobs, *line(200, slots=1)], one_worker(1)), concurrency=1)
    assert again.check is not None


def test_a_limit_of_the_jobs_explains_their_waits_only_if_it_is_named(tmp_path: Path) -> None:
    jobs = line(40, slots=2) + [ran(0, 0, 10, id=100 + number, task="other") for number in range(2)]
    lake = lake_of(tmp_path, jobs, one_worker(20))

    assert asked(lake, concurrency=2).doubts["p95"] == WAITED_LONGER
    assert asked(lake, concurrency=2, limits=["task:send=2"]).doubts["p95"] == WAITED_LONGER
    kept = asked(lake, concurrency=40, had=["task:send=2"])
    assert (kept.doubts, kept.would_be) == ({}, kept.was)
    assert kept.settings[-1] == "limit task:send=2"
    wider = asked(lake, concurrency=40, had=["task:send=2"], limits=["task:send=4"])
    assert wider.settings[1:] == ["limit task:send=4"]
    assert (wider.doubts, wider.would_be.max) == ({}, 90)


def test_what_is_as_short_as_a_start_is_too_short_to_predict(tmp_path: Path) -> None:
    """Each job found a free slot, and waited 20 ms for its start and the record of its end."""
    calm = [ran(10 * number, 10 * number + 0.02, 1, id=number) for number in range(100)]
    found = asked(lake_of(tmp_path, calm, one_worker(4)))
    assert found.check is not None
    assert found.check.start is not None
    assert (found.check.start.p50, found.check.start.p99) == (0.02, 0.02)
    assert (found.would_be.p50, found.would_be.max) == (0.02, 0.02)
    assert found.doubts == all_of(TOO_SHORT)


def test_a_figure_is_checked_by_its_own(tmp_path: Path) -> None:
    """Half of the jobs waited for milliseconds, the others for a slot."""
    calm = [ran(10 * number, 10 * number + 0.02, 1, id=number) for number in range(60)]
    crowd = [ran(3_600, 3_600.02 + 10 * number, 10, id=100 + number) for number in range(40)]
    found = asked(lake_of(tmp_path, calm + crowd, one_worker(1)), concurrency=2)
    assert found.doubts == {"p50": TOO_SHORT}
    assert found.would_be.p99 == pytest.approx(190, abs=0.1)


def test_waits_that_are_too_short_to_check_the_replay_with_are_said_to_be(tmp_path: Path) -> None:
    """Ends were recorded late, now and then: the replay has no reason for it; on one slot they would wait for long."""
    jobs = [
        ran(100 * number // 8, 100 * number // 8 + (0.02 if number % 2 else 0.05), 20, id=number)
        for number in range(200)
    ]
    found = asked(lake_of(tmp_path, jobs, one_worker(3)), concurrency=1)
    assert found.check is not None
    assert {*found.doubts.values()} <= {TOO_SHORT_TODAY}


def test_jobs_that_waited_less_than_the_replay_explains_are_not_predicted(tmp_path: Path) -> None:
    found = asked(lake_of(tmp_path, line(40, slots=4), one_worker(1)), concurrency=2)
    assert found.doubts == all_of(WAITED_LESS)


def test_where_much_time_passed_between_jobs_nothing_is_predicted(tmp_path: Path) -> None:
    found = asked(lake_of(tmp_path, line(40, slots=2, free=1.5), one_worker(2)), concurrency=1)
    assert found.check is not None
    assert found.check.between == pytest.approx(0.13, abs=0.03)
    assert found.doubts == all_of(BETWEEN)
    assert found.check.off["p95"] == pytest.approx(0, abs=0.05)

    idle = asked(lake_of(tmp_path / "idle", line(40, slots=2, free=10), one_worker(2)), concurrency=1)
    assert idle.check is not None
    assert idle.check.gap == 0
    assert idle.doubts == all_of(WAITED_LONGER)


def test_slots_that_just_fill_up_say_nothing_about_what_passes_between_jobs() -> None:
    """Ten jobs on two slots, again and again: jobs wait for 0.8 s each time, and for 0.1 s of each 0.2 s a slot is free."""
    begins = np.repeat(np.arange(100) * 100 * SECOND, 10)
    starts = begins + np.tile(np.arange(10) // 2 * SECOND // 5, 100)
    was = Course(begins, starts, np.full(1_000, SECOND // 10))
    everyone = np.ones(1_000, np.bool_)
    assert gap_of(was, everyone, Slots.always(2)) == (0, None)
    longer = Course(begins * 20, begins * 20 + (starts - begins) * 20, was.lasts * 39)
    gap, share = gap_of(longer, everyone, Slots.always(2))
    assert gap == pytest.approx(0.1 * SECOND, rel=0.01)
    assert share == pytest.approx(0.025, rel=0.01)


def test_where_jobs_never_waited_long_the_time_of_a_start_stands_for_what_passes_between_jobs(
    tmp_path: Path,
) -> None:
    for start, doubted in ((0.05, False), (0.4, True)):
        calm = [ran(10 * number, 10 * number + start, 2, id=number) for number in range(100)]
        crowd = [ran(5_000, 5_000 + start, 2, id=1_000 + number) for number in range(300)]
        lake = lake_of(tmp_path / str(start), calm + crowd, one_worker(400))
        found = asked(lake, concurrency=10)
        assert found.check is not None
        assert found.check.between == pytest.approx(start / (start + 2))
        assert (found.doubts.get("p99") == BETWEEN) is doubted


def test_ends_that_are_recorded_together_do_not_seem_to_run_together(tmp_path: Path) -> None:
    """Three jobs of one slot, recorded at one instant."""
    jobs = [ran(number, 2, 1, id=number) for number in range(3)]
    assert asked(lake_of(tmp_path, jobs, one_worker(1))).load_was.running == 1


def test_a_worker_whose_clock_is_wrong_changes_nothing(tmp_path: Path) -> None:
    """A row that says a worker came after its jobs: they wait for it in the replay, and that is told."""
    found = asked(lake_of(tmp_path, line(40, slots=2), [(seconds(3_600), None, 2, None)]), concurrency=2)
    assert found.check is None or found.doubts == all_of(WAITED_LESS)
    overlapping = [(seconds(15), seconds(-15), 2, None), *one_worker(2)]
    assert asked(lake_of(tmp_path / "b", line(40, slots=2), overlapping)).check is not None


def test_retries_and_rescheduled_jobs_wait_from_their_last_time_on(tmp_path: Path) -> None:
    jobs = line(40, slots=2)
    jobs.append(ran(500, 500, 10, id=99, attempts=3, created_at=seconds(0)))
    found = asked(lake_of(tmp_path, jobs, one_worker(2)))
    assert found.check is not None
    assert found.check.replayed == found.was
    assert found.left_out.earlier_attempts == 2


def test_each_task_says_for_itself_what_is_predicted(tmp_path: Path) -> None:
    short = [ran(3_600 + number, 3_600 + number, 0.1, id=1_000 + number, task="ping") for number in range(60)]
    found = asked(lake_of(tmp_path, line(40, slots=2) + short, one_worker(2)))
    rows = {row.task: row for row in found.tasks}
    assert rows["send"].doubts == {}
    assert rows["send"].replayed == rows["send"].was
    assert rows["ping"].doubts == {}  # it never waits, and would not

    found = asked(lake_of(tmp_path / "b", [*line(40, slots=4)], one_worker(2)), concurrency=2)
    assert found.tasks[0].doubts.keys() == {*FIGURES}


def test_the_shell_the_page_and_json_say_what_is_not_predicted(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, line(40, slots=4), one_worker(2))
    call = (
        "pipeline",
        "whatif",
        "--lake",
        lake.uri,
        "--days",
        str(DAY),
        "--workers",
        "1",
        "--concurrency",
        "2",
    )
    told = pgqueue(*call, "--out", str(tmp_path / "page.html"))

    assert told.exit_code == 0, told.stderr
    assert f"p50 40 s → {WAITED_LESS}" in told.stdout
    assert f"p50, p95, p99: {WAITED_LESS}" in told.stdout
    assert "? in the table" in told.stdout
    assert "40 s → ?" in told.stdout
    outline = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"p50, p95, p99: {WAITED_LESS}" in outline.words
    told = pgqueue(*call, "--json")
    assert told.exit_code == 0
    found = json.loads(told.stdout)
    assert found["doubts"] == all_of(WAITED_LESS)
    assert found["check"]["slots"] == 2
    assert found["check"]["off"]["p50"] == pytest.approx(1.25, abs=0.1)

    given = pgqueue(*call, "--had-limit", "task:send=4", "--json")
    assert json.loads(given.stdout)["settings"][-1] == "limit task:send=4"
    twice = pgqueue(*call, "--had-limit", "task:send=4", "--had-limit", "task:send=5")
    assert twice.exit_code != 0
    assert "had-limit: 'task:send' is given twice" in twice.stderr


def test_a_page_of_an_unchecked_replay_says_so(tmp_path: Path) -> None:
    outline = Outline(page(asked(lake_of(tmp_path, line(4, slots=2), []))).decode())
    assert "how far these figures are off is not known" in outline.words


def test_the_times_of_starts_are_drawn_alike_each_time(tmp_path: Path) -> None:
    jobs = [ran(10 * number, 10 * number + 0.001 * (number % 7), 1, id=number) for number in range(100)]
    lake = lake_of(tmp_path, jobs, one_worker(4))
    assert asked(lake) == asked(lake)
    assert np.isfinite(asked(lake).would_be.max)
