"""Faults of the servers, of connections to them, and of what other programs do in the database.

- The server has no connections left, restarts, crashes, and its disk is full.
- The primary ends for good and a replica takes its place. With a synchronous replica no commit that a program was told of is lost.
  Where commits wait for no replica, the last ones are lost with the primary: the run cuts the replica off for a moment so that it
  happens, and counts what was lost.
- Connections are cut, refused, slow or silent: the proxy between the processes and the servers does it.
- Other programs hold locks and snapshots, maintain tables, and set the role's timeouts.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import LiteralString

import psycopg

from pgqueue.chaos.cluster import ROLE
from pgqueue.chaos.stage import ChaosStage
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.errors import ConnectionFailed, PgQueueError

DELAY = 0.05
END_BACKENDS: LiteralString = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and usename = current_user and application_name = %s and pid <> pg_backend_pid()"""
APPLICATION = "pgqueue_chaos"
"""The application name of the run's processes: no other program's backends are ended."""
TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
SHORT = "50ms"
ROWS: LiteralString = f"select from {SCHEMA}.jobs order by id limit 500 for update"
TABLES = ("jobs", "workers", "job_history_default", "dead_jobs", "nodes", "edges", "notes")


@contextmanager
def connections(stage: ChaosStage) -> Iterator[None]:
    """Take all connections that the server gives to programs, the workers' too."""
    with ExitStack() as taken:
        stage.proxy.cut()
        try:
            while True:
                taken.enter_context(stage.connection())
        except (ConnectionFailed, psycopg.OperationalError):
            yield


@contextmanager
def restart_fast(stage: ChaosStage) -> Iterator[None]:
    """Restart the server as an administrator does."""
    stage.own.restart(signal.SIGINT)
    yield


@contextmanager
def restart_immediate(stage: ChaosStage) -> Iterator[None]:
    """Let the server crash, and come back."""
    with stage.crashing():
        stage.own.restart(signal.SIGQUIT)
    yield


@contextmanager
def disk_full(stage: ChaosStage) -> Iterator[None]:
    """Leave the server no room on its disk. It may crash of it; then it comes back when there is room."""
    with stage.crashing():
        stage.own.fill_disk()
        try:
            yield
        finally:
            stage.own.free_disk()
            stage.own.revive()


@contextmanager
def failover(stage: ChaosStage) -> Iterator[None]:
    """Lose the primary, and nothing else; afterwards a new replica follows the new primary."""
    with stage.crashing():
        stage.own.fail_over()
    yield


@contextmanager
def failover_async(stage: ChaosStage) -> Iterator[None]:
    """Lose the primary, and what it has committed since its replica was cut off."""
    own = stage.own
    began = time.monotonic()
    with stage.crashing():
        own.let_commits_go()
        own.cut_off_replica()
        try:
            yield
        finally:
            own.fail_over()
            stage.forgotten.append((began, time.monotonic()))


def follow(stage: ChaosStage) -> None:
    """Have the former primary follow the new one, from a fresh copy, and each commit wait for it."""
    stage.own.add_replica()


@contextmanager
def cut(stage: ChaosStage) -> Iterator[None]:
    """Cut all connections."""
    stage.proxy.cut()
    yield


@contextmanager
def refuse(stage: ChaosStage) -> Iterator[None]:
    """Cut all connections, and let none be made."""
    stage.proxy.refuse(refuses=True)
    stage.proxy.cut()
    try:
        yield
    finally:
        stage.proxy.refuse(refuses=False)


@contextmanager
def delay(stage: ChaosStage) -> Iterator[None]:
    """Make the network slow."""
    stage.proxy.delay(DELAY)
    try:
        yield
    finally:
        stage.proxy.delay(0.0)


@contextmanager
def silence(stage: ChaosStage) -> Iterator[None]:
    """Let connections go silent, as behind a firewall that has forgotten them."""
    stage.proxy.silence("requests", "answers")
    try:
        yield
    finally:
        stage.proxy.silence()


@contextmanager
def half(stage: ChaosStage) -> Iterator[None]:
    """Let requests arrive whose answers do not: what was asked is done, and no client is told."""
    stage.proxy.silence("answers")
    try:
        yield
    finally:
        stage.proxy.silence()


@contextmanager
def backends(stage: ChaosStage) -> Iterator[None]:
    """Have the server end the run's backends."""
    with suppress(psycopg.Error, PgQueueError), stage.connection_of_a_fault() as connection:
        connection.execute(END_BACKENDS, [APPLICATION])
    yield


@contextmanager
def table_lock(stage: ChaosStage) -> Iterator[None]:
    """Lock the table of jobs against all others, as a migration might."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute(f"lock table {SCHEMA}.jobs in access exclusive mode")
        yield


@contextmanager
def row_locks(stage: ChaosStage) -> Iterator[None]:
    """Lock the rows of jobs that are live now."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute(ROWS)
        yield


@contextmanager
def snapshot(stage: ChaosStage) -> Iterator[None]:
    """Hold a snapshot, as a long report or pg_dump does."""
    with stage.connection_of_a_fault() as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        connection.execute(f"select count(*) from {SCHEMA}.workers")
        yield


@contextmanager
def timeouts(stage: ChaosStage) -> Iterator[None]:
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


def vacuum_full(stage: ChaosStage) -> AbstractContextManager[None]:
    """Write the queue's tables anew."""
    return _maintained(stage, "vacuum full")


def reindex(stage: ChaosStage) -> AbstractContextManager[None]:
    """Write the indices of the queue's tables anew."""
    return _maintained(stage, "reindex table")


@contextmanager
def _maintained(stage: ChaosStage, verb: str) -> Iterator[None]:
    with stage.connection_of_a_fault() as connection:
        for table in TABLES:
            # A deadlock with a worker ends the statement, and is no fault of the queue.
            with suppress(psycopg.errors.DeadlockDetected):
                connection.execute(f"{verb} {SCHEMA}.{table}".encode())
    yield


def _set_role(stage: ChaosStage, setting: str) -> None:
    """Change the role's settings, and cut all connections, so that new ones have them."""
    with stage.own.admin() as connection:
        for name in TIMEOUTS:
            connection.execute(f"alter role {ROLE} {setting.format(name)}".encode())
    stage.proxy.cut()
