"""While a task blocks the event loop: the lease, what has ended, what waits, timeouts, cancelling, the log, and health.

The loop of these tests is the one that is blocked, so another thread looks meanwhile, and ends the blocking when it has
seen what it waits for.
"""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import (
    FOR_EVER,
    all_ended,
    beat,
    claimed,
    dismantle,
    ended,
    hand_over,
    known,
    record_ends,
    register,
)

from pgqueue import Context, JobHandle, JobState, PgQueue
from pgqueue.store.jobs import control
from pgqueue.store.workers import upkeep
from pgqueue.values.workers import health
from pgqueue.values.workers.health import WorkerProblem
from pgqueue.worker import completer as completing
from pgqueue.worker import recorder
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.watch import LoopBlocker, LoopWatch
from pgqueue.worker.worker import Worker

SOON = timedelta(seconds=0.1)
GUARD = 20.0


class Blocker:
    """Lets a task block the loop until another thread has seen what it waits for."""

    def __init__(self) -> None:
        self.blocking = threading.Event()
        self.released = threading.Event()
        self.seen = False

    def block(self) -> None:
        self.blocking.set()
        self.released.wait(GUARD)

    @contextmanager
    def until(self, holds: Callable[[], object]) -> Iterator[None]:
        """While the block runs: once the loop is blocked, wait for a condition, and release the loop."""

        def look() -> None:
            self.blocking.wait(GUARD)
            ends = time.monotonic() + GUARD
            while not self.seen and time.monotonic() < ends:
                self.seen = bool(holds())
                time.sleep(0.01)
            self.released.set()

        thread = threading.Thread(target=look, name="observer")
        thread.start()
        yield
        thread.join()
        assert self.seen


@pytest.fixture
def blocker(queue: PgQueue) -> Blocker:
    """What the task ``block`` of the queue blocks in."""
    made = Blocker()

    @queue.task(name="block", priority=-1)
    async def block() -> None:
        made.block()

    return made


def enqueue_block(queue: PgQueue) -> JobHandle[Any]:
    """Have the loop blocked, once everything of a higher priority has started."""
    return queue.tasks["block"].enqueue()


async def test_a_plain_function_that_returns_is_recorded(
    queue: PgQueue, running: Running, blocker: Blocker
) -> None:
    @queue.task
    def confirm() -> str:
        blocker.blocking.wait(GUARD)
        return "confirmed"

    job, blocking = confirm.enqueue(), enqueue_block(queue)
    with blocker.until(lambda: job.status() is JobState.SUCCEEDED):
        async with running(queue, concurrency=2, blocked_after=SOON):
            found, blocked = await ended(queue, job, blocking)
    assert (found.result, found.attempts, blocked.attempts) == ("confirmed", 1, 1)


async def test_the_lease_is_renewed(queue: PgQueue, running: Running, blocker: Blocker) -> None:
    blocking = enqueue_block(queue)
    renewed = "select id from pgqueue.workers where lease_until > started_at + interval '4 seconds'"
    with blocker.until(lambda: ask(queue, renewed)):
        async with running(queue, lease=timedelta(seconds=1.5)) as worker:
            before = worker.id
            await ended(queue, blocking)
            assert worker.id == before


async def test_claims_that_have_not_started_go_back_unspent(
    queue: PgQueue, running: Running, blocker: Blocker
) -> None:
    @queue.task
    async def note() -> None: ...

    async with running(queue, concurrency=1, blocked_after=SOON, poll=FOR_EVER) as worker:
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
        blocking = enqueue_block(queue)
        waiting = [note.using(priority=-2).enqueue() for _ in range(3)]
        with blocker.until(lambda: {job.status() for job in waiting} == {JobState.READY}):
            hand_over(worker, claimed(queue, worker))
            await ended(queue, blocking, *waiting)
    assert [queue.job(job.id).attempts for job in waiting] == [1] * 3


async def test_a_plain_functions_timeout_is_kept(queue: PgQueue, running: Running, blocker: Blocker) -> None:
    @queue.task(timeout=0.3, max_attempts=1)
    def linger() -> None:
        blocker.released.wait(GUARD)

    job, blocking = linger.enqueue(), enqueue_block(queue)
    with blocker.until(lambda: job.status() is JobState.DEAD):
        async with running(queue, concurrency=2, blocked_after=SOON):
            await ended(queue, job, blocking)
    assert [error.type for error in queue.job(job.id).errors] == ["pgqueue.errors.TimedOut"]


