"""What a step and a checkpoint cost beside a bare committed insert, and what tidying costs beside 1,000,000 notes of live jobs.

Run it: ``python tests/bench/steps.py``. It starts a server of its own.
"""

import time
from collections import defaultdict
from functools import partial
from statistics import median
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue import Context, PgQueue
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.store.connections.drivers import steps_on
from pgqueue.store.connections.session import PLANNER
from pgqueue.store.plan import run
from pgqueue.store.schema import schema
from pgqueue.store.workers import upkeep
from pgqueue.testing import drain

COUNT, MANY = 5_000, 1_000_000


def main() -> None:
    """Measure, and print."""
    with throwaway_server(embedded_binaries()) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create database pgqueue_test")
        dsn = make_conninfo(server.dsn, dbname="pgqueue_test")
        schema.migrate(dsn)
        queue = PgQueue(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            _compare(queue, connection)
            _tidy(queue, connection)
        queue.close()


def _compare(queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
    """Each in turn, so that other load of the machine slows all of them down in the same way."""
    connection.execute("create table bare (job bigint, name text, value json, primary key (job, name))")
    bare = "insert into bare values (1, %s, '1')"
    seconds: dict[str, list[float]] = defaultdict(list)

    @queue.task
    def note(ctx: Context) -> None:
        for number in range(COUNT):
            for what, do in (
                ("a bare insert", partial(connection.execute, bare, [f"step {number}"])),
                ("a step", partial(_step, ctx, number)),
                ("a checkpoint", partial(ctx.checkpoint, number)),
                ("a report of progress", partial(ctx.progress, number)),
            ):
                started = time.perf_counter()
                do()
                seconds[what].append(time.perf_counter() - started)

    note.enqueue()
    drain(queue)
    for what, found in seconds.items():
        print(f"{what}: {median(found) * 1e3:.4f} ms, the median of {COUNT}")  # noqa: T201


def _step(ctx: Context, number: int) -> int:
    return ctx.step(f"step {number}", int, number)


def _tidy(queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "insert into pgqueue.jobs (task, args) select 't', '{}' from generate_series(1, %s)", [MANY]
    )
    connection.execute("delete from pgqueue.notes")
    connection.execute(
        "insert into pgqueue.notes (job_id, kind, value) select id, 'checkpoint', '1' from pgqueue.jobs"
    )
    connection.execute("vacuum analyze pgqueue.notes, pgqueue.jobs")
    for name, value in PLANNER.items():
        connection.execute("select set_config(%s, %s, false)", [name, value])
    for what in (f"{MANY:,} notes of live jobs", f"{MANY:,} notes of ended jobs"):
        started = time.perf_counter()
        gone = run(upkeep.drop_notes(), steps_on(connection, queue.database.catalogue))
        print(f"{what}: {gone:,} deleted in {time.perf_counter() - started:.2f} s")  # noqa: T201
        connection.execute("delete from pgqueue.jobs")


if __name__ == "__main__":
    main()
