"""Promise 6: a dead worker's jobs run elsewhere within lease + one sweep. A stopping worker finishes or
returns every job; unstarted claims go back unspent.

When a lease ends is decided by injected instants; that workers act on it is shown by processes that are
killed, told to stop once, and told to stop twice.
"""

import asyncio
import os
import signal
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from looking import ask, until, wait_until
from promises.processes import (
    GUARD,
    LEASE,
    LONG_LEASE,
    claimed,
    closed_gate,
    database_clock,
    do,
    held_by,
    listed,
    processes,
    run_on,
)
from promises.workshop import Workshop
from running import Running

from pgqueue import Context, JobHandle, JobState, PgQueue
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals
from pgqueue.worker.worker import Worker

A_MOMENT = timedelta(microseconds=1)


def test_a_lease_holds_to_its_last_moment_and_no_longer(queue: PgQueue, dsn: str) -> None:
    handle = Workshop(queue).succeed.enqueue()
    now = database_clock(dsn)
    claimed(queue, listed(queue, now=now))
    assert do(queue, upkeep.reclaim(now=now + LEASE)) == {}
    assert handle.status() is JobState.RUNNING
    assert do(queue, upkeep.reclaim(now=now + LEASE + A_MOMENT)) == {handle.id: JobState.READY}
    assert handle.status() is JobState.READY


def test_every_beat_holds_the_lease_from_then_on(queue: PgQueue, dsn: str) -> None:
    handle = Workshop(queue).succeed.enqueue()
    now = database_clock(dsn)
    worker = listed(queue, now=now)
    claimed(queue, worker)
    for beat in range(1, 5):
        at = now + beat * LEASE
        assert do(queue, leases.beat(worker, LEASE, now=at)) is not None
        assert do(queue, upkeep.reclaim(now=at + LEASE)) == {}
    assert do(queue, upkeep.reclaim(now=at + LEASE + A_MOMENT)) == {handle.id: JobState.READY}


def test_only_the_lost_workers_jobs_are_reclaimed(queue: PgQueue, dsn: str) -> None:
    task = Workshop(queue).succeed
    now = database_clock(dsn)
    held, lost = task.enqueue(), task.enqueue()
    living, dead = listed(queue, 2 * LEASE, now=now), listed(queue, now=now)
    for worker in (living, dead):
        do(queue, claim.claim(worker, {"default": 1}))
    assert do(queue, upkeep.reclaim(now=now + LEASE + A_MOMENT)) == {lost.id: JobState.READY}
    assert queue.job(held.id).worker_id == living
    assert ask(dsn, "select id from pgqueue.workers") == [(living,)]


@pytest.mark.parametrize("by", ["delete from pgqueue.workers", "truncate pgqueue.workers"])
def test_workers_deleted_by_hand_lose_their_jobs_at_the_next_sweep(
    by: LiteralString, queue: PgQueue, dsn: str
) -> None:
    handle = Workshop(queue).succeed.enqueue()
    claimed(queue, listed(queue))
    ask(dsn, by)
    assert do(queue, upkeep.reclaim()) == {handle.id: JobState.READY}


def test_jobs_of_workers_that_were_never_on_the_list_are_found(queue: PgQueue, dsn: str) -> None:
    """As after a restore of the jobs alone."""
    succeed = Workshop(queue).succeed
    handle, held = succeed.enqueue(), succeed.enqueue()
    known = listed(queue)
    do(queue, claim.claim(known, {"default": 2}))
    ask(dsn, "update pgqueue.jobs set worker_id = gen_random_uuid() where id = %s", handle.id)
    assert do(queue, upkeep.reclaim()) == {}
    assert do(queue, upkeep.note_unlisted_workers()) == 1
    assert do(queue, upkeep.note_unlisted_workers()) == 0
    assert do(queue, upkeep.reclaim()) == {handle.id: JobState.READY}
    assert held.status() is JobState.RUNNING


def test_a_job_that_was_made_running_by_hand_is_found_as_well(queue: PgQueue, dsn: str) -> None:
    succeed = Workshop(queue).succeed
    handle, waiting = succeed.enqueue(), succeed.enqueue()
    ask(dsn, "update pgqueue.jobs set status = 'running' where id = %s", handle.id)
    assert do(queue, upkeep.note_unlisted_workers()) == 1
    assert do(queue, upkeep.reclaim()) == {handle.id: JobState.READY}
    assert queue.job(waiting.id).worker_id is None


