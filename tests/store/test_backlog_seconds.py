"""`pgqueue.backlog_seconds`: how far workers are behind with what one more worker could start."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from looking import ask
from schema.logins import login

from pgqueue import PgQueue

AT = datetime(2031, 5, 4, 12, tzinfo=UTC)


def behind(queue: PgQueue, name: str | None = None) -> float:
    ((seconds,),) = ask(queue, "select pgqueue.backlog_seconds(%s, %s)", name, AT)
    return float(seconds)


def put(
    queue: PgQueue, name: str = "mail", *, waited: float, priority: int = 0, lane: str | None = None
) -> None:
    """A job that has been ready, or waits in its lane, since ``waited`` seconds before AT."""
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task, run_at, priority, lane, status, in_lane)"
        " values (%s, 't', %s, %s, %s, %s, %s)",
        *[
            name,
            AT - timedelta(seconds=waited),
            priority,
            lane,
            "blocked" if lane else "ready",
            bool(lane) or None,
        ],
    )


def limit(queue: PgQueue, name: str, *, most: int | None = None, every: int | None = None) -> None:
    """Set the numbers of a limit; a rate may start one at once, and one each ``every`` microseconds."""
    ask(
        queue,
        "insert into pgqueue.limits (name, most, every, burst, declared) values (%s, %s, %s, %s, '')"
        " on conflict (name) do update set most = excluded.most",
        *[name, most, every, None if every is None else 1],
    )


def run_one(queue: PgQueue, lane: str, name: str = "mail") -> None:
    """A job that runs under the limits of this lane."""
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task, lane, status, worker_id, claimed_at)"
        " values (%s, 't', %s, 'running', gen_random_uuid(), now())",
        *[name, lane],
    )


def test_it_is_the_wait_of_the_job_that_has_waited_longest(queue: PgQueue) -> None:
    assert behind(queue) == behind(queue, "mail") == 0
    put(queue, waited=5, priority=9)
    put(queue, waited=70)
    put(queue, "other", waited=300)
    assert (behind(queue, "mail"), behind(queue, "other"), behind(queue)) == (70, 300, 300)
    assert behind(queue, "no such queue") == 0


def test_it_is_above_zero_as_soon_as_a_job_waits_and_no_worker_is_there(queue: PgQueue) -> None:
    queue.task(name="t")(lambda: None).enqueue()
    ((seconds,),) = ask(queue, "select pgqueue.backlog_seconds()")
    assert 0 < seconds < 3600


def test_jobs_that_more_workers_would_not_start_do_not_count(queue: PgQueue) -> None:
    task = queue.task(name="t")(lambda: None)
    task.using(delay=timedelta(days=1)).enqueue()
    put(queue, "paused", waited=9)
    queue.control.pause("paused")
    assert behind(queue) == behind(queue, "paused") == 0


def test_a_closed_queue_counts_since_its_jobs_run(queue: PgQueue) -> None:
    put(queue, waited=9)
    queue.control.close("mail")
    assert behind(queue, "mail") == 9


def test_a_job_in_a_lane_counts_while_its_limit_has_room(queue: PgQueue) -> None:
    limit(queue, "api", most=2)
    put(queue, waited=40, lane="api a")
    put(queue, waited=30, lane="api b")
    assert behind(queue, "mail") == 40
    run_one(queue, "api a")
    assert behind(queue, "mail") == 40
    run_one(queue, "api a")
    assert behind(queue, "mail") == 30  # the key a is full, the key b is not
    assert behind(queue) == 30


def test_it_is_above_zero_where_more_lanes_wait_than_it_looks_at(queue: PgQueue) -> None:
    limit(queue, "api", most=1)
    ask(
        queue,
        "with running as (insert into pgqueue.jobs (queue, task, lane, status, worker_id, claimed_at)"
        " select 'mail', 't', 'api ' || n, 'running', gen_random_uuid(), now() from generate_series(1000, 3100) as n)"
        " insert into pgqueue.jobs (queue, task, run_at, lane, status, in_lane)"
        " select 'mail', 't', %s, 'api ' || n, 'blocked', true from generate_series(1000, 3200) as n",
        AT - timedelta(seconds=60),
    )
    assert behind(queue) == 0.001  # the first 2,000 are full, and an autoscaler must not go down to 0


def test_a_job_that_takes_several_places_counts_while_they_are_free(queue: PgQueue) -> None:
    limit(queue, "gpu", most=4)
    put(queue, waited=40, lane="gpu *3")
    run_one(queue, "gpu")
    assert behind(queue) == 40
    run_one(queue, "gpu")
    assert behind(queue) == 0


def test_a_job_whose_rate_has_no_start_left_does_not_count(queue: PgQueue) -> None:
    limit(queue, "sms", every=60_000_000)
    put(queue, waited=40, lane="sms")
    assert behind(queue) == 40
    microseconds = int(AT.timestamp() * 1_000_000)
    ask(queue, "insert into pgqueue.rates values ('sms', %s)", microseconds + 30_000_000)
    assert behind(queue) == 0
    ask(queue, "update pgqueue.rates set tat = %s", microseconds - 1)
    assert behind(queue) == 40


def test_a_queue_that_is_limited_as_a_whole_counts_while_it_has_room(queue: PgQueue) -> None:
    limit(queue, "queue:mail", most=1)
    put(queue, waited=40)
    assert behind(queue, "mail") == 40
    run_one(queue, "")
    assert behind(queue, "mail") == 0
    limit(queue, "queue:mail", most=0)
    assert behind(queue, "mail") == 0


@pytest.mark.parametrize(("role", "may"), [("monitor", True), ("reader", True), ("producer", False)])
def test_a_monitor_may_ask_and_a_producer_may_not(queue: PgQueue, role: str, may: bool) -> None:  # noqa: FBT001 - a case
    put(queue, waited=9)
    refused = nullcontext() if may else pytest.raises(psycopg.errors.InsufficientPrivilege)
    with psycopg.connect(login(queue.database.dsn, role)) as connection, refused:
        assert connection.execute("select pgqueue.backlog_seconds('mail') > 0").fetchone() == (True,)
