"""Operations on many jobs while workers run them: each job ends once, and no flow is left behind."""

import asyncio

import pytest
from looking import ask, until
from running import Running

from pgqueue import PgQueue, chain
from pgqueue.store.bulk import bulk, bulk_jobs


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short transactions, so that they meet the workers' often."""
    monkeypatch.setattr(bulk, "AT_ONCE", 20)
    monkeypatch.setattr(bulk_jobs, "LOOKED_AT", 50)
    monkeypatch.setattr(bulk, "PAUSE", 0.01)
    monkeypatch.setattr(bulk, "ROUNDS", 10_000)


async def test_each_job_ends_once_while_a_worker_runs_them_and_two_operators_cancel_them(
    queue: PgQueue, running: Running
) -> None:
    ran: list[int] = []

    @queue.task
    async def work(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    queue.enqueue_many(work.call(number) for number in range(2_000))
    jobs = queue.control.jobs(task="*work")
    async with running(queue, concurrency=5):
        moved, raised, first, second = await asyncio.gather(
            jobs.amove("slow", by="ann"),
            jobs.areprioritise(5, by="bob"),
            jobs.acancel(by="ann"),
            jobs.acancel(by="bob"),
        )
        await until(lambda: not ask(queue, "select 1 from pgqueue.jobs"))
    ended = dict(ask(queue, "select outcome, count(*) from pgqueue.job_history group by 1"))
    assert sum(ended.values()) == 2_000
    assert ask(queue, "select count(distinct id) from pgqueue.job_history") == [(2_000,)]
    assert len({*ran}) == len(ran) >= ended.get("succeeded", 0)
    assert (
        first.done + second.done
        <= ended.get("cancelled", 0)
        <= first.done + second.done + first.asked + second.asked
    )
    for one in (moved, raised, first, second):
        assert not one.skipped
    noted = {one.id: (one.jobs, one.unfinished) for one in queue.insight.audit()}
    assert noted == {one.operation: (one.done + one.asked, False) for one in (moved, raised, first, second)}


async def test_flows_end_while_a_worker_runs_them_and_operators_cancel_and_retry_their_jobs(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    async def work(number: int) -> None:
        await asyncio.sleep(0)
        if number % 7 == 0:
            raise ValueError(number)

    for number in range(60):
        chain(*(work.call(number * 3 + place) for place in range(3))).enqueue()
    async with running(queue, concurrency=5):
        for _ in range(3):
            await queue.control.jobs(args={"number": 100}).acancel()
            await asyncio.gather(
                queue.control.dead(error="ValueError").aretry(),
                queue.control.jobs(state="blocked", max_priority=0).areprioritise(1),
                queue.control.jobs(state="blocked", min_priority=1).amove("slow"),
            )
        await asyncio.gather(*(queue.control.jobs(everything=True).acancel() for _ in range(2)))
        await until(lambda: not ask(queue, "select 1 from pgqueue.jobs"))
        await until(lambda: not ask(queue, "select 1 from pgqueue.flows where ended_at is null"))
    assert ask(queue, "select count(*) from pgqueue.waits") == [(0,)]
    assert not [one for one in queue.insight.audit() if one.unfinished]
