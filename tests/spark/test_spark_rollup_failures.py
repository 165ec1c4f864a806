"""Why attempts failed: which of them are counted, and what makes two reasons one."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from spark.lake_history import no_session
from spark.rollup_days import Job, Rows, at, error, job, new_lake, put, rolled_up

from pgqueue.spark.config import Config
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup.attempts import UNREADABLE, attempts_of, reason_of
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.values.jobs.verdict import NOT_KEPT

FRI = date(2026, 11, 20)


def failures(folder: Path, jobs: Sequence[Job]) -> Rows:
    """The roll-up of these jobs of Friday."""
    lake = new_lake(Lake(folder / "lake"))
    put(lake, FRI, jobs)
    rollup(no_session, None, lake, Config())
    return rolled_up(lake, "failures")


def test_every_failed_attempt_has_a_reason_also_of_jobs_that_succeeded_later(tmp_path: Path) -> None:
    jobs = [
        job(
            at("20 10:10"),
            attempts=3,
            errors=[
                error(1, at("19 23:50"), "Timeout", "no answer from 10.0.0.1 after 30 s"),
                error(2, at("20 10:00"), "Timeout", "no answer from 10.0.0.2 after 31.5 s"),
            ],
        ),
        job(
            at("20 10:20"),
            outcome="dead",
            errors=[
                error(1, at("20 10:15"), "Timeout", "no answer from 10.0.0.3 after 30 s"),
                error(2, at("20 10:20"), "KeyError", "'id'"),
            ],
        ),
        job(  # the note on a result that is not kept is no failure; an attempt that failed with this error is one
            at("20 10:30"),
            attempts=2,
            errors=[
                error(1, at("20 10:25"), NOT_KEPT, "that of another job"),
                error(2, at("20 10:30"), NOT_KEPT, "too long"),
            ],
        ),
        job(
            at("20 10:30"), outcome="dead", errors=[error(1, at("20 10:30"), NOT_KEPT, "that of another job")]
        ),
        job(at("20 10:30"), errors=None),
        job(at("20 10:30"), errors=[]),
    ]
    found = failures(tmp_path, jobs)
    key = {"day": FRI, "hour": at("20 10:00"), "queue": "mail", "task": "send"}
    assert sorted(found, key=lambda row: str(row["error_type"])) == [
        key
        | {"error_type": "KeyError", "reason": "<text>", "failures": 1, "jobs": 1, "dead": 1}
        | {"first_at": at("20 10:20"), "last_at": at("20 10:20"), "sample": "'id'"},
        key
        | {
            "error_type": "Timeout",
            "reason": "no answer from <n> after <n> s",
            "failures": 3,
            "jobs": 2,
            "dead": 0,
        }
        | {"first_at": at("19 23:50"), "last_at": at("20 10:15")}
        | {"sample": "no answer from 10.0.0.1 after 30 s"},
        key
        | {"error_type": NOT_KEPT, "reason": "that of another job", "failures": 2, "jobs": 2, "dead": 1}
        | {"first_at": at("20 10:25"), "last_at": at("20 10:30"), "sample": "that of another job"},
    ]


def test_errors_in_no_form_of_ours_are_counted_and_break_nothing(tmp_path: Path) -> None:
    jobs = [
        job(at("20 10:10"), errors=said)
        for said in ("{", '"gone"', "null", "[null]", '[{"message": {"a": 1}, "attempt": "x", "at": "then"}]')
    ]
    found = failures(tmp_path, jobs)
    assert sorted((row["error_type"], row["reason"], row["failures"], row["sample"]) for row in found) == [
        ("", "{<text>:<n>}", 1, '{"a":1}'),
        ("unreadable", "<text>", 1, '"gone"'),
        ("unreadable", "{", 1, "{"),
    ]


def test_failures_of_an_earlier_death_are_left_to_the_day_that_tells_of_it(tmp_path: Path) -> None:
    def lives(died: datetime) -> Job:
        first = [error(1, at("18 10:00"), "First", "life"), error(2, died, "First", "life")]
        return job(at("20 10:00"), errors=[*first, error(1, at("20 09:00"), "Second", "life")])

    east = timezone(timedelta(hours=2))  # in which PostgreSQL may have written the times
    for died, counts in ((at("19 23:59:59"), {"Second": 1}), (at("20 00:00"), {"First": 2, "Second": 1})):
        found = failures(tmp_path / f"{died.day}", [lives(died.astimezone(east))])
        assert {row["error_type"]: row["failures"] for row in found} == counts


REASONS = {
    "worker 01890a5d-ac96-774b-bcce-b302099a8057 stopped": "worker <uuid> stopped",
    "No user jörg.meier+x@mail.example.com found": "No user <email> found",
    "can't open '/tmp/a b' or \"x\" or `y` or “z” or «w»": "can't open <text> or <text> or <text> or <text> or <text>",
    "Zoë's file, Ann's file": "Zoë's file, Ann's file",
    "no such file: /var/lib/x-1.txt, C:\\a\\b.txt or ~/c": "no such file: <path>, <path> or <path>",
    "and/or 5/6 ok": "and/or <n>/<n> ok",
    "GET https://example.com/a?b=1, then wss://x": "GET <url>, then <url>",
    "at 0xDEADbeef, commit 1a2b3c4d5e, facade deadbeef": "at <hex>, commit <hex>, facade deadbeef",
    "2026-11-20T10:00:00.123+01:00 and 2026-11-20 10:00 gone": "<time> and <time> gone",
    "10.0.0.1:5432 took 1,234.5 ms, shard12": "<n> took <n> ms, shard<n>",
    "  line 1\n\t line 2  ": "line <n> line <n>",
    "größe 7 für 日本 8": "größe <n> für 日本 <n>",
    "x" * 3_000: "x" * 200,
    "": "",
}


def test_messages_that_differ_in_names_and_numbers_have_one_reason() -> None:
    assert {message: reason_of(message) for message in REASONS} == REASONS


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ("", []),
        ("[", [(None, None, UNREADABLE, "[")]),
        ("[1]", [(None, None, UNREADABLE, "[1]")]),
        ('[{"attempt": NaN}]', [(None, None, UNREADABLE, '[{"attempt": NaN}]')]),
        ("[" * 100_000, [(None, None, UNREADABLE, "[" * 100_000)]),
        ('{"attempt": 1, "message": "alone"}', [(1, None, None, "alone")]),
        ('[{"attempt": true, "at": 5, "type": null}]', [(None, None, None, None)]),
        ('[{"attempt": 2147483648}]', [(None, None, None, None)]),
        ('[{"at": "0001-01-01T00:00:00+05:00"}]', [(None, None, None, None)]),
        ('[{"at": "2026-11-20T10:00:00"}]', [(None, at("20 10:00"), None, None)]),
        ('[{"message": "\\ud800!"}]', [(None, None, None, "?!")]),
        ('[{"message": [1.5, "é"]}]', [(None, None, None, '[1.5,"é"]')]),
    ],
)
def test_errors_of_any_form_are_read(errors: str, found: list[tuple[Any, ...]]) -> None:
    assert attempts_of(errors) == found
