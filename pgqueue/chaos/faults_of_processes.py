"""Faults of workers, and of the pooler before them.

Workers are killed, frozen, stopped, without threads, with a wrong clock. One works through PgBouncer in transaction mode, which is
killed and started again meanwhile.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqueue.chaos import tasks
from pgqueue.chaos.proxy import LOCAL, addresses_of
from pgqueue.chaos.stage import ChaosStage
from pgqueue.errors import PgQueueError

FAKETIME = ("libfaketimeMT.so.1", "libfaketime.so.1")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
HOG_SECONDS = 1.0
HOGS = 60
"""Jobs that hold a thread each; more than all workers have."""


PROGRAMS = ("pgbouncer", "/usr/sbin/pgbouncer")
CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} {password}
[pgbouncer]
listen_addr = {local}
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {folder}/log
"""
READY_WITHIN = 20.0
SECONDS = 1.5
"""For how long the worker works before PgBouncer is killed."""


@contextmanager
def kill(stage: ChaosStage) -> Iterator[None]:
    """Kill a worker in the middle of its work, and start another."""
    worker = stage.a_worker
    worker.signal(signal.SIGSTOP)  # what it holds is what it held when it died
    stage.remember_jobs_of(worker)
    stage.fleet.dismiss(worker, at_once=True)
    yield


@contextmanager
def freeze(stage: ChaosStage) -> Iterator[None]:
    """Stop a worker as a debugger or a suspended machine does; it goes on after its lease."""
    worker = stage.a_worker
    worker.signal(signal.SIGSTOP)
    stage.remember_jobs_of(worker)
    try:
        yield
    finally:
        worker.signal(signal.SIGCONT)


@contextmanager
def stop(stage: ChaosStage) -> Iterator[None]:
    """Tell a worker to stop, and start another."""
    stage.fleet.dismiss(stage.a_worker, at_once=False)
    yield


@contextmanager
def threads(stage: ChaosStage) -> Iterator[None]:
    """Enqueue jobs that hold a thread each."""
    with suppress(psycopg.Error, PgQueueError), stage.connection_of_a_fault() as connection:
        tasks.queue.enqueue_many([tasks.hog.call(HOG_SECONDS) for _ in range(HOGS)], connection=connection)
    yield


@contextmanager
def clock(stage: ChaosStage) -> Iterator[None]:
    """Have a further worker, whose clock is wrong, work beside the others."""
    offset = stage.chance.choice(("+1h", "-1h"))
    env = {"LD_PRELOAD": str(faketime()), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    worker = stage.fleet.worker(env=env | {"DONT_FAKE_MONOTONIC": "1"})
    try:
        yield
    finally:
        stage.fleet.stopped(worker)


@cache
def faketime() -> Path | None:
    """The library that misleads a process about the time, if it is installed."""
    for folder in LIBRARIES:
        for name in FAKETIME:
            for path in sorted(Path(folder).glob(f"**/faketime/{name}")):
                return path
    return None


@contextmanager
def pooler(stage: ChaosStage) -> Iterator[None]:
    """Start PgBouncer and a worker behind it; kill PgBouncer, and start it again on the same port."""
    with tempfile.TemporaryDirectory(prefix="pgqueue-chaos-", dir="/tmp") as folder:
        listen = _free_port()
        user = _configured_pooler(stage, Path(folder), listen)
        process = _started_pooler(Path(folder), listen, user)
        dsn = _through(stage.dsn, listen)
        worker = stage.fleet.worker("--behind-pooler", "--dsn", dsn, "--direct-dsn", stage.proxied)
        try:
            stage.hold(SECONDS)
            process.kill()
            process.wait()
            process = _started_pooler(Path(folder), listen, user)
            yield
        finally:
            stage.fleet.stopped(worker)
            process.kill()
            process.wait()


def pgbouncer() -> str | None:
    """PgBouncer, if it is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def _configured_pooler(stage: ChaosStage, folder: Path, listen: int) -> int | None:
    """Write the pooler's configuration; return the user to run it as, since it refuses to be root."""
    named = conninfo_to_dict(stage.dsn)
    own = stage.cluster
    (address,) = addresses_of(own.primary.dsn if own else stage.dsn)[:1]
    text = CONFIGURATION.format(
        host=address.host,
        port=address.port,
        user=named.get("user") or os.environ.get("PGUSER") or os.environ.get("USER", "postgres"),
        password=f"password={named['password']}" if named.get("password") else "",
        local=LOCAL,
        listen=listen,
        folder=folder,
    )
    (folder / "ini").write_text(text)
    if os.geteuid() != 0:
        return None
    user = (own.primary.identity.get("user") if own else None) or 65534  # nobody
    for path in (folder, folder / "ini"):
        os.chown(path, user, -1)
    return user


def _started_pooler(folder: Path, listen: int, user: int | None) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(  # noqa: S603 - our own words
        [str(pgbouncer()), "-q", str(folder / "ini")], cwd="/", user=user, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((LOCAL, listen), timeout=1.0):
            return process
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise PgQueueError("pgbouncer does not start; leave out the fault pooler")


def _through(dsn: str, listen: int) -> str:
    named = conninfo_to_dict(dsn)
    for name in ("hostaddr", "target_session_attrs"):
        named.pop(name, None)
    return make_conninfo("", **{**named, "host": LOCAL, "port": str(listen), "sslmode": "disable"})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        return int(probe.getsockname()[1])
