"""Dead jobs that several retry or purge at once: each comes back once, and no statement deadlocks."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
from store.crowd import ask, asking, at_once, until_statements_wait
from store.samples import new_job, taking

from pgqueue.store.jobs import control, enqueue, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.values.jobs.job import JobState, NewJob, Outcome
from pgqueue.values.jobs.verdict import Succeeded

DEAD = """
insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                               queue, task, unique_key, args)
select n, now(), now(), now(), 0, 0, 1, 1, 'asked', 'default', 'bill', 'key ' || 1000 - n, '{}'
from generate_series(1, %s) as n
"""
RECORDS = """
select id from pgqueue.jobs union all select id from pgqueue.dead_jobs union all select id from pgqueue.job_history order by id
"""
ROUNDS = 10


def _bury(dsn: str, count: int) -> list[int]:
    with psycopg.connect(dsn) as connection:
        connection.execute("truncate pgqueue.jobs, pgqueue.dead_jobs")
        connection.execute(DEAD.encode(), [count])
        # as where the dead jobs were enqueued: new jobs get other ids
        connection.execute("select setval(pg_get_serial_sequence('pgqueue.jobs', 'id'), 1000000)")
    return list(range(1, count + 1))


def test_a_job_that_another_retry_returned_and_that_has_ended_since_does_not_run_again(dsn: str) -> None:
    ids = _bury(dsn, 2)
    with (
        psycopg.connect(dsn, autocommit=True) as other,
        psycopg.connect(dsn) as holder,
        ThreadPoolExecutor(1) as thread,
    ):
        holder.execute("select from pgqueue.dead_jobs where id = 1 for update")
        many = thread.submit(at_once, dsn, asking(_retried(ids)))
        until_statements_wait(dsn)  # its snapshot is taken, and it waits for job 1

        assert ask(other, _retried([2])) == [2]
        (taken,) = ask(other, taking())
        ask(other, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True))
        holder.rollback()
        assert many.result(timeout=30) == [[1]]

        assert other.execute(RECORDS).fetchall() == [(1,), (2,)]
        job = ask(other, control.show(2))
        assert job is not None
        assert job.state is JobState.SUCCEEDED


@plan(transaction=True)
def _retried(ids: list[int]) -> Steps[list[int]]:
    return [*(yield from control.retry_dead(ids))]


@plan
def _purged(ids: list[int]) -> Steps[list[int]]:
    return [0] * (yield from control.purge_dead(ids))


def test_a_job_is_retried_or_purged_and_never_both(dsn: str) -> None:
    for _ in range(ROUNDS):
        ids = _bury(dsn, 300)

        forth, back, purged = at_once(
            dsn,
            asking(_retried(ids)),
            asking(_retried(ids[::-1])),
            asking(_purged(ids)),
        )

        with psycopg.connect(dsn) as connection:
            records = [job_id for (job_id,) in connection.execute(RECORDS)]
        assert records == sorted(forth + back)
        assert len(records) + len(purged) == len(ids)


def test_a_retry_and_a_batch_with_the_same_keys_never_wait_for_each_other_in_a_circle(dsn: str) -> None:
    """The lower a dead job's id, the higher is its key."""
    for _ in range(ROUNDS):
        ids = _bury(dsn, 300)
        batch = [new_job(unique_key=f"key {1000 - number}") for number in ids]

        retried, added = at_once(dsn, asking(_retried(ids)), asking(_added(batch)))

        assert len(retried) + len(added) == len(ids)


@plan(transaction=True)
def _added(batch: list[NewJob]) -> Steps[list[int]]:
    answers = yield from enqueue.enqueue_many(batch)
    return [answer.id for answer in answers if answer.outcome is Outcome.ADDED]
