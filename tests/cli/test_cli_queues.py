import re
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cli.commands import cells, pgqueue, printed
from looking import ask

from pgqueue import PgQueue
from pgqueue.cli import queues
from pgqueue.store.workers.leases import WorkerInfo, register
from pgqueue.values.queues.standing import QueueStanding


@pytest.fixture
def lines(queue: PgQueue) -> PgQueue:
    """A queue with two ready jobs and a scheduled one in default, a dead one in mail; mail and empty are paused."""
    sell = queue.task(name="sell", max_attempts=1)(lambda: None)
    sell.using(queue="mail").enqueue()
    with queue.take(1, queues=["mail"]) as (job,):
        job.fail("no stock")
    queue.enqueue_many([sell.call(), sell.call(), sell.using(delay=timedelta(hours=1)).call()])
    queue.control.pause("mail")
    queue.control.pause("empty")
    return queue


@pytest.mark.usefixtures("lines")
def test_list_counts_the_jobs_of_each_queue(dsn: str) -> None:
    default, empty, mail = cells(pgqueue("queues", "list", dsn=dsn))
    assert default[:6] == ["default", "2", "0", "1", "0", "0"]
    assert default[-1] in {"ms", "s"}  # how long its oldest ready job has waited
    assert empty == ["empty", "paused", "0", "0", "0", "0", "0"]
    assert mail == ["mail", "paused", "0", "0", "0", "0", "1"]


def test_each_number_of_a_sample_is_marked_as_one(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        queues, "_standings", lambda _: [QueueStanding(queue="mail", ready=7, estimated=("ready", "blocked"))]
    )
    listed = pgqueue("queues", "list", dsn=dsn)
    assert cells(listed)[0] == ["mail", "~7", "0", "0", "~0", "0"]
    assert "~: about, from a sample" in listed.stdout


@pytest.mark.usefixtures("lines")
def test_list_shows_the_queues_that_are_named(dsn: str) -> None:
    listed = cells(pgqueue("queues", "list", "m*", "empty", "none", dsn=dsn))
    assert [row[0] for row in listed] == ["empty", "mail"]
    found = printed(pgqueue("queues", "list", "m*", "--json", dsn=dsn))
    assert [one["queue"] for one in found] == ["mail"]


