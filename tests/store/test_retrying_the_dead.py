"""Retries of dead jobs: each answer says which went and why the others did not; many go in portions.

Dead jobs that several retry or purge at once: each comes back once, and no statement deadlocks.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from store.crowd import ask, asking, at_once, until_statements_wait
from store.samples import NOON, adding, new_job, running, shown, taking

from pgqueue.store.bulk import bulk
from pgqueue.store.drive import drive
from pgqueue.store.jobs import control, enqueue, finish
from pgqueue.store.jobs.sweep import Sweep
from pgqueue.store.plan import Plan, Steps, plan
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import (
    BlockedRetry,
    BulkAction,
    BulkResult,
    Operation,
    Retried,
    SkippedJob,
    SkipReason,
)
from pgqueue.values.jobs.job import JobState, NewJob, Outcome
from pgqueue.values.jobs.verdict import Succeeded

DEAD = """
insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                               queue, task, unique_key, args, errors)
select n, now(), now(), now(), 0, 0, 1, 1, 'asked', 'default', 'bill', %(key)s::text || n, '{}',
       jsonb_build_array(jsonb_build_object('attempt', 1, 'type', %(error)s::text, 'message', 'no'))
from generate_series(%(first)s::bigint, %(last)s::bigint) as n
"""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def add_dead(
    own: psycopg.Connection[Any],
    first: int,
    last: int,
    *,
    key: str | None = "key ",
    error: str = "builtins.OSError",
) -> None:
    """Dead jobs with these ids, and ``key 1``, ``key 2`` and so on as unique keys."""
    own.execute(DEAD.encode(), {"first": first, "last": last, "key": key, "error": error})


def doing(action: BulkAction, **criteria: Any) -> Sweep[BulkResult]:
    wanted = JobFilter.checked(criteria or {"everything": True})
    begun = yield bulk.begin(Operation(action=action, filter=wanted), by=None)
    return (yield from bulk.run_operation(begun, tell=lambda _, __: None))


def retried(own: psycopg.Connection[Any], **criteria: Any) -> BulkResult:
    return drive(doing(BulkAction.RETRY_DEAD, **criteria), lambda plan: ask(own, plan))


def purged(own: psycopg.Connection[Any], **criteria: Any) -> int:
    return drive(doing(BulkAction.PURGE_DEAD, **criteria), lambda plan: ask(own, plan)).done


def still_dead(own: psycopg.Connection[Any]) -> list[int]:
    return [row[0] for row in own.execute("select id from pgqueue.dead_jobs order by id")]


def test_the_answer_names_the_live_twin_and_what_else_stays(own: psycopg.Connection[Any]) -> None:
    add_dead(own, 1001, 1003)
    (twin,) = ask(own, adding(new_job(unique_key="key 1002")))

    done = ask(own, control.retry_dead([1003, 1002, 1001, twin, 5000]))

    assert done == Retried((1001, 1003), (BlockedRetry(1002, twin, "key 1002"),), (twin, 5000))
    assert ask(own, shown(1002)).state is JobState.DEAD


def test_of_two_dead_jobs_with_one_key_the_other_one_is_the_twin(own: psycopg.Connection[Any]) -> None:
    add_dead(own, 1001, 1002)
    own.execute("update pgqueue.dead_jobs set unique_key = 'one'")
    assert ask(own, control.retry_dead([1001, 1002])) == Retried((1001,), (BlockedRetry(1002, 1001, "one"),))


def test_without_its_key_a_job_runs_beside_its_twin(own: psycopg.Connection[Any]) -> None:
    add_dead(own, 1001, 1001)
    (twin,) = ask(own, adding(new_job(unique_key="key 1001")))
    assert not ask(own, control.retry(1001))
    assert ask(own, control.retry(1001, without_key=True)) == Retried((1001,))
    assert (ask(own, shown(1001)).unique_key, ask(own, shown(twin)).unique_key) == (None, "key 1001")


def test_a_running_job_is_told_as_not_dead(own: psycopg.Connection[Any]) -> None:
    taken = ask(own, running())
    assert ask(own, control.retry(taken.id, now=NOON)) == Retried(not_dead=(taken.id,))


@pytest.mark.parametrize("error", ["builtins.OSError", "OSError"])
def test_dead_jobs_are_found_by_the_type_of_their_last_error(
    own: psycopg.Connection[Any], error: str
) -> None:
    add_dead(own, 1, 2, error="builtins.OSError")
    add_dead(own, 3, 4, error="lib.MyOSError")
    own.execute('update pgqueue.dead_jobs set errors = \'{"no": "list"}\' where id = 4')
    assert retried(own, error=error).done == 2
    assert still_dead(own) == [3, 4]
    assert purged(own, error="%") == 0
    assert purged(own, error="MyOSError") == 1


def test_many_go_in_portions_past_those_that_stay(
    own: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 10)
    add_dead(own, 1, 35)
    own.execute(
        "insert into pgqueue.jobs (id, task, unique_key) select 100 + n, 'bill', 'key ' || n from generate_series(5, 20) as n"
    )
    done = retried(own)
    assert (done.done, done.skipped) == (19, {SkipReason.KEY_HELD: 16})
    assert still_dead(own) == [*range(5, 21)]
    assert done.examples[0] == SkippedJob(5, SkipReason.KEY_HELD, "live job 105 has its unique key")


def test_each_portion_commits_by_itself_and_an_interrupted_run_continues(
    own: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 10)
    add_dead(own, 1, 25)
    portions: list[Plan[Any]] = []

    def run(plan: Plan[Any]) -> Any:
        if len(portions) == 2:
            raise KeyboardInterrupt
        portions.extend([plan] if plan.name == "bulk_jobs.change" else [])
        return ask(own, plan)

    with pytest.raises(KeyboardInterrupt):
        drive(doing(BulkAction.RETRY_DEAD), run)
    assert own.execute("select count(*) from pgqueue.dead_jobs").fetchone() == (5,)
    assert retried(own).done == 5
    assert still_dead(own) == []


def test_no_more_than_a_portion_is_locked_at_once(
    own: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction holds the last job: the first thousand are ready all the same."""
    monkeypatch.setattr(bulk, "ROUNDS", 0)
    add_dead(own, 1, 1001)
    with psycopg.connect(dsn) as other:
        other.execute("select from pgqueue.dead_jobs where id = 1001 for update")
        assert retried(own).done == 1000
        other.rollback()
    assert retried(own).done == 1
    assert still_dead(own) == []


DEAD_ROW = """
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
        connection.execute(DEAD_ROW.encode(), [count])
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
            dsn, asking(_retried(ids)), asking(_retried(ids[::-1])), asking(_purged(ids))
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
