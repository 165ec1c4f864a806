"""Batch tasks in a worker: which jobs run in one call, and what they keep from running.

Batch tasks under attack: a blocked loop, poison in each batch, two workers that stop while claims gather, jobs claimed twice.
Groups of claims in memory: when the next one is due.
Batch tasks whose jobs have limits: they hold over all calls.
"""

import asyncio
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from documents import A_MINUTE, Document
from looking import ask, until
from running import Running
from worker.helping import (
    FOR_EVER,
    all_ended,
    beat,
    claimed,
    claims_of,
    dismantle,
    ended,
    hand_over,
    record_ends,
    register,
    return_waiting,
    room,
)

from pgqueue import Batch, Context, JobState, Limit, Middleware, Observer, PgQueue, chain, group
from pgqueue.store.jobs import claim
from pgqueue.values.flows.record import FlowState
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.worker.held_claims import GatheredBatch, HeldClaims
from pgqueue.worker.worker import Worker


async def test_a_call_gets_as_many_jobs_as_its_size_says(queue: PgQueue, running: Running) -> None:
    calls: list[list[int]] = []

    @queue.batch_task(Document, size=10, wait=A_MINUTE)
    async def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    jobs = queue.enqueue_many(index.call(number) for number in range(30))
    async with running(queue):
        await ended(queue, *jobs)
    assert sorted(map(len, calls)) == [10, 10, 10]
    assert sorted(itertools.chain.from_iterable(calls)) == list(range(30))


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
        await beat(worker)
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
        hand_over(worker, claims)
        assert return_waiting(worker, older_than=1e-9) == len(ready)
        left = [one.id for one in worker.inspect().waiting]
        assert [job.id for job in gathering] == left[-2:]
        release.set()


GUARD = 20.0


@dataclass
class Keyed:
    number: int
    key: int = 0


async def test_a_batch_that_blocks_the_loop_is_named_and_claims_that_gather_go_back(
    queue: PgQueue, running: Running
) -> None:
    seen: dict[str, object] = {}

    @queue.batch_task(Keyed, name="gathers", size=10, wait=A_MINUTE)
    def gathers(_: Batch[Keyed]) -> None: ...

    @queue.batch_task(Keyed, name="blocks", size=2, wait=A_MINUTE)
    async def blocks(jobs: Batch[Keyed]) -> None:
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

    @queue.batch_task(Keyed, size=10, wait=0.05, by=("key",), max_attempts=2)
    def index(jobs: Batch[Keyed]) -> None:
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

    @queue.batch_task(Keyed, size=7, wait=0.02, by=("key",))
    def index(jobs: Batch[Keyed]) -> None:
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

    @queue.batch_task(Keyed, size=3, wait=A_MINUTE)
    async def index(jobs: Batch[Keyed]) -> None:
        calls.append([job.args.number for job in jobs])
        started.set()
        await release.wait()

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await asyncio.wait_for(started.wait(), GUARD)
    forget = "update pgqueue.jobs set status = 'ready', worker_id = null, claimed_at = null where id = %s"
    ask(queue, forget, jobs[1].id)
    queue.enqueue_many(index.call(number) for number in range(3, 5))
    hand_over(worker, claimed(queue, worker))
    await until(lambda: len(calls) == 2)
    assert worker.inspect().slots_taken == 2
    release.set()
    await all_ended(worker)
    while worker.parts.completer.backlog:
        await record_ends(worker)
    assert calls == [[0, 1, 2], [1, 3, 4]]
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert worker.inspect().slots_taken == 0
    assert room(worker) == worker.inspect().concurrency
    await dismantle(worker)


