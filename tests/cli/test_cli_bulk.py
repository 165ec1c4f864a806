"""The commands that act on many jobs: criteria, preview, question, progress, answer; and what is audited."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from looking import ask, wait_until

from pgqueue import PgQueue
from pgqueue.cli import bulk as bulk_command
from pgqueue.store.bulk import bulk
from pgqueue.values.bulk.operation import BulkResult

COMMAND = (sys.executable, "-m", "pgqueue")


@pytest.fixture
def jobs(queue: PgQueue) -> list[int]:
    """Five jobs: three of send in mail, one of them scheduled, and two of report in reports."""

    @queue.task(name="send", queue="mail")
    def send(customer_id: int) -> None: ...

    @queue.task(name="report", queue="reports")
    def report(day: str) -> None: ...

    found = [send.enqueue(7), send.enqueue(8), send.using(delay=60, priority=5).enqueue(9)]
    return [job.id for job in [*found, report.enqueue("1"), report.enqueue("2")]]


def left(queue: PgQueue) -> list[int]:
    """The jobs that were not cancelled."""
    return sorted(job.id for job in queue.insight.search().jobs if not job.state.ended)


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--queue", "mail"], [1, 2, 3]),
        (["--queue", "m*", "--state", "ready"], [1, 2]),
        (["--task", "re*"], [4, 5]),
        (["--args", '{"customer_id": 8}'], [2]),
        (["--min-priority", "1"], [3]),
        (["--max-priority", "0", "--state", "ready", "--state", "scheduled", "--queue", "mail"], [1, 2]),
        (["--enqueued-before", "2020-01-01T00:00:00Z"], []),
        (["--enqueued-after", "2020-01-01T00:00:00Z"], [1, 2, 3, 4, 5]),
        (["--error", "ValueError"], []),
        (["--message", "no"], []),
        (["--meta", '{"a": 1}'], []),
        (["--all"], [1, 2, 3, 4, 5]),
    ],
)
def test_a_cancel_by_criteria_ends_the_jobs_that_match(
    queue: PgQueue, jobs: list[int], dsn: str, words: list[str], gone: list[int]
) -> None:
    dry = printed(pgqueue("jobs", "cancel", *words, "--dry-run", "--json", dsn=dsn))
    assert dry["count"] == len(gone)
    assert left(queue) == jobs
    assert printed(pgqueue("jobs", "cancel", *words, "--yes", "--json", dsn=dsn))["done"] == len(gone)
    assert left(queue) == [one for one in jobs if one not in gone]


def test_a_preview_tells_how_many_by_queue_task_and_state_and_some_of_them(
    queue: PgQueue, jobs: list[int], dsn: str
) -> None:
    dry = pgqueue("jobs", "move", "--to", "slow", "--all", "--dry-run", dsn=dsn)
    assert dry.exit_code == 0
    lines = [line.split() for line in dry.stdout.splitlines()]
    assert lines[0] == ["this", "will", "move", "5", "waiting", "jobs", "to", "slow"]
    assert ["mail", "send", "ready", "2"] in lines
    assert ["reports", "report", "ready", "2"] in lines
    assert ["mail", "send", "scheduled", "1"] in lines
    assert 'such as 1: send {"customer_id":7}' in dry.stdout
    assert left(queue) == jobs
    assert queue.insight.audit() == []


def test_what_is_not_confirmed_is_not_done(queue: PgQueue, jobs: list[int], dsn: str) -> None:
    for answer, said in (("n\n", "Aborted!"), ("", "nobody answered. Give --yes")):
        asked = pgqueue("jobs", "cancel", "--state", "waiting", "--queue", "mail", dsn=dsn, answer=answer)
        assert asked.exit_code == 1
        assert said in asked.stderr
        assert "this will cancel 3 jobs" in asked.stderr
        assert "2 ready in mail: send" in asked.stderr
    assert left(queue) == jobs
    done = pgqueue("jobs", "cancel", "--state", "waiting", "--queue", "mail", dsn=dsn, answer="y\n")
    assert done.stdout == "3 cancelled: the live jobs of queue mail that are waiting\n"


def test_move_and_reprioritise_say_what_they_did(queue: PgQueue, jobs: list[int], dsn: str) -> None:
    moved = pgqueue("jobs", "move", "--to", "reports", "--args", '{"customer_id": 7}', "--yes", dsn=dsn)
    assert moved.stdout == '1 moved to reports: the waiting jobs whose arguments contain {"customer_id":7}\n'
    raised = pgqueue("jobs", "reprioritise", "--priority", "9", "--queue", "reports", "--yes", dsn=dsn)
    assert raised.stdout == "3 got priority 9: the waiting jobs of queue reports\n"
    assert [queue.job(one).priority for one in jobs] == [9, 0, 5, 9, 9]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancel"], "Say which jobs"),
        (["cancel", "--all", "--queue", "mail"], "give it without criteria"),
        (["cancel", "1", "--queue", "mail"], "not both: --queue"),
        (["cancel", "1", "--all"], "not both: --all"),
        (["cancel", "--state", "dead"], "'dead' is not one of"),
        (["reprioritise", "--priority", "1", "--state", "running"], "reprioritise leaves running jobs alone"),
        (["move", "--queue", "mail"], "Missing option '--to'"),
        (["move", "--queue", "mail", "--to", "mail"], "the jobs are in this queue"),
        (["move", "--queue", "mail", "--to", "two words"], "no white space"),
        (["reprioritise", "--queue", "mail", "--priority", "101"], "from -100 to 100"),
        (["cancel", "--min-priority", "5", "--max-priority", "4"], "no job is in these bounds"),
        (["cancel", "--enqueued-after", "yesterday"], "is no ISO 8601 time"),
        (["cancel", "--args", "7"], "is no JSON object"),
        (["cancel", "--queue", ""], "an empty text"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    queue: PgQueue, jobs: list[int], dsn: str, words: list[str], said: str
) -> None:
    refused = pgqueue("jobs", *words, "--yes", dsn=dsn)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert left(queue) == jobs
    assert queue.insight.audit() == []


@pytest.mark.usefixtures("jobs")
def test_a_queue_that_no_one_knows_is_hinted_at(dsn: str) -> None:
    done = pgqueue("jobs", "cancel", "--queue", "mial", "--yes", dsn=dsn)
    assert (done.exit_code, done.stdout) == (0, "0 cancelled: the live jobs of queue mial\n")
    assert "names the queue 'mial'; did you mean 'mail'?" in done.stderr


@pytest.mark.usefixtures("jobs")
def test_an_audit_lists_who_did_what_to_how_many(queue: PgQueue, dsn: str) -> None:
    queue.control.jobs(queue="mail").cancel(by="ann")
    queue.control.pause("reports", why="broken", by="bob")
    listed = printed(pgqueue("audit", "list", "--json", dsn=dsn))
    assert [(one["by"], one["action"], one["target"], one["jobs"]) for one in listed] == [
        ("bob", "pause", "reports", None),
        ("ann", "cancel", "mail", 3),
    ]
    assert listed[1]["details"] == {"filter": {"queue": "mail"}}
    shown = pgqueue("audit", "list", "--limit", "1", "--before", str(listed[0]["id"]), dsn=dsn).stdout
    assert re.search(r"ann +cancel +mail +3", shown)
    assert "pause" not in shown


def test_ctrl_c_says_how_to_continue_and_that_continues(
    queue: PgQueue, jobs: list[int], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    monkeypatch.setattr(bulk_command, "TELL_EVERY", 0.0)
    tell = bulk_command._ProgressLines.tell  # noqa: SLF001 - where the signal arrives

    def interrupt(self: Any, result: BulkResult) -> None:
        tell(self, result)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(bulk_command._ProgressLines, "tell", interrupt)  # noqa: SLF001 - the bar of a terminal
        stopped = pgqueue("jobs", "cancel", "--all", "--yes", dsn=dsn)
    assert stopped.exit_code == 1
    (operation,) = re.findall(r"to continue: pgqueue audit resume (\d+)", stopped.stderr)
    assert left(queue) == jobs[2:]
    assert "unfinished" in pgqueue("audit", "list", dsn=dsn).stdout
    assert pgqueue("audit", "resume", operation, dsn=dsn).stdout == f"5 done in all: operation {operation}\n"
    assert left(queue) == []
    again = pgqueue("audit", "resume", operation, dsn=dsn)
    assert (again.exit_code, "has ended" in again.stderr) == (2, True)


def test_an_operation_that_was_killed_continues_where_it_stopped(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    task = queue.task(name="send")(lambda: None)
    queue.enqueue_many(task.call() for _ in range(3_000))
    ask(
        dsn,
        "create function slow() returns trigger language plpgsql as $$ begin "
        "perform pg_advisory_xact_lock_shared(7); return new; end $$; "
        "create trigger slow before update on pgqueue.jobs for each row when (old.id > 1500) execute function slow()",
    )
    with queue.database.pooled() as held:
        held.execute("select pg_advisory_lock(7)")
        command = [*COMMAND, "jobs", "move", "--to", "slow", "--task", "send", "--yes"]
        env = {**os.environ, "PGQUEUE_DSN": dsn}
        with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.DEVNULL) as popen:  # noqa: S603
            wait_until(lambda: ask(dsn, "select 1 from pg_locks where locktype = 'advisory' and not granted"))
            popen.kill()
        held.execute("select pg_advisory_unlock(7)")
    assert popen.returncode == -signal.SIGKILL
    wait_until(
        lambda: (
            not ask(
                dsn,
                "select 1 from pg_stat_activity where query like 'update pgqueue.jobs%' and state = 'active'",
            )
        )
    )
    (entry,) = queue.insight.audit()
    ((moved,),) = ask(dsn, "select count(*) from pgqueue.jobs where queue = 'slow'")
    assert (entry.jobs, entry.unfinished) == (moved, True)
    assert 0 < moved < 3_000
    done = printed(pgqueue("audit", "resume", str(entry.id), "--json", dsn=dsn))
    assert done["done"] == 3_000
    assert ask(dsn, "select distinct queue from pgqueue.jobs") == [("slow",)]
    assert [(one.action, one.jobs) for one in queue.insight.audit()] == [("continue", None), ("move", 3_000)]


@pytest.mark.usefixtures("jobs")
def test_a_terminal_shows_the_preview_asks_and_draws_a_bar(dsn: str, tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    env = {**os.environ, "PGQUEUE_DSN": dsn, "TERM": "xterm"}
    command = [*COMMAND, "jobs", "cancel", "--queue", "mail"]
    popen = subprocess.Popen(command, env=env, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner)  # noqa: S603
    os.close(inner)
    shown = b""
    with popen:
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, b"y\n")
        try:
            while more := os.read(terminal, 4096):
                shown += more
        except OSError:
            pass  # the other end is closed
    os.close(terminal)
    assert popen.returncode == 0
    text = shown.decode()
    assert "this will cancel 3 jobs" in text
    assert re.search(r"\[#+\] +3/3", text)
    assert "3 cancelled: the live jobs of queue mail" in text
