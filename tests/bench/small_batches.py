"""What small batches cost beside one enqueue: ``python tests/bench/small_batches.py [DSN] [--rounds 200]``.

A program enqueues one job, 10 jobs and 128 jobs in turn, each in its own transaction, beside an idle worker of another queue. It
prints the medians, and how long a blocked take waits for a job that was returned at once.
"""

import argparse
import asyncio
import statistics
import sys
import threading
import time
from contextlib import ExitStack

from pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

SIZES = (1, 10, 128)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        asyncio.run(_enqueue(PgQueue(dsn), given.rounds))
        _returned(PgQueue(dsn))


async def _enqueue(queue: PgQueue, rounds: int) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> None: ...

    worker = Worker(queue, queues=["elsewhere"])
    running = asyncio.create_task(worker.run())
    took: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            began = time.perf_counter()
            await _add(queue, noop, size)
            took[size].append(time.perf_counter() - began)
    worker.stop()
    await running
    await queue.aclose()
    one = statistics.median(took[1])
    for size, times in took.items():
        middle = statistics.median(times)
        sys.stdout.write(f"{size:4} jobs: {middle * 1e3:6.2f} ms, {middle / one:5.2f} times one enqueue\n")


async def _add(queue: PgQueue, task: Task[[int], None], size: int) -> None:
    if size == 1:
        await task.aenqueue(1)
    else:
        await queue.aenqueue_many(task.call(number) for number in range(size))


def _returned(queue: PgQueue) -> None:
    @queue.task(name="again", queue="again")
    def again() -> None: ...

    waits = []
    for _ in range(20):
        again.enqueue()
        returned: list[float] = []
        taken: list[float] = []

        def wait_for_it(taken: list[float] = taken) -> None:
            with queue.take(1, queues=["again"], timeout=10):
                taken.append(time.perf_counter())

        with queue.take(1, queues=["again"], timeout=10) as jobs:
            waiting = threading.Thread(target=wait_for_it)
            waiting.start()
            time.sleep(0.2)
            jobs[0].fail(ValueError("again"), delay=0)
            returned.append(time.perf_counter())
        waiting.join()
        waits.append(taken[0] - returned[0])
    sys.stdout.write(f"a blocked take has a returned job after {statistics.median(waits) * 1e3:.1f} ms\n")
    queue.close()


if __name__ == "__main__":
    main()
