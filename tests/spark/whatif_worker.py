"""Jobs that a real worker runs for the test of the replay: in which order it starts them, and how long they take."""

import asyncio
from dataclasses import dataclass, field

from pgqueue import Context, Limit, PgQueue

PLACES = 2
"""Jobs of a customer that run at once."""


@dataclass
class Worked:
    """What was seen inside the tasks.

    Attributes:
        started: job ids, in the order of their starts.
        most: the most jobs of a customer that ran at once.
    """

    started: list[int] = field(default_factory=list)
    most: int = 0


def add_jobs(queue: PgQueue, count: int) -> Worked:
    """Register three tasks in two queues, one with a limit, and enqueue jobs of them in turn."""
    seen = Worked()
    running: dict[int, int] = {}

    @queue.task(name="send", queue="mail")
    async def send(ctx: Context, ms: int) -> None:
        seen.started.append(ctx.job.id)
        await asyncio.sleep(ms / 1_000)

    @queue.task(name="render", queue="pages")
    async def render(ctx: Context, ms: int) -> None:
        seen.started.append(ctx.job.id)
        await asyncio.sleep(ms / 1_000)

    @queue.task(name="sync", queue="mail", limit=Limit(PLACES, by="customer"))
    async def sync(ctx: Context, ms: int, customer: int) -> None:
        seen.started.append(ctx.job.id)
        running[customer] = running.get(customer, 0) + 1
        seen.most = max(seen.most, running[customer])
        await asyncio.sleep(ms / 1_000)
        running[customer] -= 1

    calls = []
    for number in range(count):
        ms = 2 + number * 7 % 6
        kind = number % 5
        if kind < 2:
            calls.append(send.call(ms))
        elif kind < 4:
            calls.append(render.call(ms))
        else:
            calls.append(sync.call(ms, customer=number // 5 % 4))
    queue.enqueue_many(calls)
    return seen
