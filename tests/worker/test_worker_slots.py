"""A worker grows and shrinks its slots while it runs: at once, without cutting an attempt short, within its bounds."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from looking import until
from running import Running
from worker.helping import (
    FOR_EVER,
    all_ended,
    choose_slots,
    claimed,
    dismantle,
    ended,
    hand_over,
    register,
    return_waiting,
)

from pgqueue import Context, PgQueue, Worker
from pgqueue.errors import InvalidOption
from pgqueue.store.connections.pools import SPARE
from pgqueue.values.workers.load import WorkerLoad
from pgqueue.worker.memory import memory_in_use

BUSY, CALM, LATE = (
    WorkerLoad(busy=1_000, more=True),
    WorkerLoad(busy=0),
    WorkerLoad(busy=1_000, more=True, latency=1.0),
)


async def look(worker: Worker, load: WorkerLoad, times: int = 1) -> int:
    """Have the worker choose its number of slots under this load."""
    worker.parts.slots.measure = lambda: load
    for _ in range(times):
        await choose_slots(worker)
    return worker.inspect().concurrency


class Gate:
    """Jobs that run until they are let go."""

    def __init__(self, queue: PgQueue, *, plain: bool) -> None:
        self.inside = self.passed = 0
        self._turns = threading.Semaphore(0)
        self.task = queue.task(name="pass")(self._plain if plain else self._awaited)

    def open(self, jobs: int) -> None:
        for _ in range(jobs):
            self._turns.release()

    def _plain(self) -> None:
        self.inside += 1
        self._turns.acquire()
        self.inside -= 1
        self.passed += 1

    async def _awaited(self) -> None:
        self.inside += 1
        await until(lambda: self._turns.acquire(blocking=False))
        self.inside -= 1
        self.passed += 1


@pytest.mark.parametrize("plain", [True, False])
async def test_slots_are_added_at_once_and_go_as_attempts_end(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    gate = Gate(queue, plain=plain)
    jobs = queue.enqueue_many(gate.task.call() for _ in range(40))
    async with running(queue, concurrency=(2, 10)) as worker:
        worker.parts.slots.measure = lambda: WorkerLoad(busy=1)
        await until(lambda: gate.inside == 2)
        assert await look(worker, BUSY, 20) == 10
        await until(lambda: gate.inside == 10)

        assert await look(worker, LATE, 20) == 2
        assert worker.inspect().slots_taken == 10
        gate.open(8)
        await until(lambda: gate.inside == 2 and gate.passed == 8 and worker.inspect().slots_taken == 2)
        gate.open(1)
        await until(lambda: gate.passed == 9 and gate.inside == 2)
        assert worker.inspect().slots_taken == 2

        gate.open(40)
        found = await ended(queue, *jobs)
    assert {(job.state, job.attempts) for job in found} == {("succeeded", 1)}


async def test_a_worker_starts_with_the_fewest_slots_and_stays_within_its_bounds(queue: PgQueue) -> None:
    worker = Worker(queue, concurrency=(3, 5), poll=FOR_EVER)
    assert worker.inspect().concurrency == 3
    assert await look(worker, CALM) == 3
    assert await look(worker, BUSY, 9) == 5
    assert await look(worker, LATE, 9) == 3
    await dismantle(worker)


async def test_a_worker_with_one_number_measures_nothing_and_keeps_it(queue: PgQueue) -> None:
    def measure() -> WorkerLoad:
        raise AssertionError("nothing is to be chosen")

    worker = Worker(queue, concurrency=3, poll=FOR_EVER)
    worker.parts.slots.measure = measure
    await choose_slots(worker)
    assert worker.inspect().concurrency == 3
    await dismantle(worker)


async def test_each_slot_has_a_connection_before_it_is_used_and_until_its_attempt_has_ended(
    queue: PgQueue, running: Running
) -> None:
    everyone, sizes = asyncio.Barrier(31), list[int]()

    @queue.task
    async def hold(ctx: Context) -> None:
        async with ctx.transaction():
            sizes.append(queue.database.pools.size)
            await everyone.wait()
            await everyone.wait()

    jobs = queue.enqueue_many(hold.call() for _ in range(30))
    async with running(queue, concurrency=(2, 30)) as worker:
        await look(worker, BUSY, 20)
        async with asyncio.timeout(20):
            await everyone.wait()
        await look(worker, LATE, 40)
        assert worker.inspect().concurrency == 2
        assert queue.database.pools.size == 30 + SPARE
        await everyone.wait()
        await ended(queue, *jobs)
        await until(lambda: worker.inspect().slots_taken == 0)
        await look(worker, CALM)
        assert queue.database.pools.size == queue.database.pools.least
    assert max(sizes) <= 30 + SPARE
    assert queue.database.pools.size == queue.database.pools.least


async def test_slots_that_come_and_go_while_jobs_run_lose_no_job(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def rest() -> None:
        await asyncio.sleep(0)

    @queue.task
    def count() -> None:
        pass

    jobs = queue.enqueue_many(task.call() for _ in range(100) for task in (rest, count))
    async with running(queue, concurrency=(1, 20)) as worker:

        async def swing() -> None:
            while True:
                for load in (BUSY, LATE):
                    await look(worker, load, 5)
                    await asyncio.sleep(0)

        swinging = asyncio.create_task(swing())
        found = await ended(queue, *jobs)
        swinging.cancel()
        with suppress(asyncio.CancelledError):
            await swinging
        await until(lambda: worker.inspect().slots_taken == 0)
    assert {(job.state, job.attempts) for job in found} == {("succeeded", 1)}


async def test_no_slot_opens_in_a_worker_that_stops(queue: PgQueue) -> None:
    @queue.task
    async def run() -> None:
        raise AssertionError("it must not start")

    run.enqueue()
    worker = Worker(queue, concurrency=(1, 20), poll=FOR_EVER)
    await register(worker)
    worker.stop()
    hand_over(worker, claimed(queue, worker))
    await look(worker, BUSY, 9)
    assert worker.inspect().slots_taken == 0
    return_waiting(worker)
    await dismantle(worker)


async def test_a_loop_that_answers_late_is_measured_as_late(queue: PgQueue, running: Running) -> None:
    seen: list[WorkerLoad] = []
    async with running(queue, concurrency=(2, 20), blocked_after=0.04) as worker:
        measure = worker.parts.slots.measure

        def note() -> WorkerLoad:
            seen.append(measure())
            return seen[-1]

        worker.parts.slots.measure = note

        async def burn() -> None:
            while True:
                threading.Event().wait(0.2)
                await asyncio.sleep(0)
                await choose_slots(worker)

        burning = asyncio.create_task(burn())
        await until(lambda: any(load.latency > 0.1 for load in seen))
        burning.cancel()
    late = next(place for place, load in enumerate(seen) if load.latency > 0.1)
    assert seen[late].strained
    assert seen[late + 1].since_strained < 60 if len(seen) > late + 1 else True


async def test_a_worker_with_more_jobs_than_slots_measures_that(queue: PgQueue, running: Running) -> None:
    gate = Gate(queue, plain=False)
    queue.enqueue_many(gate.task.call() for _ in range(5))
    async with running(queue, concurrency=(2, 20)) as worker:
        measure = worker.parts.slots.measure
        worker.parts.slots.measure = lambda: WorkerLoad(busy=1)
        await until(lambda: gate.inside == 2 and measure().more)
        load = measure()
        assert (load.busy, load.more) == (2, True)
        assert load.cpu >= 0
        assert load.memory is None or 0 < load.memory < 1
        gate.open(5)
        await until(lambda: not measure().more)
        assert gate.passed == 5


@pytest.mark.parametrize("concurrency", [0, -1, (5, 2), (0, 5), "5", 1.5, True])
def test_what_is_no_number_of_slots_is_refused(queue: PgQueue, concurrency: object) -> None:
    with pytest.raises(InvalidOption, match="concurrency="):
        Worker(queue, concurrency=concurrency)  # type: ignore[arg-type]


GIB = 1 << 30


def system(root: Path, **files: str) -> Path:
    """The files of a system, by their path with ``__`` between its parts."""
    for name, text in files.items():
        file = root / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MACHINE = {"proc__meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n"}


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({}, None),
        (MACHINE, 0.2),
        (
            {
                **MACHINE,
                "proc__self__cgroup": "0::/\n",
                "sys__fs__cgroup__memory_DOT_max": f"{GIB}\n",
                "sys__fs__cgroup__memory_DOT_current": f"{GIB // 2}\n",
                "sys__fs__cgroup__memory_DOT_stat": f"anon 5\ninactive_file {GIB // 4}\n",
            },
            0.25,
        ),
        (
            {
                **MACHINE,
                "proc__self__cgroup": "0::/shop.slice/worker.service\n",
                "sys__fs__cgroup__shop.slice__worker.service__memory_DOT_max": "max\n",
                "sys__fs__cgroup__shop.slice__worker.service__memory_DOT_current": "5\n",
                "sys__fs__cgroup__shop.slice__memory_DOT_max": "100\n",
                "sys__fs__cgroup__shop.slice__memory_DOT_current": "90\n",
            },
            0.9,
        ),
        (
            {
                **MACHINE,
                "proc__self__cgroup": "9:cpu:/a\n4:memory:/docker/abc\n",
                "sys__fs__cgroup__memory__docker__abc__memory_DOT_limit_in_bytes": "1000",
                "sys__fs__cgroup__memory__docker__abc__memory_DOT_usage_in_bytes": "700",
                "sys__fs__cgroup__memory__memory_DOT_limit_in_bytes": "9223372036854771712",
                "sys__fs__cgroup__memory__memory_DOT_usage_in_bytes": "9223372036854771712",
            },
            0.7,
        ),
    ],
)
def test_the_fullest_of_the_limits_of_memory_counts(
    tmp_path: Path, files: dict[str, str], share: float | None
) -> None:
    assert memory_in_use(system(tmp_path, **files)) == (share if share is None else pytest.approx(share))


async def test_claims_that_wait_start_in_no_slot_that_was_given_up(queue: PgQueue) -> None:
    started = 0

    @queue.task
    async def run() -> None:
        nonlocal started
        started += 1

    queue.enqueue_many(run.call() for _ in range(9))
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    claims = worker.parts.claims
    claims.taken += 1  # a slot that was given up, and whose attempt has not ended
    assert claims.take(plain=False) is None
    assert claims.taken == 1
    await all_ended(worker)
    await dismantle(worker)
    assert started == 9
