"""What flows cost, beside ordinary jobs, in one run: ``python tests/bench/flows.py [DSN]``.

Each load is enqueued by one process and drained by one worker process with 20 slots, of tasks that do nothing. The time of
a drain is from the start of the worker until the flow has ended. Rounds alternate with drains of as many ordinary jobs.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import psycopg

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

CLEAN = "truncate pgqueue.jobs, pgqueue.job_history, pgqueue.flows, pgqueue.nodes, pgqueue.edges, pgqueue.node_counts, pgqueue.waits"


def main() -> None:
    """Print jobs a second, and the ratio to ordinary jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=100_000)
    parser.add_argument("--only", default="", help="loads whose name has this text, beside ordinary jobs")
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        measure(dsn, given.rounds, given.scale, given.only)


def measure(dsn: str, rounds: int, scale: int, only: str) -> None:
    """Run every load in turn."""
    queue = PgQueue(dsn)

    @queue.task(name="noop")
    async def noop(_n: int) -> None: ...

    def many(count: int) -> None:
        queue.enqueue_many(noop.call(n) for n in range(count))

    def dags(count: int) -> None:
        for _ in range(count):
            flow = Workflow()
            flow.add("a", noop.call(1))
            flow.add("b", noop.call(2), after="a")
            flow.add("c", noop.call(3), after="a")
            flow.add("d", noop.call(4), after=["b", "c"])
            flow.enqueue()

    loads: dict[str, tuple[int, Callable[[], object]]] = {
        "ordinary jobs": (scale, lambda: many(scale)),
        "a group, and a callback": (
            scale,
            lambda: group((noop.call(n) for n in range(scale)), on_end=noop.call(0)).enqueue(),
        ),
        "a step, a group behind it, a step": (
            scale,
            lambda: chain(noop.call(0), group([noop.call(n) for n in range(scale)]), noop.call(1)).enqueue(),
        ),
        "one chain": (scale // 10, lambda: chain(*(noop.call(n) for n in range(scale // 10))).enqueue()),
        "chains of 10": (
            scale // 10,
            lambda: [chain(*(noop.call(n) for n in range(10))).enqueue() for _ in range(scale // 100)],
        ),
        "diamonds of 4": (scale // 25, lambda: dags(scale // 100)),
    }
    loads = {name: load for name, load in loads.items() if name == "ordinary jobs" or only in name}
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
    for number in range(rounds):
        for name, (count, enqueue) in loads.items():
            figures[name].append(one(dsn, queue, count, enqueue))
            sys.stderr.write(
                f"round {number + 1}: {name}: enqueued {figures[name][-1][0]:,.0f}/s, drained {figures[name][-1][1]:,.0f}/s\n"
            )
    base = [statistics.median(column) for column in zip(*figures["ordinary jobs"], strict=True)]
    for name, found in figures.items():
        added, drained = (statistics.median(column) for column in zip(*found, strict=True))
        sys.stdout.write(
            f"{name:36} {added:9,.0f}/s enqueued ({base[0] / added:5.2f} x the time)  {drained:9,.0f}/s drained ({base[1] / drained:5.2f} x)\n"
        )


def one(dsn: str, queue: PgQueue, count: int, enqueue: Callable[[], object]) -> tuple[float, float]:
    """Jobs enqueued, and drained, a second."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CLEAN)
        begun = time.perf_counter()
        enqueue()
        added = count / (time.perf_counter() - begun)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    begun = time.perf_counter()
    asyncio.run(drained(dsn, queue))
    return added, count / (time.perf_counter() - begun)


async def drained(dsn: str, queue: PgQueue, *, concurrency: int = 20) -> None:
    """Run a worker until there is no job left."""
    worker = Worker(queue, concurrency=concurrency)
    running = asyncio.create_task(worker.run())
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with connection:
        while True:
            await asyncio.sleep(0.05)
            row = await (await connection.execute("select exists (select from pgqueue.jobs)")).fetchone()
            if row == (False,):
                break
    worker.stop()
    await running


if __name__ == "__main__":
    main()