@pytest.mark.usefixtures("lines")
def test_a_long_list_says_how_many_queues_it_does_not_show(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_SHOWN", 1)
    shown = pgqueue("queues", "list", dsn=dsn).stdout
    assert "default" in shown
    assert "empty" not in shown
    assert "and 2 more queues: name some" in shown


def test_list_names_workers_with_a_blocked_event_loop(dsn: str) -> None:
    ask(
        dsn,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, blocked_since, blocked_task, "
        "blocked_where) values (gen_random_uuid(), now() + interval '1 h', 'box', 42, 1, '0', now() - interval '5 min', "
        "E'my\\x1bown', 'jobs.py:3 in f')",
    )
    listed = pgqueue("queues", "list", dsn=dsn).stdout
    assert (
        "worker box:42: its event loop has been blocked for 5 min by asyncio task my\\x1bown at jobs.py:3 in f"
        in listed
    )


def test_a_long_name_stays_whole_in_a_pipe(dsn: str) -> None:
    name = "tenant" * 33
    PgQueue(dsn).control.pause(name)
    assert cells(pgqueue("queues", "list", dsn=dsn))[0][0] == name
    assert printed(pgqueue("queues", "list", "--json", dsn=dsn))[0]["queue"] == name


def test_control_codes_of_names_do_not_reach_the_terminal(dsn: str) -> None:
    ask(
        dsn,
        "with added as (insert into pgqueue.jobs (queue, task) values (E'a\\x1b[2J', E'b\\x1b[2J') returning queue, task) "
        "insert into pgqueue.unknown_tasks select queue, task, now(), now() from added",
    )
    listed = pgqueue("queues", "list", dsn=dsn).stdout
    assert "a\\x1b[2J: no live worker runs the task of 1 of these jobs" in listed
    assert "\x1b" not in listed


@pytest.mark.usefixtures("lines")
def test_list_as_json_is_one_array(dsn: str) -> None:
    default, empty, mail = printed(pgqueue("queues", "list", "--json", dsn=dsn))
    none = {
        "ready": 0,
        "running": 0,
        "scheduled": 0,
        "blocked": 0,
        "dead": 0,
        "rate": 0.0,
        "estimated": [],
    }
    unknown: dict[str, Any] = {
        "unknown": 0,
        "unknown_tasks": [],
        "unknown_since": None,
        "oldest_ready": None,
        **dict.fromkeys(("paused_at", "paused_by", "paused_why", "closed_at", "closed_by", "closed_why")),
        "settings": dict.fromkeys(
            (
                "priority",
                "max_attempts",
                "timeout",
                "keep_history",
                "keep_dead",
                "backlog",
                "when_full",
                "ageing",
                "ageing_to",
            )
        ),
    }
    assert 0 <= default.pop("oldest_ready") < 120
    assert default | {"oldest_ready": None} == none | unknown | {
        "queue": "default",
        "ready": 2,
        "scheduled": 1,
    }
    assert None not in {one.pop(key) for one in (empty, mail) for key in ("paused_at", "paused_by")}
    empty, mail = ({**one, "paused_by": None} for one in (empty, mail))
    assert empty | {"paused_at": None} == none | unknown | {"queue": "empty"}
    assert mail | {"paused_at": None} == none | unknown | {"queue": "mail", "dead": 1}


@pytest.mark.usefixtures("lines")
def test_list_names_the_tasks_that_no_worker_knows(dsn: str) -> None:
    since = "2031-05-04 12:00:00+00"
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into pgqueue.unknown_tasks select queue, task, %s, now() from pgqueue.jobs where queue = 'default' limit 1",
            [since],
        )

    words = pgqueue("queues", "list", dsn=dsn).stdout.splitlines()[-1]
    assert words == (
        "default: no live worker runs the task of 2 of these jobs, since 2031-05-04 12:00:00 UTC: sell"
    )
    default, *_ = printed(pgqueue("queues", "list", "--json", dsn=dsn))
    assert (default["unknown"], default["unknown_tasks"]) == (2, ["sell"])
    assert default["unknown_since"].startswith("2031-05-04T12:00:00")


def test_list_shows_the_queues_that_the_app_declares(dsn: str, shop: Path) -> None:
    assert shop.exists()
    listed = printed(pgqueue("--app", "shop:declared", "queues", "list", "--json", dsn=dsn))
    assert [one["queue"] for one in listed] == ["default", "mail"]


def test_no_queues_is_an_empty_array(dsn: str) -> None:
    assert printed(pgqueue("queues", "list", "--json", dsn=dsn)) == []
    assert pgqueue("queues", "list", dsn=dsn).stderr == "no queues\n"


def test_pause_and_resume_name_each_queue(queue: PgQueue, dsn: str) -> None:
    paused = pgqueue("queues", "pause", "mail", "slow", dsn=dsn)
    assert (paused.exit_code, paused.stdout) == (0, "mail: paused\nslow: paused\n")
    assert queue.insight.counts()[1] == ["mail", "slow"]
    resumed = pgqueue("queues", "resume", "mail", "other", dsn=dsn)
    assert (resumed.exit_code, resumed.stdout) == (0, "mail: resumed\nother: was neither paused nor closed\n")
    assert queue.insight.counts()[1] == ["slow"]


def test_pause_says_that_nothing_knows_a_queue(lines: PgQueue, dsn: str, shop: Path) -> None:
    assert shop.exists()
    worker = WorkerInfo(uuid4(), "here", 1, 1, "0", ["reports"])
    lines.database.run(register(worker, timedelta(minutes=1)))
    result = pgqueue("queues", "pause", "default", "empty", "reports", "defualt", dsn=dsn)
    assert result.exit_code == 0
    (note,) = result.stderr.splitlines()
    assert note.startswith(
        "note: no job, no worker's --queues and no task of the app names the queue 'defualt'"
    )
    assert note.endswith("; did you mean 'default'?")
    assert lines.insight.counts()[1] == ["default", "defualt", "empty", "mail", "reports"]
    assert pgqueue("--app", "shop:queue", "queues", "pause", "mail", dsn=dsn).stderr == ""


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_queue_that_the_app_does_not_declare_is_refused(
    verb: str, dsn: str, shop: Path, queue: PgQueue
) -> None:
    assert shop.exists()
    result = pgqueue("--app", "shop:declared", "queues", verb, "mail", "mial", dsn=dsn)
    assert result.exit_code == 2
    assert "did you mean 'mail'?" in result.stderr
    assert queue.insight.counts()[1] == []


