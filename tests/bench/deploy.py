"""Jobs of a task that only some workers run: ``python tests/bench/deploy.py [DSN]``.

First a rolling deploy: four workers with 10 slots each run a common task, one of them runs a new one, too; how long 30 jobs of the
new task wait. Then a worker drains jobs that do nothing, without and with 100,000 jobs of an unknown task in front of them.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import timedelta

import psycopg

from pgqueue import PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

JOBS = 30
PAUSE = 0.02
"""Seconds between two enqueues."""
UNKNOWN = 100_000


def main() -> None:
    """Print how long jobs waited, and jobs a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=50_000)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        for _ in range(given.rounds):
            asyncio.run(deploy(dsn))
        for unknown in [0, UNKNOWN] * given.rounds:
            asyncio.run(drain(dsn, unknown, given.scale))


async def deploy(dsn: str) -> None:
    """30 jobs of a task that one of four workers runs."""
    old, new = PgQueue(dsn), PgQueue(dsn)
    waited: list[float] = []
    all_started = asyncio.Event()
    for queue in (old, new):

        @queue.task(name="common")
        async def common() -> None:
            await asyncio.sleep(0.005)

    @new.task(name="new")
    async def fresh(added_at: float) -> None:
        waited.append(time.monotonic() - added_at)
        if len(waited) == JOBS:
            all_started.set()

    workers = [Worker(queue, concurrency=10) for queue in (old, old, old, new)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.sleep(2)  # until all have started
    for _ in range(JOBS):
        await new.find_task("common").aenqueue()
        await fresh.aenqueue(time.monotonic())
        await asyncio.sleep(PAUSE)
    await all_started.wait()
    sys.stdout.write(
        f"waited: median {statistics.median(waited) * 1e3:.0f} ms, at most {max(waited) * 1e3:.0f} ms\n"
    )
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    await old.aclose()
    await new.aclose()


async def drain(dsn: str, unknown: int, scale: int) -> None:
    """Jobs of one task, behind those of a task that the worker does not know."""
    queue = PgQueue(dsn, history=timedelta(0))
    done, all_done = 0, asyncio.Event()

    @queue.task(name="noop")
    async def noop() -> None:
        nonlocal done
        done += 1
        if done == scale:
            all_done.set()

    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("truncate pgqueue.jobs, pgqueue.unknown_tasks")
        add = "insert into pgqueue.jobs (task, run_at) select %s, now() from generate_series(1, %s)"
        own.execute(add, ["unknown", unknown])
        own.execute(add, ["noop", scale])
        own.execute("vacuum analyze pgqueue.jobs")
    worker = Worker(queue)
    running, began = asyncio.create_task(worker.run()), time.monotonic()
    await all_done.wait()
    seconds = time.monotonic() - began
    sys.stdout.write(f"behind {unknown:,} jobs of an unknown task: {scale / seconds:,.0f} jobs/s\n")
    worker.stop()
    await running
    await queue.aclose()


if __name__ == "__main__":
    main()
