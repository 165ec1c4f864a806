"""``@queue.remote``: functions whose calls run as jobs, and whose callers await the results.

A job as its enqueuer sees it: where it stands, its end, its result.
"""

import asyncio
import inspect
import pickle
import traceback
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import GUARD, ask, until
from running import Running
from tenacity import wait_none

from pgqueue import Codec, Context, Dead, JobHandle, JobPart, JobState, PgQueue, Retry, Unique
from pgqueue.errors import InvalidOption, JobFailed, JobNotDone, JobNotFound, PayloadNotEncodable
from pgqueue.testing import adrain, eager, in_memory
from pgqueue.values.jobs.job import EnqueueAnswer


class Backwards(Codec):
    def encode(self, data: bytes, part: JobPart) -> str:  # noqa: ARG002 - as of Codec
        return data.decode()[::-1]

    def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - as of Codec
        return text[::-1].encode()


async def test_a_call_runs_as_a_job_and_returns_its_result(queue: PgQueue, running: Running) -> None:
    queue.database.ends.poll = 3600

    @queue.remote
    async def add(one: int, other: int) -> int:
        """Add two numbers."""
        return one + other

    @queue.remote(name="attempts", queue="default", max_attempts=3)
    def attempt(ctx: Context, day: timedelta) -> tuple[int, timedelta]:
        return ctx.attempt, day

    async with running(queue):
        async with asyncio.timeout(GUARD):
            assert await add(1, other=2) == 3
            assert await attempt(timedelta(days=2)) == (1, timedelta(days=2))
            assert await asyncio.gather(*(add(n, n) for n in range(50))) == [2 * n for n in range(50)]
    assert (add.task.name.endswith(".add"), attempt.task.name) == (True, "attempts")
    assert inspect.iscoroutinefunction(add)
    assert (add.__name__, add.__doc__) == ("add", "Add two numbers.")  # type: ignore[attr-defined]  # a function's own
    assert attempt.task.options.max_attempts == 3


async def test_arguments_that_do_not_fit_are_refused_before_there_is_a_job(queue: PgQueue) -> None:
    @queue.remote
    async def add(one: int, other: int) -> int:
        return one + other

    with pytest.raises(PayloadNotEncodable):
        await add(1)  # type: ignore[call-arg]  # that is the point
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]
    await queue.aclose()


