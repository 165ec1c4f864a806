"""Promise 4: at most one live job per unique key, under any concurrency.

The key is asked for by many threads and processes at a time, and at each station of its holder's life:
waiting, running, being completed, being retried, dead, and held for a period.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from looking import ask, wait_until
from promises.processes import (
    claimed,
    database_clock,
    do,
    listed,
    live_jobs,
    processes,
    run_on,
    waiting_for_locks,
)
from promises.workshop import AT_ONCE

from pgqueue import JobHandle, JobState, Outcome, PgQueue, Task, Unique
from pgqueue.store.jobs import claim, enqueue, finish
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim, NewJob
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Verdict

ADDED, REJECTED, REPLACED = Outcome.ADDED, Outcome.REJECTED, Outcome.REPLACED
AN_HOUR = timedelta(hours=1)
OOPS = describe(ValueError("oops"), 1)
ONE_KEY: dict[str, Any] = {"unique_key": "key"}


@pytest.fixture
def task(queue: PgQueue) -> Task[[int], None]:
    """A task whose jobs all have the same key."""

    @queue.task(name="note")
    def note(number: int) -> None:
        raise NotImplementedError(number)

    return note.using(**ONE_KEY)


def settle(queue: PgQueue, worker: UUID, verdict: Verdict) -> None:
    assert do(queue, finish.finish(worker, [verdict], keep=True)).keys() == {verdict.claim.id}


def test_of_many_threads_one_gets_the_key(queue: PgQueue, task: Task[[int], None]) -> None:
    together = threading.Barrier(8)

    def enqueue_at_once(number: int) -> JobHandle[None]:
        together.wait()
        return task.enqueue(number)

    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(enqueue_at_once, range(8)))
    assert Counter(handle.outcome for handle in handles) == {ADDED: 1, REJECTED: 7}
    (job_id,) = {handle.id for handle in handles}
    assert queue.job(job_id).collisions == 7


def test_processes_that_share_keys_never_run_two_jobs_of_one(dsn: str, queue: PgQueue) -> None:
    keys, times, enqueuers = 5, 100, 3
    with processes(dsn) as start:
        start(), start()
        asking = [start("enqueue", keys=keys, times=times) for _ in range(enqueuers)]
        accepted = sum(int(process.said()) for process in asking)
        wait_until(lambda: not live_jobs(dsn))
    assert queue.insight.search(state=JobState.DEAD).jobs == ()
    ((succeeded, collisions),) = ask(dsn, "select count(*), sum(collisions) from pgqueue.job_history")
    assert succeeded == accepted
    assert accepted + collisions == keys * times * enqueuers


STATIONS: dict[str, Callable[[PgQueue, UUID, Claim], object]] = {
    "running": lambda _, __, ___: None,
    "failed": lambda queue, worker, held: settle(queue, worker, Again(held, AT_ONCE, OOPS)),
    "to be retried": lambda queue, worker, held: settle(queue, worker, Again(held, AN_HOUR, OOPS)),
    "snoozed": lambda queue, worker, held: settle(queue, worker, Returned(held, AN_HOUR)),
    "given back": lambda queue, worker, held: settle(queue, worker, Returned(held)),
    "disowned": lambda queue, worker, _: do(queue, claim.return_unknown(worker, [])),
    "reclaimed": lambda queue, worker, _: (do(queue, leases.leave(worker)), do(queue, upkeep.reclaim())),
}


def test_a_job_that_has_not_ended_keeps_its_key(queue: PgQueue, task: Task[[int], None]) -> None:
    for number, (station, reach) in enumerate(STATIONS.items()):
        only = task.using(queue=f"queue_{number}", unique_key=station)
        holder = only.enqueue(1)
        worker = listed(queue)
        (held,) = do(queue, claim.claim(worker, {f"queue_{number}": 1}))
        reach(queue, worker, held)
        again = only.enqueue(2)
        assert (station, again.id, again.outcome) == (station, holder.id, REJECTED)
        assert queue.job(holder.id).collisions == 1


@pytest.mark.parametrize(
    "verdict",
    [lambda held: Succeeded(held, 0.0), lambda held: Died(held, 0.0, "asked", OOPS), Cancelled],
    ids=["succeeded", "dead", "cancelled"],
)
def test_a_job_that_has_ended_frees_its_key(
    verdict: Callable[[Claim], Verdict], queue: PgQueue, task: Task[[int], None]
) -> None:
    holder = task.enqueue(1)
    worker = listed(queue)
    settle(queue, worker, verdict(claimed(queue, worker)))
    again = task.enqueue(2)
    assert again.outcome is ADDED
    assert again.id != holder.id


@pytest.mark.parametrize("committed", [True, False])
def test_an_enqueue_waits_for_a_completion_that_is_on_its_way(
    committed: bool,  # noqa: FBT001 - a parameter of the test
    queue: PgQueue,
    dsn: str,
    connection: psycopg.Connection[Any],
    task: Task[[int], None],
) -> None:
    task.enqueue(1)
    worker = listed(queue)
    run_on(connection, finish.finish(worker, [Succeeded(claimed(queue, worker), 0.0)], keep=True))
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(task.enqueue, 2)
        wait_until(lambda: waiting_for_locks(dsn))
        connection.commit() if committed else connection.rollback()
        assert asked.result().outcome is (ADDED if committed else REJECTED)
    assert live_jobs(dsn) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_an_enqueue_waits_for_another_of_its_key(
    committed: bool,  # noqa: FBT001 - a parameter of the test
    dsn: str,
    connection: psycopg.Connection[Any],
    task: Task[[int], None],
) -> None:
    task.using(connection=connection).enqueue(1)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(task.enqueue, 2)
        wait_until(lambda: waiting_for_locks(dsn))
        connection.commit() if committed else connection.rollback()
        assert asked.result().outcome is (REJECTED if committed else ADDED)
    assert live_jobs(dsn) == 1


def test_a_dead_job_is_not_revived_beside_its_keys_new_holder(
    queue: PgQueue, task: Task[[int], None]
) -> None:
    dead = task.enqueue(1)
    worker = listed(queue)
    settle(queue, worker, Died(claimed(queue, worker), 0.0, "asked", OOPS))
    holder = task.enqueue(2)
    assert not queue.retry(dead.id)
    assert (dead.status(), holder.status()) == (JobState.DEAD, JobState.READY)
    holder.cancel()
    assert queue.retry(dead.id)
    assert task.enqueue(3).id == dead.id


def test_a_key_until_started_is_free_once_its_job_runs(queue: PgQueue, task: Task[[int], None]) -> None:
    until_started = task.using(unique=Unique(until="started"))
    running = until_started.enqueue(1)
    assert until_started.enqueue(2).outcome is REJECTED
    worker = listed(queue)
    held = claimed(queue, worker)
    waiting = until_started.enqueue(3)
    assert waiting.outcome is ADDED
    assert until_started.enqueue(4).id == waiting.id
    settle(queue, worker, Again(held, AT_ONCE, OOPS))  # back in line beside the new holder
    assert running.status() is waiting.status() is JobState.READY


def _job(task: Task[[int], None], number: int, **unique: Any) -> NewJob:
    return task.using(unique=Unique(**unique)).call(number).job


def test_a_key_for_a_period_outlives_its_job(queue: PgQueue, dsn: str, task: Task[[int], None]) -> None:
    now = database_clock(dsn)
    job = _job(task, 1, period=AN_HOUR)
    first = do(queue, enqueue.enqueue(job, now=now))
    worker = listed(queue)
    settle(queue, worker, Succeeded(claimed(queue, worker), 0.0))
    within = do(queue, enqueue.enqueue(job, now=now + AN_HOUR - timedelta(microseconds=1)))
    assert (within.id, within.outcome) == (first.id, REJECTED)
    after = do(queue, enqueue.enqueue(job, now=now + AN_HOUR))
    assert after.outcome is ADDED
    still_live = do(queue, enqueue.enqueue(job, now=now + 5 * AN_HOUR))
    assert (still_live.id, still_live.outcome) == (after.id, REJECTED)
    settle(queue, worker, Succeeded(claimed(queue, worker), 0.0))
    assert (
        do(queue, enqueue.enqueue(job, now=now + 5 * AN_HOUR)).outcome is ADDED
    )  # a rejected one holds nothing


def test_of_many_threads_one_gets_the_key_for_a_period(task: Task[[int], None]) -> None:
    together = threading.Barrier(8)

    def enqueue_at_once(number: int) -> JobHandle[None]:
        together.wait()
        return task.using(unique=Unique(period=AN_HOUR)).enqueue(number)

    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(enqueue_at_once, range(8)))
    assert Counter(handle.outcome for handle in handles) == {ADDED: 1, REJECTED: 7}
    assert len({handle.id for handle in handles}) == 1


def test_an_enqueue_that_lost_the_key_does_not_hold_it_for_its_period(
    dsn: str, connection: psycopg.Connection[Any], task: Task[[int], None]
) -> None:
    for_a_period = task.using(unique=Unique(period=AN_HOUR))
    holder = task.using(connection=connection).enqueue(1)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(for_a_period.enqueue, 2)
        wait_until(lambda: waiting_for_locks(dsn))
        connection.commit()
        assert asked.result().id == holder.id
    holder.cancel()
    assert for_a_period.enqueue(3).outcome is ADDED


def test_replace_changes_the_waiting_job_and_adds_none(
    queue: PgQueue, dsn: str, task: Task[[int], None]
) -> None:
    replacing = task.using(unique=Unique(collision="replace"))
    waiting = replacing.using(delay=AN_HOUR).enqueue(1)
    replaced = replacing.using(queue="other", priority=7).enqueue(2)
    assert (replaced.id, replaced.outcome) == (waiting.id, REPLACED)
    job = queue.job(waiting.id)
    assert (job.args, job.queue, job.priority, job.state) == ({"number": 2}, "other", 7, JobState.READY)
    assert (job.collisions, live_jobs(dsn)) == (1, 1)


def test_reschedule_changes_the_time_and_nothing_else(
    queue: PgQueue, dsn: str, task: Task[[int], None]
) -> None:
    rescheduling = task.using(unique=Unique(collision="reschedule"))
    waiting = rescheduling.enqueue(1)
    rescheduled = rescheduling.using(delay=AN_HOUR, queue="other").enqueue(2)
    assert (rescheduled.id, rescheduled.outcome) == (waiting.id, Outcome.RESCHEDULED)
    job = queue.job(waiting.id)
    assert (job.args, job.queue, job.state) == ({"number": 1}, "default", JobState.SCHEDULED)
    assert job.run_at > database_clock(dsn)
    assert (job.collisions, live_jobs(dsn)) == (1, 1)


@pytest.mark.parametrize("collision", ["replace", "reschedule"])
def test_a_running_job_is_never_changed(collision: Any, queue: PgQueue, task: Task[[int], None]) -> None:
    running = task.enqueue(1)
    claimed(queue, listed(queue))
    before = queue.job(running.id)
    refused = task.using(unique=Unique(collision=collision), delay=AN_HOUR).enqueue(2)
    assert (refused.id, refused.outcome) == (running.id, REJECTED)
    after = queue.job(running.id)
    assert (after.args, after.run_at, after.state) == (before.args, before.run_at, JobState.RUNNING)
    assert after.collisions == 1


@pytest.mark.parametrize("collision", ["replace", "reschedule"])
def test_a_job_that_is_being_changed_is_not_claimed_meanwhile(
    collision: Any, queue: PgQueue, connection: psycopg.Connection[Any], task: Task[[int], None]
) -> None:
    waiting = task.enqueue(1)
    changing = task.using(unique=Unique(collision=collision), connection=connection)
    assert changing.enqueue(2).id == waiting.id
    assert do(queue, claim.claim(listed(queue), {"default": 1})) == []
    connection.commit()
    assert claimed(queue, listed(queue)).id == waiting.id


def test_bulk_enqueues_keep_to_the_same_keys(queue: PgQueue, dsn: str, task: Task[[int], None]) -> None:
    other, third = task.using(unique_key="other"), task.using(unique_key="third")
    holder = task.enqueue(0)
    handles = queue.enqueue_many([task.call(1), other.call(2), task.call(3), other.call(4), third.call(5)])
    assert [handle.accepted for handle in handles] == [False, True, False, False, True]
    assert handles[0].id == handles[2].id == holder.id
    assert handles[3].id == handles[1].id
    assert [queue.job(handles[i].id).collisions for i in (0, 1, 4)] == [2, 1, 0]
    assert live_jobs(dsn) == 3


def test_bulk_enqueues_at_a_time_share_out_the_keys(
    queue: PgQueue, dsn: str, task: Task[[int], None]
) -> None:
    together = threading.Barrier(6)
    keyed = [task.using(unique_key=f"key {number}").call(number) for number in range(50)]

    def enqueue_at_once(number: int) -> int:
        together.wait()
        handles = queue.enqueue_many(keyed if number % 2 else reversed(keyed))
        return sum(handle.accepted for handle in handles)

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(enqueue_at_once, range(6))) == 50
    assert live_jobs(dsn) == 50
    assert ask(dsn, "select sum(collisions) from pgqueue.jobs") == [(250,)]


def test_sql_enqueues_keep_to_the_same_keys(queue: PgQueue, dsn: str, task: Task[[int], None]) -> None:
    holder = task.enqueue(1)
    statement = "select pgqueue.enqueue('note', '{\"number\": 2}', unique_key => 'key')"
    assert ask(dsn, statement) == [(holder.id,)]
    assert queue.job(holder.id).collisions == 1
    holder.cancel()
    assert ask(dsn, statement) != [(holder.id,)]
    assert task.enqueue(3).outcome is REJECTED
