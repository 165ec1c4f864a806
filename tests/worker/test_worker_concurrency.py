"""Attempts really run at the same time, up to ``concurrency`` and not beyond, and know nothing of each other.

The bookkeeping of a worker's claims, without a worker.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import msgspec
import pytest
from looking import until
from running import Running
from tenacity import wait_fixed
from worker.helping import FOR_EVER, all_ended, claimed, dismantle, ended, hand_over, register

from pgqueue import PgQueue, Retry
from pgqueue.values.jobs.job import Claim, JobFlags, JobState
from pgqueue.values.jobs.verdict import Returned, Succeeded, Verdict
from pgqueue.worker import completer as completing
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.recorder import WriteResult
from pgqueue.worker.threads import Threads
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
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    await dismantle(worker)
    assert seen == ["nobody"] * 3


async def test_a_context_variable_that_cannot_be_compared_is_taken_for_changed(queue: PgQueue) -> None:
    class Awkward(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise ValueError("compare me not")

        __hash__ = str.__hash__

    seen: list[str] = []

    @queue.task
    async def serve(number: int) -> None:
        seen.append(type(tenant.get()).__name__)
        tenant.set(Awkward(number))

    tenant.set(Awkward("before"))
    queue.enqueue_many(serve.call(number) for number in range(2))
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    await dismantle(worker)
    assert len(seen) == 2


async def test_a_job_that_cancels_itself_does_not_cancel_the_next(queue: PgQueue) -> None:
    ran: list[int] = []

    @queue.task(retry=Retry(wait=wait_fixed(3600)))
    async def give_up(number: int) -> None:
        ran.append(number)
        current = asyncio.current_task()
        assert current is not None
        if number == 0:
            current.cancel()  # and returns without waiting for it to arrive
        else:
            await asyncio.sleep(0)
            ran.append(-number)

    queue.enqueue_many(give_up.call(number) for number in range(3))
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    assert [type(verdict) for verdict in worker.inspect().verdicts] == [Succeeded] * 3
    await dismantle(worker)
    assert ran == [0, 1, -1, 2, -2]


async def test_a_streak_of_jobs_that_wait_for_nothing_takes_one_runner_and_lets_the_loop_breathe(
    queue: PgQueue,
) -> None:
    runners: set[object] = set()
    breaths = 0

    @queue.task
    async def spin() -> None:
        runners.add(asyncio.current_task())
        until_then = time.monotonic() + 0.001
        while time.monotonic() < until_then:
            pass

    async def breathe() -> None:
        nonlocal breaths
        while True:
            await asyncio.sleep(0)
            breaths += 1

    queue.enqueue_many(spin.call() for _ in range(40))
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    breathing = asyncio.create_task(breathe())
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    breathing.cancel()
    await dismantle(worker)
    assert len(runners) == 1
    assert breaths > 2


async def test_a_plain_function_may_hand_out_a_coroutine(queue: PgQueue, running: Running) -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    @queue.task
    def hand_out() -> Any:
        return later()

    job = hand_out.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert found.result == threading.current_thread().name


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
    threads, used = Threads(), list[int]()
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
    threads, release = Threads(), threading.Event()
    before = set(threading.enumerate())
    threads.start(lambda: release.wait(20))
    (thread,) = set(threading.enumerate()) - before
    threads.close()
    assert thread.is_alive()
    release.set()
    await until(lambda: not thread.is_alive())


WORKER = UUID(int=1)
NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def _claim(job_id: int) -> Claim:
    return Claim(
        job_id, WORKER, 1, 1, 25, 0, "default", "task", "{}", NOON.timestamp(), NOON.timestamp(), 0.0
    )


def _claims(*job_ids: int) -> Claims:
    """One slot, which is taken, and these claims waiting."""
    claims = Claims(1, tasks={}, host=Executor(PgQueue("postgresql://nowhere")))
    claims.waiting.extend(map(_claim, job_ids))
    assert claims.reserve() is False
    claims.coming = False
    return claims


async def test_a_job_is_known_from_its_claim_until_its_verdict_is_recorded() -> None:
    """What is not known at a beat is given to others."""
    claims = _claims(1, 2)
    connection = AsyncMock(spec=WorkerConnection, losses=0)
    completer = Completer(connection, claims, PgQueue("postgresql://nowhere"))
    seen: list[list[int]] = []

    async def record(_: object) -> dict[int, JobState]:
        seen.append(sorted(completer.known()))
        return {1: JobState.READY}

    connection.run.side_effect = record
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert sorted(completer.known()) == [1, 2]
    claims.settle(attempt, Returned(attempt.claim))
    assert claims.verdicts == [Returned(attempt.claim)]
    assert sorted(completer.known()) == [1, 2]
    await completer.run_once()
    assert seen == [[1, 2]]
    assert completer.known() == [2]


@pytest.mark.parametrize(
    ("last", "batches"),
    [({}, [1, 3]), ({"flags": JobFlags.TELL}, [1, 1, 2]), ({"lane": "name:api"}, [1, 1, 2])],
    ids=["none waits for it", "a caller waits", "its limit has a place"],
)
async def test_ends_gather_while_jobs_wait_for_slots_if_nothing_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, last: dict[str, Any], batches: list[int]
) -> None:
    """A statement for each end costs as much as some dozen jobs."""
    claims = _claims(*range(9))
    completer = Completer(AsyncMock(spec=WorkerConnection, losses=0), claims, PgQueue("postgresql://nowhere"))
    written: list[int] = []

    async def write(batch: Sequence[Verdict]) -> WriteResult:
        written.append(len(batch))
        return WriteResult(done={one.claim.id: JobState.SUCCEEDED for one in batch})

    monkeypatch.setattr(completing, "GATHER_FOR", 0.2)
    monkeypatch.setattr(completer._recorder, "write", write)  # noqa: SLF001 - the database's answer
    monkeypatch.setattr(completing, "NAP", 0)
    running = asyncio.create_task(completer.run())
    completer.add([Succeeded(_claim(1), 0.0)])
    await until(lambda: written == [1])
    completer.add([Succeeded(msgspec.structs.replace(_claim(2), **last), 0.0)])
    for _ in range(20):
        await asyncio.sleep(0)
    completer.add([Succeeded(_claim(3), 0.0), Succeeded(_claim(4), 0.0)])
    await until(lambda: sum(written) == 4)
    running.cancel()
    assert written == batches


@pytest.mark.parametrize(
    ("quiet", "lane", "told"), [(True, "a", True), (True, None, False), (False, "a", False)]
)
async def test_other_workers_are_told_of_places_that_a_worker_frees_which_claims_no_more(
    monkeypatch: pytest.MonkeyPatch, *, quiet: bool, lane: str | None, told: bool
) -> None:
    """A worker beside it rests for up to a minute where jobs wait in very many lanes and none may start."""
    claims, connection = _claims(1), AsyncMock(spec=WorkerConnection, losses=0)
    completer = Completer(connection, claims, PgQueue("postgresql://nowhere"))
    write = AsyncMock(return_value=WriteResult(done={1: JobState.SUCCEEDED}))
    monkeypatch.setattr(completer._recorder, "write", write)  # noqa: SLF001 - the database's answer
    claims.set_quiet(on=quiet)
    completer.add([Succeeded(msgspec.structs.replace(_claim(1), lane=lane), 0.0)])
    await completer.run_once()
    assert [call.args[0].name for call in connection.run.await_args_list] == ["notifications.wake"] * told


def test_an_attempt_ends_once() -> None:
    claims = _claims(1)
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert claims.settle(attempt, None)
    assert not claims.settle(attempt, Returned(attempt.claim))
    assert (claims.ended, claims.verdicts) == (1, [])


def test_a_runner_that_finds_nothing_of_its_kind_frees_its_slot() -> None:
    claims = _claims(1)
    assert claims.take(plain=True) is None
    assert claims.taken == 0
