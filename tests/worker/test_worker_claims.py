"""What a worker claims: no more than will start soon, in turn from its queues, and never from a paused one."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from looking import ask, until
from running import Running
from worker.helping import (
    FOR_EVER,
    all_ended,
    claimed,
    claims_of,
    dismantle,
    ended,
    fetch,
    hand_over,
    record_ends,
    register,
    return_waiting,
)

from pgqueue import JobHandle, JobState, PgQueue
from pgqueue.worker import pace
from pgqueue.worker import upkeep as upkeeping
from pgqueue.worker.pace import HORIZON
from pgqueue.worker.worker import Worker

SOON = timedelta(seconds=0.01)


@asynccontextmanager
async def taken_apart(queue: PgQueue, *, concurrency: int, **options: object) -> AsyncIterator[Worker]:
    """A worker whose parts a test calls one by one: on the list, but not running."""
    worker = Worker(queue, concurrency=concurrency, poll=SOON, **options)  # type: ignore[arg-type]  # options of Worker
    await register(worker)
    try:
        yield worker
    finally:
        await dismantle(worker)


def holding(queue: PgQueue, release: asyncio.Event) -> Callable[[int], list[JobHandle[None]]]:
    @queue.task
    async def hold() -> None:
        await release.wait()

    return lambda count: queue.enqueue_many(hold.call() for _ in range(count))


async def test_a_worker_of_long_jobs_claims_no_more_than_it_runs(queue: PgQueue) -> None:
    release = asyncio.Event()
    holding(queue, release)(100)
    async with taken_apart(queue, concurrency=4) as worker:
        for _ in range(5):
            await looked(worker)
        running, claims = len(worker.inspect().running), claims_of(queue, worker)
        return_waiting(worker)
        release.set()
    assert (running, len(claims)) == (4, 4)


async def test_two_workers_run_what_one_alone_could_not(queue: PgQueue, running: Running) -> None:
    together = asyncio.Barrier(4)

    @queue.task
    async def meet() -> None:
        await together.wait()

    jobs = queue.enqueue_many(meet.call() for _ in range(4))
    async with running(queue, concurrency=2) as one, running(queue, concurrency=2) as other:
        found = await ended(queue, *jobs)
    workers = [job.worker_id for job in found]
    assert {workers.count(one.id), workers.count(other.id)} == {2}


async def test_a_worker_of_long_jobs_claims_no_more_than_it_has_slots_though_they_end_together(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "LONG", 0.0)  # every job is a long one
    gates = [asyncio.Event() for _ in range(8)]
    started: list[int] = []

    @queue.task
    async def work(number: int) -> None:
        started.append(number)
        await gates[number // 5].wait()

    queue.enqueue_many(work.call(number) for number in range(40))
    async with running(queue, concurrency=5):
        for number, gate in enumerate(gates):
            await until(lambda: len(started) == 5 * (number + 1))  # noqa: B023 - called within this turn
            await until(  # those that have ended are soon recorded
                lambda: ask(queue, "select count(*) from pgqueue.jobs where status = 'running'") == [(5,)]
            )
            gate.set()
        await until(lambda: ask(queue, "select count(*) from pgqueue.jobs") == [(0,)])


async def test_two_workers_share_a_queue_of_short_jobs(queue: PgQueue, running: Running) -> None:
    """Neither is ahead by more than two claims of what it may hold: its slots, and a tenth of a second of work."""

    @queue.task
    async def nap() -> None:
        await asyncio.sleep(0.005)  # the work itself

    async with running(queue, concurrency=5) as one, running(queue, concurrency=5) as other:
        await until(lambda: ask(queue, "select count(*) from pgqueue.workers") == [(2,)])
        jobs = queue.enqueue_many(nap.call() for _ in range(2_000))
        await until(lambda: ask(queue, "select count(*) from pgqueue.jobs") == [(0,)])
    served = dict(ask(queue, "select worker_id, count(*) from pgqueue.job_history group by worker_id"))
    assert served.keys() == {one.id, other.id}
    assert sum(served.values()) == len(jobs)
    fastest = 5 / 0.005 * HORIZON  # jobs in a tenth of a second, were there nothing but the naps
    assert abs(served[one.id] - served[other.id]) <= 2 * (5 + fastest)


async def test_once_claims_are_closed_a_runner_takes_nothing_more(queue: PgQueue) -> None:
    release = asyncio.Event()
    first, second = holding(queue, release)(2)
    async with taken_apart(queue, concurrency=1) as worker:
        hand_over(worker, claimed(queue, worker))
        await until(lambda: worker.inspect().running)
        worker.parts.claims.close()
        release.set()
        await all_ended(worker)
        assert return_waiting(worker) == 1
        await record_ends(worker)
    assert [queue.job(job.id).attempts for job in (first, second)] == [1, 0]


async def test_a_running_worker_returns_claims_that_find_no_slot(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeeping, "STALE_AFTER", 0.05)
    release, started = asyncio.Event(), asyncio.Event()

    @queue.task
    async def hold() -> None:
        started.set()
        await release.wait()

    first = hold.enqueue()
    async with running(queue, concurrency=1) as worker:
        await asyncio.wait_for(started.wait(), 20)
        await until(lambda: claims_of(queue, worker) == [first.id])
        other = hold.enqueue()
        hand_over(worker, claimed(queue, worker))
        assert other.status() is JobState.RUNNING
        await until(lambda: other.status() is JobState.READY)
        assert first.status() is JobState.RUNNING
        release.set()


async def test_a_paused_queue_does_not_take_the_others_room(queue: PgQueue) -> None:
    release = asyncio.Event()
    queue.control.pause("a")
    ask(queue, "insert into pgqueue.jobs (queue, task) select 'a', 'hold' from generate_series(1, 50)")
    holding(queue, release)(4)
    async with taken_apart(queue, concurrency=4) as worker:
        await looked(worker)
        await looked(worker)
        await until(lambda: len(worker.inspect().running) == 4)
        running = [claim.queue for claim in worker.inspect().running]
        return_waiting(worker)
        release.set()
    assert running == ["default"] * 4


async def test_queues_are_served_in_equal_shares(queue: PgQueue) -> None:
    release = asyncio.Event()

    @queue.task(name="hold")
    async def hold() -> None:
        await release.wait()

    for name, count in (("a", 1_000), ("b", 3), ("c", 1_000)):
        queue.enqueue_many([hold.using(queue=name).call() for _ in range(count)])
    async with taken_apart(queue, concurrency=12) as worker:
        await fetch(worker)
        await until(lambda: len(worker.inspect().running) == 12)
        running = [claim.queue for claim in worker.inspect().running]
        return_waiting(worker)
        release.set()
    assert {name: running.count(name) for name in "abc"} == {"a": 5, "b": 3, "c": 4} or {
        name: running.count(name) for name in "abc"
    } == {"a": 4, "b": 3, "c": 5}


async def test_a_worker_with_less_room_than_queues_serves_each_in_turn(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "HORIZON", 0.0)  # no prefetch: one job at a time
    order: list[str] = []

    @queue.task
    async def note(name: str) -> None:
        order.append(name)

    names = ("a", "b", "c")
    queue.enqueue_many(note.using(queue=name).call(name) for name in names for _ in range(3))
    async with taken_apart(queue, queues=names, concurrency=1) as worker:
        for _ in names:
            await fetch(worker)
            await all_ended(worker)
    assert sorted(order) == ["a", "b", "c"]


async def test_many_queues_with_a_far_poll_are_all_served(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def note() -> None: ...

    jobs = [note.using(queue=f"q{number}").enqueue() for number in range(30)]
    async with running(queue, concurrency=2, poll=FOR_EVER):
        found = await ended(queue, *jobs)
    assert {job.state for job in found} == {JobState.SUCCEEDED}


async def test_a_resting_worker_gets_up_when_the_head_of_the_line_is_due(queue: PgQueue) -> None:
    @queue.task
    async def note() -> None: ...

    note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, queue.database.run(worker.parts.queues.claim(worker.id, 1)))
    await all_ended(worker)
    use_marks_until(worker, time.monotonic() + 0.05)
    job = note.using(priority=1).enqueue()
    fetching = asyncio.create_task(
        worker.parts.fetcher.run()
    )  # finds nothing behind the mark, and rests: not for ever
    await until(lambda: len(worker.inspect().verdicts) == 2)
    worker.parts.fetcher.stop()
    await fetching
    await record_ends(worker)
    await dismantle(worker)
    assert job.status() is JobState.SUCCEEDED


async def test_a_worker_without_room_waits_for_room_though_the_head_is_due(queue: PgQueue) -> None:
    """Else its loop would turn without a pause until the job has ended."""
    release = asyncio.Event()

    @queue.task
    async def hold() -> None:
        await release.wait()

    hold.enqueue()
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, queue.database.run(worker.parts.queues.claim(worker.id, 1)))
    use_marks_until(worker, time.monotonic() - 1)
    fetching = asyncio.create_task(fetch(worker))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not fetching.done()
    release.set()
    await asyncio.wait_for(fetching, 20)
    await all_ended(worker)
    await record_ends(worker)
    await dismantle(worker)


async def looked(worker: Worker) -> None:
    """A round of the fetcher that does not wait for a reason to look again."""
    look = asyncio.create_task(fetch(worker))
    await until(lambda: look.done() or worker.inspect().waits)
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)


def use_marks_until(worker: Worker, moment: float) -> None:
    """As after a slow look from the head."""
    worker.parts.queues.marks._head_at = moment  # noqa: SLF001 - slowness cannot be had on demand
