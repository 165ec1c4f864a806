"""Promise 1: a committed enqueue ends in exactly one terminal record, whatever crashes; a rolled-back one
leaves nothing.

Workers are killed while they work, connections are cut while a completion is on its way, and every record
of every job is counted.
"""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from looking import ask, until, wait_until
from promises.processes import (
    calls_of,
    claimed,
    closed_gate,
    do,
    held_by,
    listed,
    live_jobs,
    processes,
    waiting_for_locks,
)
from promises.workshop import Workshop
from running import Running

from pgqueue import JobHandle, JobState, PgQueue
from pgqueue.store.jobs import finish
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.verdict import Again, Died, Returned, Succeeded

ROUNDS = 3
SUCCEEDED, DEAD, CANCELLED = {"succeeded"}, {"dead"}, {"cancelled"}
AN_HOUR = timedelta(hours=1)


def records(dsn: str) -> Counter[int]:
    """How many records there are of each job, live and ended ones counted alike."""
    return Counter(job for (job,) in ask(dsn, "select id from pgqueue.all_jobs"))


def enqueue_mix(workshop: Workshop, dsn: str) -> dict[int, set[str]]:
    """Jobs of every fate, among others that are rolled back; the states in which each may end."""
    with psycopg.connect(dsn) as connection:
        fates = {
            workshop.succeed.using(connection=connection): SUCCEEDED,
            workshop.fail.using(connection=connection): DEAD,
            workshop.snooze.using(connection=connection): SUCCEEDED,
            workshop.give_up.using(connection=connection): DEAD,
        }
        kept = {task.enqueue().id: ends for task, ends in fates.items() for _ in range(10)}
        connection.commit()
        for task in fates:
            task.enqueue()
        connection.rollback()
    waiting = workshop.succeed.using(delay=AN_HOUR).enqueue()
    assert waiting.cancel() is JobState.CANCELLED
    return {**kept, waiting.id: CANCELLED}


def test_every_job_ends_once_while_workers_are_killed(dsn: str, queue: PgQueue) -> None:
    workshop = Workshop(queue)
    expected: dict[int, set[str]] = {}
    with processes(dsn) as start:
        workers = [start(lease=2.0), start(lease=2.0)]
        for _ in range(ROUNDS):
            victim = workers.pop(0)
            with closed_gate(dsn) as open_gate:
                expected |= enqueue_mix(workshop, dsn)
                held = queue.enqueue_many(workshop.hold.call() for _ in range(60))
                expected |= {handle.id: SUCCEEDED for handle in held}
                wait_until(partial(held_by, dsn, victim.pid))
                expected |= {handle.id: SUCCEEDED | CANCELLED for handle in held[::10]}
                for handle in held[::10]:
                    handle.cancel()
                victim.kill()
                open_gate()
            workers.append(start(lease=2.0))
        wait_until(lambda: not live_jobs(dsn))
    assert records(dsn) == dict.fromkeys(expected, 1)
    ended = ask(dsn, "select id, state from pgqueue.all_jobs")
    assert [(job, state) for job, state in ended if state not in expected[job]] == []
    assert ask(dsn, 'select id from pgqueue.all_jobs where errors @> \'[{"type": "WorkerLost"}]\'')


def test_every_job_of_a_batch_ends_once_while_workers_are_killed(dsn: str, queue: PgQueue) -> None:
    """Killed while claims gather, in the middle of calls, and before the commit of what a batch has written."""
    workshop, expected = Workshop(queue), set[int]()
    with processes(dsn) as start:
        workers = [start(lease=2.0), start(lease=2.0)]
        for _ in range(ROUNDS):
            victim = workers.pop(0)
            with closed_gate(dsn) as open_gate:
                jobs = queue.enqueue_many(workshop.commit_together.call(line % 7) for line in range(100))
                expected |= {handle.id for handle in jobs}
                wait_until(partial(held_by, dsn, victim.pid))
                wait_until(partial(calls_of, dsn, victim.pid))
                victim.kill()
                open_gate()
            workers.append(start(lease=2.0))
        wait_until(lambda: not live_jobs(dsn))
    assert records(dsn) == dict.fromkeys(expected, 1)
    assert {state for (state,) in ask(dsn, "select state from pgqueue.all_jobs")} == {"succeeded"}
    committed = Counter(int(key.partition("/")[0]) for (key,) in ask(dsn, "select key from busy"))
    assert committed == dict.fromkeys(expected, 1)
    assert len(ask(dsn, "select job from marks")) > len(expected), "no call was killed"


