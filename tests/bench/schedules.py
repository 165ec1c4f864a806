"""How late the last of 10,000 schedules fires that are due at one instant, what that costs, and what they cost while idle.

Run it: ``python tests/bench/schedules.py``. It starts a server of its own, and worker processes that run no job.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue import PgQueue
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.store.connections.drivers import steps_on
from pgqueue.store.plan import run
from pgqueue.store.schema import schema
from pgqueue.store.workers import upkeep

COUNT = 10_000
AHEAD = 15
"""Seconds from the start of the workers to the tick."""
ADD = """
insert into pgqueue.schedules (name, task, args, cron, timezone, queue, settled, next_at)
select 'report of customer ' || n, 'report', jsonb_build_object('customer', n)::text::json,
       to_char(%(at)s at time zone 'UTC', 'FMSS FMMI FMHH24') || ' * * *', 'UTC', 'reports', now(), %(at)s
from generate_series(1, %(count)s::integer) as n
"""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print."""
    with throwaway_server(embedded_binaries()) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for number, workers in enumerate((1, 2)):
                connection.execute(f"create database due{number}".encode())
                _fire(make_conninfo(server.dsn, dbname=f"due{number}"), workers)
            connection.execute("create database idle")
        _idle(make_conninfo(server.dsn, dbname="idle"))


def _fire(dsn: str, count: int) -> None:
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection, ExitStack() as stack:
        at = _one(connection, f"select date_trunc('second', clock_timestamp()) + interval '{AHEAD} s'")
        connection.execute(ADD.encode(), {"at": at, "count": COUNT})
        connection.execute("analyze")
        workers = [stack.enter_context(_worker(dsn)) for _ in range(count)]
        for worker in workers:
            stack.callback(worker.terminate)
        while _one(connection, "select count(*) from pgqueue.workers") < count:
            time.sleep(0.1)
        time.sleep(
            max(0.0, _one(connection, f"select extract(epoch from '{at}' - clock_timestamp())::float8") - 1)
        )
        before, server_before = sum(_cpu(worker.pid) for worker in workers), _servers_cpu(connection)
        while _one(connection, "select count(*) from pgqueue.schedule_ticks") < COUNT:
            time.sleep(0.02)
        late = _one(connection, f"select extract(epoch from clock_timestamp() - '{at}')::float8")
        first = _one(
            connection,
            f"select extract(epoch from min(fired_at) - '{at}')::float8 from pgqueue.schedule_ticks",
        )
        client = sum(_cpu(worker.pid) for worker in workers) - before
        spent = _servers_cpu(connection) - server_before
        print(  # noqa: T201 - a script
            f"{COUNT:,} schedules due at once, {count} worker(s): the first {first:.2f} s late, the last {late:.2f} s; "
            f"{client / COUNT * 1e3:.3f} ms of the workers' CPU and {spent / COUNT * 1e3:.3f} ms of the server's each"
        )


def _idle(dsn: str) -> None:
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for count in (0, COUNT):
            connection.execute(
                ADD.encode(), {"at": _one(connection, "select now() + interval '1 day'"), "count": count}
            )
            connection.execute("analyze")
            ask = partial(run, connection=steps_on(connection, PgQueue(dsn).database.catalogue))
            ask(upkeep.poll())
            began, rounds = time.perf_counter(), 2_000
            for _ in range(rounds):
                ask(upkeep.poll())
            print(  # noqa: T201 - a script
                f"a poll with {count:,} idle schedules: {(time.perf_counter() - began) / rounds * 1e3:.3f} ms"
            )


def _worker(dsn: str) -> "subprocess.Popen[bytes]":
    code = (
        "import asyncio; from pgqueue import PgQueue, Worker; "
        f"asyncio.run(Worker(PgQueue({dsn!r}), queues=['none']).run())"
    )
    return subprocess.Popen([sys.executable, "-c", code])  # noqa: S603 - our own code


def _cpu(pid: int) -> float:
    """Seconds of CPU of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _servers_cpu(connection: psycopg.Connection[Any]) -> float:
    """Seconds of CPU of the backends that are there, without this one."""
    pids = connection.execute(
        "select pid from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    return sum(_cpu(pid) for (pid,) in pids)


def _one(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]


if __name__ == "__main__":
    main()
