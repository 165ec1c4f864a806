"""What users notice of an outage: ``python tests/bench/outages.py [SECONDS ...] [--behind-pooler | --failover | --full]``.

A program enqueues again and again, a worker waits for jobs, and a browser asks for the dashboard's first page every 0.3 s, while the
server is stopped for each of these times. It prints how long after the server's return the first enqueue and the first job came, how
soon the page said that the database is away, and when it showed numbers again.

``--failover``: the server ends as in a crash, and its standby is promoted after that time.
``--full``: the server runs, its connections are cut, and other programs hold all that it allows.
"""

import argparse
import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from werkzeug.test import Client

from pgqueue import PgQueue, PgQueueError
from pgqueue.dashboard import Dashboard, Right, User
from pgqueue.embedded import Server, embedded_binaries, throwaway_server
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import free_port, standby_of

CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where backend_type = 'client backend' and pid <> all(%s::integer[]) and pid <> pg_backend_pid()
"""
EVERY = 0.3
AFTER = 6.0
"""Seconds for which the page is looked at after the server's return."""
POOLER = """
[databases]
postgres = host={folder} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
"""


def main() -> None:
    """Stop the server for each of these times, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="*", type=float, default=[5.0, 20.0, 60.0])
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("--behind-pooler", "--failover", "--full"):
        kinds.add_argument(kind, action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        server = stack.enter_context(throwaway_server(embedded_binaries()))
        schema.migrate(server.dsn)
        options: dict[str, Any] = {"dsn": server.dsn}
        if given.behind_pooler:
            pooled = stack.enter_context(_pooler(server.folder))
            options = {"dsn": pooled, "behind_pooler": True, "direct_dsn": server.dsn}
        for seconds in given.seconds:
            if given.failover:
                standby = stack.enter_context(standby_of(server))
                options["dsn"] = (
                    f"postgresql://postgres:@/postgres?host={server.folder},{standby.folder}&target_session_attrs=read-write"
                )
                _measure(options, seconds, partial(_failover, server, standby, seconds))
                break  # the former primary is behind
            _measure(options, seconds, partial(_filled if given.full else _stopped, server, seconds))


def _stopped(server: Server, seconds: float) -> None:
    server.stop()
    time.sleep(seconds)
    server.start()


def _failover(primary: Server, standby: Server, seconds: float) -> None:
    primary.stop(signal.SIGQUIT)
    time.sleep(seconds)
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        connection.execute("select pg_promote()")


def _filled(server: Server, seconds: float) -> None:
    others = [psycopg.connect(server.dsn, autocommit=True)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        mine = f"{{{','.join(str(one.info.backend_pid) for one in others)}}}"
        others[0].execute(CUT, [mine])
        with suppress(psycopg.OperationalError):
            while True:
                others.append(psycopg.connect(server.dsn, autocommit=True))
        time.sleep(0.1)
    for one in others:
        one.close()


@contextmanager
def _pooler(folder: Path) -> Iterator[str]:
    port = free_port()
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        config = Path(made, "pgbouncer.ini")
        config.write_text(POOLER.format(folder=folder, port=port), encoding="utf-8")
        command = ["pgbouncer", "-q", "-u", "nobody", str(config)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - a fixed command
        try:
            time.sleep(1)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.kill()
            process.wait()


def _measure(options: dict[str, Any], seconds: float, outage: Callable[[], None]) -> None:
    queue, watched = PgQueue(**options), PgQueue(**options)
    started: list[float] = []

    @queue.task(name="noop")
    async def noop() -> None:
        started.append(time.monotonic())

    user = User.with_rights("ann", Right)
    page = Client(Dashboard(watched, login=lambda _: user))
    looks: list[tuple[float, int]] = []
    added: list[float] = []
    over = threading.Event()

    def look() -> None:
        status = page.get("/overview").status_code
        looks.append((time.monotonic(), status))

    def enqueue() -> None:
        with suppress(PgQueueError):
            noop.enqueue()
            added.append(time.monotonic())

    def work() -> None:
        asyncio.run(_work(queue, over))

    threads = [threading.Thread(target=work), *(_repeated(one, over) for one in (look, enqueue))]
    for thread in threads:
        thread.start()
    time.sleep(AFTER / 2)
    down = time.monotonic()
    outage()
    up = time.monotonic()
    time.sleep(AFTER)
    over.set()
    for thread in threads:
        thread.join()
    queue.close()
    watched.close()
    away = min((at for at, status in looks if at > down and status != 200), default=0.0)
    again = min((at for at, status in looks if at > up and status == 200), default=0.0)
    sys.stdout.write(
        f"{seconds:g} s: first enqueue after {_first(added, up):.1f} s, first job after {_first(started, up):.1f} s; "
        f"the page said it after {away - down:.1f} s, and was well {again - up:.1f} s after the return\n"
    )


async def _work(queue: PgQueue, over: threading.Event) -> None:
    worker = Worker(queue)
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(over.wait)
    worker.stop()
    await running
    await queue.aclose()


def _repeated(what: Callable[[], object], over: threading.Event) -> threading.Thread:
    def run() -> None:
        while not over.wait(EVERY):
            what()

    return threading.Thread(target=run)


def _first(times: list[float], after: float) -> float:
    return min((at for at in times if at > after), default=after - 1) - after


if __name__ == "__main__":
    main()
