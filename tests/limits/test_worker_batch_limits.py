"""Batch tasks whose jobs have limits: they hold over all calls."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from running import Running
from worker.helping import ended

from pgqueue import Batch, JobState, Limit, PgQueue


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
