"""Stopping: finish what runs within the grace, return the rest unspent, leave nothing behind."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, all_ended, claimed, claims_of, ended, hand_over, register

from pgqueue import Batch, Dead, JobState, PgQueue, RetryLater, Snooze
from pgqueue.store.jobs import claim
from pgqueue.store.workers.upkeep import reclaim
from pgqueue.worker.service import Service
from pgqueue.worker.worker import Worker

NOTHING = timedelta(0)


@dataclass
class Order:
    """Of a batch."""

    number: int


@pytest.fixture(autouse=True)
def before() -> set[threading.Thread]:
    """The threads that were there before the test."""
    return set(threading.enumerate())


def left_running(before: set[threading.Thread]) -> list[str]:
    """Threads for tasks, and asyncio tasks of a worker, that are still there."""
    threads = [one.name for one in set(threading.enumerate()) - before if one.name == "pgqueue-task"]
    return threads + [one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("pgqueue")]


async def test_a_stopped_worker_is_off_the_list(
    queue: PgQueue, running: Running, before: set[threading.Thread]
) -> None:
    async with running(queue):
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
    assert ask(queue, "select id from pgqueue.workers") == []
    assert left_running(before) == []


async def test_a_worker_told_to_stop_before_it_starts_ends_at_once(queue: PgQueue) -> None:
    worker = Worker(queue)
    worker.stop()
    await asyncio.wait_for(worker.run(), 20)
    assert ask(queue, "select id from pgqueue.workers") == []


async def test_a_worker_whose_own_task_is_cancelled_winds_down_too(
    queue: PgQueue, before: set[threading.Thread]
) -> None:
    started = asyncio.Event()

    @queue.task
    async def linger() -> None:
        started.set()
        await asyncio.Event().wait()

    job = linger.enqueue()
    runner = asyncio.create_task(Worker(queue, grace=NOTHING).run())
    await asyncio.wait_for(started.wait(), 20)
    runner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await runner
    assert (queue.job(job.id).state, queue.job(job.id).attempts) == (JobState.READY, 0)
    assert ask(queue, "select id from pgqueue.workers") == []
    assert left_running(before) == []


@pytest.mark.parametrize("batch", [False, True], ids=["job", "batch"])
async def test_what_a_task_raises_as_its_worker_stops_it_spends_no_attempt(
    queue: PgQueue, caplog: pytest.LogCaptureFixture, *, batch: bool
) -> None:
    started = asyncio.Event()

    async def translate(*_: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            raise LookupError("the connection is gone") from error

    if batch:
        job = queue.batch_task(Order, name="translate", max_attempts=1)(translate).enqueue(1)
    else:
        job = queue.task(name="translate", max_attempts=1)(translate).enqueue()
    worker = Worker(queue, grace=NOTHING)
    runner = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 20)
    worker.stop()
    await asyncio.wait_for(runner, 20)
    found = queue.job(job.id)
    assert (found.state, found.attempts, found.errors) == (JobState.READY, 0, ())
    assert "the connection is gone" in caplog.text


@pytest.mark.parametrize(
    ("decision", "state", "attempts"),
    [
        (Snooze(3600), JobState.SCHEDULED, 0),
        (RetryLater(3600), JobState.SCHEDULED, 1),
        (Dead("no"), JobState.DEAD, 1),
    ],
    ids=["Snooze", "RetryLater", "Dead"],
)
async def test_what_a_task_decides_as_its_worker_stops_it_is_obeyed(
    queue: PgQueue, decision: Exception, state: JobState, attempts: int
) -> None:
    started = asyncio.Event()

    @queue.task
    async def decide() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise decision from None

    job = decide.enqueue()
    worker = Worker(queue, grace=NOTHING)
    runner = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 20)
    worker.stop()
    await asyncio.wait_for(runner, 20)
    assert (queue.job(job.id).state, queue.job(job.id).attempts) == (state, attempts)


@pytest.mark.parametrize("program_ends", [True, False], ids=["end", "exit"])
def test_a_program_that_ends_its_loop_under_a_worker_loses_it_at_once_and_what_had_not_started_goes_back(
    queue: PgQueue, *, program_ends: bool
) -> None:
    """The grace is an hour, and nothing is left to wait for: ``asyncio.run`` has cancelled each part of the worker."""
    worker = Worker(queue, queues=["default"], concurrency=1, grace=3600)

    @queue.task
    def plain() -> None: ...

    @queue.task
    async def linger() -> None:
        await asyncio.gather(asyncio.Event().wait(), leave())

    async def leave() -> None:
        (waiting,) = await queue.database.arun(claim.claim(worker.id, {"other": 1}))
        hand_over(worker, [waiting])
        if program_ends:
            program[0].cancel()
        else:
            raise SystemExit(3)

    async def main() -> None:
        program.extend(asyncio.all_tasks())
        program.append(asyncio.create_task(worker.run()))
        await asyncio.Event().wait()

    program: list[asyncio.Task[Any]] = []
    job, other = linger.enqueue(), plain.using(queue="other").enqueue()
    with pytest.raises((SystemExit, asyncio.CancelledError)):
        asyncio.run(main())
    assert ask(queue, "select id from pgqueue.workers where lease_until > now()") == []
    assert (other.status(), queue.job(other.id).attempts) == (JobState.READY, 0)
    queue.database.run(reclaim())
    found = queue.job(job.id)
    assert (found.state, found.attempts) == (JobState.READY, 1)
    assert [(error.type, error.crashed) for error in found.errors] == [("WorkerLost", True)]


def test_the_jobs_of_a_batch_count_as_lost_too_when_the_program_ends_the_loop(queue: PgQueue) -> None:
    worker = Worker(queue, queues=["default"], grace=3600)

    @queue.batch_task(Order, size=2, wait=60)
    async def several(_: Batch[Order]) -> None:
        program[0].cancel()
        await asyncio.Event().wait()

    async def main() -> None:
        program.extend(asyncio.all_tasks())
        program.append(asyncio.create_task(worker.run()))
        await asyncio.Event().wait()

    program: list[asyncio.Task[Any]] = []
    jobs = queue.enqueue_many(several.call(number) for number in range(2))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    queue.database.run(reclaim())
    for job in jobs:
        assert [error.type for error in queue.job(job.id).errors] == ["WorkerLost"]


async def test_a_part_that_breaks_ends_the_worker_and_returns_its_jobs(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    @queue.task
    async def linger() -> None:
        started.set()
        await asyncio.Event().wait()

    job = linger.enqueue()
    worker = Worker(queue, grace=NOTHING, poll=timedelta(seconds=0.01))
    runner = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 20)

    async def break_down() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(worker.parts.fetcher, "run_once", break_down)
    linger.enqueue()  # so that there is a reason to look
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(runner, 30)
    assert (queue.job(job.id).state, queue.job(job.id).attempts) == (JobState.READY, 0)


async def test_verdicts_are_written_before_the_worker_leaves(queue: PgQueue) -> None:
    @queue.task
    async def swift() -> None: ...

    jobs = queue.enqueue_many(swift.call() for _ in range(50))
    worker = Worker(queue, poll=FOR_EVER, grace=NOTHING)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    assert worker.inspect().backlog == 50
    worker.stop()
    await asyncio.wait_for(worker.run(), 30)
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert claims_of(queue, worker) == []


async def test_thirty_quick_starts_and_stops_leave_nothing_behind(
    queue: PgQueue, running: Running, before: set[threading.Thread]
) -> None:
    @queue.task
    def plain() -> None: ...

    @queue.task
    async def awaited() -> None: ...

    jobs = []
    for _ in range(30):
        jobs += [plain.enqueue(), awaited.enqueue()]
        async with running(queue, concurrency=2):
            await asyncio.sleep(0)
    async with running(queue):
        await ended(queue, *jobs)
    await until(lambda: left_running(before) == [])
    assert ask(queue, "select id from pgqueue.workers") == []
    assert {queue.job(job.id).attempts for job in jobs} == {1}


@pytest.mark.parametrize("steps", range(5))
async def test_a_service_that_is_nudged_as_it_is_cancelled_ends(steps: int) -> None:
    runs: list[int] = []

    async def run_once() -> None:
        runs.append(1)

    service = Service("test", 3600.0, run_once)
    running = asyncio.create_task(service.run())
    await until(lambda: runs)
    await asyncio.sleep(0.01)  # until it waits
    service.nudge.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=5)
    running.cancel()
    assert done
