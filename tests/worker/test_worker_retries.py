"""When a failed job runs again, and what a task says about that itself."""

from datetime import timedelta
from typing import Any

import pytest
from looking import ask, until
from running import Running
from tenacity import (
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
    wait_none,
)
from worker.helping import ended

from pgqueue import Dead, Job, JobHandle, JobState, PgQueue, Retry, RetryLater, Snooze
from pgqueue.errors import LONGEST_DELAY

HOUR = timedelta(hours=1)


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


async def test_the_policy_is_told_which_attempt_it_was(queue: PgQueue, running: Running) -> None:
    job = fails(queue, ValueError("no"), Retry(wait=wait_exponential(multiplier=100)))
    async with running(queue):
        for seconds in (100, 200, 400):
            await until(lambda: job.status() is JobState.SCHEDULED)
            assert waited(queue.job(job.id)) == timedelta(seconds=seconds)
            assert queue.control.run_now(job.id)


async def test_a_job_out_of_attempts_is_dead_with_every_error(queue: PgQueue, running: Running) -> None:
    job = fails(queue, ValueError("no"), Retry(wait=wait_none(), stop=stop_after_attempt(3)))
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.reason, found.attempts) == (JobState.DEAD, "exhausted", 3)
    assert [error.attempt for error in found.errors] == [1, 2, 3]


async def test_an_error_the_policy_does_not_name_is_final(queue: PgQueue, running: Running) -> None:
    job = fails(queue, ValueError("no"), Retry(retry=retry_if_exception_type(OSError)))
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.reason, found.attempts) == (JobState.DEAD, "refused", 1)


async def test_a_policy_of_a_time_counts_from_the_first_failure(queue: PgQueue, running: Running) -> None:
    job = fails(queue, ValueError("no"), Retry(wait=wait_fixed(3600), stop=stop_after_delay(HOUR)))
    assert (await after_one_attempt(queue, running, job)).state is JobState.SCHEDULED
    backdate = "update pgqueue.jobs set errors = jsonb_set(errors, '{0,at}', to_jsonb(now() - interval '61 minutes'))"
    ask(queue, backdate)
    queue.control.run_now(job.id)
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.reason, found.attempts) == (JobState.DEAD, "refused", 2)


async def test_a_snooze_spends_no_attempt_not_even_the_last(queue: PgQueue, running: Running) -> None:
    job = fails(queue, Snooze(HOUR), Retry(), max_attempts=1)
    before = ask(queue, "select clock_timestamp()")[0][0]
    found = await after_one_attempt(queue, running, job)
    assert (found.state, found.attempts, found.errors) == (JobState.SCHEDULED, 0, ())
    assert before + HOUR <= found.run_at <= ask(queue, "select clock_timestamp()")[0][0] + HOUR


async def test_retry_later_spends_an_attempt_and_says_when(queue: PgQueue, running: Running) -> None:
    job = fails(queue, RetryLater(HOUR, "busy"), Retry(wait=wait_none()))
    found = await after_one_attempt(queue, running, job)
    assert (found.state, found.attempts) == (JobState.SCHEDULED, 1)
    assert waited(found) == HOUR
    assert [error.message for error in found.errors] == ["busy"]


async def test_retry_later_on_the_last_attempt_is_the_end(queue: PgQueue, running: Running) -> None:
    job = fails(queue, RetryLater(HOUR), Retry(), max_attempts=1)
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.reason) == (JobState.DEAD, "exhausted")


async def test_dead_is_at_once_and_final(queue: PgQueue, running: Running) -> None:
    job = fails(queue, Dead("no such customer"), Retry())
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.reason, found.attempts) == (JobState.DEAD, "asked", 1)
    assert found.errors[0].message == "no such customer"


async def test_a_dead_job_that_is_retried_has_all_its_attempts_again(
    queue: PgQueue, running: Running
) -> None:
    job = fails(queue, ValueError("no"), Retry(wait=wait_none()), max_attempts=2)
    async with running(queue):
        await ended(queue, job)
        assert queue.retry(job.id)
        await until(lambda: len(queue.job(job.id).errors) == 4)
        (found,) = await ended(queue, job)
    assert [error.attempt for error in found.errors] == [1, 2, 1, 2]


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