def test_a_lost_job_that_somebody_has_locked_is_reclaimed_by_a_later_sweep(
    queue: PgQueue, connection: psycopg.Connection[Any], dsn: str
) -> None:
    succeed = Workshop(queue).succeed
    free, locked = succeed.enqueue(), succeed.enqueue()
    worker = listed(queue)
    do(queue, claim.claim(worker, {"default": 2}))
    do(queue, leases.leave(worker))
    connection.execute("select from pgqueue.jobs where id = %s for update", [locked.id])
    assert do(queue, upkeep.reclaim()) == {free.id: JobState.READY}
    assert ask(dsn, "select worker_id from pgqueue.lost_workers") == [(worker,)]
    connection.rollback()
    assert do(queue, upkeep.reclaim()) == {locked.id: JobState.READY}
    assert ask(dsn, "select worker_id from pgqueue.lost_workers") == []


def test_a_worker_that_retires_with_nothing_in_hand_is_not_looked_for(queue: PgQueue, dsn: str) -> None:
    do(queue, leases.leave_without_jobs(listed(queue)))
    assert ask(dsn, "select from pgqueue.workers") == ask(dsn, "select from pgqueue.lost_workers") == []
    assert not do(queue, upkeep.poll()).lost


def test_a_tick_tells_of_lost_workers(queue: PgQueue, dsn: str) -> None:
    now = database_clock(dsn)
    worker = listed(queue, now=now)
    assert not do(queue, upkeep.poll(now=now + LEASE)).lost
    assert do(queue, upkeep.poll(now=now + LEASE + A_MOMENT)).lost
    do(queue, leases.leave(worker))
    assert do(queue, upkeep.poll(now=now)).lost


def test_a_lost_job_that_was_to_be_cancelled_is(queue: PgQueue) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    claimed(queue, worker)
    assert handle.cancel() is JobState.RUNNING
    do(queue, leases.leave(worker))
    assert do(queue, upkeep.reclaim()) == {handle.id: JobState.CANCELLED}


def test_two_sweeps_at_a_time_reclaim_a_job_once(queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    claimed(queue, worker)
    do(queue, leases.leave(worker))
    assert run_on(connection, upkeep.reclaim()) == {handle.id: JobState.READY}
    assert do(queue, upkeep.reclaim()) == {}
    connection.commit()
    job = queue.job(handle.id)
    assert (job.state, job.attempts, len(job.errors)) == (JobState.READY, 1, 1)


def test_a_killed_workers_jobs_run_elsewhere(queue: PgQueue, dsn: str) -> None:
    hold = Workshop(queue).hold
    with processes(dsn) as start:
        with closed_gate(dsn):
            handles = [hold.enqueue() for _ in range(3)]
            victim = start(lease=2.0)
            wait_until(lambda: len(ask(dsn, "select id from marks")) == 3)
            victim.kill()
        start(lease=LONG_LEASE)
        for handle in handles:
            handle.result(timeout=GUARD)
    for handle in handles:
        job = queue.job(handle.id)
        assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
        assert [error.type for error in job.errors] == ["WorkerLost"]


async def test_a_worker_whose_row_is_deleted_joins_afresh(queue: PgQueue, dsn: str, running: Running) -> None:
    names, stopped = [], []

    @queue.task
    async def hold(ctx: Context) -> None:
        names.append(ctx.job.worker_id)
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(ctx.attempt)

    handle = await hold.aenqueue()
    async with running(queue, lease=timedelta(seconds=2), sweep=timedelta(seconds=0.1)) as worker:
        await until(lambda: names)
        ask(dsn, "delete from pgqueue.workers")
        await handle.aresult(timeout=GUARD)
        assert stopped == [1]
        assert names[0] != names[1] == worker.id
    await queue.aclose()


def renewed_for(dsn: str, span: timedelta) -> bool:
    """Whether the one worker has extended its lease to so long after its start."""
    return bool(ask(dsn, "select id from pgqueue.workers where lease_until > started_at + %s", span))


async def test_a_worker_keeps_its_lease_and_its_jobs_while_they_run(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    runs, let_go = [], asyncio.Event()

    @queue.task
    async def hold() -> None:
        runs.append("run")
        await let_go.wait()

    handle = await hold.aenqueue()
    async with running(queue, lease=timedelta(seconds=3)):
        await until(
            lambda: ask(
                dsn, "select id from pgqueue.workers where lease_until > started_at + interval '3.5s'"
            )
        )
        let_go.set()
        await handle.aresult(timeout=GUARD)
    assert runs == ["run"]
    await queue.aclose()


async def test_a_claim_whose_answer_was_lost_is_disowned_at_the_next_comparison(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any], running: Running
) -> None:
    @queue.task
    async def attempt(ctx: Context) -> int:
        return ctx.attempt

    async with running(queue, lease=timedelta(seconds=3), sweep=timedelta(hours=1)) as worker:
        await until(lambda: ask(dsn, "select id from pgqueue.workers"))
        handle = attempt.using(connection=connection).enqueue()
        (lost,) = run_on(connection, claim.claim(worker.id, {"default": 1}))
        connection.commit()
        assert lost.id == handle.id
        worker.parts.connections.claiming.losses += 1
        assert await handle.aresult(timeout=GUARD) == 1
    await queue.aclose()


async def test_a_job_whose_completion_is_held_up_is_not_disowned(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any], running: Running
) -> None:
    runs = []

    @queue.task
    async def lock_its_job() -> None:
        runs.append("run")
        connection.execute("select from pgqueue.jobs for update")

    handle = await lock_its_job.aenqueue()
    async with running(queue, lease=timedelta(seconds=3)):
        await until(lambda: renewed_for(dsn, timedelta(seconds=4.5)))
        connection.rollback()
        await handle.aresult(timeout=GUARD)
    assert runs == ["run"]
    await queue.aclose()


