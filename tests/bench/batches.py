"""What a job of a batch task costs beside one of a plain task: a no-op, and a row that commits with the job.

Run it: ``python tests/bench/batches.py``. It starts a server of its own; the loads take turns, so that other work of the machine
slows all of them down in the same way.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg

from pgqueue import Batch, Context, PgQueue, Task
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

ROUNDS, NOTHING, ROWS = 3, 50_000, 5_000
SIZE = 100


@dataclass
class Item:
    """What one job is about."""

    number: int


def main() -> None:
    """Measure, and print."""
    with throwaway_server(embedded_binaries()) as server:
        schema.migrate(server.dsn)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table item (number int)")
        asyncio.run(_measure(server.dsn))


async def _measure(dsn: str) -> None:
    queue = PgQueue(dsn, history=0)
    seconds: dict[str, list[float]] = defaultdict(list)
    cpus: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, task, count in _loads(queue):
            queue.enqueue_many(task.call(number) for number in range(count))
            cpu = time.process_time()
            seconds[name].append(await _drained(queue) / count)
            cpus[name].append((time.process_time() - cpu) / count)
    for name, found in seconds.items():
        used = median(cpus[name]) * 1e6
        print(f"{name}: {1 / median(found):,.0f} jobs a second, {used:.1f} µs of the worker's CPU a job")  # noqa: T201
    queue.close()
    await queue.aclose()


def _loads(queue: PgQueue) -> list[tuple[str, Task[[int], Any], int]]:
    if queue.tasks.keys() >= {"rows"}:
        return [(name, queue.find_task(name), count) for name, count in COUNTS.items()]

    @queue.task(name="nothing")
    async def nothing(number: int) -> None: ...

    @queue.batch_task(Item, name="nothing_in_batches", size=SIZE)
    async def nothing_in_batches(jobs: Batch[Item]) -> None: ...

    @queue.task(name="rows")
    async def rows(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into item values (%s)", [number])

    @queue.batch_task(Item, name="rows_in_batches", size=SIZE)
    async def rows_in_batches(jobs: Batch[Item]) -> None:
        async with jobs.transaction() as connection:
            numbers = [job.args.number for job in jobs]
            await connection.execute("insert into item select unnest(%s::int[])", [numbers])

    return _loads(queue)


COUNTS = {"nothing": NOTHING, "nothing_in_batches": NOTHING, "rows": ROWS, "rows_in_batches": NOTHING}


async def _drained(queue: PgQueue) -> float:
    """Seconds in which a worker of 10 slots runs all there is."""
    worker = Worker(queue, concurrency=10)
    began, running = time.perf_counter(), asyncio.create_task(worker.run())
    with psycopg.connect(queue.database.dsn, autocommit=True) as connection:
        while connection.execute("select from pgqueue.jobs limit 1").fetchone() is not None:  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(0.01)
    seconds = time.perf_counter() - began
    worker.stop()
    await running
    return seconds


if __name__ == "__main__":
    main()