async def test_a_plain_batch_of_a_lost_lease_keeps_its_slot_until_it_returns(queue: PgQueue) -> None:
    release = threading.Event()

    @queue.batch_task(Keyed, size=3, wait=A_MINUTE)
    def index(_: Batch[Keyed]) -> None:
        release.wait(GUARD)

    queue.enqueue_many(index.call(number) for number in range(3))
    worker = Worker(queue, poll=FOR_EVER, concurrency=5)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await until(lambda: len(worker.inspect().running) == 3)
    ask(queue, "delete from pgqueue.workers")
    await beat(worker)
    now = worker.inspect()
    assert (now.slots_taken, now.running, now.not_returned) == (1, (), 1)
    assert room(worker) == 4
    release.set()
    await until(lambda: not worker.inspect().slots_taken)
    assert (worker.inspect().not_returned, room(worker)) == (0, 5)
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
    def fail(jobs: Batch[Keyed]) -> None:
        jobs[0].fail(error)
        raise error

    async def afail(jobs: Batch[Keyed]) -> None:
        fail(jobs)

    decorated = queue.batch_task(Keyed, size=2, wait=A_MINUTE, max_attempts=1, name="index")
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
    @queue.batch_task(Keyed, size=4, wait=A_MINUTE)
    async def index(jobs: Batch[Keyed]) -> None:
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

    @queue.batch_task(Keyed, size=2, wait=0.05, by=("key",))
    def index(jobs: Batch[Keyed]) -> None:
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
    @queue.batch_task(Keyed, size=10, wait=0.05)
    def index(jobs: Batch[Keyed]) -> None:
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

    @queue.batch_task(Keyed, size=100, wait=A_MINUTE)
    def index(_: Batch[Keyed]) -> None: ...

    worker = Worker(queue, poll=FOR_EVER, concurrency=1)
    await register(worker)
    index.enqueue(1)
    hand_over(worker, claimed(queue, worker))
    assert room(worker) == 99
    hold.enqueue()
    hand_over(worker, claimed(queue, worker))
    await until(lambda: len(worker.inspect().running) == 1)
    assert room(worker) <= 0
    release.set()
    await dismantle(worker)


NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def _claim(job_id: int, args: str) -> Claim:
    return Claim(
        job_id, UUID(int=7), 1, 1, 25, 0, "default", "index", args, NOON.timestamp(), NOON.timestamp(), 0.0
    )


def test_after_a_group_was_taken_the_next_due_instant_is_that_of_the_groups_that_are_left() -> None:
    """Else the worker would look again and again without a pause."""
    queue = PgQueue("")

    @queue.batch_task(Document, name="index", size=3, wait=5, by="tenant")
    def index(jobs: Batch[Document]) -> None: ...

    held = HeldClaims({"index": index}, {"index"}, None)
    assert held.gather([_claim(1, '{"number": 1}')], 100.0) == []
    assert held.gather([_claim(2, '{"number": 2, "tenant": "two"}')], 103.0) == []
    assert held.due == 105.0
    assert held.take_due(104.9) == []
    (group,) = held.take_due(105.0)
    assert isinstance(group, GatheredBatch)
    assert [one.id for one in group.claims] == [1]
    assert (held.due, held.count) == (108.0, 1)
    assert len(held.take_due(108.0)) == 1
    assert (held.due, held.count) == (math.inf, 0)


@dataclass
class Item:
    """Of a batch."""

    customer: int


async def test_jobs_of_a_batch_hold_their_limits(queue: PgQueue, running: Running) -> None:
    runs: Counter[int] = Counter()
    most: Counter[int] = Counter()

    @queue.batch_task(Item, size=10, wait=0.01, limit=Limit(2, by="customer"))
    async def send(batch: Batch[Item]) -> None:
        for item in batch:
            runs[item.args.customer] += 1
        for customer, count in runs.items():
            most[customer] = max(most[customer], count)
        await asyncio.sleep(0)
        for item in batch:
            runs[item.args.customer] -= 1

    handles = queue.enqueue_many(send.call(number % 3) for number in range(30))
    async with running(queue), running(queue):
        jobs = await ended(queue, *handles)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert max(most.values()) == 2
