"""CancelRequests: a waiting job at once, a running one when its worker hears of it, by a notification or by asking."""

import asyncio
import threading
import time
from contextlib import suppress

import psycopg
import pytest
from looking import ask, until
from running import Running
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed
from worker.helping import (
    FOR_EVER,
    all_ended,
    beat,
    claimed,
    dismantle,
    ended,
    hand_over,
    record_ends,
    register,
)

from pgqueue import Context, JobState, PgQueue
from pgqueue.store.connections.listener import CANCEL
from pgqueue.values.jobs.verdict import Cancelled
from pgqueue.worker.worker import Worker


async def test_a_running_async_task_is_cancelled_with_the_next_beat(queue: PgQueue, running: Running) -> None:
    started, told = asyncio.Event(), []

    @queue.task
    async def linger(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.cancelled)

    job = linger.enqueue()
    async with running(queue) as worker:
        await asyncio.wait_for(started.wait(), 20)
        assert job.cancel() is JobState.RUNNING
        await beat(worker)
        (found,) = await ended(queue, job)
    assert (found.state, told) == (JobState.CANCELLED, [True])


async def test_a_plain_task_is_told_and_may_finish(queue: PgQueue, running: Running) -> None:
    started, go_on = threading.Event(), threading.Event()

    @queue.task
    def linger(ctx: Context) -> bool:
        started.set()
        go_on.wait(20)
        return ctx.cancelled

    job = linger.enqueue()
    async with running(queue) as worker:
        await until(started.is_set)
        job.cancel()
        await beat(worker)
        go_on.set()
        (found,) = await ended(queue, job)
    assert (found.state, found.result) == (JobState.SUCCEEDED, True)


async def test_an_async_task_that_goes_on_regardless_succeeds(queue: PgQueue, running: Running) -> None:
    started = asyncio.Event()

    @queue.task
    async def stubborn() -> str:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done"

    job = stubborn.enqueue()
    async with running(queue) as worker:
        await asyncio.wait_for(started.wait(), 20)
        job.cancel()
        await beat(worker)
        (found,) = await ended(queue, job)
    assert (found.state, found.result) == (JobState.SUCCEEDED, "done")


async def test_a_beat_cancels_only_what_was_asked(queue: PgQueue, running: Running) -> None:
    started, release = asyncio.Barrier(2), asyncio.Event()

    @queue.task
    async def linger() -> None:
        await started.wait()
        await release.wait()

    cancelled, other = linger.enqueue(), linger.enqueue()
    async with running(queue, concurrency=2) as worker:
        await until(lambda: len(worker.inspect().running) == 2 and started.n_waiting == 0)
        cancelled.cancel()
        await beat(worker)
        await ended(queue, cancelled)
        assert other.status() is JobState.RUNNING
        release.set()
        await ended(queue, other)
    assert (cancelled.status(), other.status()) == (JobState.CANCELLED, JobState.SUCCEEDED)


async def test_a_claim_cancelled_while_its_runner_is_on_its_way_never_starts(queue: PgQueue) -> None:
    calls: list[None] = []

    @queue.task(name="note")
    async def note() -> None:
        calls.append(None)

    job = note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    worker.parts.runners.cancel([job.id])
    await all_ended(worker)
    assert [type(verdict) for verdict in worker.inspect().verdicts] == [Cancelled]
    await record_ends(worker)
    await dismantle(worker)
    assert (job.status(), calls) == (JobState.CANCELLED, [])


async def test_a_claim_that_waits_for_a_slot_is_cancelled_before_it_starts(queue: PgQueue) -> None:
    calls: list[str] = []
    release = asyncio.Event()

    @queue.task
    async def note(text: str) -> None:
        await release.wait()
        calls.append(text)

    note.enqueue("first")
    job = note.enqueue("second")
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    assert job.cancel() is JobState.RUNNING
    await beat(worker)
    release.set()
    await all_ended(worker)
    await record_ends(worker)
    await dismantle(worker)
    assert calls == ["first"]
    assert job.status() is JobState.CANCELLED
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]


@pytest.mark.parametrize("listens", [True, False], ids=["it listens", "it cannot listen"])
async def test_a_running_job_hears_of_it_long_before_the_next_beat(
    dsn: str, running: Running, *, listens: bool
) -> None:
    started = asyncio.Event()
    queue = PgQueue(dsn, behind_pooler=not listens)

    @queue.task
    async def linger() -> None:
        started.set()
        await asyncio.Event().wait()

    if not listens:
        job = linger.enqueue()
    async with running(queue, lease=FOR_EVER, poll=FOR_EVER, sweep=FOR_EVER) as worker:
        if listens:  # it asks once when it begins to listen, so the job comes later
            await until(lambda: worker.inspect().can_listen and not worker.parts.signals.cancel_heard)
            job = linger.enqueue()
        await asyncio.wait_for(started.wait(), 20)
        assert job.cancel() is JobState.RUNNING
        began = time.monotonic()
        (found,) = await ended(queue, job)
        took = time.monotonic() - began
    queue.close()
    assert found.state is JobState.CANCELLED
    assert took < 10, "it was no beat that told of it: the next one is hours away"


class Asked:
    def __init__(self) -> None:
        self.count = 0

    async def run(self, _plan: object) -> list[int]:
        self.count += 1
        return [7]


@pytest.mark.parametrize(
    ("known", "can_listen", "told", "asks"),
    [([], False, True, 0), ([7], True, False, 0), ([7], True, True, 1), ([7], False, False, 1)],
    ids=["nothing in hand", "it would be told", "it was told", "it cannot be told"],
)
async def test_a_worker_asks_only_if_it_runs_something_and_has_a_reason_to(
    known: list[int], asks: int, monkeypatch: pytest.MonkeyPatch, *, can_listen: bool, told: bool
) -> None:
    asked, cancelled = Asked(), list[int]()
    parts = Worker(PgQueue("postgresql://nowhere")).parts
    monkeypatch.setattr(parts.connections.claiming, "run", asked.run)
    monkeypatch.setattr(parts.runners, "known", lambda: known)
    monkeypatch.setattr(parts.runners, "cancel", cancelled.extend)
    if told:
        parts.signals.heard(CANCEL)
    parts.signals.activity.can_listen = can_listen
    await parts.upkeep.stop_cancelled()
    assert (asked.count, cancelled) == (asks, [7] * asks)
    if can_listen:
        await parts.upkeep.stop_cancelled()
        assert asked.count == asks, "a notification is good for one question"


def test_only_the_cancelling_of_a_running_job_notifies(queue: PgQueue, dsn: str) -> None:
    @queue.task(name="noop")
    def noop() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute('listen "pgqueue.wake"')
        noop.enqueue().cancel()
        queue.cancel(12345)
        noop.enqueue()
        with queue.take(1) as (job,):
            queue.cancel(job.id)
        said = [notification.payload for notification in ear.notifies(timeout=0.5, stop_after=1)]
        assert "cancel" in said
        assert said.count("cancel") == 1


def test_a_taken_job_hears_of_it_at_the_heartbeat(queue: PgQueue) -> None:
    @queue.task(name="noop")
    def noop() -> None: ...

    for _ in range(2):
        noop.enqueue()
    with queue.take(2, lease=0.3) as (job, other):
        queue.cancel(job.id)
        retried = Retrying(
            stop=stop_after_delay(20), wait=wait_fixed(0.02), retry=retry_if_result(lambda it: not it)
        )
        assert retried(lambda: job.cancelled)
        assert not other.cancelled
