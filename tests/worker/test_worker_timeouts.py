"""An attempt that outlives its task's timeout has failed, and its slot is free again.

Threads that cannot be started, or do not come back: other jobs run, and no slot is lost.
"""

import asyncio
import os
import threading
from datetime import timedelta

import psycopg
import pytest
from looking import ask, until
from running import Running
from tenacity import wait_fixed
from worker.helping import beat, claimed, ended, hand_over

from pgqueue import Context, JobState, PgQueue, Retry
from pgqueue.store.jobs import control
from pgqueue.values.workers.health import MOST_NOT_RETURNED
from pgqueue.worker import runners
from pgqueue.worker.threads import Threads, Work

LATER = Retry(wait=wait_fixed(3600))


async def test_an_async_task_is_cancelled(queue: PgQueue, running: Running) -> None:
    cancelled = asyncio.Event()

    @queue.task(timeout=0.01, retry=LATER)
    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = linger.enqueue()
    async with running(queue):
        await until(lambda: job.status() is JobState.SCHEDULED)
    assert cancelled.is_set()
    (error,) = queue.job(job.id).errors
    assert error.type == "pgqueue.errors.TimedOut"
    assert "0:00:00.010000" in error.message


async def test_a_task_in_time_is_left_alone(queue: PgQueue, running: Running) -> None:
    @queue.task(timeout=timedelta(seconds=60))
    async def swift() -> str:
        await asyncio.sleep(0)
        return "done"

    job = swift.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.result, found.errors) == ("done", ())


