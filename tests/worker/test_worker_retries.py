"""When a failed job runs again, and what a task says about that itself."""

from datetime import timedelta
from typing import Any

import pytest
from looking import until
from running import Running
from tenacity import (
    retry_if_exception,
    wait_fixed,
)
from worker.helping import ended

from pgqueue import Job, JobHandle, JobState, PgQueue, Retry, RetryLater, Snooze
from pgqueue.errors import LONGEST_DELAY


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
