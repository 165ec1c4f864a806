"""Faults that other programs of the database make: locks, snapshots, maintenance, and settings of the role."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg

from pgqueue.cli.chaos.cluster import ROLE
from pgqueue.cli.chaos.stage import Stage
from pgqueue.cli.chaos.tasks import SCHEMA

TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
SHORT = "50ms"
ROWS: LiteralString = f"select from {SCHEMA}.jobs order by id limit 500 for update"
TABLES = ("jobs", "workers", "job_history_default", "dead_jobs", "nodes", "edges", "notes")


@contextmanager
def table_lock(stage: Stage) -> Iterator[None]:
    """Lock the table of jobs against all others, as a migration might."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute(f"lock table {SCHEMA}.jobs in access exclusive mode")
        yield


@contextmanager
def row_locks(stage: Stage) -> Iterator[None]:
    """Lock the rows of jobs that are live now."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute(ROWS)
        yield


@contextmanager
def snapshot(stage: Stage) -> Iterator[None]:
    """Hold a snapshot, as a long report or pg_dump does."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        connection.execute(f"select count(*) from {SCHEMA}.workers")
        yield


@contextmanager
def timeouts(stage: Stage) -> Iterator[None]:
    """Have the settings of the role end what takes longer than 50 ms: all processes' own, or a further worker's."""
    if stage.cluster is None:  # other programs use the role, too
        options = " ".join(f"-c {name}={SHORT}" for name in TIMEOUTS)
        worker = stage.fleet.worker(env={"PGOPTIONS": options})
        try:
            yield
        finally:
            stage.fleet.stopped(worker)
        return
    _set_role(stage, f"set {{}} = '{SHORT}'")
    try:
        yield
    finally:
        _set_role(stage, "reset {}")


@contextmanager
def vacuum_full(stage: Stage) -> Iterator[None]:
    """Write the queue's tables anew."""
    with stage.connection_of_a_fault() as connection:
        for table in TABLES:
            _maintain(connection, f"vacuum full {SCHEMA}.{table}")
    yield


@contextmanager
def reindex(stage: Stage) -> Iterator[None]:
    """Write the indices of the queue's tables anew."""
    with stage.connection_of_a_fault() as connection:
        for table in TABLES:
            _maintain(connection, f"reindex table {SCHEMA}.{table}")
    yield


def _maintain(connection: "psycopg.Connection[object]", statement: str) -> None:
    """Run it; a deadlock with a worker is its own end, not the queue's."""
    try:
        connection.execute(statement.encode())
    except psycopg.errors.DeadlockDetected:
        connection.execute(b"select 1")


def _set_role(stage: Stage, setting: str) -> None:
    """Change the role, and have all connections begin again."""
    with stage.own.admin() as connection:
        for name in TIMEOUTS:
            connection.execute(f"alter role {ROLE} {setting.format(name)}".encode())
    stage.proxy.cut()
