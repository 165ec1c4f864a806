"""What an attempt in a process costs beside one in a thread: ``python tests/bench/processes.py [DSN] [--jobs 2000] [--slots 1]``.

A worker drains jobs that do nothing, with plain functions in threads and in processes that are warm. Then functions that heed no
timeout are killed, and the time from the timeout to the end of the process is printed.
"""

import argparse
import asyncio
import importlib
import statistics
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

queue = PgQueue()
TIMEOUT = 0.5


@queue.task(name="in_thread")
def in_thread() -> None: ...


@queue.task(name="in_process", process=True)
def in_process() -> None: ...


@queue.task(name="warm", process=True)
def warm() -> None:
    """Long enough that each slot needs a process."""
    time.sleep(3)


@queue.task(name="deaf", process=True, timeout=TIMEOUT, max_attempts=1)
def deaf(path: str) -> None:
    """Note for how long it has run."""
    began = time.monotonic()
    while True:
        with suppress(BaseException):
            while True:
                Path(path + ".new").write_text(str(time.monotonic() - began))
                Path(path + ".new").replace(path)
                time.sleep(0.005)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        queue.database = queue.database.but(dsn=dsn)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        asyncio.run(_measure(given.jobs, given.slots, folder))


async def _measure(jobs: int, slots: int, folder: Path) -> None:
    worker = Worker(queue, concurrency=slots)
    worker.app = "processes:queue"
    running = asyncio.create_task(worker.run())
    took = {}
    await _drain(warm, slots)
    for task in (in_thread, in_process):
        took[task.name] = await _drain(task, jobs)
        per_slot = jobs / took[task.name] / slots
        sys.stdout.write(f"{task.name:10} {per_slot:8.0f} jobs/s in each of {slots} slots\n")
    more = (took["in_process"] - took["in_thread"]) * slots / jobs
    sys.stdout.write(f"a process costs {more * 1e3:.2f} ms more for each job\n")
    ends = [await _killed(folder / str(number)) for number in range(5)]
    sys.stdout.write(f"killed {statistics.median(ends):.2f} s after the timeout, at most {max(ends):.2f} s\n")
    worker.stop()
    await running
    await queue.aclose()


async def _drain(task: Task[[], Any], jobs: int) -> float:
    began = time.perf_counter()
    await queue.aenqueue_many(task.call() for _ in range(jobs))
    while queue.insight.search(task=task.name, state=["ready", "running"]).jobs:  # noqa: ASYNC110 - the database raises no events
        await asyncio.sleep(0.01)
    return time.perf_counter() - began


async def _killed(path: Path) -> float:
    job = await deaf.aenqueue(str(path))
    while not (await job.astatus()).ended:  # noqa: ASYNC110 - the database raises no events
        await asyncio.sleep(0.02)
    return float(path.read_text()) - TIMEOUT  # noqa: ASYNC240 - a few bytes


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("processes").main()  # the module under its own name, as the processes import it
