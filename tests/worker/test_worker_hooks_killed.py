"""Hooks where workers are killed, and hooks of batch tasks: no job is lost, and each job of a batch has its own events."""

import asyncio
import signal
from collections import Counter

import pytest
from documents import A_MINUTE, Document
from looking import ask, until, wait_until
from promises.processes import live_jobs, processes
from promises.workshop import Workshop
from running import Running
from tenacity import wait_none
from worker.helping import ended

from pgqueue import Batch, Event, JobState, PgQueue, Retry, chain
from pgqueue.values.jobs.event import NAMES


@pytest.mark.parametrize(
    ("event", "plain"), [("claimed", False), ("started", True), ("succeeded", False), ("dead", True)]
)
def test_a_worker_that_is_killed_in_a_hook_loses_no_job(
    queue: PgQueue, dsn: str, event: str, *, plain: bool
) -> None:
    shop = Workshop(queue)
    good = queue.enqueue_many(shop.succeed.call() for _ in range(30))
    bad = queue.enqueue_many(shop.fail.call() for _ in range(10))
    with processes(dsn) as start:
        assert start("work_until_a_hook", event=event, plain=plain).ended() == -signal.SIGKILL
        start(lease=1.0)
        wait_until(lambda: not live_jobs(dsn))
    assert {queue.job(job.id).state for job in good} == {JobState.SUCCEEDED}
    assert {queue.job(job.id).state for job in bad} == {JobState.DEAD}
    ended_once = "select count(*), count(distinct id) from (select id from pgqueue.job_history union all select id from pgqueue.dead_jobs) as one"
    assert ask(dsn, ended_once) == [(40, 40)]


async def test_each_job_of_a_batch_has_its_own_events(queue: PgQueue, running: Running) -> None:
    told: list[Event] = []
    for name in NAMES:
        if not name.startswith("worker"):
            queue.on(name)(told.append)  # type: ignore[call-overload]  # any of them

    @queue.batch_task(Document, name="index", size=4, wait=A_MINUTE, max_attempts=1, retry=Retry())
    async def index(jobs: Batch[Document]) -> list[int]:
        jobs[1].fail(ValueError("this one"))
        return [job.args.number for job in jobs]

    jobs = queue.enqueue_many(index.call(number) for number in range(4))
    async with running(queue, concurrency=2):
        await ended(queue, *jobs)
        await until(lambda: sum(one.name in {"succeeded", "dead"} for one in told) == 4)
    names = {job.id: Counter(one.name for one in told if one.job == job.id) for job in jobs}
    begun = dict.fromkeys(("enqueued", "claimed", "started"), 1)
    assert names[jobs[1].id] == {**begun, "failed": 1, "dead": 1}
    assert all(names[jobs[at].id] == {**begun, "succeeded": 1} for at in (0, 2, 3))
    (dead,) = [one for one in told if one.name == "dead"]
    assert (dead.task, dead.args, dead.error and dead.error.message) == ("index", {"number": 1}, "this one")


async def test_a_job_that_its_flow_cancels_before_it_runs_is_told_to_no_hook(
    queue: PgQueue, running: Running
) -> None:
    told: list[Event] = []
    for name in NAMES:
        if not name.startswith("worker"):
            queue.on(name)(told.append)  # type: ignore[call-overload]  # any of them

    @queue.task(name="first", max_attempts=1)
    async def first() -> None:
        raise ValueError("no")

    @queue.task(name="second")
    async def second() -> None: ...

    flow = await chain(first.call(), second.call()).aenqueue()
    async with running(queue):
        await until(lambda: flow.status() == "failed")
        await until(lambda: any(one.name == "dead" for one in told))
    assert ask(queue, "select task from pgqueue.job_history where outcome = 'cancelled'") == [("second",)]
    assert {one.name for one in told if one.task == "second"} <= {"enqueued"}


async def test_a_batch_that_raises_is_told_of_each_of_its_jobs_and_runs_again(
    queue: PgQueue, running: Running
) -> None:
    retried: list[int] = []
    calls = 0

    @queue.on("retried")
    async def note(event: Event) -> None:
        await asyncio.sleep(0)
        retried.append(event.job)

    @queue.batch_task(
        Document, name="index", size=3, wait=A_MINUTE, max_attempts=2, retry=Retry(wait=wait_none())
    )
    async def index(_: Batch[Document]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("the whole batch")

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue, concurrency=2):
        found = await ended(queue, *jobs)
        await until(lambda: len(retried) >= 3)
    assert sorted(retried) == sorted(job.id for job in jobs)
    assert {(job.state, job.attempts) for job in found} == {(JobState.SUCCEEDED, 2)}