async def test_a_call_inside_of_a_jobs_transaction_ends(queue: PgQueue, running: Running) -> None:
    @queue.remote
    async def inner(number: int) -> int:
        return 2 * number

    @queue.task
    async def outer(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            doubled = await inner(21)
            await connection.execute("insert into found values (%s)", [doubled])

    ask(queue, "create table found (number integer)")
    async with running(queue):
        await outer.enqueue().aresult(timeout=GUARD)
    assert ask(queue, "select number from found") == [(42,)]


async def test_a_call_of_a_task_with_other_options_uses_them(queue: PgQueue, running: Running) -> None:
    @queue.task(unique=Unique(by=("number",)))
    async def square(number: int) -> int:
        return number * number

    urgent = queue.remote(square.using(priority=50, meta={"tenant": "shop"}))
    async with running(queue, concurrency=5):
        found = await asyncio.gather(urgent(3), urgent(3), urgent(4))
    assert list(found) == [9, 9, 16]
    rows = ask(queue, "select priority, meta from pgqueue.job_history")
    assert rows == [(50, {"tenant": "shop"})] * len(rows)


def test_a_task_with_a_callers_connection_is_refused(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    @queue.task(name="note")
    async def note() -> None: ...

    with pytest.raises(InvalidOption, match=r"note.using\(connection=...\)\): a call waits for its job"):
        queue.remote(note.using(connection=connection))
    with pytest.raises(InvalidOption, match=r"queue\.task on 5"):
        queue.remote(5)  # type: ignore[call-overload]  # that is the point


async def test_a_caller_that_is_cancelled_leaves_the_job(queue: PgQueue) -> None:
    @queue.remote
    async def slow() -> int:
        return 1

    call = asyncio.create_task(slow())
    await until(lambda: queue.database.ends.waits)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [job.state for job in queue.insight.search().jobs] == [JobState.READY]
    assert not queue.database.ends.waits
    await queue.aclose()


@pytest.mark.parametrize("codec", [None, Backwards()])
async def test_an_error_reaches_the_caller_with_its_remote_traceback(
    dsn: str, running: Running, codec: Codec | None
) -> None:
    queue = PgQueue(dsn, codec=codec)

    @queue.remote(max_attempts=1)
    async def bill(customer: str) -> None:
        raise LookupError(f"no customer {customer}")

    async with running(queue):
        with pytest.raises(JobFailed, match=r"is dead: LookupError: no customer tea\n") as caught:
            await bill("tea")
    failed = caught.value
    assert failed.error is not None
    assert failed.job is not None
    assert (failed.error.type, failed.error.message, failed.error.attempt) == (
        "LookupError",
        "no customer tea",
        1,
    )
    assert (failed.job.state, failed.job.args) == (JobState.DEAD, {"customer": "tea"})
    shown = "".join(traceback.format_exception(failed))
    assert f"attempt 1 of job {failed.job.id}, in the worker:\nTraceback (most recent call last):" in shown
    assert 'raise LookupError(f"no customer {customer}")' in shown
    again = pickle.loads(pickle.dumps(failed))  # noqa: S301 - our own
    assert (str(again), again.error, again.__notes__) == (str(failed), failed.error, failed.__notes__)
    queue.close()


async def test_a_caller_of_a_job_that_is_cancelled_is_told_so(queue: PgQueue) -> None:
    @queue.remote
    async def note() -> None: ...

    caller = asyncio.create_task(note())
    await until(lambda: queue.database.ends.waits)
    (job,) = queue.insight.search().jobs
    queue.cancel(job.id)
    with pytest.raises(JobFailed, match=r"is cancelled$") as caught:
        await caller
    assert (caught.value.error, caught.value.job and caught.value.job.state) == (None, JobState.CANCELLED)
    await queue.aclose()


async def test_a_job_that_gave_up_says_why(queue: PgQueue, running: Running) -> None:
    @queue.remote
    async def note() -> None:
        raise Dead("no address")

    async with running(queue):
        with pytest.raises(JobFailed, match="no address"):
            await note()


async def test_an_error_without_a_traceback_has_no_note() -> None:
    plain = JobFailed("as before")
    assert (plain.job, plain.error, getattr(plain, "__notes__", [])) == (None, None, [])


async def test_in_memory_a_call_says_that_nothing_runs_its_job(queue: PgQueue) -> None:
    @queue.remote
    async def double(number: int) -> int:
        return 2 * number

    with in_memory(queue):
        with pytest.raises(
            JobNotDone,
            match=r"it is ready, and its queue is in memory for a test, where only pgqueue.testing.drain\(queue\) runs jobs",
        ):
            await double(2)
        assert [job.args for job in await adrain(queue)] == [{"number": 2}]
    with eager(queue):
        assert await double(3) == 6
    assert await double.task(4) == 8


async def test_a_handle_follows_the_job_to_its_result(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def add(one: int, other: int) -> int:
        return one + other

    job = await add.aenqueue(2, 3)
    later = add.using(delay=timedelta(hours=1)).enqueue(0, 0)
    assert (await job.astatus(), later.status()) == (JobState.READY, JobState.SCHEDULED)
    async with running(queue):
        assert await job.aresult(timeout=20) == 5
    assert job.status() is JobState.SUCCEEDED
    assert job.result() == 5
    assert (job.accepted, repr(job)) == (True, f"<JobHandle {job.id} added>")


async def test_a_result_that_does_not_come_in_time_is_not_done(queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    job = note.enqueue()
    for timeout in (0, 0.02, timedelta(seconds=0.01)):
        with pytest.raises(JobNotDone, match=f"job {job.id} has not ended"):
            job.result(timeout=timeout)
        with pytest.raises(TimeoutError):
            await job.aresult(timeout=timeout)
    await queue.aclose()


async def test_a_dead_job_has_no_result_but_a_reason(queue: PgQueue, running: Running) -> None:
    @queue.task(retry=Retry(wait=wait_none()), max_attempts=2)
    async def fail() -> None:
        raise ValueError("no such customer")

    job = fail.enqueue()
    async with running(queue):
        with pytest.raises(JobFailed, match="is dead: ValueError: no such customer"):
            await job.aresult(timeout=20)
    with pytest.raises(JobFailed, match="no such customer"):
        job.result()


async def test_a_job_without_a_record_is_not_found(
    queue: PgQueue, connection: psycopg.Connection[object]
) -> None:
    @queue.task
    def note() -> None: ...

    job = note.using(connection=connection).enqueue()
    for ask_for in (job.status, job.result):
        with pytest.raises(JobNotFound, match=f"no record of job {job.id}"):
            ask_for()
    with pytest.raises(JobNotFound):
        await job.aresult(timeout=1)
    connection.rollback()
    with pytest.raises(LookupError):
        await job.astatus()
    await queue.aclose()


def test_a_handle_of_another_process_works_as_well(dsn: str, queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    elsewhere = PgQueue(dsn)
    handle: JobHandle[None] = JobHandle(EnqueueAnswer(note.enqueue().id), elsewhere)
    assert handle.status() is JobState.READY
    elsewhere.close()
