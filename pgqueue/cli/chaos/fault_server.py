"""Faults of the server: it has no connections left, restarts, crashes, and its disk is full."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from pgqueue.cli.chaos.stage import Stage
from pgqueue.errors import ConnectionFailed


@contextmanager
def connections(stage: Stage) -> Iterator[None]:
    """Take all connections that the server gives to programs, the workers' too."""
    with ExitStack() as taken:
        stage.proxy.cut()
        try:
            while True:
                taken.enter_context(stage.connection())
        except (ConnectionFailed, psycopg.OperationalError):
            yield


@contextmanager
def restart_fast(stage: Stage) -> Iterator[None]:
    """Restart the server as an administrator does."""
    stage.own.restart(signal.SIGINT)
    yield


@contextmanager
def restart_immediate(stage: Stage) -> Iterator[None]:
    """Let the server crash, and come back."""
    with stage.crashing():
        stage.own.restart(signal.SIGQUIT)
    yield


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """Leave the server no room on its disk. It may crash of it; then it comes back when there is room."""
    with stage.crashing():
        stage.own.fill_disk()
        try:
            yield
        finally:
            stage.own.free_disk()
            stage.own.revive()
