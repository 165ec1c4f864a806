"""What if: the lake's recorded jobs replayed under other settings, compared with what was and with a real worker."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import pgqueue
from looking import ask, until
from running import Running
from spark.lake_history import no_session
from spark.rollup_days import Job, at, job, new_lake, put
from spark.test_spark_report import Outline
from spark.whatif_worker import PLACES, Worked, add_jobs

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.jobs import EndedJobs, in_claim_order, move_jobs, read
from pgqueue.spark.whatif.page import page
from pgqueue.spark.whatif.settings import ReplayLimit, ReplaySettings, read_limit, read_move
from pgqueue.spark.whatif.whatif import ReplayComparison, replay_jobs, whatif
from pgqueue.values.queues.served_queues import parse_served

DAY = date(2026, 11, 20)
COUNT, SLOTS = 5_000, 8


def made(folder: Path, jobs: Sequence[Job], day: date = DAY) -> Lake:
    lake = new_lake(Lake(folder / "lake"))
    put(lake, day, jobs)
    return lake


def asked(
    lake: Lake, *, limits: Sequence[str] = (), moves: Sequence[str] = (), **given: Any
) -> ReplayComparison:
    settings = ReplaySettings(
        **({"workers": 1, "concurrency": 1} | given),
        limits=tuple(map(read_limit, limits)),
        moved=tuple(map(read_move, moves)),
    )
    return whatif(lake, [DAY], settings)


def minutes() -> list[Job]:
    """Six jobs that were ready and started each minute, and ran for 90 s."""
    return [job(at(f"20 10:{number:02}:00") + timedelta(seconds=90), ran=90.0) for number in range(6)]


def test_five_jobs_on_one_slot_start_at_these_instants(tmp_path: Path) -> None:
    begin = at("20 10:00:00")
    jobs = [
        job(begin + timedelta(seconds=ready + ran + 40), ran=ran, waited=40, id=number, priority=priority)
        for number, (ready, ran, priority) in enumerate(
            [(0, 10.0, 0), (1, 5.0, 0), (2, 1.0, 5), (12, 2.0, 0), (100, 1.0, 0)]
        )
    ]
    settings = ReplaySettings(workers=1, concurrency=1)
    recorded = in_claim_order(read(made(tmp_path, jobs), [DAY], settings))
    started = replay_jobs(recorded, settings).started
    seconds = (started - int(begin.timestamp() * 1e6)) / 1e6
    assert dict(zip(recorded.ids.tolist(), seconds.tolist(), strict=True)) == {
        0: 0,
        2: 10,
        1: 11,
        3: 16,
        4: 100,
    }


def test_waits_and_loads_are_shown_beside_what_was(tmp_path: Path) -> None:
    jobs = [job(at(f"20 10:00:{20 + number}"), ran=10.0, waited=number, task="a") for number in range(4)]
    found = asked(made(tmp_path, jobs), late=timedelta(seconds=15))

    assert (found.was.p50, found.was.max, found.was.late) == (1, 3, 0)
    assert (found.would_be.p50, found.would_be.p95, found.would_be.max, found.would_be.late) == (
        10,
        30,
        30,
        0.5,
    )
    assert (found.load_was.running, found.load_would_be.running) == (4, 1)
    assert (found.load_was.backlog, found.load_would_be.backlog) == (3, 3)
    assert found.load_would_be.last_end == at("20 10:00:50")
    assert found.busy == 1
    (row,) = found.tasks
    assert (row.queue, row.task, row.jobs, row.was, row.would_be) == (
        "mail",
        "a",
        4,
        found.was,
        found.would_be,
    )


def test_the_course_of_time_adds_up(tmp_path: Path) -> None:
    lake = made(tmp_path, minutes())
    found = asked(lake)

    assert found.seconds_a_point == 1
    for points, worst in ((found.points_was, 0), (found.points_would_be, found.load_would_be.backlog)):
        assert sum(one.running for one in points) == pytest.approx(6 * 90)
        assert max(one.backlog for one in points) == worst
    known = [one for one in found.points_would_be if one.p95 is not None]
    assert [one.p95 for one in known] == [0, 30, 60, 90, 120, 150]
    assert known[0].at == at("20 10:00:00")


def test_a_limit_holds_jobs_of_a_value_back_and_no_others(tmp_path: Path) -> None:
    ended = at("20 10:00:10")
    jobs = [
        job(ended, ran=10.0, task=task, args={"customer": customer})
        for task, customer in (("a", 1), ("a", 1), ("a", "1"), ("b", 1), ("b", 2))
    ] + [job(ended, ran=10.0, task="c")]
    lake = made(tmp_path, jobs)

    late = timedelta(seconds=1)

    def held(*limits: str) -> tuple[int, float]:
        found = asked(lake, concurrency=6, limits=limits, late=late)
        return round(found.would_be.late * 6), found.would_be.max

    assert held() == (0, 0)
    assert held("customer=1") == (2, 20)  # of customer 1 there are three, of any task; "1" is another value
    assert held("task:a:customer=1") == (1, 10)
    assert held("task:a=1") == (2, 20)
    assert held("queue:mail=2") == (4, 20)
    assert held("task:a=2", "customer=1") == (2, 20)


def test_a_schedule_deals_the_jobs_of_a_day_out_to_its_ticks(tmp_path: Path) -> None:
    jobs = [job(at("20 03:00:10"), ran=10.0, id=number, task="report") for number in range(4)]
    jobs.append(job(at("20 03:00:10"), ran=10.0, task="other"))
    found = asked(made(tmp_path, jobs), moves=["report=0 1-2 * * *"])

    report, other = found.tasks
    assert (report.task, report.would_be.max, report.would_be.p50) == ("report", 10, 0)
    assert (other.task, other.would_be.max) == ("other", 0)
    ready = [one.at.hour for one in found.points_would_be if one.p95 is not None]
    assert ready == [1, 2, 3]


def test_a_schedule_keeps_the_order_the_number_of_a_day_and_jobs_of_earlier_days(tmp_path: Path) -> None:
    lake = made(tmp_path, [job(at(f"20 03:00:{10 + number}"), ran=1.0, id=number) for number in range(4)])
    put(
        lake,
        date(2026, 11, 21),
        [job(at("21 03:00:10"), ran=1.0, id=4), job(at("21 00:00:10"), ran=20.0, id=5)],
    )
    days, settings = [DAY, date(2026, 11, 21)], ReplaySettings(workers=1)
    one_day = move_jobs(read(lake, days[1:], settings), days[1:], [read_move("send=0 1-2 * * *")])
    both = move_jobs(read(lake, days, settings), days, [read_move("send=0 1-2 * * *")])

    def hours(jobs: EndedJobs) -> dict[int, tuple[int, int]]:
        instants = [datetime.fromtimestamp(at / 1e6, UTC) for at in jobs.ready.tolist()]
        return {one: (when.day, when.hour) for one, when in zip(jobs.ids.tolist(), instants, strict=True)}

    assert hours(both) == {0: (20, 1), 1: (20, 1), 2: (20, 1), 3: (20, 2), 4: (21, 1), 5: (20, 2)}
    assert hours(one_day) == {4: (21, 1), 5: (20, 23)}


def test_jobs_that_cannot_be_replayed_are_counted(tmp_path: Path) -> None:
    ended = at("20 10:00:10")
    jobs = [
        job(ended),
        job(ended, ran=None, outcome="cancelled"),
        job(ended, attempts=3),
        job(ended, queue="pages"),
    ]
    found = asked(made(tmp_path, jobs), serving=parse_served(["mail"]))

    assert found.jobs == 2
    left = found.left_out
    assert (left.never_started, left.not_served, left.earlier_attempts) == (1, 1, 2)


def test_a_job_that_was_enqueued_after_its_time_is_ready_when_it_was_enqueued(tmp_path: Path) -> None:
    ended = at("20 10:00:10")
    late = job(ended, ran=1.0, waited=3_600.0, created_at=at("20 10:00:05"))
    found = asked(made(tmp_path, [late]))

    assert (found.was.max, found.would_be.max) == (4, 0)


def test_a_clock_that_was_set_back_makes_no_time_negative(tmp_path: Path) -> None:
    ended = at("20 10:00:10")
    found = asked(made(tmp_path, [job(ended, ran=1.0, waited=-5.0), job(ended, ran=-5.0)]))

    assert (found.was.max, found.would_be.max) == (0, 0)
    assert found.load_would_be.mean_running > 0


def test_a_backlog_that_would_last_for_thousands_of_years_is_refused(tmp_path: Path) -> None:
    jobs = [job(at("20 10:00:10"), ran=800 * 365 * 86_400.0) for _ in range(1_000)]
    lake = made(tmp_path, jobs)
    assert asked(lake, concurrency=1_000).would_be.max == 0
    with pytest.raises(InvalidOption, match="until after the year 8999: give more workers"):
        asked(lake)


def test_arguments_that_are_no_json_or_were_not_kept_are_under_no_limit(tmp_path: Path) -> None:
    ended = at("20 10:00:10")
    odd = [
        job(ended, ran=1.0) | {"args": text}
        for text in ('{"customer": "\\ud83c"}', '{"$not_kept": 9000}', "[1]")
    ]
    found = asked(
        made(tmp_path, [*odd, job(ended, ran=1.0, args={"customer": None})]),
        concurrency=9,
        limits=["customer=1"],
    )
    assert found.would_be.max == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"limits": ["customer=1"]}, "limit customer=1: no job of these days has this argument"),
        ({"limits": ["task:sent=1"]}, "no job of these days has the task 'sent'; did you mean 'send'"),
        ({"limits": ["queue:pages=1"]}, "no job of these days has the queue 'pages'"),
        ({"limits": ["n=1", "n=2"]}, "limit: 'n' is given twice"),
        ({"limits": ["n=0"]}, "use a whole number from 1"),
        ({"limits": ["n"]}, "write what is limited and a number"),
        ({"limits": ["=5"]}, "write what is limited and a number"),
        ({"limits": ["task:=5"]}, "write what is limited and a number"),
        ({"moves": ["sent=0 1 * * *"]}, "no job of these days has the task 'sent'"),
        ({"moves": ["send=0 25 * * *"]}, "the hour is '25'"),
        ({"moves": ["0 1 * * *"]}, "write a task and a cron expression"),
        (
            {"moves": ["send=0 1 * * MON"]},
            "there is no tick on 2026-11-20, on which 1 of its jobs were ready",
        ),
        ({"workers": 0}, "workers=0: use a whole number from 1"),
        ({"workers": 10_000, "concurrency": 1_000}, "workers times concurrency=10000000"),
        ({"serving": parse_served(["pages"])}, "no job of these days is of pages; the queues are mail"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    lake = made(tmp_path, [job(at("20 10:00:10"), args={"n": 1})])
    with pytest.raises(InvalidOption) as error:
        asked(lake, **given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_day_that_the_lake_does_not_have_is_refused(tmp_path: Path) -> None:
    lake = made(tmp_path, [job(at("20 10:00:10"), ran=None)])
    settings = ReplaySettings(workers=1)
    with pytest.raises(
        InvalidOption, match="2026-11-21 is not in the lake, which has 2026-11-20 to 2026-11-20"
    ):
        whatif(lake, [DAY, date(2026, 11, 21)], settings)
    with pytest.raises(InvalidOption, match="no job that was started ended on 2026-11-20"):
        whatif(lake, [DAY], settings)
    with pytest.raises(InvalidOption, match="2026-11-19 is not in the lake"):
        whatif(lake, [date(2026, 11, 19), DAY], settings)
    with pytest.raises(InvalidOption, match="has no days yet"):
        whatif(new_lake(Lake(tmp_path / "empty")), [DAY], settings)
    with pytest.raises(LakeError, match="is no lake"):
        whatif(Lake(tmp_path / "nothing"), [DAY], settings)


def test_days_between_on_which_no_job_ended_are_part_of_a_replay(tmp_path: Path) -> None:
    lake = made(tmp_path, [job(at("20 10:00:10"))])
    put(lake, date(2026, 11, 22), [job(at("22 10:00:10"))])
    days = [DAY, date(2026, 11, 21), date(2026, 11, 22)]
    assert whatif(lake, days, ReplaySettings(workers=1)).jobs == 2


def test_the_settings_are_shown_as_they_were_given() -> None:
    settings = ReplaySettings(
        workers=2,
        concurrency=1,
        serving=parse_served({"mail": 3, "pages": 1}),
        limits=(read_limit("task:send:customer=2"),),
        moved=(read_move("send=0 1 * * *"),),
    )
    assert settings.said == [
        "2 workers with 1 slot each",
        "queues mail:3, pages",
        "limit task:send:customer=2",
        "schedule send=0 1 * * *",
    ]


def test_the_command_prints_a_table_and_json_and_writes_a_page(tmp_path: Path) -> None:
    lake = made(tmp_path, minutes())
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
        "1",
    )
    told = pgqueue(*call, "--out", str(tmp_path / "page.html"))

    assert told.exit_code == 0, told.stderr
    assert "6 jobs of 2026-11-20; 1 worker with 1 slot each." in told.stdout
    assert "p50 0 s → 60 s" in told.stdout
    assert "mail" in told.stdout
    outline = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert len(outline.named("svg")) == 3
    assert json.loads(pgqueue(*call, "--json").stdout)["would_be"]["max"] == 150

    refused = pgqueue(*call, "--limit", "customer_id=5")
    assert refused.exit_code != 0
    assert "limit customer_id=5: no job of these days has this argument" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_page_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    call = ("pipeline", "whatif", "--lake", str(tmp_path / "none"), "--days", str(DAY), "--workers", "1")
    refused = pgqueue(*call, "--out", str(tmp_path))
    assert refused.exit_code != 0
    assert "is a folder: name the page's file in it" in refused.stderr


def test_names_are_text_on_the_page_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    lake = made(tmp_path, [job(at("20 10:00:10"), task=evil, args={evil: 1})])
    outline = Outline(page(asked(lake, limits=[f"{evil}=1", f"task:{evil}=2"])).decode())
    assert outline.named("script") == []
    assert evil in outline.words
    assert not [
        tag
        for tag, attributes in outline.tags
        if "src" in attributes or ("href" in attributes and tag == "link")
    ]


async def worked(queue: PgQueue, running: Running, lake: Lake) -> Worked:
    """Have a real worker run jobs that wait already, and export them."""
    seen = add_jobs(queue, COUNT)
    dsn = queue.database.dsn
    async with running(queue, concurrency=SLOTS):
        await until(lambda: len(seen.started) == COUNT and not ask(dsn, "select 1 from pgqueue.jobs limit 1"))
    export(no_session, queue.database, lake, options=ExportOptions(now=datetime.now(UTC) + timedelta(days=2)))
    return seen


def by_line(ids: Sequence[int], jobs: EndedJobs, key: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """Jobs in the order given, apart by the lines in which they wait: a task's, or a lane."""
    place = {one: number for number, one in enumerate(jobs.ids.tolist())}
    lines: dict[tuple[int, int], list[int]] = {}
    for one in ids:
        lines.setdefault((int(jobs.task[place[one]]), int(key[place[one]])), []).append(one)
    return lines


