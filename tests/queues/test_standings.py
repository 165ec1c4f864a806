"""How every queue stands: exact in small tables, estimated in large ones, and never a reading from end to end."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask as run_on
from store.samples import LEASE, worker_info

from pgqueue import PgQueue
from pgqueue.store.queues import queues as plans
from pgqueue.store.workers import leases
from pgqueue.values.queues.standing import COUNTED, QueueStanding


def filled(connection: psycopg.Connection[Any], queue: str, state: str, count: int) -> None:
    """Add jobs of a queue in a state."""
    connection.execute(
        "insert into pgqueue.jobs (queue, task, status, run_at) "
        "select %s, 'task', %s, now() - interval '90 seconds' from generate_series(1, %s)",
        [queue, state, count],
    )


def by_queue(queue: PgQueue) -> dict[str, QueueStanding]:
    return {one.queue: one for one in queue.insight.queues()}


def test_small_tables_are_told_exactly_with_ages_and_pauses(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    filled(connection, "mail", "ready", 3)
    filled(connection, "mail", "scheduled", 2)
    filled(connection, "later", "blocked", 1)
    connection.execute(
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, "
        "reason, queue, task, args) values (-1, now(), now(), now(), 0, 0, 1, 1, 'asked', 'mail', 'task', '{}')"
    )
    connection.commit()
    queue.control.pause("idle")

    found = by_queue(queue)

    assert sorted(found) == ["idle", "later", "mail"]
    mail = found["mail"]
    assert (mail.ready, mail.scheduled, mail.running, mail.blocked, mail.dead) == (3, 2, 0, 0, 1)
    assert mail.oldest_ready is not None
    assert 90 <= mail.oldest_ready < 300
    assert not mail.estimated
    assert (found["later"].blocked, found["later"].oldest_ready) == (1, None)
    assert (found["idle"].paused_at is not None, mail.paused_at) == (True, None)


def test_200_000_jobs_are_counted_exactly_in_each_state(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    numbers = {"ready": 150_001, "scheduled": 39_990, "blocked": 9_998, "running": 11}
    for state, count in numbers.items():
        filled(connection, "big", state, count)
    connection.commit()

    big = by_queue(queue)["big"]

    assert {state: getattr(big, state) for state in numbers} == numbers
    assert big.estimated == ()


def test_of_large_tables_a_sample_is_read_and_says_about_how_many_jobs_wait(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "WHOLE_PAGES", 150)
    monkeypatch.setattr(plans, "COUNTED_IN_ALL", 0)
    filled(connection, "big", "ready", 30_000)
    filled(connection, "tenant", "ready", 3)
    connection.commit()

    found = by_queue(queue)

    assert found["tenant"].ready == 3
    assert found["tenant"].estimated == ("blocked", "scheduled")
    assert found["big"].estimated == ("blocked", "scheduled", "ready")
    assert 15_000 < found["big"].ready < 60_000
    assert found["big"].ready % 1_000 == 0, "no more than two digits are said"


def test_of_large_tables_ready_jobs_are_counted_by_index_up_to_a_bound_for_all_queues(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "WHOLE_PAGES", 0)
    monkeypatch.setattr(plans, "SAMPLED_PAGES", 10)
    monkeypatch.setattr(plans, "COUNTED_IN_ALL", 6_000)
    filled(connection, "big", "ready", 2_999)
    filled(connection, "other", "ready", 3_001)
    connection.commit()
    found = by_queue(queue)
    assert (found["big"].ready, "ready" in found["big"].estimated) == (2_999, False)
    assert ("ready" in found["other"].estimated, found["other"].ready >= 3_000) == (True, True)


def test_of_large_tables_running_jobs_are_those_of_the_last_heartbeats_and_no_number_that_the_sample_misses_is_0(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "share", lambda *_, **__: 1e-6)
    for state in ("running", "scheduled", "ready"):
        filled(connection, "big", state, 2)
    connection.execute(
        "update pgqueue.jobs set in_lane = true, lane = 'l', status = 'blocked', queue = 'lanes' where status = 'ready'"
    )
    connection.execute("insert into pgqueue.jobs (queue, task, status) values ('waits', 'task', 'blocked')")
    connection.execute(
        "insert into pgqueue.waits (waits_for, job_id) select 'signal', id from pgqueue.jobs where queue = 'waits'"
    )
    connection.execute(
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, "
        "reason, queue, task, args) values (-1, now(), now(), now(), 0, 0, 1, 1, 'asked', 'big', 'task', '{}')"
    )
    worker = worker_info()
    run_on(connection, leases.register(worker, LEASE))
    connection.execute(
        "update pgqueue.workers set running = array(select id from pgqueue.jobs where status = 'running') || array[999::bigint, -1]"
    )
    connection.commit()

    found = by_queue(queue)

    big = found["big"]
    assert (big.running, big.scheduled, big.dead) == (3, 1, 1), "two run, and one has died since"
    assert big.estimated == ("blocked", "scheduled", "dead")
    assert (found["lanes"].blocked, found["waits"].blocked) == (1, 1)


def test_a_ready_queue_that_the_sample_misses_is_told_with_the_number_that_was_counted(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "share", lambda *_, **__: 1e-6)
    monkeypatch.setattr(plans, "COUNTED_IN_ALL", 0)
    filled(connection, "big", "ready", COUNTED + 5)
    connection.commit()

    assert by_queue(queue)["big"].ready == COUNTED


def test_a_queue_of_unknown_tasks_that_the_sample_misses_is_told(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "share", lambda *_, **__: 1e-6)
    connection.execute(
        "insert into pgqueue.jobs (queue, task) select 'mail', 'nowhere' from generate_series(1, 2)"
    )
    connection.execute("insert into pgqueue.unknown_tasks values ('mail', 'nowhere', now(), now())")
    connection.commit()

    mail = by_queue(queue)["mail"]

    assert (mail.ready, mail.unknown, mail.unknown_tasks) == (2, 2, ("nowhere",))


@pytest.mark.parametrize(
    ("seconds_ago", "rate"), [((1, 30, 59), 3 / 60), ((61, 300), 0.0)], ids=["recent", "older"]
)
def test_a_rate_counts_the_jobs_that_ended_in_the_last_minute(
    queue: PgQueue, connection: psycopg.Connection[Any], seconds_ago: tuple[int, ...], rate: float
) -> None:
    ((noon,),) = connection.execute(
        "select date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' + interval '12 hours'"
    )
    for seconds in seconds_ago:
        connection.execute(
            "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, "
            "max_attempts, outcome, queue, task, args) "
            "values (1, now(), now(), %s, 0, 0, 1, 1, 'succeeded', 'mail', 'task', '{}')",
            [noon - timedelta(seconds=seconds)],
        )
    connection.commit()

    found = queue.database.run(plans.queue_standings(now=noon))

    assert [one.rate for one in found] == [pytest.approx(rate)]
