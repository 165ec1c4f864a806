"""Each job gets an outcome, also of a task that misbehaves, and the worker goes on.

When a failed job runs again, and what a task says about that itself.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from looking import ask, until
from running import Running
from tenacity import retry_if_exception, wait_fixed, wait_none
from worker.helping import ended

from pgqueue import Job, JobHandle, JobState, PgQueue, Retry, RetryLater, Snooze
from pgqueue.errors import LONGEST_DELAY, PayloadNotDecodable

NASTY = [
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    StopIteration,
    StopAsyncIteration,
    PayloadNotDecodable,  # as arguments that cannot be read raise it
]


async def goes_on(queue: PgQueue) -> None:
    """Have a worker that runs one job at a time prove that its slot is free."""

    @queue.task
    async def proof() -> str:
        return "still here"

    (found,) = await ended(queue, proof.enqueue())
    assert found.result == "still here"


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("nasty", NASTY)
async def test_no_exception_of_a_task_harms_the_worker(
    queue: PgQueue, running: Running, nasty: type[BaseException], *, plain: bool
) -> None:
    def fail() -> None:
        raise nasty

    async def afail() -> None:
        raise nasty

    task = queue.task(name="fail", retry=Retry(wait=wait_none()), max_attempts=2)(fail if plain else afail)
    job = task.enqueue()
    async with running(queue, concurrency=1):
        (found,) = await ended(queue, job)
        await goes_on(queue)
    assert (found.state, found.reason, len(found.errors)) == (JobState.DEAD, "exhausted", 2)
    assert nasty.__name__ in (found.errors[0].traceback or "")


@pytest.mark.parametrize(
    "result", [object(), "\0", float, lambda: None], ids=["object", "NUL", "type", "lambda"]
)
async def test_a_result_that_cannot_be_kept_is_logged_and_the_job_succeeds(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture, result: object
) -> None:
    @queue.task
    async def give() -> object:
        return result

    job = give.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.result) == (JobState.SUCCEEDED, None)
    assert [error.type for error in found.errors] == ["pgqueue.errors.ResultNotKept"]
    assert any(message.startswith("result not kept") for message in caplog.messages)


async def test_a_result_over_the_limit_is_logged_and_the_job_succeeds(
    dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    queue = PgQueue(dsn, max_payload=10)

    @queue.task
    async def give(size: int) -> str:
        return "x" * size

    fits, does_not = give.enqueue(8), give.enqueue(9)
    async with running(queue):
        found = await ended(queue, fits, does_not)
    queue.close()
    assert [job.result for job in found] == ["x" * 8, None]
    assert any(
        message.startswith("result not kept: it takes 11 bytes as JSON, over the limit of 10")
        for message in caplog.messages
    )


async def test_a_job_of_an_unknown_task_goes_back_unspent_and_keeps_its_place(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ((job_id,),) = ask(queue, "select pgqueue.enqueue('elsewhere', max_attempts => 1)")
    before = queue.job(job_id).run_at
    async with running(queue):
        await until(lambda: ask(queue, "select 1 from pgqueue.unknown_tasks"))
        await until(lambda: queue.job(job_id).state is JobState.READY)
    found = queue.job(job_id)
    assert (found.attempts, found.errors, found.run_at) == (0, (), before)
    (warning,) = [record for record in caplog.records if "not registered here" in record.message]
    assert warning.levelno == logging.WARNING
    assert warning.__dict__["task"] == "elsewhere"


async def test_a_worker_that_knows_the_task_runs_it(dsn: str, queue: PgQueue, running: Running) -> None:
    knowing = PgQueue(dsn)

    @knowing.task(name="elsewhere")
    async def elsewhere() -> str:
        return "known here"

    job = elsewhere.using(max_attempts=1).enqueue()
    async with running(queue):
        await until(lambda: ask(queue, "select 1 from pgqueue.unknown_tasks"))
        async with running(knowing):
            (found,) = await ended(queue, job)
    knowing.close()
    assert (found.result, found.attempts) == ("known here", 1)


def fails(queue: PgQueue, error: BaseException, retry: Retry, **options: Any) -> JobHandle[None]:
    @queue.task(retry=retry, **options)
    async def fail() -> None:
        raise error

    return fail.enqueue()


async def after_one_attempt(queue: PgQueue, running: Running, job: JobHandle[Any]) -> Job:
    """The job, once an attempt has been recorded."""
    async with running(queue):
        await until(
            lambda: queue.job(job.id).errors or queue.job(job.id).run_at > queue.job(job.id).created_at
        )
    return queue.job(job.id)


def waited(job: Job) -> timedelta:
    """From the last failure to the next attempt, both as the database has them."""
    at = job.errors[-1].at
    assert at is not None
    return job.run_at - at


async def test_the_policys_wait_is_kept_exactly(queue: PgQueue, running: Running) -> None:
    job = fails(queue, ValueError("no"), Retry(wait=wait_fixed(1234.5)))
    found = await after_one_attempt(queue, running, job)
    assert (found.state, found.attempts) == (JobState.SCHEDULED, 1)
    assert waited(found) == timedelta(seconds=1234.5)
    assert [(error.attempt, error.type, error.message) for error in found.errors] == [(1, "ValueError", "no")]
    assert "in fail" in (found.errors[0].traceback or "")


@pytest.mark.parametrize("word", [Snooze, RetryLater])
async def test_the_longest_delay_there_is_harms_no_worker(
    queue: PgQueue, running: Running, word: type[Snooze | RetryLater]
) -> None:
    job = fails(queue, word(LONGEST_DELAY), Retry())

    @queue.task
    async def other() -> None: ...

    async with running(queue):
        await ended(queue, other.enqueue())
        await until(lambda: job.status() is JobState.SCHEDULED)
    assert queue.job(job.id).attempts == (0 if word is Snooze else 1)


async def test_a_policy_that_raises_fails_the_attempt_and_frees_the_slot(
    queue: PgQueue, running: Running
) -> None:
    def by_status(error: BaseException) -> bool:
        return bool(error.status >= 500)  # type: ignore[attr-defined]  # the mistake at hand

    job = fails(queue, ValueError("no status"), Retry(retry=retry_if_exception(by_status)), max_attempts=2)

    @queue.task
    async def other() -> None: ...

    async with running(queue, concurrency=1):
        await ended(queue, other.enqueue())
        await until(lambda: queue.job(job.id).errors)
    assert queue.job(job.id).errors[0].message == "no status"
