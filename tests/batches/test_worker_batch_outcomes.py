"""What becomes of each job of a batch."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from documents import A_MINUTE, LATER, Document
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Batch, Dead, JobHandle, JobState, PgQueue, Workflow, result_of
from pgqueue.errors import InvalidOption, JobError
from pgqueue.values.flows.record import FlowState


async def ended_all(queue: PgQueue, jobs: Sequence[JobHandle[Any]]) -> dict[int, JobState]:
    """The states of jobs that have ended, by their number."""
    return {job.args["number"]: job.state for job in await ended(queue, *jobs)}


async def test_each_job_ends_as_it_was_told_and_the_rest_succeed(queue: PgQueue, running: Running) -> None:
    @queue.batch_task(Document, size=5, wait=A_MINUTE, retry=LATER)
    def index(jobs: Batch[Document]) -> None:
        done, fails, again, back, dies = jobs
        done.result = "indexed"
        fails.fail(ValueError("by the policy"))
        again.fail(ValueError("sooner"), delay=60)
        back.release(600)
        dies.fail(Dead("never"))

    jobs = queue.enqueue_many(index.call(number) for number in range(5))
    async with running(queue):
        await until(lambda: {job.status() for job in jobs}.isdisjoint({JobState.READY, JobState.RUNNING}))
    done, fails, again, back, dies = [queue.job(job.id) for job in jobs]
    assert (done.state, done.result, done.errors) == (JobState.SUCCEEDED, "indexed", ())
    assert [(one.state, one.attempts) for one in (fails, again, back)] == [
        (JobState.SCHEDULED, 1),
        (JobState.SCHEDULED, 1),
        (JobState.SCHEDULED, 0),
    ]
    assert [one.errors[0].message for one in (fails, again, dies)] == ["by the policy", "sooner", "never"]
    assert timedelta(seconds=30) < fails.run_at - again.run_at < timedelta(hours=1)
    assert (dies.state, dies.reason) == (JobState.DEAD, "asked")


async def test_a_list_has_a_result_for_each_job(queue: PgQueue, running: Running) -> None:
    @queue.batch_task(Document, size=3, wait=A_MINUTE, retry=LATER)
    async def index(jobs: Batch[Document]) -> list[str]:
        jobs[1].fail(ValueError())
        jobs[2].result = "its own"
        return [f"number {job.args.number}" for job in jobs]

    first, second, third = [index.enqueue(number) for number in range(3)]
    async with running(queue):
        assert await first.aresult(timeout=20) == "number 0"
        assert await third.aresult(timeout=20) == "its own"
        assert second.status() is JobState.SCHEDULED


@pytest.mark.parametrize("value", [[1], 7, "abc", {}])
async def test_a_return_value_that_is_no_result_for_each_job_fails_them(
    value: Any, queue: PgQueue, running: Running
) -> None:
    @queue.batch_task(Document, size=3, wait=A_MINUTE, max_attempts=1)
    def index(jobs: Batch[Document]) -> Any:
        jobs[0].fail(ValueError("told"))
        return value

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        first, *others = await ended(queue, *jobs)
    assert first.errors[0].message == "told"
    assert {one.errors[0].type for one in others} == {"TypeError"}
    assert "a result for each of its 3 jobs" in others[0].errors[0].message


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_exception_fails_each_job_by_its_own_attempts(
    queue: PgQueue, running: Running, *, is_async: bool
) -> None:
    def fail(jobs: Batch[Document]) -> None:
        jobs[0].release(600)
        raise ConnectionError("the index is away")

    async def afail(jobs: Batch[Document]) -> None:
        await asyncio.sleep(0)
        fail(jobs)

    decorated = queue.batch_task(Document, size=3, wait=A_MINUTE, retry=LATER, name="index")
    index = decorated(afail) if is_async else decorated(fail)
    jobs = [index.enqueue(0), index.enqueue(1), index.using(max_attempts=1).enqueue(2)]
    async with running(queue):
        await until(lambda: jobs[2].status() is JobState.DEAD and jobs[1].status() is JobState.SCHEDULED)
    released, failed, dead = [queue.job(job.id) for job in jobs]
    assert (released.attempts, released.errors) == (0, ())
    assert (failed.attempts, failed.errors[0].type) == (1, "ConnectionError")
    assert dead.reason == "exhausted"


async def test_arguments_that_cannot_be_read_kill_that_job_only(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    seen = list[int]()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    def index(jobs: Batch[Document]) -> None:
        seen.extend(job.args.number for job in jobs)

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.jobs set args = '{\"number\": []}' where id = %s", [jobs[0].id])
    async with running(queue):
        first, *others = await ended(queue, *jobs)
    assert (first.state, first.reason) == (JobState.DEAD, "undecodable")
    assert {one.state for one in others} == {JobState.SUCCEEDED}
    assert seen == [1, 2]


async def test_a_job_that_ended_before_the_call_is_not_logged_with_the_error_of_the_call(
    queue: PgQueue, running: Running, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.batch_task(Document, size=2, wait=A_MINUTE, max_attempts=1)
    def index(_: Batch[Document]) -> None:
        raise ValueError("of the call")

    jobs = queue.enqueue_many(index.call(number) for number in range(2))
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.jobs set args = '{\"number\": []}' where id = %s", [jobs[0].id])
    async with running(queue):
        first, second = await ended(queue, *jobs)
    assert (first.reason, second.reason) == ("undecodable", "exhausted")
    assert [one.type for one in first.errors] == ["pgqueue.errors.PayloadNotDecodable"]
    of_first = [one for one in caplog.records if getattr(one, "job", None) == first.id and one.exc_info]
    assert not any(isinstance(one.exc_info[1], ValueError) for one in of_first if one.exc_info)
    said = [one.message for one in caplog.records if getattr(one, "job", None) == first.id]
    assert len([one for one in said if one.startswith("job is dead")]) == 1


async def test_a_job_that_fails_in_the_batchs_transaction_is_logged(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.batch_task(Document, size=2, wait=A_MINUTE, max_attempts=1)
    def index(jobs: Batch[Document]) -> None:
        with jobs.transaction():
            jobs[0].fail(ValueError("this one"))

    jobs = queue.enqueue_many(index.call(number) for number in range(2))
    async with running(queue):
        first, second = await ended(queue, *jobs)
    assert (first.reason, second.state) == ("exhausted", JobState.SUCCEEDED)
    said = [one for one in caplog.records if getattr(one, "job", None) == first.id]
    assert [one.message.partition(":")[0] for one in said if one.levelname == "ERROR"] == ["job is dead"]


async def test_what_the_batchs_transaction_ended_is_told_and_cannot_fail_any_more(
    queue: PgQueue, running: Running
) -> None:
    told: list[tuple[str, int]] = []
    refused: list[type[Exception]] = []
    for name in ("succeeded", "dead"):
        queue.on(name)(lambda event: told.append((event.name, event.job)))

    @queue.batch_task(Document, size=2, wait=A_MINUTE, max_attempts=1)
    def index(jobs: Batch[Document]) -> None:
        with jobs.transaction():
            try:
                jobs[0].fail("no exception")  # type: ignore[arg-type]  # the wrong type is the case
            except InvalidOption as error:
                refused.append(type(error))
            jobs[0].fail(ValueError("this one"))
        try:
            jobs[1].fail(ValueError("too late"))
        except JobError as error:
            refused.append(type(error))

    jobs = queue.enqueue_many(index.call(number) for number in range(2))
    async with running(queue):
        first, second = await ended(queue, *jobs)
        await until(lambda: len(told) == 2)
    assert (first.state, second.state) == (JobState.DEAD, JobState.SUCCEEDED)
    assert sorted(told) == [("dead", first.id), ("succeeded", second.id)]
    assert refused == [InvalidOption, JobError]


async def test_an_item_that_cannot_be_made_fails_that_job_only(queue: PgQueue, running: Running) -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    @queue.batch_task(Even, size=2, wait=A_MINUTE, max_attempts=1)
    def index(jobs: Batch[Even]) -> None: ...

    jobs = [index.enqueue(1), index.enqueue(2)]
    async with running(queue):
        odd, even = await ended(queue, *jobs)
    assert (odd.state, odd.errors[0].message, even.state) == (JobState.DEAD, "odd", JobState.SUCCEEDED)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_timeout_is_of_the_call(queue: PgQueue, running: Running, *, plain: bool) -> None:
    release, told = threading.Event(), list[bool]()

    def linger(jobs: Batch[Document]) -> None:
        release.wait(20)
        told.append(jobs.cancelled)

    async def alinger(_: Batch[Document]) -> None:
        await asyncio.Event().wait()

    decorated = queue.batch_task(Document, size=3, wait=A_MINUTE, retry=LATER, timeout=0.05, name="index")
    index = decorated(linger) if plain else decorated(alinger)

    @queue.task
    def swift() -> None: ...

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue, concurrency=2) as worker:
        await until(lambda: {job.status() for job in jobs} == {JobState.SCHEDULED})
        await ended(queue, swift.enqueue())
        if plain:
            assert worker.inspect().not_returned == 1
            release.set()
            await until(lambda: not worker.inspect().not_returned and worker.inspect().slots_taken == 0)
    assert {error.type for job in jobs for error in queue.job(job.id).errors} == {"pgqueue.errors.TimedOut"}
    assert told == [True] * plain


async def test_a_cancelled_job_of_a_batch_is_told_and_the_others_go_on(
    queue: PgQueue, running: Running
) -> None:
    started, seen = asyncio.Event(), list[int]()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        started.set()
        await until(lambda: jobs[1].cancelled)
        await asyncio.sleep(0)
        seen.extend(job.args.number for job in jobs if not job.cancelled)
        jobs[1].fail(InterruptedError())

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await asyncio.wait_for(started.wait(), 20)
        await jobs[1].acancel()
        states = await ended_all(queue, jobs)
    assert seen == [0, 2]
    assert states == {0: JobState.SUCCEEDED, 1: JobState.CANCELLED, 2: JobState.SUCCEEDED}


async def test_a_call_of_which_every_job_is_cancelled_is_stopped(queue: PgQueue, running: Running) -> None:
    started = asyncio.Event()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    async def index(_: Batch[Document]) -> None:
        started.set()
        await asyncio.Event().wait()

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await asyncio.wait_for(started.wait(), 20)
        for job in jobs:
            await job.acancel()
        states = await ended_all(queue, jobs)
    assert {*states.values()} == {JobState.CANCELLED}


async def test_a_conditions_job_is_skipped_and_the_others_run(queue: PgQueue, running: Running) -> None:
    @queue.task
    def source() -> int:
        return 1

    seen = list[int]()

    @queue.batch_task(Document, size=2, wait=0.05)
    def index(jobs: Batch[Document]) -> None:
        seen.extend(job.args.number for job in jobs)

    flow = Workflow()
    flow.add("first", source.call())
    flow.add("skipped", index.call(1), after="first", skip_if=result_of("first") == 1)
    flow.add("runs", index.call(2), after="first")
    handle = flow.enqueue()
    async with running(queue):
        await until(lambda: handle.status() is FlowState.SUCCEEDED)
    assert seen == [2]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_batchs_transaction_commits_with_the_ends_of_all_its_jobs(
    queue: PgQueue, running: Running, dsn: str, *, is_async: bool
) -> None:
    ask(dsn, "create table indexed (number int); select 1")
    seen: list[list[JobState]] = []

    def write(jobs: Batch[Document], connection: Any) -> Any:
        jobs[0].fail(ValueError("told before the end"))
        jobs[1].release(600)
        jobs[2].result = "kept"
        return connection.execute("insert into indexed select generate_series(1, %s)", [len(jobs)])

    def look(jobs: Batch[Document]) -> None:
        seen.append([handles[job.id].status() for job in jobs])
        with pytest.raises(JobError):
            jobs[3].fail(ValueError("told after the end"))

    def index(jobs: Batch[Document]) -> None:
        with jobs.transaction() as connection:
            write(jobs, connection)
        look(jobs)

    async def aindex(jobs: Batch[Document]) -> None:
        async with jobs.transaction() as connection:
            await write(jobs, connection)
        look(jobs)

    decorated = queue.batch_task(Document, size=4, wait=A_MINUTE, retry=LATER, name="index")
    task = decorated(aindex) if is_async else decorated(index)
    jobs = queue.enqueue_many(task.call(number) for number in range(4))
    handles = {job.id: job for job in jobs}
    async with running(queue) as worker:
        await until(lambda: bool(seen) and not worker.inspect().running)
    scheduled, done = JobState.SCHEDULED, JobState.SUCCEEDED
    assert seen == [[scheduled, scheduled, done, done]]
    assert ask(dsn, "select count(*) from indexed") == [(4,)]
    failed, released, kept, _ = [queue.job(job.id) for job in jobs]
    assert ([error.message for error in failed.errors], failed.attempts) == (["told before the end"], 1)
    assert (released.attempts, kept.result) == (0, "kept")


async def test_a_batchs_transaction_that_is_left_by_an_error_leaves_nothing(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    ask(dsn, "create table indexed (number int); select 1")

    @queue.batch_task(Document, size=3, wait=A_MINUTE, retry=LATER)
    def index(jobs: Batch[Document]) -> None:
        with jobs.transaction() as connection:
            connection.execute("insert into indexed values (1)")
            raise ConnectionError(len(jobs))

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await until(lambda: {job.status() for job in jobs} == {JobState.SCHEDULED})
    assert ask(dsn, "select count(*) from indexed") == [(0,)]


async def test_a_batch_of_which_one_job_was_lost_commits_nothing(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    """As for one job: what is not this attempt's any more cannot be recorded by it, and all commit together."""
    ask(dsn, "create table indexed (number int); select 1")

    @queue.batch_task(Document, size=3, wait=A_MINUTE, retry=LATER)
    def index(jobs: Batch[Document]) -> None:
        with jobs.transaction() as connection:
            connection.execute("insert into indexed values (1)")
            ask(dsn, "update pgqueue.jobs set fence = fence + 1 where id = %s returning id", jobs[1].id)

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await until(lambda: [job.status() for job in jobs].count(JobState.SCHEDULED) == 2)
        assert jobs[1].status() is not JobState.SUCCEEDED
        assert ask(dsn, "select count(*) from indexed") == [(0,)]
    assert {error.type for job in jobs[::2] for error in queue.job(job.id).errors} == {
        "pgqueue.errors.Superseded"
    }
