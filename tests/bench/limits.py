"""What limits cost, beside ordinary jobs, in one run: ``python tests/bench/limits.py [DSN]``.

Each load is enqueued and drained by one worker process with 20 slots, of tasks that do nothing. Rounds alternate.

``--spacing``: how exact starts are. Four processes run 1,000 jobs whose starts are 10 ms apart, and write when each started.
``--snapshot``: rounds of one hot key, 50 at once, while a snapshot is held open elsewhere; how the later ones compare with the first.
``--full``: what share of a core an idle worker and its server take while jobs wait in 100,000 lanes whose limit is full.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
from flows import drained, one  # type: ignore[attr-defined]  # the script beside this one, not the package of tests

from pgqueue import Limit, PgQueue, Rate
from pgqueue.app.task import Task
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.signals import IDLE_AFTER
from pgqueue.worker.worker import Worker

PROCESSES = 4
STARTS = 1_000
INTERVAL = 0.01
LANES = 100_000
LOOKED_FOR = 60.0


def main() -> None:
    """Print jobs a second, and the ratio to ordinary jobs; or how exact starts are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=50_000)
    parser.add_argument("--spacing", action="store_true")
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        if given.spacing:
            spacing(dsn)
        elif given.snapshot:
            snapshot(dsn, given.rounds, given.scale)
        elif given.full:
            full(dsn)
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


def snapshot(dsn: str, rounds: int, scale: int) -> None:
    """Print how fast each round was."""
    queue = PgQueue(dsn)

    @queue.task(name="hot", limit=Limit(50))
    async def hot(_n: int) -> None: ...

    first = 0.0
    with psycopg.connect(dsn) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select")
        for number in range(rounds):
            queue.enqueue_many(hot.call(one) for one in range(scale))
            begun = time.perf_counter()
            asyncio.run(drained(dsn, queue, concurrency=60))
            rate = scale / (time.perf_counter() - begun)
            first = first or rate
            sys.stdout.write(
                f"after {number * scale:9,} jobs {rate:9,.0f} jobs/s ({rate / first:.2f} of the first round)\n"
            )


def full(dsn: str) -> None:
    """Print how much processor time a worker takes that can start no job."""
    queue = PgQueue(dsn)

    @queue.task(name="full", limit=[Limit(1, name="api"), Limit(1, by="number")])
    async def busy(number: int) -> None:
        await asyncio.sleep(3_600 if number == 0 else 0)

    queue.enqueue_many(busy.call(number) for number in range(LANES))
    asyncio.run(_idle(dsn, queue))


async def _idle(dsn: str, queue: PgQueue) -> None:
    holder, idle = Worker(queue, concurrency=1), Worker(queue, concurrency=4)
    held = asyncio.create_task(holder.run())
    await asyncio.sleep(3)
    running = asyncio.create_task(idle.run())
    await asyncio.sleep(IDLE_AFTER + 5)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        rows = await (await connection.execute("select pid from pg_stat_activity")).fetchall()
        pids = ["self", *(str(pid) for (pid,) in rows)]
        began, before = time.monotonic(), sum(map(seconds_of, pids))
        await asyncio.sleep(LOOKED_FOR)
        used, took = sum(map(seconds_of, pids)) - before, time.monotonic() - began
    sys.stdout.write(
        f"two workers and their server beside {LANES:,} full lanes: {used / took:.1%} of a core, over {took:.0f} s\n"
    )
    held.cancel()
    running.cancel()
    await asyncio.gather(held, running, return_exceptions=True)


def seconds_of(pid: str) -> float:
    """Processor time of a process, in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
