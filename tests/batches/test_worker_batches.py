"""Batch tasks in a worker: which jobs run in one call, and what they keep from running."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from documents import A_MINUTE, Document
from looking import ask, until
from running import Running
from worker.helping import claims_of, ended

from pgqueue import (
    Batch,
    Context,
    JobState,
    Middleware,
    Observer,
    PgQueue,
)
from pgqueue.store.jobs import claim
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Verdict


async def test_a_call_gets_as_many_jobs_as_its_size_says(queue: PgQueue, running: Running) -> None:
    calls: list[list[int]] = []

    @queue.batch_task(Document, size=10, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    jobs = queue.enqueue_many(index.call(number) for number in range(30))
    async with running(queue):
        await ended(queue, *jobs)
    assert sorted(map(len, calls)) == [10, 10, 10]
    assert sorted(chain.from_iterable(calls)) == list(range(30))


async def test_one_slot_is_enough_and_the_call_takes_one(queue: PgQueue, running: Running) -> None:
    """The claims of a batch are more than a worker of one slot would prefetch."""
    sizes, slots = list[int](), list[int]()

    @queue.batch_task(Document, size=50, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        sizes.append(len(jobs))
        slots.append(worker.inspect().slots_taken)

    jobs = queue.enqueue_many(index.call(number) for number in range(50))
    async with running(queue, concurrency=1) as worker:
        await ended(queue, *jobs)
    assert (sizes, slots) == ([50], [1])


async def test_after_the_wait_a_call_gets_what_there_is(queue: PgQueue, running: Running) -> None:
    sizes = []

    @queue.batch_task(Document, size=50, wait=0.05)
    def index(jobs: Batch[Document]) -> None:
        sizes.append(len(jobs))

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await ended(queue, *jobs)
    assert sum(sizes) == 3


async def test_without_a_wait_no_job_waits_for_others(queue: PgQueue, running: Running) -> None:
    @queue.batch_task(Document, size=50, wait=0)
    def index(jobs: Batch[Document]) -> list[int]:
        return [len(jobs) for _ in jobs]

    job = index.enqueue(1)
    async with running(queue):
        (done,) = await ended(queue, job)
    assert done.result == 1


async def test_a_call_has_one_value_of_each_argument_that_by_names(queue: PgQueue, running: Running) -> None:
    calls: list[set[str]] = []

    @queue.batch_task(Document, size=5, wait=0.05, by=("tenant",))
    def index(jobs: Batch[Document]) -> None:
        calls.append({job.args.tenant for job in jobs})

    jobs = queue.enqueue_many(index.call(number, f"tenant {number % 3}") for number in range(30))
    jobs += [index.enqueue(30, "one"), index.enqueue(31)]
    async with running(queue):
        await ended(queue, *jobs)
    assert {len(tenants) for tenants in calls} == {1}
    assert set.union(*calls) == {"tenant 0", "tenant 1", "tenant 2", "one"}


async def test_a_default_and_its_value_are_one_value_of_by(queue: PgQueue, running: Running) -> None:
    calls: list[list[str]] = []

    @queue.batch_task(Document, size=2, wait=A_MINUTE, by=("tenant",))
    def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.tenant for job in jobs])

    async with running(queue):
        await ended(queue, index.enqueue(1), index.enqueue(2, str(b"one", "ascii")))
    assert calls == [["one", "one"]]


async def test_a_cancelled_job_that_gathers_ends_and_the_others_wait_on(
    queue: PgQueue, running: Running
) -> None:
    sizes = []

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    def index(jobs: Batch[Document]) -> None:
        sizes.append(len(jobs))

    jobs = queue.enqueue_many(index.call(number) for number in range(2))
    async with running(queue) as worker:
        await until(lambda: len(worker.inspect().waiting) == 2)
        await jobs[0].acancel()
        await until(lambda: jobs[0].status() is JobState.CANCELLED)
        jobs += queue.enqueue_many(index.call(number) for number in range(2, 4))
        await ended(queue, *jobs)
    assert sizes == [3]


async def test_claims_that_gather_go_back_unspent_when_the_worker_stops(
    queue: PgQueue, running: Running
) -> None:
    @queue.batch_task(Document, size=100, wait=A_MINUTE)
    def index(jobs: Batch[Document]) -> None: ...

    jobs = queue.enqueue_many(index.call(number) for number in range(20))
    async with running(queue) as worker:
        await until(lambda: len(worker.inspect().waiting) == 20)
        assert len(claims_of(queue, worker)) == 20
    assert {(queue.job(job.id).state, queue.job(job.id).attempts) for job in jobs} == {(JobState.READY, 0)}


async def test_a_batch_that_runs_when_the_worker_stops_at_once_goes_back_unspent(
    queue: PgQueue, running: Running
) -> None:
    started, cancellations = asyncio.Event(), list[int]()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancellations.append(len(jobs))
            await asyncio.sleep(0)  # a second cancellation would end this
            cancellations.append(len(jobs))
            raise

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue, grace=timedelta(0)):
        await asyncio.wait_for(started.wait(), 20)
    assert cancellations == [3, 3]
    assert {(queue.job(job.id).state, queue.job(job.id).attempts) for job in jobs} == {(JobState.READY, 0)}


async def test_other_tasks_are_not_held_up_by_claims_that_gather(queue: PgQueue, running: Running) -> None:
    @queue.batch_task(Document, size=1_000, wait=A_MINUTE, by=("number",))
    def index(jobs: Batch[Document]) -> None: ...

    @queue.task
    async def swift() -> None: ...

    for first in range(0, 1_000, 500):
        queue.enqueue_many(index.call(number) for number in range(first, first + 500))
    others = queue.enqueue_many(swift.call() for _ in range(50))
    async with running(queue, concurrency=1) as worker:
        await ended(queue, *others)
        await until(lambda: len(worker.inspect().waiting) == 1_000)
        await ended(queue, swift.enqueue())
        assert not worker.inspect().running


async def test_too_many_claims_that_gather_start_before_their_time(queue: PgQueue, running: Running) -> None:
    """A worker's memory is bounded: the groups that have waited longest start."""
    ran = list[int]()

    @queue.batch_task(Document, size=2, wait=A_MINUTE, by=("number",))
    async def index(jobs: Batch[Document]) -> None:
        ran.extend(job.args.number for job in jobs)

    queue.enqueue_many(index.call(number) for number in range(1_200))
    async with running(queue) as worker:
        await until(lambda: len(ran) == 200)
        assert len(worker.inspect().waiting) == 1_000
    assert ran == list(range(200))


