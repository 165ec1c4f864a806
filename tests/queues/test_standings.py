"""How every queue stands: exact in small tables, estimated in large ones, and never a reading from end to end."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgqueue import PgQueue
from pgqueue.store.queues import queues as plans
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


def test_of_large_tables_a_sample_is_read_and_small_queues_are_still_exact(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "WHOLE_PAGES", 150)
    filled(connection, "big", "ready", 30_000)
    filled(connection, "tenant", "ready", 3)
    connection.commit()

    found = by_queue(queue)

    assert found["tenant"].ready == 3
    assert found["big"].estimated
    assert 15_000 < found["big"].ready < 60_000


def test_a_ready_queue_that_the_sample_misses_is_told_with_the_number_that_was_counted(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "share", lambda *_, **__: 1e-6)
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
