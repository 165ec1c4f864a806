"""Batch tasks under attack: a blocked loop, poison in each batch, two workers that stop while claims gather, jobs claimed twice."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest
from documents import A_MINUTE
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, beat, claimed, dismantle, ended

from pgqueue import Batch, Context, JobState, PgQueue, chain, group
from pgqueue.values.flows.record import FlowState
from pgqueue.worker.worker import Worker

GUARD = 20.0


@dataclass
class Document:
    number: int
    key: int = 0


async def test_a_batch_that_blocks_the_loop_is_named_and_claims_that_gather_go_back(
    queue: PgQueue, running: Running
) -> None:
    seen: dict[str, object] = {}

    @queue.batch_task(Document, name="gathers", size=10, wait=A_MINUTE)
    def gathers(_: Batch[Document]) -> None: ...

    @queue.batch_task(Document, name="blocks", size=2, wait=A_MINUTE)
    async def blocks(jobs: Batch[Document]) -> None:
        looks_until = time.monotonic() + GUARD
        thread = threading.Thread(target=look, args=(jobs[0].id, looks_until))
        thread.start()
        thread.join()

    def look(job_id: int, looks_until: float) -> None:
        while time.monotonic() < looks_until and len(seen) < 2:
            blocked = worker.inspect().blocked
            if blocked is not None:
                seen["named"] = (blocked.job, blocked.task) == (job_id, "blocks")
            if not worker.inspect().waiting and {job.status() for job in waiting} == {JobState.READY}:
                seen["returned"] = {queue.job(job.id).attempts for job in waiting}
            time.sleep(0.01)

    waiting = queue.enqueue_many(gathers.call(number) for number in range(5))
    async with running(queue, blocked_after=timedelta(seconds=0.1)) as worker:
        await until(lambda: len(worker.inspect().waiting) == 5)
        queue.enqueue_many(blocks.call(number) for number in range(2))
        await until(lambda: len(seen) == 2)
    assert seen == {"named": True, "returned": {0}}


@pytest.mark.parametrize("workers", [1, 2])
async def test_poison_in_each_batch_costs_only_itself(queue: PgQueue, running: Running, workers: int) -> None:
    runs = Counter[int]()

    @queue.batch_task(Document, size=10, wait=0.05, by=("key",), max_attempts=2)
    def index(jobs: Batch[Document]) -> None:
        for job in jobs:
            runs[job.args.number] += 1
            if job.args.number % 10 == 3:
                job.fail(ValueError(job.args.number), delay=0)

    jobs = queue.enqueue_many(index.call(number, number % 7) for number in range(500))
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()

        async def work() -> None:
            async with running(queue):
                await stop.wait()

        for _ in range(workers):
            group.create_task(work())
        await until(lambda: not ask(queue, "select id from pgqueue.jobs"))
        stop.set()
    dead = {job.id for number, job in enumerate(jobs) if number % 10 == 3}
    states = dict(ask(queue, "select id, state from pgqueue.all_jobs"))
    assert {job_id for job_id, state in states.items() if state == "dead"} == dead
    assert [times for number, times in sorted(runs.items())] == [
        2 if number % 10 == 3 else 1 for number in range(500)
    ]


async def test_workers_that_stop_while_claims_gather_leave_every_job_to_the_next(
    queue: PgQueue, running: Running
) -> None:
    runs = Counter[int]()

    @queue.batch_task(Document, size=7, wait=0.02, by=("key",))
    def index(jobs: Batch[Document]) -> None:
        runs.update(job.args.number for job in jobs)

    jobs = queue.enqueue_many(index.call(number, number % 50) for number in range(1_000))
    for _ in range(4):
        async with running(queue) as worker:
            await until(
                lambda: bool(worker.inspect().waiting) or not ask(queue, "select id from pgqueue.jobs")
            )
    async with running(queue):
        await until(lambda: not ask(queue, "select id from pgqueue.jobs"))
    assert runs == Counter(range(1_000))
    assert {attempts for (attempts,) in ask(queue, "select attempts from pgqueue.job_history")} == {1}
    assert len(jobs) == 1_000


async def test_a_job_of_a_batch_that_is_claimed_again_runs_once_more_and_the_others_go_on(
    queue: PgQueue,
) -> None:
    """After a crash without its last transactions, a server gives out a job again that this worker still runs."""
    calls: list[list[int]] = []
    started, release = asyncio.Event(), asyncio.Event()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])
        started.set()
        await release.wait()

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    worker = Worker(queue, poll=FOR_EVER)
    await worker.parts.heartbeat.register()
    worker.parts.runners.add(claimed(queue, worker))
    await asyncio.wait_for(started.wait(), GUARD)
    forget = "update pgqueue.jobs set status = 'ready', worker_id = null, claimed_at = null where id = %s"
    ask(queue, forget, jobs[1].id)
    queue.enqueue_many(index.call(number) for number in range(3, 5))
    worker.parts.runners.add(claimed(queue, worker))
    await until(lambda: len(calls) == 2)
    assert worker.inspect().slots_taken == 2
    release.set()
    await worker.parts.runners.emptied()
    while worker.parts.completer.backlog:
        await worker.parts.completer.run_once()
    assert calls == [[0, 1, 2], [1, 3, 4]]
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert worker.inspect().slots_taken == 0
    assert worker.parts.claims.room(0) == worker.inspect().concurrency
    await dismantle(worker)


async def test_a_plain_batch_of_a_lost_lease_frees_its_slot_once(queue: PgQueue) -> None:
    release = threading.Event()

    @queue.batch_task(Document, size=3, wait=A_MINUTE)
    def index(_: Batch[Document]) -> None:
        release.wait(GUARD)

    queue.enqueue_many(index.call(number) for number in range(3))
    worker = Worker(queue, poll=FOR_EVER, concurrency=5)
    await worker.parts.heartbeat.register()
    worker.parts.runners.add(claimed(queue, worker))
    await until(lambda: len(worker.inspect().running) == 3)
    ask(queue, "delete from pgqueue.workers")
    await beat(worker)
    now = worker.inspect()
    assert (now.slots_taken, now.running, now.not_returned) == (0, (), 1)
    assert worker.parts.claims.room(0) == 5
    release.set()
    await until(lambda: not worker.inspect().not_returned)
    await dismantle(worker)


class Unprintable(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "error", [SystemExit(1), asyncio.CancelledError(), Unprintable(), GeneratorExit(), StopAsyncIteration()]
)
async def test_whatever_a_batch_raises_the_worker_stays(
    queue: PgQueue, running: Running, error: BaseException, *, is_async: bool
) -> None:
    def fail(jobs: Batch[Document]) -> None:
        jobs[0].fail(error)
        raise error

    async def afail(jobs: Batch[Document]) -> None:
        fail(jobs)

    decorated = queue.batch_task(Document, size=2, wait=A_MINUTE, max_attempts=1, name="index")
    index = decorated(afail) if is_async else decorated(fail)

    @queue.task
    async def swift() -> None: ...

    jobs = queue.enqueue_many(index.call(number) for number in range(2))
    async with running(queue, concurrency=1):
        await ended(queue, *jobs)
        await ended(queue, swift.enqueue())
    assert {queue.job(job.id).reason for job in jobs} == {"exhausted"}


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), RecursionError()])
async def test_whatever_an_item_raises_the_others_run(
    queue: PgQueue, running: Running, error: BaseException
) -> None:
    def made(number: int) -> int:
        if number == 1:
            raise error
        return number

    @queue.batch_task(made, size=3, wait=A_MINUTE, max_attempts=1)
    async def index(jobs: Batch[int]) -> list[int]:
        return [job.args for job in jobs]

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue, concurrency=1):
        found = await ended(queue, *jobs)
    assert [one.result for one in found] == [0, None, 2]
    assert [one.state is JobState.DEAD for one in found] == [False, True, False]


async def test_results_that_cannot_be_kept_cost_no_job_its_success(queue: PgQueue, running: Running) -> None:
    @queue.batch_task(Document, size=4, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        jobs[0].result = object()
        jobs[1].result = "x" * 2_000_000
        jobs[2].result = "\x00"
        jobs[3].result = {"kept": True}

    jobs = queue.enqueue_many(index.call(number) for number in range(4))
    async with running(queue):
        found = await ended(queue, *jobs)
    assert {one.state for one in found} == {JobState.SUCCEEDED}
    assert [one.result for one in found] == [None, None, None, {"kept": True}]


@pytest.mark.parametrize(
    "args", ['{"number": %s}', '{"number": 1, "key": %s}', '{"number": 1, "key": 1e999999}']
)
async def test_hostile_arguments_of_by_kill_their_job_only(
    queue: PgQueue, running: Running, dsn: str, args: str
) -> None:
    ran = list[int]()

    @queue.batch_task(Document, size=2, wait=0.05, by=("key",))
    def index(jobs: Batch[Document]) -> None:
        ran.extend(job.args.number for job in jobs)

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    deep = args.replace("%s", "[" * 5_000 + "]" * 5_000)
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.jobs set args = %s where id = %s", [deep, jobs[1].id])
    async with running(queue):
        found = await ended(queue, *jobs)
    assert [one.state is JobState.DEAD for one in found] == [False, True, False]
    assert sorted(ran) == [0, 2]


@pytest.mark.parametrize("commits", [True, False])
async def test_members_of_a_group_run_in_a_batch_and_the_callback_gets_their_results(
    queue: PgQueue, running: Running, *, commits: bool
) -> None:
    @queue.batch_task(Document, size=10, wait=0.05)
    def index(jobs: Batch[Document]) -> None:
        for job in jobs:
            job.result = job.args.number
        if commits:
            with jobs.transaction():
                pass

    @queue.task
    def total(ctx: Context) -> int:
        return sum(ctx.results.previous)

    members = group([index.call(number) for number in range(25)])
    flow = chain(members, total.call()).enqueue()
    async with running(queue):
        await until(lambda: flow.status() is FlowState.SUCCEEDED)
    (found,) = queue.insight.search(task="*total").jobs
    assert queue.job(found.id).result == 300


async def test_a_worker_without_a_free_slot_claims_no_more_to_fill_a_batch(queue: PgQueue) -> None:
    """Other workers could run what it would collect."""
    release = asyncio.Event()

    @queue.task
    async def hold() -> None:
        await release.wait()

    @queue.batch_task(Document, size=100, wait=A_MINUTE)
    def index(_: Batch[Document]) -> None: ...

    worker = Worker(queue, poll=FOR_EVER, concurrency=1)
    await worker.parts.heartbeat.register()
    index.enqueue(1)
    worker.parts.runners.add(claimed(queue, worker))
    assert worker.parts.claims.room(0) == 99
    hold.enqueue()
    worker.parts.runners.add(claimed(queue, worker))
    await until(lambda: len(worker.inspect().running) == 1)
    assert worker.parts.claims.room(0) <= 0
    release.set()
    await dismantle(worker)
