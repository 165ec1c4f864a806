"""``pgqueue schedules``, from adding a schedule to removing it."""

from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import pgqueue, printed
from click.testing import Result
from looking import ask

from pgqueue import JobState, PgQueue

pytestmark = pytest.mark.usefixtures("shop")
NIGHTLY = (
    "nightly",
    "shop.send",
    "--args",
    '{"order_id": 7}',
    "--cron",
    "30 1 * * *",
    "--timezone",
    "Europe/London",
)


def schedules(dsn: str, *words: str) -> Result:
    return pgqueue("--app", "shop:queue", "schedules", *words, dsn=dsn)


def test_a_schedule_is_added_listed_and_shown(dsn: str) -> None:
    added = schedules(
        dsn, "add", *NIGHTLY, "--priority", "5", "--overlap", "skip", "--start", "2030-01-01T00:00:00Z"
    )
    assert (added.exit_code, added.stdout) == (0, "nightly: added\n")
    assert "30 1 * * * Europe/London" in schedules(dsn, "list").stdout
    (listed,) = printed(schedules(dsn, "list", "--json"))
    assert (listed["args"], listed["priority"], listed["next"]) == (
        {"order_id": 7},
        5,
        "2030-01-01T01:30:00Z",
    )
    shown = printed(schedules(dsn, "show", "nightly", "--json"))
    assert (shown["overlap"], shown["queue"], shown["runs"]) == ("skip", "mail", [])
    assert "Europe/London" in schedules(dsn, "show", "nightly").stdout


def test_a_name_that_is_taken_is_refused_and_replaced_when_asked(dsn: str) -> None:
    schedules(dsn, "add", *NIGHTLY)
    again = schedules(dsn, "add", *NIGHTLY)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert schedules(dsn, "add", *NIGHTLY, "--replace").stdout == "nightly: unchanged\n"
    assert schedules(dsn, "add", *NIGHTLY, "--priority", "9", "--replace").stdout == "nightly: changed\n"


def test_the_audit_says_who_added_and_changed_a_schedule(dsn: str, queue: PgQueue) -> None:
    schedules(dsn, "add", *NIGHTLY, "--by", "ann")
    schedules(dsn, "add", *NIGHTLY, "--by", "bob")
    schedules(dsn, "add", *NIGHTLY, "--replace", "--by", "cid")
    schedules(dsn, "add", *NIGHTLY, "--priority", "9", "--replace")
    changed, added = queue.insight.audit()
    said = {"task": "shop.send", "queue": "mail", "rule": "30 1 * * * Europe/London"}
    assert (added.by, added.action, added.target, added.details) == ("ann", "schedule add", "nightly", said)
    assert (changed.action, "@" in (changed.by or "")) == ("schedule put", True)


def test_next_shows_what_a_clock_change_does(dsn: str) -> None:
    schedules(dsn, "add", *NIGHTLY, "--start", "2032-03-27T12:00:00Z")
    _, first, second = schedules(dsn, "next", "nightly", "--count", "2").stdout.splitlines()
    assert first.split()[:2] == ["2032-03-28", "01:00:00"]
    assert first.split()[2:5] == ["Sun", "2032-03-28", "02:00:00"]
    assert first.rstrip().endswith("+0100  shifted: this time does not exist")
    assert second.startswith("2032-03-29 00:30:00")
    ticks = printed(schedules(dsn, "next", "nightly", "--count", "1", "--json"))
    assert ticks == [
        {"at": "2032-03-28T01:00:00Z", "runs": True, "note": "shifted: this time does not exist"}
    ]


