from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.commands import pgqueue
from click.testing import Result
from looking import ask

from pgqueue import JobState, PgQueue

pytestmark = pytest.mark.usefixtures("shop")


def enqueue(dsn: str, *words: str) -> Result:
    return pgqueue("--app", "shop:queue", "enqueue", *words, dsn=dsn)


def test_a_job_is_added_with_its_options(dsn: str, queue: PgQueue) -> None:
    options = ["--queue", "slow", "--priority", "7", "--max-attempts", "3", "--unique-key", "k"]
    at = "2999-01-31T08:00:00+01:00"
    result = enqueue(dsn, "shop.send", f'{{"order_id": 42, "at": "{at}"}}', *options, "--run-at", at)
    assert (result.exit_code, result.stdout) == (0, "job 1 added\n")
    job = queue.job(1)
    assert (job.task, job.args) == ("shop.send", {"order_id": 42, "at": at})
    assert (job.queue, job.priority, job.max_attempts, job.unique_key) == ("slow", 7, 3, "k")
    assert job.run_at == datetime(2999, 1, 31, 7, tzinfo=UTC)
    assert job.state is JobState.SCHEDULED


def test_a_queue_that_nothing_knows_is_noted_and_the_job_is_added(dsn: str) -> None:
    result = enqueue(dsn, "shop.wait_for_ever", "--queue", "mial")
    assert (result.exit_code, result.stdout) == (0, "job 1 added\n")
    assert result.stderr.endswith("names the queue 'mial'; did you mean 'mail'?\n")
    assert enqueue(dsn, "shop.wait_for_ever", "--queue", "mail").stderr == ""


def test_without_options_the_tasks_own_hold(dsn: str, queue: PgQueue) -> None:
    assert enqueue(dsn, "shop.wait_for_ever").exit_code == 0
    assert enqueue(dsn, "shop.send", '{"order_id": 1}').exit_code == 0
    assert [(job.queue, job.args) for job in queue.insight.search().jobs] == [
        ("mail", {"order_id": 1}),
        ("default", {}),
    ]


def test_a_delay_has_a_unit_or_is_in_seconds(dsn: str, queue: PgQueue) -> None:
    assert enqueue(dsn, "shop.wait_for_ever", "--delay", "2h").exit_code == 0
    assert enqueue(dsn, "shop.wait_for_ever", "--delay", "90").exit_code == 0
    assert [job.run_at - job.created_at for job in queue.insight.search().jobs] == [
        timedelta(seconds=90),
        timedelta(hours=2),
    ]


def test_a_job_can_expire(dsn: str) -> None:
    assert enqueue(dsn, "shop.wait_for_ever", "--expires-in", "5m").exit_code == 0
    assert enqueue(dsn, "shop.wait_for_ever", "--expires-in", "0").exit_code != 0
    assert ask(dsn, "select expires_at - run_at from pgqueue.jobs") == [(timedelta(minutes=5),)]


def test_a_taken_unique_key_is_told_with_its_holder(dsn: str) -> None:
    words = ["shop.wait_for_ever", "--unique-key", "k"]
    assert enqueue(dsn, *words).stdout == "job 1 added\n"
    result = enqueue(dsn, *words)
    assert (result.exit_code, result.stdout) == (0, "rejected: job 1 holds the unique key\n")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (
            ["shop.sned", '{"order_id": 1}'],
            "runs it; --unknown enqueues it all the same; did you mean 'shop.send'?",
        ),
        (["shop.send"], "missing required field `order_id`"),
        (["shop.send", '{"order_id": "x"}'], "Expected `int`, got `str` - at `order_id`"),
        (["shop.send", '{"order": 1}'], "unknown field `order`"),
        (["shop.send", "[1]"], "is no JSON object"),
        (["shop.send", "{"], "is no JSON object"),
        (["shop.send", '{"order_id": 1}', "--priority", "1000"], "priority=1000"),
        (["shop.send", '{"order_id": 1}', "--delay", "-1"], "is no length of time"),
        (["shop.send", '{"order_id": 1}', "--run-at", "tomorrow"], "is no ISO 8601 time"),
        (["shop.send", '{"order_id": 1}', "--run-at", "2030-01-01T08:00"], "has no time zone"),
        (
            ["shop.send", '{"order_id": 1}', "--delay", "1", "--run-at", "2030-01-01T08:00Z"],
            "contradict each other",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_added(
    words: list[str], refusal: str, dsn: str, queue: PgQueue
) -> None:
    result = enqueue(dsn, *words)
    assert result.exit_code == 2
    assert refusal in result.stderr
    assert queue.insight.search().jobs == ()


def test_the_app_can_be_named_in_the_environment(dsn: str, shop: Path) -> None:
    assert shop.exists()
    assert pgqueue("enqueue", "shop.wait_for_ever", dsn=dsn, PGQUEUE_APP="shop:queue").exit_code == 0