async def test_a_batch_in_a_slot_leaves_the_other_slots_to_others(queue: PgQueue, running: Running) -> None:
    started, release = threading.Event(), threading.Event()

    @queue.batch_task(Document, size=100, wait=A_MINUTE)
    def index(_: Batch[Document]) -> None:
        started.set()
        release.wait(20)

    @queue.task
    async def swift() -> None: ...

    jobs = queue.enqueue_many(index.call(number) for number in range(100))
    async with running(queue, concurrency=2):
        await until(started.is_set)
        await ended(queue, *queue.enqueue_many(swift.call() for _ in range(10)))
        assert {job.status() for job in jobs} == {JobState.RUNNING}
        release.set()
        await ended(queue, *jobs)


async def test_a_lost_lease_supersedes_the_whole_batch(queue: PgQueue, running: Running) -> None:
    started, release, held = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        calls.append(len(jobs))
        if len(calls) == 1:
            started.set()
            try:
                await release.wait()
            except asyncio.CancelledError:
                held.set()
                raise

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue) as worker:
        await asyncio.wait_for(started.wait(), 20)
        ask(queue, "delete from pgqueue.workers where id = %s returning id", worker.id)
        await worker.parts.heartbeat.do(worker.parts.heartbeat.beat)
        await asyncio.wait_for(held.wait(), 20)
        await until(lambda: {job.status() for job in jobs} == {JobState.SUCCEEDED})
    assert sum(calls[1:]) == 3
    assert {queue.job(job.id).attempts for job in jobs} == {2}


async def test_observers_are_told_of_each_job_and_middleware_runs_once(dsn: str, running: Running) -> None:
    class Told(Observer):
        def __init__(self) -> None:
            self.began: list[int] = []
            self.over: list[int] = []

        def started(self, claims: Sequence[Claim]) -> None:
            self.began += [one.id for one in claims]

        def ended(self, verdicts: Sequence[Verdict]) -> None:
            self.over += [one.claim.id for one in verdicts]

    class Around(Middleware):
        def around(self, ctx: Context, call: Callable[[], Any]) -> Any:
            seen.append([job.id for job in ctx.jobs])
            assert ctx.job is ctx.jobs[0]
            return call()

    seen: list[list[int]] = []
    told = Told()
    queue = PgQueue(dsn, middleware=[Around()])
    queue.observers.add(told)

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    def index(jobs: Batch[Document]) -> None: ...

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue):
        await ended(queue, *jobs)
        await until(lambda: len(told.over) == 3)
    await queue.aclose()
    queue.close()
    ids = [job.id for job in jobs]
    assert seen == [ids]
    assert sorted(told.began) == sorted(told.over) == ids


async def test_jobs_of_a_task_that_is_loaded_late_run_in_batches_too(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def load(name: str) -> bool:
        if name not in queue.tasks:

            @queue.batch_task(Document, name="late", size=3, wait=0.05)
            def index(jobs: Batch[Document]) -> None:
                sizes.append(len(jobs))

        return True

    monkeypatch.setattr(queue, "load_task", load)
    other = PgQueue(queue.database.dsn)

    @other.batch_task(Document, name="late")
    def late(jobs: Batch[Document]) -> None: ...

    other.enqueue_many(late.call(number) for number in range(6))
    async with running(queue):
        await until(lambda: sum(sizes) == 6)
        await until(lambda: not ask(queue, "select id from pgqueue.jobs"))
    assert {attempts for (attempts,) in ask(queue, "select attempts from pgqueue.job_history")} == {1}
    other.close()


async def test_claims_that_gather_are_not_stale_and_a_batch_that_found_no_slot_is(
    queue: PgQueue, running: Running
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @queue.batch_task(Document, size=5, wait=A_MINUTE, by="tenant")
    async def index(_: Batch[Document]) -> None:
        started.set()
        await release.wait()

    queue.enqueue_many(index.call(number) for number in range(8))
    async with running(queue, concurrency=1) as worker:
        await asyncio.wait_for(started.wait(), 20)
        gathering = [index.enqueue(number, "two") for number in range(2)]
        claims = queue.database.run(claim.claim(worker.id, {"default": 10}))
        ready = [index.enqueue(number, "three") for number in range(5)]
        claims += queue.database.run(claim.claim(worker.id, {"default": 10}))
        worker.parts.runners.add(claims)
        assert worker.parts.runners.return_waiting(older_than=1e-9) == len(ready)
        left = [one.id for one in worker.inspect().waiting]
        assert [job.id for job in gathering] == left[-2:]
        release.set()