def test_show_tells_who_paused_a_queue_when_and_why_and_what_holds(dsn: str) -> None:
    assert pgqueue("queues", "pause", "mail", "--why", "SMTP is down", dsn=dsn).stdout == "mail: paused\n"
    assert pgqueue("queues", "pause", "mail", dsn=dsn).stdout == "mail: was paused already\n"
    pgqueue("queues", "set", "mail", "--priority", "5", "--timeout", "2m", "--keep-history", "0", dsn=dsn)

    shown = pgqueue("queues", "show", "mail", dsn=dsn).stdout
    assert re.search(rf"paused +since .+ by .+@{socket.gethostname()}: SMTP is down", shown)
    assert re.search(r"priority +5\n", shown)
    assert re.search(r"timeout +0:02:00\n", shown)
    assert re.search(r"keep dead +not set\n", shown)
    assert printed(pgqueue("queues", "show", "mail", "--json", dsn=dsn))["settings"]["keep_history"] == "P0D"
    missing = pgqueue("queues", "show", "nail", dsn=dsn)
    assert (missing.exit_code, "no job and no row" in missing.stderr) == (1, True)


@pytest.mark.usefixtures("lines")
def test_a_pattern_pauses_the_queues_that_there_are(dsn: str) -> None:
    assert pgqueue("queues", "resume", "*", dsn=dsn).stdout == "empty: resumed\nmail: resumed\n"
    assert pgqueue("queues", "pause", "*a*", dsn=dsn).stdout == "default: paused\nmail: paused\n"
    assert pgqueue("queues", "pause", "x*", dsn=dsn).stdout == "x*: no queue to change\n"
    assert pgqueue("queues", "close", "e*", dsn=dsn).stdout == "empty: closed: it takes no new jobs\n"
    assert pgqueue("queues", "resume", "*", dsn=dsn).stdout.count("resumed") == 3


def test_set_changes_what_is_given_and_refuses_what_makes_no_sense(dsn: str) -> None:
    pgqueue("queues", "set", "mail", "--priority", "5", "--max-attempts", "3", dsn=dsn)
    held = printed(
        pgqueue("queues", "set", "mail", "--unset", "max-attempts", "--keep-dead", "30d", "--json", dsn=dsn)
    )
    assert (held["priority"], held["max_attempts"], held["keep_dead"]) == (5, None, "P30D")
    for wrong, said in (
        (["--backlog", "0"], "use a whole number from 1 to 1000000"),
        (["--when-full", "warn"], "the queue has no backlog"),
        (["--priority", "500"], "use a whole number from -100 to 100"),
        (["--unset", "colour"], "a queue has no such setting"),
        (["--unset", "priority", "--priority", "1"], "are given, too"),
        (["--existing", "fail", "--priority", "6"], "has other settings: priority=5 (given: 6)"),
    ):
        refused = pgqueue("queues", "set", "mail", *wrong, dsn=dsn)
        assert refused.exit_code != 0
        assert said in refused.stderr
    assert printed(pgqueue("queues", "show", "mail", "--json", dsn=dsn))["settings"]["priority"] == 5
    held = printed(
        pgqueue("queues", "set", "mail", "--existing", "replace", "--timeout", "9", "--json", dsn=dsn)
    )
    assert (held["priority"], held["timeout"]) == (None, "PT9S")


def test_a_full_queue_is_listed_as_full(dsn: str) -> None:
    pgqueue("queues", "set", "mail", "--backlog", "2", "--when-full", "refuse", dsn=dsn)
    ask(dsn, "insert into pgqueue.jobs (queue, task, args) values ('mail', 't', '{}')")
    assert "full" not in pgqueue("queues", "list", dsn=dsn).stdout
    ask(dsn, "insert into pgqueue.jobs (queue, task, args) values ('mail', 't', '{}')")
    assert "full" in pgqueue("queues", "list", dsn=dsn).stdout
