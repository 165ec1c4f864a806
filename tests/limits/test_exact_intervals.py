"""Intervals are kept by starts: a job that would start late gets the next place, so that the next start is not too near."""

import asyncio
import itertools
import time

from looking import ask, until
from promises.processes import do, listed
from running import Running

from pgqueue import Limit, PgQueue, Rate
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.values.jobs.job import Claim

EVERY = 0.2


def claimed(queue: PgQueue, count: int) -> list[Claim]:
    lanes = ServedLanes(lambda: queue.limits, lambda: queue.limiting)
    return [*do(queue, lanes.claim(listed(queue), count)).claims]


def test_a_job_of_an_exact_interval_may_start_a_tenth_of_it_late_and_others_at_any_time(
    queue: PgQueue,
) -> None:
    @queue.task(name="exact", limit=[Rate(every=2.0), Limit(9)])
    def exact() -> None: ...

    @queue.task(name="often", limit=Rate(every=0.01))
    def often() -> None: ...

    @queue.task(name="burst", limit=Rate("100/minute", burst=20))
    def burst() -> None: ...

    @queue.task(name="limited", limit=Limit(1))
    def limited() -> None: ...

    for task in (exact, often, burst, limited):
        task.enqueue()
    latest = {one.task: one.latest for one in claimed(queue, 9)}
    now = time.monotonic()
    assert latest["exact"] is not None
    assert now < latest["exact"] <= now + 0.2
    assert latest["often"] is not None
    assert latest["often"] <= now + 0.005
    assert (latest["burst"], latest["limited"]) == (None, None)


async def test_starts_are_an_interval_apart_though_the_event_loop_is_blocked_again_and_again(
    queue: PgQueue, running: Running
) -> None:
    """A start 0.15 s late was followed by one in time, 0.05 s after it."""
    starts: list[float] = []

    @queue.task(name="tick", limit=Rate(every=EVERY))
    async def tick() -> None:
        starts.append(time.monotonic())

    @queue.task(name="block")
    async def block() -> None:
        time.sleep(0.75 * EVERY)  # noqa: ASYNC251 - it blocks the loop on purpose

    queue.enqueue_many(tick.call() for _ in range(8))
    blocked = [block.using(delay=number * 1.7 * EVERY).call() for number in range(8)]
    queue.enqueue_many(blocked)
    async with running(queue, concurrency=5):
        await until(lambda: len(starts) == 8)
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert min(gaps) > 0.75 * EVERY
    await asyncio.sleep(0)
    assert ask(queue, "select max(attempts) from pgqueue.job_history where task = 'tick'") == [(1,)]
