"""``pgqueue jobs show ID --logs``: what it prints of the log of attempts, and how it follows a job that runs."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from looking import ask

from pgqueue import AttemptLog, JobState, LogLine, PgQueue
from pgqueue.cli import kept_logs
from pgqueue.cli.kept_logs import ShownLines

AT = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)


def note(queue: PgQueue, job_id: int, attempt: int, *lines: str, left_out: int = 0) -> None:
    said = [[AT.timestamp(), "INFO", "shop", line] for line in lines]
    ask(
        queue,
        "insert into pgqueue.notes (job_id, kind, name, value) values (%s, 'log', %s, %s) "
        "on conflict (job_id, kind, name) do update set value = excluded.value",
        job_id,
        str(attempt),
        json.dumps({"attempt": attempt, "left_out": left_out, "lines": said}),
    )


@pytest.fixture
def job(queue: PgQueue) -> int:
    @queue.task(name="sell")
    def sell() -> None: ...

    return sell.enqueue().id


def test_the_lines_of_each_attempt_follow_its_heading_without_control_codes(
    queue: PgQueue, job: int, dsn: str
) -> None:
    note(queue, job, 1, "first", left_out=1_200)
    note(queue, job, 2, "it\x1b[31m failed\nTraceback")
    shown = pgqueue("jobs", "show", str(job), "--logs", dsn=dsn).stdout.splitlines()
    clock = f"{AT.astimezone():%H:%M:%S}.678"
    assert shown == [
        "attempt 1",
        "(1,200 lines before these are not kept)",
        f"{clock} info shop first",
        "attempt 2",
        f"{clock} info shop it\\x1b[31m failed",
        "    Traceback",
    ]
    (first, _) = printed(pgqueue("jobs", "show", str(job), "--logs", "--json", dsn=dsn))
    assert (first["attempt"], first["left_out"], first["lines"][0]["text"]) == (1, 1_200, "first")


def test_without_lines_and_without_a_job_it_says_so(job: int, dsn: str) -> None:
    found = pgqueue("jobs", "show", str(job), "--logs", dsn=dsn)
    assert (found.exit_code, found.stdout) == (0, "")
    assert "KeepLogs" in found.stderr
    assert printed(pgqueue("jobs", "show", str(job), "--logs", "--json", dsn=dsn)) == []
    assert pgqueue("jobs", "show", "4711", "--logs", dsn=dsn).exit_code == 2
    for words in (
        ["--follow"],
        ["--logs", "--watch"],
        ["--logs", "--pytest"],
        ["--logs", "--follow", "--json"],
    ):
        assert pgqueue("jobs", "show", str(job), *words, dsn=dsn).exit_code == 2


def test_follow_prints_what_is_new_until_the_job_has_ended_and_its_last_lines_are_written(
    queue: PgQueue, job: int, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(queue, job, 1, "one")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if seconds == kept_logs.WRITTEN_WITHIN:
            note(queue, job, 1, "two", "three", "the last", left_out=1)
        elif len(waited) == 1:
            note(queue, job, 1, "one", "two")
        else:
            with queue.take(1) as (taken,):
                assert taken.id == job

    monkeypatch.setattr(kept_logs, "time", SimpleNamespace(sleep=wait))
    shown = pgqueue("jobs", "show", str(job), "--logs", "--follow", dsn=dsn).stdout.splitlines()
    assert [line.rpartition("shop ")[2] for line in shown] == ["attempt 1", "one", "two", "three", "the last"]
    assert queue.job(job).state is JobState.SUCCEEDED
    assert waited == [kept_logs.EVERY, kept_logs.EVERY, kept_logs.WRITTEN_WITHIN]


def log_of(*words: str, attempt: int = 1, left_out: int = 0) -> AttemptLog:
    return AttemptLog(attempt, AT, tuple(LogLine(AT, "INFO", "shop", word) for word in words), left_out)


def test_lines_that_went_between_two_looks_are_counted_and_an_attempt_that_runs_again_begins_again() -> None:
    shown = ShownLines()

    def news(one: AttemptLog) -> list[Any]:
        return [line.rpartition("shop ")[2] for line in shown.news(one)]

    assert news(log_of("a", "b")) == ["attempt 1", "a", "b"]
    assert news(log_of("a", "b")) == []
    assert news(log_of("d", left_out=3)) == ["(1 lines before these are not kept)", "d"]
    assert news(log_of("x")) == ["attempt 1", "x"]
    assert news(log_of("y", attempt=2)) == ["attempt 2", "y"]
