"""``pgqueue retention``: what it shows, and what it asks before it changes a length."""

from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import pgqueue, printed
from looking import ask

from pgqueue import PgQueue


@pytest.fixture
def old(queue: PgQueue) -> PgQueue:
    """A queue with a job that ended five days ago, and one that died then."""
    day = datetime.now(UTC) - timedelta(days=5)
    ask(queue, "select pgqueue.make_history_day(%s::date)", day)
    ask(
        queue,
        "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,"
        " outcome, queue, task, args) values (1, now(), now(), %s, 0, 0, 1, 1, 'succeeded', 'mail', 't', '{}')",
        day,
    )
    ask(
        queue,
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,"
        " queue, task, args) values (2, now(), now(), %s, 0, 0, 1, 1, 'asked', 'mail', 't', '{}')",
        day,
    )
    return queue


def lengths(dsn: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """What of jobs is kept for how long, and who said so."""
    found = printed(pgqueue("retention", "--json", dsn=dsn))
    return [
        (one["what"], one["queue"], one["keeps"], one["set_by"])
        for one in found
        if one["what"] in {"history", "dead jobs"}
    ]


def test_it_shows_the_lengths_that_hold_before_anyone_has_set_one(dsn: str) -> None:
    assert lengths(dsn) == [("history", None, "P7D", None), ("dead jobs", None, None, None)]
    table = pgqueue("retention", dsn=dsn).stdout
    assert "7 d" in table
    assert "for ever" in table
    assert "until you delete it" in table


def test_set_changes_them_and_says_who_and_why(dsn: str) -> None:
    done = pgqueue(
        "retention", "set", "--history", "30d", "--dead", "90d", "--by", "ann", "--why", "a review", dsn=dsn
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert "history: kept 30 d\ndead jobs: kept 90 d\n" in done.stdout
    assert lengths(dsn) == [("history", None, "P30D", "ann"), ("dead jobs", None, "P90D", "ann")]
    (entry,) = printed(pgqueue("audit", "list", "--json", dsn=dsn))
    assert (entry["by"], entry["details"]["why"]) == ("ann", "a review")


def test_a_queue_has_lengths_of_its_own_by_either_command(dsn: str) -> None:
    pgqueue(
        "retention", "set", "--queue", "mail", "--history", "30d", "--by", "ann", "--why", "bills", dsn=dsn
    )
    assert pgqueue("queues", "set", "mail", "--keep-dead", "9d", dsn=dsn).exit_code == 0
    assert ("history", "mail", "P30D") in [one[:3] for one in lengths(dsn)]
    assert ("dead jobs", "mail", "P9D") in [one[:3] for one in lengths(dsn)]
    assert pgqueue("queues", "set", "mail", "--keep-history", "2d", dsn=dsn).exit_code == 0
    assert ("history", "mail", "P2D") in [one[:3] for one in lengths(dsn)]
    first = printed(pgqueue("audit", "list", "--json", dsn=dsn))[-1]
    assert (first["by"], first["details"]["why"]) == ("ann", "bills")


@pytest.mark.usefixtures("old")
def test_it_asks_before_something_is_removed_and_a_no_changes_nothing(dsn: str) -> None:
    words = ("retention", "set", "--history", "3d", "--dead", "3d")
    refused = pgqueue(*words, dsn=dsn, answer="n\n")
    assert refused.exit_code == 1
    assert "the next tidying removes 1 days of the history" in refused.stderr
    assert "1 dead jobs" in refused.stderr
    looked = pgqueue(*words, "--dry-run", dsn=dsn)
    assert "the next tidying removes" in looked.stdout
    assert lengths(dsn) == [("history", None, "P7D", None), ("dead jobs", None, None, None)]
    assert pgqueue(*words, "--yes", dsn=dsn).exit_code == 0
    assert [one[2] for one in lengths(dsn)] == ["P3D", "P3D"]


@pytest.mark.usefixtures("old")
def test_it_does_not_ask_where_nothing_is_removed(dsn: str) -> None:
    assert pgqueue("retention", "set", "--history", "30d", dsn=dsn, answer="").exit_code == 0
    assert pgqueue("retention", "set", "--dead", "forever", dsn=dsn, answer="").exit_code == 0


def test_figures_have_lengths_too(dsn: str) -> None:
    done = pgqueue("retention", "set", "--minutes", "72h", "--hours", "90d", dsn=dsn)
    assert "figures of minutes: kept 3 d\nfigures of hours and days: kept 90 d\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --history"),
        (("--history", "6h"), "whole days"),
        (("--history", "0"), "queues set QUEUE --keep-history 0"),
        (("--history", "soon"), "no length of time"),
        (("--minutes", "3d", "--queue", "mail"), "leave --queue out"),
    ],
)
def test_a_mistake_is_named(dsn: str, words: tuple[str, ...], said: str) -> None:
    refused = pgqueue("retention", "set", *words, dsn=dsn)
    assert refused.exit_code == 2
    assert said in refused.stderr