async def test_a_plain_function_hears_that_it_is_cancelled(
    queue: PgQueue, running: Running, blocker: Blocker
) -> None:
    told = threading.Event()

    @queue.task
    def linger(ctx: Context) -> None:
        blocker.blocking.wait(GUARD)
        job.cancel()
        ends = time.monotonic() + GUARD
        while not ctx.cancelled and time.monotonic() < ends:
            time.sleep(0.01)
        if ctx.cancelled:
            told.set()

    job, blocking = linger.enqueue(), enqueue_block(queue)
    with blocker.until(told.is_set):
        async with running(queue, concurrency=2, lease=timedelta(seconds=1.5)):
            await ended(queue, job, blocking)
    assert told.is_set()


async def test_it_is_logged_with_the_task_the_job_and_the_line_and_again_when_it_ends(
    queue: PgQueue, running: Running, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    blocking = enqueue_block(queue)
    states: list[LoopBlocker | None] = []
    async with running(queue, blocked_after=SOON) as worker:
        with blocker.until(lambda: seen(worker.parts.watch, states)):
            await ended(queue, blocking)
        await until(lambda: worker.inspect().blocked is None)
    first, last = (one for one in caplog.records if "event loop" in one.getMessage())
    for record in (first, last):
        assert record.levelno == logging.WARNING
        assert (record.__dict__["job"], record.__dict__["task"]) == (blocking.id, "block")
        assert "test_worker_blocked.py:" in record.__dict__["where"]
        assert record.__dict__["where"].endswith("in block")
    assert " in wait" in first.__dict__["stack"]
    assert states[-1] is not None
    assert states[-1].job == blocking.id


def seen(watched: LoopWatch, states: list[LoopBlocker | None]) -> bool:
    """Note what blocks the loop; whether something does."""
    states.append(watched.blocked)
    return watched.blocked is not None


async def test_health_names_the_worker_the_task_and_the_line_and_the_next_heartbeat_clears_it(
    queue: PgQueue, running: Running, blocker: Blocker
) -> None:
    found: list[WorkerProblem] = []
    blocking = enqueue_block(queue)
    with blocker.until(lambda: noted(queue, found)):
        async with running(queue, lease=timedelta(seconds=1.5), blocked_after=SOON) as worker:
            (blocked,) = await ended(queue, blocking)
            await until(lambda: not pulse(queue).worker_problems)
            assert pulse(queue).workers == 1
            assert ask(queue, "select not_returned, id from pgqueue.workers") == [(0, worker.id)]
    (problem,) = found
    assert problem.blocked is not None
    assert (problem.host, problem.pid) == (socket.gethostname(), os.getpid())
    assert (problem.blocked.task, problem.blocked.job) == ("block", blocked.id)
    assert "test_worker_blocked.py:" in problem.blocked.where
    assert problem.blocked.where.endswith("in block")
    assert 0 < problem.blocked.seconds < GUARD


def pulse(queue: PgQueue) -> control.QueueSummary:
    """How the queue is, asked on a connection of its own."""
    return queue.database.run(control.pulse())


def noted(queue: PgQueue, found: list[WorkerProblem]) -> bool:
    """Note the workers whose event loop is blocked; whether there is any.

    A worker that has only just begun may have another problem: it does not listen yet.
    """
    found[:] = [problem for problem in pulse(queue).worker_problems if problem.blocked is not None]
    return bool(found)


async def test_a_hostile_name_of_what_blocks_the_loop_costs_no_lease(
    queue: PgQueue, running: Running
) -> None:
    blocking, name = Blocker(), "half \ud800, NUL \0, é 漢" + "x" * 10_000

    async def own() -> None:
        blocking.block()

    async with running(queue, lease=timedelta(seconds=1.5), blocked_after=SOON) as worker:
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
        before, found = worker.id, list[WorkerProblem]()
        with blocking.until(lambda: noted(queue, found)):
            await asyncio.create_task(own(), name=name)
        assert worker.id == before
    (problem,) = found
    assert problem.blocked is not None
    assert problem.blocked.task.startswith(r"half \ud800, NUL \x00, \xe9 \u6f22xxx")
    assert len(problem.blocked.task) == health.LONGEST


async def test_what_blocks_outside_of_any_job_is_named_by_its_asyncio_task(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    turns, blocking = "the event loop turns again", Blocker()

    async def own() -> None:
        blocking.block()

    async with running(queue, blocked_after=SOON) as worker:
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
        with blocking.until(lambda: worker.inspect().blocked):
            await asyncio.create_task(own(), name="my own")
            await until(lambda: turns in caplog.messages)
    first = next(one for one in caplog.records if "event loop is blocked" in one.getMessage())
    assert (first.__dict__["job"], first.__dict__["task"]) == (None, "my own")
    assert first.__dict__["where"].endswith("in block")


async def test_a_loop_that_turns_is_not_called_blocked(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task
    async def busy() -> None:
        for _ in range(30):
            time.sleep(0.05)  # noqa: ASYNC251 - 1.5 s of blocking in all, and the loop turns in between
            await asyncio.sleep(0)

    job = await busy.aenqueue()
    async with running(queue, blocked_after=timedelta(seconds=1)):
        await ended(queue, job)
    assert [message for message in caplog.messages if "event loop" in message] == []


async def test_a_lease_that_is_lost_meanwhile_starts_nothing_that_was_held_under_it(
    queue: PgQueue, running: Running
) -> None:
    runs: list[int] = []
    release, blocking = asyncio.Event(), Blocker()

    @queue.task
    async def hold() -> None:
        await release.wait()

    @queue.task
    async def note(ctx: Context) -> None:
        runs.append(ctx.attempt)

    held = hold.enqueue()
    async with running(queue, concurrency=1, lease=timedelta(seconds=1.5), blocked_after=FOR_EVER) as worker:
        await until(lambda: worker.inspect().running)
        before = worker.id
        waiting = note.enqueue()
        with blocking.until(lambda: worker.id != before):
            hand_over(worker, claimed(queue, worker))
            ask(queue, "delete from pgqueue.workers")
            queue.database.run(upkeep.reclaim())
            blocking.block()
        release.set()
        found = await ended(queue, waiting, held)
    assert runs == [2]
    assert [job.attempts for job in found] == [2, 2]


async def test_claims_of_a_lost_lease_that_arrive_late_are_not_run(queue: PgQueue) -> None:
    @queue.task
    async def note() -> None: ...

    note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    late = claimed(queue, worker)
    ask(queue, "delete from pgqueue.workers")
    await beat(worker)
    hand_over(worker, late)
    assert not worker.inspect().waiting
    await dismantle(worker)


async def test_a_batch_that_was_on_its_way_is_written_once_more_and_nothing_is_superseded(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop stops turning with a statement on its way; the worker cannot know whether the database has it."""

    @queue.task
    def confirm() -> None: ...

    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    jobs = [confirm.enqueue() for _ in range(3)]
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    writing = asyncio.create_task(record_ends(worker))
    async with asyncio.timeout(20):
        while worker.inspect().verdicts:  # noqa: ASYNC110 - at the very turn at which none waits, one is on its way
            await asyncio.sleep(0)
    stand_in = threading.Thread(target=lambda: asyncio.run(_stand_in(worker)))
    stand_in.start()
    stand_in.join()  # the loop is blocked
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert sorted(known(worker)) == [job.id for job in jobs]
    await writing
    assert worker.inspect().backlog == 0
    assert [message for message in caplog.messages if "superseded" in message] == []
    await dismantle(worker)


@pytest.mark.parametrize("refusal", [psycopg.errors.LockNotAvailable, psycopg.OperationalError])
async def test_a_verdict_that_comes_back_from_the_heartbeats_thread_is_recorded_by_a_loop_that_knew_of_none(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, refusal: type[psycopg.Error]
) -> None:
    """The loop looked while the thread held the verdict, and waited for the next job to end."""
    for module in (completing, recorder):
        monkeypatch.setattr(module, "LOCKED_FOR", 0.05)

    @queue.task
    def confirm() -> None: ...

    worker = Worker(queue, poll=FOR_EVER)
    completer = worker.parts.completer
    await register(worker)
    job = confirm.enqueue()
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    worker.parts.signals.here()
    looks: list[asyncio.Task[None]] = []

    async def once(*_: object) -> None:
        """Refuse, after the loop has looked and found nothing."""
        if not looks:
            looks.append(asyncio.create_task(completer.run()))
            for _turn in range(20):
                await asyncio.sleep(0)
        raise refusal

    with suppress(psycopg.Error):
        await completer.stand_in(AsyncMock(spec=WorkerConnection, losses=0, once=once))
    assert looks
    await ended(queue, job)
    looks[0].cancel()
    await dismantle(worker)


async def _stand_in(worker: Worker) -> None:
    """What the heartbeat's thread does."""
    await worker.parts.runners.while_blocked(worker.parts.connections.stand_in)
