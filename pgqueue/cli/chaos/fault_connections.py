"""Faults of connections, made by the proxy between the processes and the servers, or by the server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import LiteralString

import psycopg

from pgqueue.cli.chaos.stage import Stage
from pgqueue.errors import PgQueueError

DELAY = 0.05
END_BACKENDS: LiteralString = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and usename = current_user and application_name = %s and pid <> pg_backend_pid()"""
APPLICATION = "pgqueue_chaos"
"""The application name of the run's processes: no other program's backends are ended."""


@contextmanager
def cut(stage: Stage) -> Iterator[None]:
    """Cut all connections."""
    stage.proxy.cut()
    yield


@contextmanager
def refuse(stage: Stage) -> Iterator[None]:
    """Cut all connections, and let none be made."""
    stage.proxy.refuse(refuses=True)
    stage.proxy.cut()
    try:
        yield
    finally:
        stage.proxy.refuse(refuses=False)


@contextmanager
def delay(stage: Stage) -> Iterator[None]:
    """Make the network slow."""
    stage.proxy.delay(DELAY)
    try:
        yield
    finally:
        stage.proxy.delay(0.0)


@contextmanager
def silence(stage: Stage) -> Iterator[None]:
    """Let connections go silent, as behind a firewall that has forgotten them."""
    stage.proxy.silence("requests", "answers")
    try:
        yield
    finally:
        stage.proxy.silence()


@contextmanager
def half(stage: Stage) -> Iterator[None]:
    """Let requests arrive whose answers do not: what was asked is done, and no client is told."""
    stage.proxy.silence("answers")
    try:
        yield
    finally:
        stage.proxy.silence()


@contextmanager
def backends(stage: Stage) -> Iterator[None]:
    """Have the server end the run's backends."""
    with suppress(psycopg.Error, PgQueueError), stage.connection_of_a_fault() as connection:
        connection.execute(END_BACKENDS, [APPLICATION])
    yield
