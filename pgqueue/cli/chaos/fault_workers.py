"""Faults of workers: killed, frozen, stopped, without threads, with a wrong clock."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg

from pgqueue.cli.chaos import tasks
from pgqueue.cli.chaos.stage import Stage
from pgqueue.errors import PgQueueError

FAKETIME = ("libfaketimeMT.so.1", "libfaketime.so.1")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
HOG_SECONDS = 1.0
HOGS = 60
"""Jobs that hold a thread each; more than all workers have."""


@contextmanager
def kill(stage: Stage) -> Iterator[None]:
    """Kill a worker in the middle of its work, and start another."""
    worker = stage.a_worker
    worker.signal(signal.SIGSTOP)  # what it holds is what it held when it died
    stage.remember_jobs_of(worker)
    stage.fleet.dismiss(worker, at_once=True)
    yield


@contextmanager
def freeze(stage: Stage) -> Iterator[None]:
    """Stop a worker as a debugger or a suspended machine does; it goes on after its lease."""
    worker = stage.a_worker
    worker.signal(signal.SIGSTOP)
    stage.remember_jobs_of(worker)
    try:
        yield
    finally:
        worker.signal(signal.SIGCONT)


@contextmanager
def stop(stage: Stage) -> Iterator[None]:
    """Tell a worker to stop, and start another."""
    stage.fleet.dismiss(stage.a_worker, at_once=False)
    yield


@contextmanager
def threads(stage: Stage) -> Iterator[None]:
    """Enqueue jobs that hold a thread each."""
    with suppress(psycopg.Error, PgQueueError), stage.connection_of_a_fault() as connection:
        tasks.queue.enqueue_many([tasks.hog.call(HOG_SECONDS) for _ in range(HOGS)], connection=connection)
    yield


@contextmanager
def clock(stage: Stage) -> Iterator[None]:
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
