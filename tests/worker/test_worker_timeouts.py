"""An attempt that outlives its task's timeout has failed, and its slot is free again."""

import asyncio
import threading
from datetime import timedelta

import psycopg
from looking import until
from running import Running
from tenacity import wait_fixed
from worker.helping import ended

from pgqueue import Context, JobState, PgQueue, Retry

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
