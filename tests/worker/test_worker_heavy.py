"""Attempts that take several slots: a worker never has more slots in use than it has, and small jobs keep no large one waiting for ever."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from looking import ask, until
from running import Running
from tenacity import wait_fixed
from worker.helping import beat, ended, return_stale

from pgqueue import JobState, PgQueue, Retry
from pgqueue.errors import InvalidOption
from pgqueue.values.workers.health import not_ready


class Used:
    """How many slots are in use: now, and at most at a time. A plain function calls it from a thread."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def add(self, slots: int) -> None:
        with self._lock:
            self.now += slots
            self.most = max(self.most, self.now)


@pytest.mark.parametrize("plain", [True, False])
async def test_no_more_slots_are_used_than_there_are_and_all_of_them_are(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    used = Used()

    def register(slots: int) -> Any:
        def run() -> None:
            used.add(slots)
            time.sleep(0.002)
            used.add(-slots)

        async def arun() -> None:
            used.add(slots)
            await asyncio.sleep(0.002)
            used.add(-slots)

        return queue.task(name=f"takes-{slots}", slots=slots)(run if plain else arun)

    tasks = [register(slots) for slots in (1, 2, 3, 4)]
    jobs = await queue.aenqueue_many(tasks[number % 4].call() for number in range(80))
    async with running(queue, concurrency=4) as worker:
        found = await ended(queue, *jobs)
        await until(lambda: not worker.parts.claims.taken)
    assert {one.state for one in found} == {JobState.SUCCEEDED}
    assert (used.now, used.most) == (0, 4)


async def test_a_heavy_job_starts_though_small_ones_never_cease(queue: PgQueue, running: Running) -> None:
    stop = asyncio.Event()

    @queue.task
    async def small(number: int) -> None:
        await asyncio.sleep(0.001 * (number % 7))
        if not stop.is_set():
            await small.using(priority=0, delay=0).aenqueue(number + 1)

    @queue.task(slots=8)
    async def heavy() -> None:
        stop.set()

    await queue.aenqueue_many(small.call(number) for number in range(40))
    async with running(queue, concurrency=8):
        (found,) = await ended(queue, await heavy.aenqueue())
    assert found.state is JobState.SUCCEEDED


async def test_a_job_of_more_slots_than_the_worker_has_takes_all(queue: PgQueue, running: Running) -> None:
    used = Used()

    @queue.task(slots=50)
    async def heavy() -> None:
        used.add(1)
        await asyncio.sleep(0.005)
        used.add(-1)

    jobs = [heavy.enqueue() for _ in range(4)]
    async with running(queue, concurrency=3):
        await ended(queue, *jobs)
    assert used.most == 1


async def test_claims_that_wait_for_slots_go_to_a_worker_that_has_them(
    queue: PgQueue, running: Running
) -> None:
    release = asyncio.Event()

    @queue.task(slots=3)
    async def heavy() -> None:
        await release.wait()

    jobs = [heavy.enqueue() for _ in range(3)]
    async with running(queue, concurrency=4, poll=timedelta(seconds=0.05)) as one:
        await until(lambda: len(one.parts.claims.running) == 1)
        async with running(queue, concurrency=6, poll=timedelta(seconds=0.05)) as other:
            await until(lambda: len(other.parts.claims.running) == 2)
            assert len(one.parts.claims.running) == 1
            release.set()
            found = await ended(queue, *jobs)
    assert {job.attempts for job in found} == {1}


async def test_a_claim_that_waits_for_slots_stays_where_no_other_worker_has_them_and_those_behind_it_do_not(
    queue: PgQueue, running: Running
) -> None:
    """Given back all the same, it went from worker to worker, and each gave its free slots to small jobs."""
    release, heavy_ran = asyncio.Event(), asyncio.Event()

    @queue.task
    async def small() -> None:
        await release.wait()

    @queue.task(slots=4)
    async def heavy() -> None:
        heavy_ran.set()

    first = [small.enqueue() for _ in range(5)]
    async with (
        running(queue, concurrency=4, poll=timedelta(seconds=0.05)) as one,
        running(queue, concurrency=4, poll=timedelta(seconds=0.05)) as other,
    ):
        await until(lambda: len(one.parts.claims.running) + len(other.parts.claims.running) == 5)
        jobs = [heavy.enqueue(), *(small.enqueue() for _ in range(6))]
        await until(lambda: one.parts.claims.heavy() is not None or other.parts.claims.heavy() is not None)
        holder = one if one.parts.claims.heavy() is not None else other
        await beat(one)
        await beat(other)
        for _ in range(3):
            await return_stale(holder)
            assert ask(queue, "select status from pgqueue.jobs where id = %s", jobs[0].id) == [("running",)]
            assert [claim.id for claim in holder.inspect().waiting] == [jobs[0].id]
        release.set()
        await ended(queue, *first, *jobs)
    assert heavy_ran.is_set()


async def test_heavy_jobs_alone_follow_one_another_without_a_rest(queue: PgQueue, running: Running) -> None:
    """They rested for a second each: 12 jobs of 1.1 s took 18 s."""
    order: list[int] = []

    @queue.task(slots=4)
    async def heavy(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0.01)

    jobs = [heavy.enqueue(number) for number in range(8)]
    async with running(queue, concurrency=4, poll=timedelta(seconds=60)) as worker:
        await ended(queue, *jobs)
        assert not worker.parts.claims.rests
    assert order == [*range(8)]


async def test_a_worker_that_chooses_its_slots_gives_a_heavy_job_all_that_it_says(
    queue: PgQueue, running: Running
) -> None:
    release = asyncio.Event()

    @queue.task(slots=16)
    async def heavy() -> None:
        await release.wait()

    jobs = [heavy.enqueue(), heavy.enqueue()]
    async with running(queue, concurrency=(1, 16)) as worker:
        await until(lambda: worker.parts.claims.running)
        assert worker.parts.claims.taken == 16
        worker.parts.runners.resize(8)
        assert len(worker.parts.claims.running) == 1
        release.set()
        await ended(queue, *jobs)


async def test_why_counts_slots_and_not_jobs(queue: PgQueue, running: Running) -> None:
    release = asyncio.Event()

    @queue.task(slots=4)
    async def heavy() -> None:
        await release.wait()

    @queue.task
    async def small() -> None: ...

    heavy.enqueue()
    async with running(queue, concurrency=4) as worker:
        await until(lambda: worker.parts.claims.running)
        waits = small.enqueue()
        await beat(worker)
        assert queue.why(waits.id).reason == "no free slot"
        assert ask(queue, "select taken from pgqueue.workers") == [(4,)]
        release.set()
        await ended(queue, waits)


async def test_a_heavy_function_that_goes_on_keeps_all_its_slots(queue: PgQueue, running: Running) -> None:
    release = threading.Event()

    @queue.task(slots=3, timeout=0.02, retry=Retry(wait=wait_fixed(3600)))
    def hang() -> None:
        release.wait(20)

    @queue.task(slots=3)
    async def small() -> None: ...

    hang.enqueue()
    async with running(queue, concurrency=4, poll=timedelta(seconds=0.05)) as worker:
        await until(lambda: worker.inspect().not_returned)
        assert worker.parts.claims.kept == 3
        await ended(queue, small.enqueue())  # in the slot that is left: it does not wait for three
        worker.parts.runners.resize(3)
        assert "none is free" in "".join(not_ready(worker.vitals()))
        release.set()
        await until(lambda: not worker.inspect().not_returned)
        await ended(queue, small.enqueue())


@pytest.mark.parametrize("slots", [0, -1, 10_001, 1.5, True])
def test_a_number_of_slots_that_makes_no_sense_is_refused(queue: PgQueue, slots: Any) -> None:
    with pytest.raises(InvalidOption, match="slots="):
        queue.task(name="wrong", slots=slots)(lambda: None)
