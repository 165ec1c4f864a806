"""What measuring costs ordinary jobs: ``python tests/bench/telemetry.py [DSN]``.

Each drain is of as many jobs that do nothing, by one worker with 20 slots: without time series, with them (the default), and
with metrics for Prometheus besides. They alternate, so that all meet the same machine. A ratio near 1 needs a quiet machine; the
CPU time of this process differs less from run to run. It has the jobs and the worker, and not the server.
"""

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import ExitStack

import psycopg

from pgqueue import PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.telemetry.worker_metrics import JobMetrics
from pgqueue.worker.worker import Worker

CLEAN = "truncate pgqueue.jobs, pgqueue.job_history"
VARIANTS = "nothing", "time series", "time series and metrics"


class Counted:
    """A queue whose task counts its calls."""

    def __init__(self, dsn: str, *, metrics: bool) -> None:
        """Observe the queue, or not."""
        self.queue = PgQueue(dsn)
        self._left = 0
        self._all = asyncio.Event()
        self.noop = self.queue.task(name="noop")(self._noop)
        if metrics:
            self.queue.observe(JobMetrics())

    async def _noop(self, _n: int) -> None:
        self._left -= 1
        if not self._left:
            self._all.set()

    async def drained(self, count: int, *, series: bool) -> tuple[float, float]:
        """Run a worker until the last job has started: jobs a second, and microseconds of CPU for each."""
        self._left = count
        worker = Worker(self.queue, concurrency=20, series=series)
        cpu, begun = time.process_time(), time.perf_counter()
        running = asyncio.create_task(worker.run())
        await self._all.wait()
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - begun
        worker.stop()
        await running
        return count / seconds, cpu / count * 1e6


def main() -> None:
    """Print jobs a second and CPU time for each variant, and the ratio to a worker that measures nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=int, default=100_000)
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
        for number in range(given.rounds):
            for name in VARIANTS if number % 2 else VARIANTS[::-1]:
                figures[name].append(one(dsn, name, given.scale))
        show(figures)


def one(dsn: str, name: str, count: int) -> tuple[float, float]:
    """Fill an empty table and drain it."""
    counted = Counted(dsn, metrics="metrics" in name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CLEAN)
        counted.queue.enqueue_many(counted.noop.call(n) for n in range(count))
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return asyncio.run(counted.drained(count, series="series" in name))


def show(figures: dict[str, list[tuple[float, float]]]) -> None:
    """Print the medians, and the ratios of each round's pair."""
    base = figures[VARIANTS[0]]
    for name, found in figures.items():
        rate, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        ratios = [one[0] / beside[0] for one, beside in zip(found, base, strict=True)]
        sys.stdout.write(
            f"{name:24} {rate:9,.0f} jobs/s ({statistics.median(ratios):.3f} of a worker that measures nothing)"
            f"  {cpu:6.2f} µs of CPU a job, {min(one[1] for one in found):.2f} at least\n"
        )


if __name__ == "__main__":
    main()
