"""Attempts really run at the same time, up to ``concurrency`` and not beyond, and know nothing of each other."""

import asyncio
import threading
from contextvars import ContextVar

import pytest
from running import Running
from worker.helping import FOR_EVER, claimed, dismantle, ended, member, slots, until

from pgqueue import PgQueue
from pgqueue.worker import pools
from pgqueue.worker.worker import Worker

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Peak:
    """Counts how many are inside at a time."""

    def __init__(self) -> None:
        self.inside = self.highest = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.highest = max(self.highest, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


async def test_async_tasks_run_at_the_same_time_up_to_the_limit(queue: PgQueue, running: Running) -> None:
    peak, together = Peak(), asyncio.Barrier(3)

    @queue.task
    async def meet() -> None:
        with peak:
            await together.wait()
            await asyncio.sleep(0)

    jobs = queue.enqueue_many(meet.call() for _ in range(30))
    async with running(queue, concurrency=3):
        await ended(queue, *jobs)
    assert peak.highest == 3


async def test_plain_tasks_run_at_the_same_time_up_to_the_limit(queue: PgQueue, running: Running) -> None:
    peak, together = Peak(), threading.Barrier(3, timeout=20)

    @queue.task
    def meet() -> None:
        with peak:
            together.wait()

    jobs = queue.enqueue_many(meet.call() for _ in range(30))
    async with running(queue, concurrency=3):
        await ended(queue, *jobs)
    assert peak.highest == 3


async def test_both_kinds_share_one_limit(queue: PgQueue, running: Running) -> None:
    peak = Peak()

    @queue.task
    def plain() -> None:
        with peak:
            pass

    @queue.task
    async def awaited() -> None:
        with peak:
            await asyncio.sleep(0)

    jobs = queue.enqueue_many(task.call() for _ in range(30) for task in (plain, awaited))
    async with running(queue, concurrency=1):
        await ended(queue, *jobs)
    assert peak.highest == 1


async def test_the_loop_goes_on_while_a_plain_task_blocks(queue: PgQueue, running: Running) -> None:
    released = threading.Event()

    @queue.task
    def block() -> bool:
        return released.wait(20)

    @queue.task
    async def release() -> None:
        released.set()

    blocking = block.enqueue()
    releasing = release.enqueue()
    async with running(queue, concurrency=2):
        blocked, _ = await ended(queue, blocking, releasing)
    assert blocked.result is True


@pytest.mark.parametrize("plain", [True, False])
async def test_context_variables_do_not_pass_from_job_to_job(queue: PgQueue, *, plain: bool) -> None:
    seen: list[str] = []

    def serve(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    async def aserve(name: str) -> None:
        serve(name)

    task = queue.task(name="serve")(serve if plain else aserve)
    queue.enqueue_many(task.call(name) for name in "abc")
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await member(worker).join()
    slots(worker).add(claimed(queue, worker))
    await slots(worker).emptied()
    await dismantle(worker)
    assert seen == ["nobody"] * 3


async def test_a_plain_task_sees_the_context_of_the_worker(queue: PgQueue, running: Running) -> None:
    @queue.task
    def look() -> str:
        return tenant.get()

    tenant.set("everybody")
    job = look.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert found.result == "everybody"


async def test_an_idle_thread_is_used_again() -> None:
    threads, used = pools.Threads(), list[int]()
    turn = threading.Semaphore(0)

    def work() -> None:
        used.append(threading.get_ident())
        turn.release()

    before = set(threading.enumerate())
    for _ in range(3):
        threads.start(work)
        await asyncio.to_thread(turn.acquire)
        await until(lambda: threads.idle == 1)
    (thread,) = {one for one in threading.enumerate() if one.name == "pgqueue-task"} - before
    threads.close()
    await until(lambda: not thread.is_alive())
    assert set(used) == {thread.ident}


async def test_a_thread_that_is_busy_when_the_pool_closes_ends_after_its_work() -> None:
    threads, release = pools.Threads(), threading.Event()
    before = set(threading.enumerate())
    threads.start(lambda: release.wait(20))
    (thread,) = set(threading.enumerate()) - before
    threads.close()
    release.set()
    await until(lambda: not thread.is_alive())