def test_nothing_that_is_known_is_disowned(queue: PgQueue) -> None:
    task = Workshop(queue).succeed
    known, unknown = task.enqueue(), task.enqueue()
    worker = listed(queue)
    do(queue, claim.claim(worker, {"default": 2}))
    other = task.enqueue()
    claimed(queue, listed(queue))
    assert do(queue, claim.return_unknown(worker, [known.id])) == [unknown.id]
    assert [handle.status() for handle in (known, unknown, other)] == [
        JobState.RUNNING,
        JobState.READY,
        JobState.RUNNING,
    ]


def states(queue: PgQueue, handles: list[JobHandle[None]]) -> list[tuple[JobState, int]]:
    """The state and the spent attempts of each job."""
    jobs = [queue.job(handle.id) for handle in handles]
    return [(job.state, job.attempts) for job in jobs]


async def test_a_stopping_worker_finishes_what_runs_and_returns_the_rest(queue: PgQueue, dsn: str) -> None:
    began, let_go = [], asyncio.Event()

    @queue.task(priority=1)
    async def warm_up() -> None:
        """These end at once, and the worker claims ahead."""

    @queue.task
    async def hold(ctx: Context) -> None:
        began.append(ctx.job.id)
        await let_go.wait()

    await queue.aenqueue_many(warm_up.call() for _ in range(1_000))
    handles = await queue.aenqueue_many(hold.call() for _ in range(1_000))
    worker = Worker(queue, concurrency=2)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(began) == 2 and held_by(dsn, os.getpid()) > 2)
    worker.stop()
    await until(lambda: held_by(dsn, os.getpid()) == 2)
    assert not running.done()
    let_go.set()
    await running
    assert states(queue, handles) == [
        (JobState.SUCCEEDED, 1) if handle.id in began else (JobState.READY, 0) for handle in handles
    ]
    assert len(began) == 2
    assert ask(dsn, "select id from pgqueue.workers") == []
    await queue.aclose()


