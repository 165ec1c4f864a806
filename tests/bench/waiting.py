"""How soon callers learn that their jobs have ended, and what that costs: ``python tests/bench/waiting.py DSN``.

It prints, for jobs of several lengths, the time from a task's return to its caller's; and for ten thousand callers that
wait at once, the transactions and the connections of the database, and the CPU of the program.
"""

import asyncio
import multiprocessing
import sys
import time

import psycopg

from pgqueue import PgQueue
from pgqueue.worker.worker import Worker

LENGTHS = (0.0, 0.1, 1.0)
CALLERS, WAIT = 10_000, 10.0


def tasks(dsn: str) -> PgQueue:
    """The queue with its tasks."""
    queue = PgQueue(dsn)

    @queue.task(name="rest")
    async def rest(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return time.time()

    return queue


def work(dsn: str) -> None:
    """A worker in a process of its own."""
    asyncio.run(Worker(tasks(dsn), concurrency=50).run())


async def delays(queue: PgQueue, seconds: float, count: int) -> None:
    """How long after its task's return a caller has the result; one caller at a time."""
    rest, found = queue.find_task("rest"), []
    for _ in range(count):
        ended = await (await rest.aenqueue(seconds)).aresult(timeout=60)
        found.append((time.time() - ended) * 1000)
    found.sort()
    sys.stdout.write(
        f"{seconds:g} s: p50 {found[count // 2]:.1f} ms, p95 {found[int(count * 0.95)]:.1f} ms, {count} jobs\n"
    )


async def crowd(queue: PgQueue, dsn: str) -> None:
    """Many callers at once, whose jobs do not end while it is measured."""
    rest = queue.find_task("rest").using(delay=3600)
    handles = await queue.aenqueue_many(rest.call(0.0) for _ in range(CALLERS))
    with psycopg.connect(dsn, autocommit=True, application_name="looking") as connection:
        callers = [asyncio.create_task(handle.aresult()) for handle in handles]
        await asyncio.sleep(5)
        before, cpu = transactions(connection), time.process_time()
        await asyncio.sleep(WAIT)
        after, used = transactions(connection), time.process_time() - cpu
        said = "select count(*) from pg_stat_activity where application_name = 'callers'"
        connections = connection.execute(said).fetchall()[0][0]
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    sys.stdout.write(
        f"{CALLERS:,} callers: {(after - before) / WAIT:,.1f} transactions/s, {connections} connections, "
        f"{used / WAIT:.1%} of a core\n"
    )


def transactions(connection: psycopg.Connection[tuple[int]]) -> int:
    """How many transactions the database has committed."""
    time.sleep(1.1)  # sessions report their numbers once a second
    query = "select xact_commit from pg_stat_database where datname = current_database()"
    return connection.execute(query).fetchall()[0][0]


async def main(dsn: str) -> None:
    """Measure."""
    queue = tasks(f"{dsn}{'&' if '?' in dsn else '?'}application_name=callers")
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(dsn,))
    worker.start()
    try:
        await delays(queue, 0.0, 20)
        for seconds in LENGTHS:
            await delays(queue, seconds, 20 if seconds >= 1 else 200)
    finally:
        worker.terminate()
        worker.join()
    await crowd(queue, dsn)
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