async def test_a_timeout_error_of_the_tasks_own_is_not_taken_for_ours(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(timeout=60, max_attempts=1)
    async def impatient() -> None:
        raise TimeoutError("theirs")

    job = impatient.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert [(error.type, error.message) for error in found.errors] == [("TimeoutError", "theirs")]


async def test_a_plain_tasks_slot_is_free_and_its_late_word_is_not_heard(
    queue: PgQueue, running: Running
) -> None:
    release = threading.Event()
    told: list[bool] = []

    @queue.task(timeout=0.05, retry=LATER)
    def linger(ctx: Context) -> str:
        release.wait(20)
        told.append(ctx.cancelled)
        return "late"

    @queue.task
    def swift() -> None: ...

    late, nexts = linger.enqueue(), [swift.enqueue() for _ in range(3)]
    async with running(queue, concurrency=1) as worker:
        await ended(queue, *nexts)
        release.set()
        await until(lambda: told and worker.inspect().idle_threads == 2)
        assert not worker.inspect().running
    assert told == [True]
    found = queue.job(late.id)
    assert (found.state, found.attempts) == (JobState.SCHEDULED, 1)
    assert [error.type for error in found.errors] == ["pgqueue.errors.TimedOut"]


async def test_a_thread_whose_slot_was_given_up_takes_no_further_job(
    queue: PgQueue, running: Running
) -> None:
    release, go_on = threading.Event(), threading.Event()
    started: list[int] = []

    @queue.task(timeout=0.05, retry=LATER)
    def linger() -> None:
        release.wait(20)

    @queue.task
    def hold(number: int) -> None:
        started.append(number)
        go_on.wait(20)

    linger.enqueue()
    held = [hold.enqueue(1), hold.enqueue(2)]
    async with running(queue, concurrency=1) as worker:
        await until(lambda: started)
        release.set()
        await until(lambda: worker.inspect().idle_threads or len(started) > 1)
        assert (started, worker.inspect().slots_taken) == ([1], 1)
        go_on.set()
        await ended(queue, *held)
        await until(lambda: not worker.inspect().slots_taken)


async def test_a_timeout_after_the_transaction_leaves_the_job_completed(
    queue: PgQueue, running: Running, connection: psycopg.Connection[object]
) -> None:
    connection.execute("create table effects (attempt integer)")
    connection.commit()
    cancelled = asyncio.Event()

    @queue.task(timeout=1)  # longer than the transaction takes on a machine that is busy with other things
    async def tail(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("insert into effects values (1)")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    job = tail.enqueue()
    async with running(queue):
        async with asyncio.timeout(20):
            await cancelled.wait()
        (found,) = await ended(queue, job)
    assert (found.state, found.attempts, found.errors) == (JobState.SUCCEEDED, 1, ())


async def test_a_poll_takes_no_queues_timeout_away_from_an_attempt_that_starts_in_another_thread(
    queue: PgQueue, running: Running
) -> None:
    """Such a thread reads the timeouts at any moment of a poll: what it reads is never emptied."""
    queue.control.declare("default", timeout=30)
    async with running(queue) as worker:
        executor = worker.parts.executor
        await until(lambda: "default" in executor.timeouts)
        read = executor.timeouts
        queue.control.declare("default", timeout=40, existing="replace")
        await worker.parts.upkeep.poll()
        assert executor.timeouts["default"] == timedelta(seconds=40)
        assert read["default"] == timedelta(seconds=30)


async def test_when_no_thread_can_be_started_plain_jobs_go_back_and_the_others_run(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M8: after one "can't start new thread" no job of any kind started again."""
    monkeypatch.setattr(runners, "NO_THREAD_DELAY", timedelta(seconds=0.2))

    @queue.task
    def plain() -> None: ...

    @queue.task
    async def awaited() -> None: ...

    refusing = threading.Event()
    refusing.set()
    async with running(queue, concurrency=2, poll=timedelta(seconds=0.1)):
        start = Threads.start

        def start_none(threads: Threads, work: Work) -> None:
            if refusing.is_set():
                raise RuntimeError("can't start new thread")
            start(threads, work)

        monkeypatch.setattr(Threads, "start", start_none)
        plain_job, others = plain.enqueue(), [awaited.enqueue() for _ in range(5)]
        await ended(queue, *others)
        await until(
            lambda: any("cannot start more plain functions" in message for message in caplog.messages)
        )
        refusing.clear()
        (found,) = await ended(queue, plain_job)
    assert (found.state, found.attempts) == (JobState.SUCCEEDED, 1)


async def test_functions_that_were_given_up_and_go_on_are_bounded(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8: a function that hangs left a thread behind at each timeout, without limit."""
    monkeypatch.setattr(runners, "NO_THREAD_DELAY", timedelta(seconds=0.2))
    release = threading.Event()
    inside: list[None] = []

    @queue.task(timeout=0.05, retry=LATER)
    def hang() -> None:
        inside.append(None)
        release.wait(20)

    @queue.task
    async def awaited() -> None: ...

    @queue.task
    def plain() -> None: ...

    queue.enqueue_many(hang.call() for _ in range(20))
    async with running(queue, concurrency=1, poll=timedelta(seconds=0.1)) as worker:
        await until(lambda: worker.inspect().not_returned == MOST_NOT_RETURNED)
        await beat(worker)
        (problem,) = queue.database.run(control.worker_problems())
        assert (problem.pid, problem.not_returned) == (os.getpid(), MOST_NOT_RETURNED)
        await ended(queue, awaited.enqueue())
        assert len(inside) == MOST_NOT_RETURNED
        ask(queue, "delete from pgqueue.jobs where task = %s and status <> 'running'", hang.name)
        release.set()
        await ended(queue, plain.enqueue())
        await until(lambda: not worker.inspect().not_returned)


@pytest.mark.parametrize("plain", [True, False])
async def test_no_slot_is_lost_when_a_job_is_claimed_again_while_it_runs(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    """M7: a server that crashed had forgotten the claim (simulated), and the same worker claims the job again."""
    release, released = threading.Event(), asyncio.Event()
    attempts: list[Context] = []

    def block(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            release.wait(20)

    async def ablock(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            await released.wait()

    task = queue.task(name="block")(block if plain else ablock)
    job = task.enqueue()
    async with running(queue, concurrency=2, poll=timedelta(hours=1)) as worker:
        await until(lambda: attempts)
        ask(queue, "update pgqueue.jobs set status = 'ready', worker_id = null, attempts = 0")
        again = claimed(queue, worker)
        hand_over(worker, again)
        (found,) = await ended(queue, job)
        release.set()
        released.set()
        await until(lambda: worker.inspect().slots_taken == worker.inspect().not_returned == 0)
    assert (found.state, [one.cancelled for one in attempts]) == (JobState.SUCCEEDED, [True, False])
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(1,)]