async def test_a_replay_starts_jobs_as_a_real_worker_did(
    queue: PgQueue, running: Running, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    seen = await worked(queue, running, lake)
    settings = ReplaySettings(
        workers=1, concurrency=SLOTS, limits=(ReplayLimit("task:sync:customer", PLACES),)
    )
    jobs = in_claim_order(read(lake, [one.day for one in lake.days()], settings))
    course = replay_jobs(jobs, settings)
    replay = jobs.ids[np.argsort(course.started, kind="stable")].tolist()

    assert sorted(replay) == sorted(seen.started)
    assert seen.most == PLACES
    (keys,) = jobs.keys
    lines = by_line(replay, jobs, keys.tolist())
    assert len(lines) == 2 + 4
    assert lines == by_line(seen.started, jobs, keys.tolist())

    places = {one: number for number, one in enumerate(seen.started)}
    off = np.abs([places[one] - number for number, one in enumerate(replay)])
    # It is 8 to 20 here, 560 without the limit, and 1,200 without claims ahead.
    assert off.mean() < COUNT * 0.03

    work = int(course.lasts.sum())
    length = int(course.ended.max() - course.started.min())
    recorded = int(jobs.ended.max() - jobs.started.min())
    assert work / SLOTS <= length <= 1.1 * recorded
    # The replay knows no time between an end and the next start: nothing is later in it.
    shares = np.arange(1, 11) / 10
    would_be, was = (np.quantile(one - jobs.ready, shares) for one in (course.started, jobs.started))
    assert (would_be <= 1.1 * was).all()
