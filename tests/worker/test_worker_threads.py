"""Threads that cannot be started, or do not come back: other jobs run, and no slot is lost."""

import asyncio
import os
import threading
from datetime import timedelta

import pytest
from looking import ask, until
from running import Running
from tenacity import wait_fixed
from worker.helping import beat, claimed, ended

from pgqueue import Context, JobState, PgQueue, Retry
from pgqueue.store.jobs import control
from pgqueue.worker import runners
from pgqueue.worker.threads import Threads, Work

LATER = Retry(wait=wait_fixed(3600))


async def test_when_no_thread_can_be_started_plain_jobs_go_back_and_the_others_run(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M8: after one "can't start new thread" no job of any kind started again."""
    monkeypatch.setattr(runners, "NO_THREAD_DELAY", timedelta(seconds=0.2))

    @queue.task
    def plain() -> None: ...

    @queue.task
    async def awaited() -> None: ...

    refusing = threading.Event()
    refusing.set()
    async with running(queue, concurrency=2, poll=timedelta(seconds=0.1)):
        start = Threads.start

        def start_none(threads: Threads, work: Work) -> None:
            if refusing.is_set():
                raise RuntimeError("can't start new thread")
            start(threads, work)

        monkeypatch.setattr(Threads, "start", start_none)
        plain_job, others = plain.enqueue(), [awaited.enqueue() for _ in range(5)]
        await ended(queue, *others)
        await until(lambda: any("no thread for plain functions" in message for message in caplog.messages))
        refusing.clear()
        (found,) = await ended(queue, plain_job)
    assert (found.state, found.attempts) == (JobState.SUCCEEDED, 1)


async def test_functions_that_were_given_up_and_go_on_are_bounded(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8: a function that hangs left a thread behind at each timeout, without limit."""
    monkeypatch.setattr(runners, "NO_THREAD_DELAY", timedelta(seconds=0.2))
    release = threading.Event()
    inside: list[None] = []

    @queue.task(timeout=0.05, retry=LATER)
    def hang() -> None:
        inside.append(None)
        release.wait(20)

    @queue.task
    async def awaited() -> None: ...

    @queue.task
    def plain() -> None: ...

    queue.enqueue_many(hang.call() for _ in range(20))
    async with running(queue, concurrency=1, poll=timedelta(seconds=0.1)) as worker:
        await until(lambda: worker.inspect().not_returned == runners.MOST_NOT_RETURNED)
        await beat(worker)
        (problem,) = queue.database.run(control.worker_problems())
        assert (problem.pid, problem.not_returned) == (os.getpid(), runners.MOST_NOT_RETURNED)
        await ended(queue, awaited.enqueue())
        assert len(inside) == runners.MOST_NOT_RETURNED
        ask(queue, "delete from pgqueue.jobs where task = %s and status <> 'running'", hang.name)
        release.set()
        await ended(queue, plain.enqueue())
        await until(lambda: not worker.inspect().not_returned)


@pytest.mark.parametrize("plain", [True, False])
async def test_no_slot_is_lost_when_a_job_is_claimed_again_while_it_runs(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    """M7: a server that crashed had forgotten the claim (simulated), and the same worker claims the job again."""
    release, released = threading.Event(), asyncio.Event()
    attempts: list[Context] = []

    def block(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            release.wait(20)

    async def ablock(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            await released.wait()

    task = queue.task(name="block")(block if plain else ablock)
    job = task.enqueue()
    async with running(queue, concurrency=2, poll=timedelta(hours=1)) as worker:
        await until(lambda: attempts)
        ask(queue, "update pgqueue.jobs set status = 'ready', worker_id = null, attempts = 0")
        again = claimed(queue, worker)
        worker.parts.runners.add(again)
        (found,) = await ended(queue, job)
        release.set()
        released.set()
        await until(lambda: worker.inspect().slots_taken == worker.inspect().not_returned == 0)
    assert (found.state, [one.cancelled for one in attempts]) == (JobState.SUCCEEDED, [True, False])
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(1,)]
