"""What limits cost, beside ordinary jobs, in one run: ``python tests/bench/limits.py [DSN]``; ``--spacing``: how exact starts are.

Each load is enqueued and drained by one worker process with 20 slots, of tasks that do nothing. Rounds alternate.
With ``--spacing``, four processes run 1,000 jobs whose starts are 10 ms apart, and write when each started.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
from flows import one  # type: ignore[attr-defined]  # the script beside this one, not the package of tests

from pgqueue import Limit, PgQueue, Rate
from pgqueue.app.task import Task
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

PROCESSES = 4
STARTS = 1_000
INTERVAL = 0.01


def main() -> None:
    """Print jobs a second, and the ratio to ordinary jobs; or how exact starts are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=50_000)
    parser.add_argument("--spacing", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        if given.spacing:
            spacing(dsn)
        else:
            measure(dsn, given.rounds, given.scale)


def measure(dsn: str, rounds: int, scale: int) -> None:
    """Run every load in turn."""
    queue = PgQueue(dsn)

    @queue.task(name="ordinary")
    async def ordinary(_n: int) -> None: ...

    @queue.task(name="hot", limit=Limit(1_000))
    async def hot(_n: int) -> None: ...

    @queue.task(name="keys", limit=Limit(1, by="n"))
    async def keys(n: int) -> None: ...

    @queue.task(name="rate", limit=Rate("1000000/second"))
    async def rate(_n: int) -> None: ...

    @queue.task(name="fair", fair_by="n")
    async def fair(n: int) -> None: ...

    loads: dict[str, Callable[[], object]] = {
        "ordinary jobs": _many(queue, ordinary, scale, 1),
        "one hot key, 1,000 at once": _many(queue, hot, scale, 1),
        "10,000 keys, 1 at once of each": _many(queue, keys, scale, 10_000),
        "a rate far above the need": _many(queue, rate, scale, 1),
        "100 fair shares": _many(queue, fair, scale, 100),
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
    for _ in range(rounds):
        for name, enqueue in loads.items():
            figures[name].append(one(dsn, queue, scale, enqueue))
    base = [statistics.median(column) for column in zip(*figures["ordinary jobs"], strict=True)]
    for name, found in figures.items():
        added, ended = (statistics.median(column) for column in zip(*found, strict=True))
        sys.stdout.write(
            f"{name:36} {added:9,.0f}/s enqueued ({added / base[0]:4.2f})  {ended:9,.0f}/s drained ({ended / base[1]:4.2f} of ordinary)\n"
        )


def _many(queue: PgQueue, task: Task[[int], None], count: int, keys: int) -> Callable[[], object]:
    return lambda: queue.enqueue_many(task.call(number % keys) for number in range(count))


def spacing(dsn: str) -> None:
    """Print how far apart starts were."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "starts")
        queue = paced(dsn, log)
        queue.enqueue_many(queue.find_task("tick").call() for _ in range(STARTS))
        processes = [
            multiprocessing.get_context("spawn").Process(target=work, args=(dsn, log))
            for _ in range(PROCESSES)
        ]
        for process in processes:
            process.start()
        with psycopg.connect(dsn, autocommit=True) as connection:
            while connection.execute("select exists (select from pgqueue.jobs)").fetchone() == (True,):
                time.sleep(0.1)
        for process in processes:
            process.terminate()
            process.join()
        starts = sorted(float(line) for line in Path(log).read_text(encoding="utf-8").split())
    gaps = sorted(abs(after - before - INTERVAL) for before, after in itertools.pairwise(starts))
    sys.stdout.write(
        f"{len(starts):,} starts of {PROCESSES} processes in {starts[-1] - starts[0]:.3f} s; of |gap - {INTERVAL * 1e3:g} ms|: "
        f"median {gaps[len(gaps) // 2] * 1e3:.2f} ms, 99th percentile {gaps[int(len(gaps) * 0.99)] * 1e3:.2f} ms, most {gaps[-1] * 1e3:.2f} ms\n"
    )


def paced(dsn: str, log: str) -> PgQueue:
    """A queue whose task writes when it started."""
    queue = PgQueue(dsn)

    @queue.task(name="tick", limit=Rate(every=INTERVAL))
    async def tick() -> None:
        with Path(log).open("a", encoding="utf-8") as lines:  # noqa: ASYNC230 - some microseconds
            lines.write(f"{time.monotonic()}\n")

    return queue


def work(dsn: str, log: str) -> None:
    """Be a worker process."""
    asyncio.run(Worker(paced(dsn, log), concurrency=8).run())


if __name__ == "__main__":
    main()