def test_pause_resume_fire_and_remove(dsn: str, queue: PgQueue) -> None:
    schedules(dsn, "add", *NIGHTLY)
    assert schedules(dsn, "pause", "nightly", "--by", "ann").stdout == "nightly: paused\n"
    assert schedules(dsn, "pause", "nightly").stdout == "nightly: was paused already\n"
    assert queue.schedules.get("nightly").paused_by == "ann"
    assert schedules(dsn, "fire", "nightly", "--by", "bob").stdout == "nightly: job 1 added\n"
    assert queue.job(1).state is JobState.READY
    assert schedules(dsn, "resume", "nightly", "--by", "cid").stdout == "nightly: resumed\n"
    assert schedules(dsn, "resume", "nightly").stdout == "nightly: was not paused\n"
    assert schedules(dsn, "remove", "nightly", "--by", "dan").stdout == "nightly: removed\n"
    assert [(one.by, one.action) for one in reversed(queue.insight.audit(limit=4))] == [
        ("ann", "schedule pause"),
        ("bob", "schedule fire"),
        ("cid", "schedule resume"),
        ("dan", "schedule remove"),
    ]
    gone = schedules(dsn, "show", "nightly")
    assert (gone.exit_code, "there is no schedule 'nightly'" in gone.stderr) == (2, True)


def test_pausing_says_by_default_who_did_it(dsn: str, queue: PgQueue) -> None:
    schedules(dsn, "add", *NIGHTLY)
    schedules(dsn, "pause", "nightly")
    assert "@" in (queue.schedules.get("nightly").paused_by or "")


def test_backfill_fires_the_past_once(dsn: str, queue: PgQueue) -> None:
    schedules(dsn, "add", *NIGHTLY)
    week = ("2026-05-01T00:00:00Z", "2026-05-08T00:00:00Z")
    assert schedules(dsn, "backfill", "nightly", *week).stdout == "nightly: 7 ticks\n"
    assert schedules(dsn, "backfill", "nightly", *week).stdout == "nightly: 0 ticks: all have fired already\n"
    assert queue.schedules.runs("nightly")[-1].at == datetime(2026, 5, 1, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "stretch", "words"),
    [
        (
            ["--start", "2027-01-01T00:00:00Z"],
            ("2026-05-01", "2026-05-08"),
            "its first tick is not before its start, ",
        ),
        ([], ("2026-05-01", "2026-05-01"), "it has no tick in this time"),
    ],
    ids=["before", "between"],
)
def test_a_backfill_that_fires_nothing_says_why(
    dsn: str, options: list[str], stretch: tuple[str, str], words: str
) -> None:
    schedules(dsn, "add", *NIGHTLY, *options)
    said = schedules(dsn, "backfill", "nightly", *(f"{day}T06:00:00Z" for day in stretch)).stdout
    assert said.startswith(f"nightly: 0 ticks: {words}")


def test_the_tolerance_of_a_schedule_is_set(dsn: str, queue: PgQueue) -> None:
    schedules(dsn, "add", *NIGHTLY, "--tolerance", "5m")
    timing = queue.schedules.get("nightly").timing
    assert timing is not None
    assert timing.tolerance == timedelta(minutes=5)


def test_a_schedule_that_is_set_aside_is_said_without_control_codes(dsn: str) -> None:
    schedules(dsn, "add", *NIGHTLY)
    ask(dsn, "update pgqueue.schedules set error = E'no\\x1b parse'")
    assert "nightly: set aside: no\\x1b parse" in schedules(dsn, "list").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--cron", "0 0 31 2 *"), "cron='0 0 31 2 *'"),
        (("--cron", "@daily", "--timezone", "Mars/Base"), "there is no such time zone"),
        (("--cron", "@daily", "--every", "5m"), "give exactly one of the three"),
        (("--at", "2001-01-01T00:00:00Z"), "has no tick after"),
        (("--args", '{"order": 7}', "--cron", "@daily"), "order"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(dsn: str, words: tuple[str, ...], says: str) -> None:
    given = words if "--args" in words else (*words, "--args", '{"order_id": 7}')
    result = schedules(dsn, "add", "x", "shop.send", *given)
    assert result.exit_code == 2
    assert says in result.stderr


def test_no_schedules_are_said(dsn: str) -> None:
    assert schedules(dsn, "list").stderr == "no schedules\n"
