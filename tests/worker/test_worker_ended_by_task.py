"""A task that ends its job as cancelled: it was asked to stop, or finds that the job is not needed any more."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from looking import until
from running import Running
from worker.helping import beat, ended

from pgqueue import Batch, Cancelled, Context, JobState, PgQueue


@dataclass
class Item:
    number: int


def of_jobs(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str | None]]:
    """What the log says of jobs: the level, the words, and the traceback."""
    return [
        (one.levelname, one.getMessage(), one.exc_text)
        for one in caplog.records
        if hasattr(one, "job") and "enqueued" not in one.getMessage()
    ]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_task_that_is_not_needed_any_more_ends_as_cancelled_with_its_reason(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture, *, plain: bool
) -> None:
    caplog.set_level(logging.INFO, "pgqueue")

    def leave() -> None:
        raise Cancelled("the order is gone")

    async def aleave() -> None:
        raise Cancelled("the order is gone")

    job = queue.task(name="leave")(leave if plain else aleave).enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.attempts) == (JobState.CANCELLED, 1)
    assert [(one.message, one.traceback) for one in found.errors] == [("the order is gone", None)]
    assert of_jobs(caplog) == [("INFO", "job cancelled", None)]
    assert not any("raised" in vars(one) for one in caplog.records)


@pytest.mark.parametrize("error", [Cancelled(), RuntimeError("stopped")], ids=["Cancelled", "another"])
async def test_a_plain_task_that_obeys_a_cancel_makes_one_true_line_in_the_log(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO, "pgqueue")
    started, go_on = threading.Event(), threading.Event()

    @queue.task
    def linger(ctx: Context) -> None:
        started.set()
        go_on.wait(20)
        if ctx.cancelled:
            raise error

    job = linger.enqueue()
    async with running(queue) as worker:
        await until(started.is_set)
        job.cancel()
        await beat(worker)
        go_on.set()
        (found,) = await ended(queue, job)
    assert found.state is JobState.CANCELLED
    another = not isinstance(error, Cancelled)
    assert [one.message for one in found.errors] == (["stopped"] if another else [])
    (line,) = [one for one in caplog.records if one.getMessage() == "job cancelled"]
    assert vars(line).get("raised") == ("RuntimeError" if another else None)
    assert of_jobs(caplog) == [("INFO", "job cancelled", None)]


async def test_a_cancelled_job_is_not_final_for_its_middleware(queue: PgQueue, running: Running) -> None:
    started, go_on, said = threading.Event(), threading.Event(), list[bool]()

    @queue.task(max_attempts=1)
    def linger(ctx: Context) -> None:
        said.append(ctx.is_final(RuntimeError()))
        started.set()
        go_on.wait(20)
        said.append(ctx.is_final(RuntimeError()))

    job = linger.enqueue()
    async with running(queue) as worker:
        await until(started.is_set)
        job.cancel()
        await beat(worker)
        go_on.set()
        await ended(queue, job)
    assert said == [True, False]


@pytest.mark.parametrize("by_transaction", [False, True], ids=["fail", "transaction"])
async def test_one_job_of_a_batch_ends_as_cancelled_and_the_others_succeed(
    queue: PgQueue, running: Running, *, by_transaction: bool
) -> None:
    @queue.batch_task(Item, size=3)
    def together(jobs: Batch[Item]) -> None:
        jobs[1].fail(Cancelled("no stock"))
        if by_transaction:
            with jobs.transaction():
                pass

    jobs = list(queue.enqueue_many(together.call(n) for n in range(3)))
    async with running(queue):
        found = await ended(queue, *jobs)
    assert [one.state for one in found] == [JobState.SUCCEEDED, JobState.CANCELLED, JobState.SUCCEEDED]


async def test_a_batch_that_raises_it_ends_all_its_jobs_as_cancelled(
    queue: PgQueue, running: Running
) -> None:
    @queue.batch_task(Item, size=2)
    async def together(jobs: Batch[Item]) -> None:
        raise Cancelled(f"{len(jobs)} jobs")

    jobs = list(queue.enqueue_many(together.call(n) for n in range(2)))
    async with running(queue):
        found = await ended(queue, *jobs)
    assert [one.state for one in found] == [JobState.CANCELLED] * 2


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_task_that_raises_it_as_the_worker_stops_runs_again_unspent(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture, *, plain: bool
) -> None:
    started, told = threading.Event(), threading.Event()

    def linger(ctx: Context) -> None:
        started.set()
        while not ctx.cancelled:
            told.wait(0.01)
        raise Cancelled

    async def alinger() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Cancelled from None

    job = queue.task(name="linger")(linger if plain else alinger).enqueue()
    async with running(queue, grace=0.1):
        await until(started.is_set)
    found = queue.job(job.id)
    assert (found.state, found.attempts, found.errors) == (JobState.READY, 0, ())
    assert _warnings(caplog.records) == []


def _warnings(records: Sequence[logging.LogRecord]) -> list[str]:
    return [one.getMessage() for one in records if one.levelno >= logging.WARNING]