@pytest.mark.parametrize("stops", [1, 2], ids=["no grace", "a second stop"])
async def test_jobs_over_the_grace_are_returned_unspent(stops: int, queue: PgQueue, dsn: str) -> None:
    began, let_go = [], threading.Event()

    @queue.task
    async def hold() -> None:
        began.append("hold")
        await asyncio.Event().wait()

    @queue.task
    def hold_thread() -> None:
        began.append("hold_thread")
        let_go.wait()

    handles = [await hold.aenqueue(), await hold_thread.aenqueue()]
    worker = Worker(queue, grace=timedelta(hours=1) if stops == 2 else timedelta(0))
    running = asyncio.create_task(worker.run())
    await until(lambda: len(began) == 2)
    for _ in range(stops):
        worker.stop()
    await running
    assert states(queue, handles) == [(JobState.READY, 0)] * 2
    assert ask(dsn, "select id from pgqueue.workers") == []
    let_go.set()
    await queue.aclose()


async def test_a_job_that_does_not_heed_its_stop_is_returned_all_the_same(queue: PgQueue) -> None:
    ending: list[asyncio.Task[Any] | None] = []
    let_go = asyncio.Event()

    @queue.task
    async def stay() -> None:
        ending.append(asyncio.current_task())
        with suppress(asyncio.CancelledError):
            await let_go.wait()
        await let_go.wait()

    handle = await stay.aenqueue()
    worker = Worker(queue, grace=timedelta(0))
    running = asyncio.create_task(worker.run())
    await until(lambda: ending)
    worker.stop()
    await running
    assert states(queue, [handle]) == [(JobState.READY, 0)]
    let_go.set()
    await asyncio.wait([task for task in ending if task is not None])
    assert states(queue, [handle]) == [(JobState.READY, 0)]
    await queue.aclose()


async def test_a_second_stop_loses_nothing_that_was_done(queue: PgQueue, dsn: str) -> None:
    let_go = asyncio.Event()

    @queue.task
    async def hold(number: int) -> int:
        await let_go.wait()
        return number

    handles = await queue.aenqueue_many(hold.call(number) for number in range(20))
    worker = Worker(queue)
    running = asyncio.create_task(worker.run())
    await until(lambda: held_by(dsn, os.getpid()) == 20)
    let_go.set()
    worker.stop()
    worker.stop()
    await running
    jobs = [queue.job(handle.id) for handle in handles]
    assert {job.state for job in jobs} <= {JobState.SUCCEEDED, JobState.READY}
    assert all(job.attempts == (job.state is JobState.SUCCEEDED) for job in jobs)
    await queue.aclose()


@pytest.mark.parametrize("stops", [1, 2])
def test_a_process_told_to_stop_leaves_every_job_ended_or_unspent(
    stops: int, queue: PgQueue, dsn: str
) -> None:
    workshop = Workshop(queue)
    with processes(dsn) as start, closed_gate(dsn) as open_gate:
        handles = [workshop.hold.enqueue() for _ in range(10)]
        process = start(concurrency=4)
        wait_until(lambda: len(ask(dsn, "select id from marks")) == 4)
        process.signal(signal.SIGTERM)
        wait_until(
            lambda: "worker stopping" in process.log()
        )  # a second signal before that would be one with the first
        wait_until(lambda: held_by(dsn, process.pid) == 4)
        if stops == 1:
            open_gate()
        else:
            process.signal(signal.SIGTERM)
        assert process.ended() == 0, process.log()
    spent = (JobState.SUCCEEDED, 1) if stops == 1 else (JobState.READY, 0)
    assert states(queue, handles) == [spent] * 4 + [(JobState.READY, 0)] * 6
    assert ask(dsn, "select id from pgqueue.workers") == []


@pytest.mark.parametrize("why", ["cancel", "shutdown"])
async def test_a_claim_whose_runner_has_not_come_yet_ends_unspent(why: str, queue: PgQueue) -> None:
    handle = await Workshop(queue).succeed.aenqueue()
    held = claimed(queue, listed(queue))
    connection = WorkerConnection("finishes", queue.database)
    executor = Executor(queue)
    claims = Claims(1, tasks=queue.tasks, host=executor)
    completer = Completer(connection, claims, queue)
    runners = Runners(claims, executor, completer, signals=Signals())
    runners.add([held])
    if why == "cancel":
        runners.cancel([held.id])
    else:
        claims.close()
        runners.return_waiting()
    async with asyncio.timeout(GUARD):
        await runners.emptied()
    await completer.run_once()
    await connection.close()
    assert states(queue, [handle]) == [(JobState.CANCELLED, 1) if why == "cancel" else (JobState.READY, 0)]
    await queue.aclose()
