"""What a job takes of the processor: ``python tests/bench/cpu.py [CONCURRENCY ...] [--ms 1] [--jobs 60000]``.

A worker drains jobs, each of which waits ``--ms`` milliseconds in ``asyncio.sleep``. The script prints jobs per second. It prints the
processor time of the worker, and of all PostgreSQL processes, in µs per job. No other PostgreSQL may work meanwhile.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import psycopg
from limits import seconds_of  # type: ignore[attr-defined]  # the script beside this one, not the package of tests

from pgqueue import PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker


def main() -> None:
    """Drain once with each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("concurrency", nargs="*", type=int, default=[16, 64, 256])
    parser.add_argument("--ms", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=60_000)
    given = parser.parse_args()
    with embedded_server() as dsn:
        schema.migrate(dsn, schema="pgqueue")
        for concurrency in given.concurrency:
            asyncio.run(_drain(dsn, concurrency, given.ms / 1_000, given.jobs))


async def _drain(dsn: str, concurrency: int, seconds: float, jobs: int) -> None:
    queue = PgQueue(dsn)

    @queue.task(name="work")
    async def work(_number: int) -> None:
        if seconds:
            await asyncio.sleep(seconds)

    await queue.aenqueue_many(work.call(number) for number in range(jobs))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("vacuum analyze")
        await connection.execute("checkpoint")
        began, own, servers = time.monotonic(), time.process_time(), _of_servers()
        worker = Worker(queue, concurrency=concurrency, until_empty=True)
        await worker.run()
        took, own, servers = time.monotonic() - began, time.process_time() - own, _of_servers() - servers
    await queue.aclose()
    sys.stdout.write(
        f"{concurrency:4} slots, {seconds * 1e3:g} ms: {jobs / took:8,.0f} jobs/s, "
        f"{own / jobs * 1e6:5.1f} µs of the worker, {servers / jobs * 1e6:5.1f} µs of PostgreSQL\n"
    )


def _of_servers() -> float:
    return float(sum(seconds_of(path.name) for path in Path("/proc").iterdir() if _is_server(path)))


def _is_server(path: Path) -> bool:
    try:
        return path.name.isdigit() and (path / "comm").read_text(encoding="utf-8").strip() == "postgres"
    except OSError:
        return False


if __name__ == "__main__":
    main()
