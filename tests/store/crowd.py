"""Many who ask at the same moment, a connection each."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any, TypeAlias, TypeVar

import psycopg

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.plan import Plan, run

T = TypeVar("T")
Deed: TypeAlias = Callable[[psycopg.Connection[Any]], T]


def ask(connection: psycopg.Connection[Any], plan: Plan[T]) -> T:
    """Run a plan on a connection, in its transaction if it has one."""
    return run(plan, StepRunner(connection, catalogue_of("pgqueue")))


def asking(plan: Plan[T]) -> Deed[T]:
    """The deed of running a plan in a transaction."""

    def deed(connection: psycopg.Connection[Any]) -> T:
        with connection.transaction():
            return ask(connection, plan)

    return deed


def at_once(dsn: str, *deeds: Deed[T]) -> list[T]:
    """Do each on a connection and in a thread of its own, all begun at the same moment."""
    barrier = Barrier(len(deeds))

    def begin(deed: Deed[T], connection: psycopg.Connection[Any]) -> T:
        barrier.wait(timeout=30)
        return deed(connection)

    with ExitStack() as opened, ThreadPoolExecutor(len(deeds)) as threads:
        connections = [opened.enter_context(psycopg.connect(dsn)) for _ in deeds]
        return list(threads.map(begin, deeds, connections))


def until_statements_wait(dsn: str, *, count: int = 1, unless: Callable[[], bool] = lambda: False) -> None:
    """Return when ``count`` statements wait for a lock, or when there is no need to wait for that any more."""
    waiting = "select count(*) from pg_locks where not granted"
    with psycopg.connect(dsn, autocommit=True) as watcher:
        while not unless() and ((row := watcher.execute(waiting).fetchone()) is None or row[0] < count):
            pass
