"""A job as its enqueuer sees it: where it stands, its end, its result."""

from datetime import timedelta

import psycopg
import pytest
from running import Running
from tenacity import wait_none

from pgqueue import JobHandle, JobState, PgQueue, Retry
from pgqueue.errors import JobFailed, JobNotDone, JobNotFound
from pgqueue.values.jobs.job import EnqueueAnswer


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
