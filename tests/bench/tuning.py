"""What the settings of the page on tuning change, each beside the same without: ``python tests/bench/tuning.py DSN``.

Ratios within a round; the rounds alternate. The jobs wait and do not compute, so that other work on the machine changes little.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue import PgQueue, Worker
from pgqueue.store.schema import schema

WAIT = 0.02
"""Seconds that a job waits."""


async def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("dsn", help="a database whose jobs may be deleted")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--jobs", type=int, default=600)
    given = asked.parse_args()
    await asyncio.to_thread(schema.migrate, given.dsn)
    say(f"jobs that wait {WAIT * 1000:.0f} ms, jobs per second by slots")
    for slots in (5, 20, 100):
        await shown(f"  {slots} slots", given.rounds, partial(drained, given.dsn, slots, given.jobs))
    say("enqueues, one per transaction, per second by synchronous_commit")
    for value in ("on", "off"):
        dsn = make_conninfo(given.dsn, options=f"-c synchronous_commit={value}")
        await shown(f"  {value}", given.rounds, partial(asyncio.to_thread, enqueued, dsn, given.jobs))
    say("milliseconds from an enqueue to the start, by an idle worker")
    for behind, name in ((False, "is notified"), (True, "polls each second")):
        await shown(f"  {name}", given.rounds, partial(picked_up, given.dsn, behind=behind))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def shown(name: str, rounds: int, measure: Callable[[], Awaitable[float]]) -> None:
    """Print the median of some rounds, the lowest and the highest."""
    found = [await measure() for _ in range(rounds)]
    say(f"{name}: {statistics.median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})")


async def drained(dsn: str, slots: int, jobs: int) -> float:
    """How many jobs a worker with these slots ends in a second, from the first start to the last end."""
    queue, instants = PgQueue(dsn), list[float]()

    @queue.task(name="wait")
    async def wait() -> None:
        instants.append(time.monotonic())
        await asyncio.sleep(WAIT)
        instants.append(time.monotonic())

    await queue.aenqueue_many([wait.call() for _ in range(jobs)])
    worker = Worker(queue, concurrency=slots, until_empty=True)
    await worker.run()
    await queue.aclose()
    return jobs / (max(instants) - min(instants))


def enqueued(dsn: str, jobs: int) -> float:
    """How many single enqueues a thread commits in a second."""
    queue = PgQueue(dsn)
    task = queue.task(name="nothing")(lambda: None)
    task.enqueue()
    began = time.monotonic()
    for _ in range(jobs):
        task.enqueue()
    took = time.monotonic() - began
    queue.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from pgqueue.jobs where task = 'nothing'")
    return jobs / took


async def picked_up(dsn: str, *, behind: bool) -> float:
    """The median time in milliseconds until an idle worker starts a job."""
    queue, started = PgQueue(dsn, behind_pooler=behind), asyncio.Queue[float]()

    @queue.task(name="note")
    async def note() -> None:
        started.put_nowait(time.monotonic())

    worker = Worker(queue, concurrency=1)
    running = asyncio.create_task(worker.run())
    waits = []
    for _ in range(8):
        await asyncio.sleep(1.3 + random.random())  # noqa: S311 - it is idle again, at any point between two polls
        began = time.monotonic()
        await note.aenqueue()
        waits.append((await started.get() - began) * 1000)
    worker.stop()
    await running
    await queue.aclose()
    return statistics.median(waits[1:])


if __name__ == "__main__":
    asyncio.run(main())
