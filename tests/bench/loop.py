"""What a DataFrame through workers and back costs beside the drain: ``python tests/bench/loop.py [DSN] [--rows 200000]``.

Two workers, each a process, run jobs of 1 ms of work (an async sleep). First they drain jobs that are enqueued already; then
``pgqueue.spark.apply`` enqueues as many rows, waits, and reads all results. It also measures the write alone, with and without key
columns, and how long it takes to look at the run. Print factors between figures of one run: on a busy machine the seconds mean little.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import psycopg
from pyspark.sql import DataFrame, SparkSession

import pgqueue.spark
from pgqueue import PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.spark.session import session
from pgqueue.store.insight import runs
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

WORKERS, SLOTS = 2, 256


def tasks(dsn: str) -> PgQueue:
    """The queue with its task."""
    queue = PgQueue(dsn)

    @queue.task(name="call")
    async def call(order_id: int) -> int:
        await asyncio.sleep(0.001)
        return order_id

    return queue


def work(dsn: str) -> None:
    """A worker in a process of its own."""
    asyncio.run(Worker(tasks(dsn), concurrency=SLOTS).run())


@contextmanager
def working(dsn: str) -> Iterator[None]:
    """Two workers for the length of the block."""
    started = [multiprocessing.get_context("spawn").Process(target=work, args=(dsn,)) for _ in range(WORKERS)]
    for one in started:
        one.start()
    try:
        yield
    finally:
        for one in started:
            one.terminate()
            one.join()


def timed(name: str, do: Callable[[], object]) -> float:
    """Do something, and print how long it took."""
    start = time.monotonic()
    do()
    took = time.monotonic() - start
    sys.stdout.write(f"{name}: {took:.2f} s\n")
    sys.stdout.flush()
    return took


def write(frame: DataFrame, dsn: str, run: str, **options: str) -> None:
    """Enqueue the rows."""
    frame.write.format("pgqueue").options(task="call", dsn=dsn, run=run, **options).mode("append").save()


def wait_for_live(dsn: str, most: int) -> None:
    """Wait until there are no more live jobs than these."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("select count(*) from pgqueue.jobs").fetchall()[0][0] > most:
            time.sleep(0.1)


def measure(spark: SparkSession, dsn: str, rows: int) -> None:
    """Measure all."""
    frame = spark.range(rows, numPartitions=8).selectExpr("id as order_id")
    queue = PgQueue(dsn)
    write(spark.range(1_000).selectExpr("id as order_id"), dsn, "warm")
    cancel(dsn)
    for turn in range(2):
        plain = timed("write", partial(write, frame, dsn, f"plain-{turn}"))
        cancel(dsn)
        keyed = timed("write with a key", partial(write, frame, dsn, f"key-{turn}", key="order_id"))
        cancel(dsn)
        sys.stdout.write(f"  a key costs {keyed / plain - 1:+.1%}\n")
    write(frame, dsn, "bare")
    timed("a look at a run that waits", lambda: queue.database.run(runs.glance("bare")))
    with working(dsn):
        wait_for_live(dsn, rows - 1)
        drain = timed(f"drain of {rows:,} jobs", lambda: wait_for_live(dsn, 0))
    timed("a look at a run that has ended", lambda: queue.database.run(runs.glance("bare")))
    timed("its full counts", lambda: queue.insight.run("bare"))
    with working(dsn):
        warm = queue.enqueue_named("call", {"order_id": 0})  # both workers have started
        warm.result(timeout=120)
        loop = timed(
            "apply, to the last result",
            lambda: (
                pgqueue.spark.apply(frame, "call", key="order_id", run="loop", dsn=dsn)
                .selectExpr("sum(cast(result as long))")
                .collect()
            ),
        )
    sys.stdout.write(f"the loop takes {loop / drain:.2f} times the drain ({rows / drain:,.0f} jobs/s)\n")
    queue.close()


def cancel(dsn: str) -> None:
    """Empty the tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("truncate pgqueue.jobs")
        connection.execute("vacuum analyze")


def main() -> None:
    """Measure on the given database, or on an embedded one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with ExitStack() as opened:
        dsn = given.dsn or opened.enter_context(embedded_server())
        schema.migrate(dsn)
        os.environ["PGQUEUE_DSN"] = dsn
        measure(session(master="local[2]"), dsn, given.rows)


if __name__ == "__main__":
    main()
