"""Promise 7: clock skew between hosts changes nothing. Time is the database's clock.

Every process here has a clock that is three days wrong, ahead or behind, and all it writes and decides must
be as if it were right.
"""

from datetime import datetime, timedelta

import pytest
from looking import ask, wait_until
from promises.asking import HOUR, LEASE, do, register_tasks, registered
from promises.skewed import process

from pgqueue import JobState, PgQueue
from pgqueue.store.jobs import claim

DAYS = 86_400.0
wrong_by = pytest.mark.parametrize("skew", [3 * DAYS, -3 * DAYS], ids=["ahead", "behind"])


def clock(dsn: str) -> datetime:
    found: datetime = ask(dsn, "select clock_timestamp()")[0][0]
    return found


@wrong_by
def test_due_times_are_counted_on_the_databases_clock(skew: float, dsn: str) -> None:
    before = clock(dsn)
    with process(skew, "enqueue", dsn):
        wait_until(lambda: ask(dsn, "select count(*) from pgqueue.jobs")[0][0] == 5)
    rows = ask(dsn, "select status, run_at - created_at, created_at, args->>'_text' from pgqueue.jobs")
    assert sorted((text, status, delay) for status, delay, _, text in rows) == [
        ("later", "scheduled", HOUR),
        ("later", "scheduled", HOUR),
        ("later", "scheduled", HOUR),
        ("now", "ready", timedelta(0)),
        ("now", "ready", timedelta(0)),
    ]
    assert all(before <= created_at <= clock(dsn) for _, _, created_at, _ in rows)


@wrong_by
def test_a_worker_runs_what_is_due_and_nothing_else(skew: float, dsn: str, queue: PgQueue) -> None:
    note, *_ = register_tasks(queue)
    before = clock(dsn)
    later = note.using(delay=HOUR).enqueue("later")
    soon = note.using(delay=timedelta(seconds=0.2)).enqueue("soon")
    with process(skew, "work", dsn):
        wait_until(lambda: soon.status() is JobState.SUCCEEDED)
        now = note.enqueue("now")
        wait_until(lambda: now.status() is JobState.SUCCEEDED)
        assert later.status() is JobState.SCHEDULED
    job = queue.job(soon.id)
    assert job.started_at is not None
    assert job.ended_at is not None
    assert before < job.run_at <= job.started_at <= job.ended_at <= clock(dsn)


@wrong_by
def test_retries_and_snoozes_are_counted_on_the_databases_clock(
    skew: float, dsn: str, queue: PgQueue
) -> None:
    _, fail, snooze = register_tasks(queue)
    failing, snoozing = fail.enqueue(), snooze.enqueue()
    before = clock(dsn)
    with process(skew, "work", dsn):
        wait_until(lambda: failing.status() is snoozing.status() is JobState.SCHEDULED)
    failed_at = queue.job(failing.id).errors[0].at
    assert failed_at is not None
    assert before <= failed_at <= clock(dsn)
    assert queue.job(failing.id).run_at == failed_at + HOUR
    assert before + HOUR <= queue.job(snoozing.id).run_at <= clock(dsn) + HOUR


@wrong_by
def test_leases_last_as_long_as_the_databases_clock_says(skew: float, dsn: str, queue: PgQueue) -> None:
    note, *_ = register_tasks(queue)
    held, orphaned = note.enqueue("held"), note.enqueue("orphaned")
    living, late = registered(queue), registered(queue, timedelta(0))
    do(queue, claim.claim(living, {"default": 1}))
    do(queue, claim.claim(late, {"default": 1}))
    with process(skew, "work", dsn):
        wait_until(lambda: orphaned.status() is JobState.SUCCEEDED)
        leases = ask(
            dsn, "select lease_until - clock_timestamp() from pgqueue.workers where id <> %s", living
        )
        assert held.status() is JobState.RUNNING
        assert queue.job(held.id).worker_id == living
    assert [timedelta(0) < left <= LEASE for (left,) in leases] == [True]
    assert [error.type for error in queue.job(orphaned.id).errors] == ["WorkerLost"]


@wrong_by
def test_a_unique_keys_period_ends_by_the_databases_clock(skew: float, dsn: str) -> None:
    statement = "insert into pgqueue.unique_holds values (%s, 1, now() + %s), (%s, 2, now() - %s)"
    minute = timedelta(minutes=1)
    ask(dsn, statement, "held", minute, "over", minute)
    with process(skew, "work", dsn):
        wait_until(lambda: ask(dsn, "select count(*) from pgqueue.unique_holds")[0][0] == 1)
    assert ask(dsn, "select unique_key from pgqueue.unique_holds") == [("held",)]
