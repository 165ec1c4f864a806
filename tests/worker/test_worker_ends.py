"""Whatever an attempt raises, in whatever asyncio task or thread, is its end: it is recorded, and its slot is free again.

What does not end after its timeout keeps its slot. These workers have an event loop of their own: it must outlive an exit.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from looking import ask, until, wait_until
from running import Running
from tenacity import retry_if_exception, stop_after_attempt, wait_fixed
from worker.helping import beat, ended

from pgqueue import Batch, Job, JobHandle, JobState, Limit, PgQueue, Retry
from pgqueue.store.jobs import control
from pgqueue.worker import attempt as attempts
from pgqueue.worker import executor
from pgqueue.worker.attempt import run_to_the_end
from pgqueue.worker.worker import Worker

LATER = Retry(wait=wait_fixed(3600))
EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit)


@contextmanager
def worker_of(
    queue: PgQueue, run: Callable[[Any], object] = run_to_the_end, **options: Any
) -> Iterator[Worker]:
    """A worker in a thread and an event loop of its own."""
    worker = Worker(queue, **options)

    async def work() -> None:
        await worker.run()
        await queue.aclose()

    thread = threading.Thread(target=run, args=[work()])
    thread.start()
    try:
        yield worker
    finally:
        worker.parts.signals.call_soon(worker.stop)
        thread.join(60)
        assert not thread.is_alive()


def now_of(queue: PgQueue, job: JobHandle[Any]) -> Job:
    """The job, once it is neither ready nor running."""
    wait_until(lambda: queue.job(job.id).state not in {JobState.READY, JobState.RUNNING})
    return queue.job(job.id)


def leave(how: type[BaseException]) -> None:
    raise how(3)


async def aleave(how: type[BaseException]) -> None:
    leave(how)


async def of_a_gathered_task(how: type[BaseException]) -> None:
    await asyncio.gather(aleave(how), asyncio.sleep(3600))


async def of_an_awaited_task(how: type[BaseException]) -> None:
    await asyncio.sleep(0)
    await asyncio.create_task(aleave(how))


async def of_a_thread(how: type[BaseException]) -> None:
    await asyncio.to_thread(leave, how)


async def of_itself(how: type[BaseException]) -> None:
    leave(how)


async def of_itself_later(how: type[BaseException]) -> None:
    await asyncio.sleep(0)
    leave(how)


def of_a_plain_function(how: type[BaseException]) -> None:
    leave(how)


def of_a_coroutine_that_it_returns(how: type[BaseException]) -> Any:
    return of_itself_later(how)


def of_a_task_of_a_coroutine_that_it_returns(how: type[BaseException]) -> Any:
    return of_a_gathered_task(how)


WAYS = (
    of_a_gathered_task, of_an_awaited_task, of_a_thread, of_itself, of_itself_later, of_a_plain_function,
    of_a_coroutine_that_it_returns, of_a_task_of_a_coroutine_that_it_returns,
)  # fmt: skip


@pytest.mark.parametrize("how", EXITS)
async def test_an_exit_of_a_coroutine_that_a_plain_function_returns_leaves_the_programs_own_loop(
    queue: PgQueue, running: Running, how: type[BaseException]
) -> None:
    job = queue.task(name="plain", max_attempts=1)(lambda: of_itself_later(how)).enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert [error.type for error in found.errors] == [how.__name__]


@dataclass
class Item:
    """Of a batch."""

    number: int


@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("timeout", [None, 60])
def test_an_exit_is_the_end_of_its_attempt_and_of_nothing_else(
    queue: PgQueue, how: type[BaseException], timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    def calling(way: Callable[[type[BaseException]], Any]) -> Callable[[], Any]:
        async def run() -> None:
            await way(how)

        return run if asyncio.iscoroutinefunction(way) else lambda: way(how)

    names = [way.__name__ for way in WAYS]
    jobs = [
        queue.task(name=way.__name__, retry=LATER, timeout=timeout)(calling(way)).enqueue() for way in WAYS
    ]

    @queue.task
    async def swift() -> None: ...

    with worker_of(queue, concurrency=1) as worker:
        found = [now_of(queue, job) for job in jobs]
        swift.enqueue().result(timeout=30)
        wait_until(lambda: not worker.inspect().slots_taken)
    assert {(job.state, job.attempts) for job in found} == {(JobState.SCHEDULED, 1)}
    assert [(job.task, [error.type for error in job.errors]) for job in found] == [
        (name, [how.__name__]) for name in names
    ]
    assert sum("attempt failed" in message for message in caplog.messages) == len(names)


@pytest.mark.parametrize("how", EXITS)
def test_an_exit_in_a_batch_is_the_end_of_its_jobs(queue: PgQueue, how: type[BaseException]) -> None:
    @queue.batch_task(Item, size=2, wait=0, retry=LATER)
    async def gathered(_: Batch[Item]) -> None:
        await of_a_gathered_task(how)

    @queue.batch_task(Item, size=2, wait=0, retry=LATER)
    def plain(_: Batch[Item]) -> None:
        leave(how)

    jobs = [task.enqueue(number) for task in (gathered, plain) for number in range(3)]
    with worker_of(queue, concurrency=1) as worker:
        found = [now_of(queue, job) for job in jobs]
        wait_until(lambda: not worker.inspect().slots_taken)
    assert {(job.state, job.errors[-1].type) for job in found} == {(JobState.SCHEDULED, how.__name__)}


def test_a_job_that_stops_the_event_loop_ends_no_worker(queue: PgQueue) -> None:
    @queue.task
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    with worker_of(queue):
        assert now_of(queue, stop.enqueue()).state is JobState.SUCCEEDED
        assert now_of(queue, stop.enqueue()).state is JobState.SUCCEEDED


def test_an_exit_that_no_attempt_waits_for_ends_no_job_and_no_worker(queue: PgQueue) -> None:
    left = asyncio.Event()

    @queue.task
    async def start() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(leave, SystemExit)
        loop.call_soon(left.set)
        await left.wait()

    with worker_of(queue):
        assert now_of(queue, start.enqueue()).state is JobState.SUCCEEDED


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("how", EXITS)
async def test_a_retry_policy_that_exits_wedges_no_slot(
    queue: PgQueue, running: Running, how: type[BaseException], *, plain: bool
) -> None:
    def fail() -> None:
        raise LookupError

    async def afail() -> None:
        raise LookupError

    policy = Retry(retry=retry_if_exception(lambda _: leave(how)))  # type: ignore[arg-type, return-value]  # it is the fault
    task = queue.task(name="fail", retry=policy)(fail if plain else afail)
    job = task.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: job.status() is JobState.SCHEDULED)
        await until(lambda: not worker.inspect().slots_taken)
    assert [error.type for error in queue.job(job.id).errors] == ["LookupError"]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_an_error_of_which_no_verdict_can_be_made_is_recorded_all_the_same(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    """The error's own class may fail at anything: the runner ends its attempt, and gives back the slot."""

    def fail() -> None:
        raise LookupError

    async def afail() -> None:
        raise LookupError

    def refuse(*_: object, **__: object) -> None:
        raise TypeError

    monkeypatch.setattr(executor, "judge_error", refuse)
    job = queue.task(name="fail", max_attempts=1)(fail if plain else afail).enqueue()
    async with running(queue, concurrency=1) as worker:
        (found,) = await ended(queue, job)
        await until(lambda: not worker.inspect().slots_taken)
    assert [(error.type, error.message) for error in found.errors] == [
        ("NotDescribed", "a LookupError, which could not be described: TypeError")
    ]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_runner_that_a_fault_of_the_worker_ends_records_its_attempt_and_gives_its_slot_back(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    def run_plain() -> None: ...

    async def run() -> None: ...

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(executor.Executor, "_judge_value", fail)
    monkeypatch.setattr(executor.Executor, "note", fail)
    job = queue.task(name="run", max_attempts=1)(run_plain if plain else run).enqueue()
    async with running(queue, concurrency=1) as worker:
        (found,) = await ended(queue, job)
        await until(lambda: not worker.inspect().slots_taken)
    assert [error.type for error in found.errors] == ["NotDescribed"]


class Stubborn:
    """Async tasks that catch their cancellation until they are released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.cancelled = 0

    async def go_on(self, *_: object) -> None:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled += 1


@pytest.fixture
async def stubborn(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stubborn]:
    monkeypatch.setattr(attempts, "CLEAN_UP", 0.05)
    made = Stubborn()
    yield made
    made.released.set()


async def test_a_coroutine_that_goes_on_after_its_timeout_keeps_its_slot_and_is_counted(
    queue: PgQueue, running: Running, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    slow = queue.task(name="slow", timeout=0.05, retry=LATER)(stubborn.go_on)

    @queue.task
    async def swift() -> None: ...

    job = slow.enqueue()
    async with running(queue, concurrency=2) as worker:
        await until(lambda: job.status() is JobState.SCHEDULED)
        await ended(queue, swift.enqueue())
        assert (worker.inspect().not_returned, worker.vitals().not_returned) == (1, 1)
        await beat(worker)
        (problem,) = queue.database.run(control.worker_problems())
        assert "1 function goes on after its timeout" in str(problem)
        (one,) = queue.workers.list()
        assert one.not_returned == 1
        stubborn.released.set()
        await until(lambda: not worker.inspect().not_returned)
        await ended(queue, swift.enqueue())
        await until(lambda: not worker.inspect().slots_taken)
    found = queue.job(job.id)
    assert (found.attempts, [error.type for error in found.errors]) == (1, ["pgqueue.errors.TimedOut"])
    assert sum("goes on after its timeout" in message for message in caplog.messages) == 1


async def test_a_coroutine_that_goes_on_is_cancelled_once_more_for_its_clean_up_may_hang(
    queue: PgQueue, running: Running, stubborn: Stubborn
) -> None:
    @queue.task(timeout=0.05, retry=LATER)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await stubborn.released.wait()

    job = slow.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: job.status() is JobState.SCHEDULED)
        await until(lambda: not worker.inspect().not_returned and not worker.inspect().slots_taken)
    assert [error.type for error in queue.job(job.id).errors] == ["pgqueue.errors.TimedOut"]


async def test_a_batch_that_goes_on_after_its_timeout_keeps_its_slot(
    queue: PgQueue, running: Running, stubborn: Stubborn
) -> None:
    @queue.batch_task(Item, size=2, wait=60, timeout=0.05, retry=LATER)
    async def slow(_: Batch[Item]) -> None:
        await stubborn.go_on()

    jobs = queue.enqueue_many(slow.call(number) for number in range(2))
    async with running(queue, concurrency=1) as worker:
        await until(lambda: all(job.status() is JobState.SCHEDULED for job in jobs))
        assert (worker.inspect().not_returned, worker.inspect().slots_taken) == (1, 1)
        await until(lambda: stubborn.cancelled == 2)
        stubborn.released.set()
        await until(lambda: not worker.inspect().not_returned)
    assert {error.type for job in jobs for error in queue.job(job.id).errors} == {"pgqueue.errors.TimedOut"}


async def test_a_coroutine_that_ends_within_its_clean_up_does_not_go_on(
    queue: PgQueue, running: Running, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(timeout=0.01, retry=LATER)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)

    endless = queue.task(name="endless", timeout=0.01, retry=LATER)(stubborn.go_on)
    async with running(queue, concurrency=1) as worker:
        for task in (slow, endless):  # so the first one would have been told of before the second
            job = task.enqueue()
            await until(lambda job=job: job.status() is JobState.SCHEDULED)  # type: ignore[misc]  # of this turn
        assert worker.inspect().not_returned == 1
        stubborn.released.set()
    assert sum("goes on after its timeout" in message for message in caplog.messages) == 1


async def test_a_coroutine_that_outlives_the_loss_of_its_job_counts_after_its_timeout(
    queue: PgQueue, running: Running, stubborn: Stubborn
) -> None:
    @queue.task(timeout=1, max_attempts=1)
    async def slow() -> None:
        stubborn.cancelled = 1
        await stubborn.go_on()

    slow.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: stubborn.cancelled)
        ask(queue, "delete from pgqueue.workers")
        await beat(worker)
        assert worker.inspect().slots_taken == 1
        await until(lambda: (worker.inspect().slots_taken, worker.inspect().not_returned) == (1, 1))
        stubborn.released.set()
        await until(lambda: not worker.inspect().not_returned)
        await until(lambda: not worker.inspect().slots_taken)


async def test_a_coroutine_that_goes_on_when_its_lease_is_lost_keeps_its_slot(
    queue: PgQueue, running: Running, stubborn: Stubborn
) -> None:
    """The worker claimed a job for that slot, which no other worker could have then."""
    slow = queue.task(name="slow", timeout=0.02, limit=Limit(1), max_attempts=1)(stubborn.go_on)
    slow.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: worker.inspect().not_returned)
        ask(queue, "delete from pgqueue.workers")
        await beat(worker)
        now = worker.inspect()
        assert (now.slots_taken, now.not_returned, now.running) == (1, 1, ())
        assert worker.parts.claims.room(0) == 0
        stubborn.released.set()
        await until(lambda: not worker.inspect().slots_taken)
        assert not worker.inspect().not_returned


async def test_promise_5_a_limit_holds_for_a_coroutine_that_heeds_no_cancellation(
    queue: PgQueue, running: Running, stubborn: Stubborn
) -> None:
    at_once = Retry(wait=wait_fixed(0), stop=stop_after_attempt(1))
    slow = queue.task(name="slow", timeout=0.02, retry=at_once, limit=Limit(1))(stubborn.go_on)
    jobs = [slow.enqueue(), slow.enqueue()]
    async with running(queue, concurrency=4) as worker:
        await until(lambda: worker.inspect().not_returned)
        assert [job.status() for job in jobs] == [JobState.RUNNING, JobState.BLOCKED]
        stubborn.released.set()
        await ended(queue, jobs[0])
    assert queue.job(jobs[0].id).state is JobState.DEAD
