"""Cancelling: a waiting job at once, a running one when its worker hears of it with the next beat."""

import asyncio
import threading
from contextlib import suppress

from running import Running
from tenacity import wait_none
from worker.helping import FOR_EVER, ask, claimed, completer, dismantle, ended, member, slots, until, verdicts

from pgqueue import Context, JobState, PgQueue, Retry
from pgqueue.values.verdict import Cancelled
from pgqueue.worker.worker import Worker


async def test_a_waiting_job_is_cancelled_at_once(queue: PgQueue, running: Running) -> None:
    calls: list[str] = []

    @queue.task
    async def note(text: str) -> None:
        calls.append(text)

    cancelled, other = note.enqueue("cancelled"), note.enqueue("other")
    assert cancelled.cancel() is JobState.CANCELLED
    async with running(queue):
        await ended(queue, other)
    assert (cancelled.status(), calls) == (JobState.CANCELLED, ["other"])


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
        await member(worker).beat()
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
        await member(worker).beat()
        go_on.set()
        (found,) = await ended(queue, job)
    assert (found.state, found.result) == (JobState.SUCCEEDED, True)


async def test_a_cancelled_attempt_that_fails_ends_as_cancelled_with_its_error(
    queue: PgQueue, running: Running
) -> None:
    started, go_on = threading.Event(), threading.Event()

    @queue.task(retry=Retry(wait=wait_none()))
    def linger() -> None:
        started.set()
        go_on.wait(20)
        raise ValueError("gave up")

    job = linger.enqueue()
    async with running(queue):
        await until(started.is_set)
        job.cancel()
        go_on.set()
        (found,) = await ended(queue, job)
    assert (found.state, [error.message for error in found.errors]) == (JobState.CANCELLED, ["gave up"])


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
        await member(worker).beat()
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
        await until(lambda: len(slots(worker).hand.running) == 2 and started.n_waiting == 0)
        cancelled.cancel()
        await member(worker).beat()
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
    await member(worker).join()
    slots(worker).add(claimed(queue, worker))
    slots(worker).cancel([job.id])
    await slots(worker).emptied()
    assert [type(verdict) for verdict in verdicts(worker)] == [Cancelled]
    await completer(worker).run_once()
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
    await member(worker).join()
    slots(worker).add(claimed(queue, worker))
    assert job.cancel() is JobState.RUNNING
    await member(worker).beat()
    release.set()
    await slots(worker).emptied()
    await completer(worker).run_once()
    await dismantle(worker)
    assert calls == ["first"]
    assert job.status() is JobState.CANCELLED
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]