async def test_a_rolled_back_enqueue_leaves_nothing(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any], running: Running
) -> None:
    ran = []

    @queue.task
    async def note(name: str) -> None:
        ran.append(name)

    rolled_back = note.using(connection=connection)
    rolled_back.enqueue("one")
    rolled_back.using(delay=AN_HOUR).enqueue("later")
    rolled_back.using(unique_key="key").enqueue("unique")
    queue.enqueue_many(
        [note.call("many"), note.using(unique_key="other").call("many")], connection=connection
    )
    connection.rollback()
    kept = await note.using(unique_key="key").aenqueue("kept")
    async with running(queue):
        await kept.aresult(timeout=20)
    assert ran == ["kept"]
    assert records(dsn) == {kept.id: 1}
    await queue.aclose()


def test_a_completion_written_twice_is_recorded_once(queue: PgQueue, dsn: str) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    verdict = Succeeded(claimed(queue, worker), 0.0)
    assert do(queue, finish.finish(worker, [verdict], keep=True)).keys() == {handle.id}
    assert do(queue, finish.finish(worker, [verdict], keep=True)) == {}
    assert records(dsn) == {handle.id: 1}


async def test_a_completion_is_recorded_though_its_connection_is_cut(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any], running: Running
) -> None:
    runs = []

    @queue.task
    async def note() -> int:
        connection.execute("select from pgqueue.jobs for update")
        runs.append(1)
        return len(runs)

    handle = await note.aenqueue()
    async with running(queue, lease=timedelta(seconds=3)):
        cut: list[int] = []
        while len(cut) < ROUNDS:
            await until(lambda: waiting_for_locks(dsn))
            cut += terminate(dsn, waiting_for_locks(dsn))
        connection.rollback()
        assert await handle.aresult(timeout=20) == 1
    assert records(dsn) == {handle.id: 1}
    await queue.aclose()


async def test_cut_connections_lose_and_double_nothing(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any], running: Running
) -> None:
    @queue.task
    async def note(number: int) -> int:
        return number

    handles: list[JobHandle[int]] = []
    async with running(queue, concurrency=4):
        for _ in range(5):
            handles += queue.enqueue_many((note.call(number) for number in range(200)), connection=connection)
            connection.commit()
            await until(partial(more_than, len(handles) - 150, ended_jobs, dsn))
            terminate(dsn, backends(dsn))
        await until(lambda: not live_jobs(dsn))
    assert records(dsn) == dict.fromkeys((handle.id for handle in handles), 1)
    await queue.aclose()


def more_than(limit: int, count: Callable[[str], int], dsn: str) -> bool:
    return count(dsn) > limit


def ended_jobs(dsn: str) -> int:
    count: int = ask(dsn, "select count(*) from pgqueue.job_history")[0][0]
    return count


def backends(dsn: str) -> list[int]:
    """Every connection of pgqueue's own."""
    statement: LiteralString = """
        select pid from pg_stat_activity where datname = current_database() and application_name = 'pgqueue'"""
    return [pid for (pid,) in ask(dsn, statement)]


def terminate(dsn: str, pids: list[int]) -> list[int]:
    return [pid for pid in pids if ask(dsn, "select pg_terminate_backend(%s)", pid) == [(True,)]]


@pytest.mark.parametrize("delay", [None, timedelta(0)], ids=["returned", "failed"])
def test_a_running_job_that_was_cancelled_does_not_come_back(
    delay: timedelta | None, queue: PgQueue, dsn: str
) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    claim = claimed(queue, worker)
    assert handle.cancel() is JobState.RUNNING
    verdict = Again(claim, delay, describe(ValueError(), 1)) if delay is not None else Returned(claim)
    assert do(queue, finish.finish(worker, [verdict], keep=True)).keys() == {handle.id}
    assert (handle.status(), records(dsn)) == (JobState.CANCELLED, {handle.id: 1})


def test_retrying_a_dead_job_moves_its_record(queue: PgQueue, dsn: str) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    claim = claimed(queue, worker)
    error = describe(ValueError(), claim.attempt)
    do(queue, finish.finish(worker, [Died(claim, 0.0, "asked", error)], keep=True))
    assert (handle.status(), records(dsn)) == (JobState.DEAD, {handle.id: 1})
    assert queue.retry(handle.id)
    assert (handle.status(), records(dsn)) == (JobState.READY, {handle.id: 1})
    assert handle.cancel() is JobState.CANCELLED
    assert handle.cancel() is None
    assert (handle.status(), records(dsn)) == (JobState.CANCELLED, {handle.id: 1})
