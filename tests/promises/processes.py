"""Real processes of the workshop, which a test may stop, resume and kill; and questions to the database."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString, TypeVar
from uuid import UUID, uuid4

import psycopg
from looking import ask
from programs import Program
from promises.workshop import TABLES

from pgqueue import PgQueue
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import claim
from pgqueue.store.plan import Plan, run
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import Claim

T = TypeVar("T")
TESTS = Path(__file__).parents[1]
START = "import sys; from promises import workshop; getattr(workshop, sys.argv[1])(*sys.argv[2:])"
LEASE = timedelta(seconds=30)
LONG_LEASE = 600.0
GUARD = 30  # seconds after which something that should have happened never will


class Process:
    """A running process of the workshop."""

    def __init__(self, verb: str, dsn: str, **options: object) -> None:
        paths = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
        self._log = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._popen = Program(
            ["-W", "error", "-c", START, verb, dsn, json.dumps(options)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.pid = self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End it without a word."""
        self._popen.kill()
        self._popen.wait(GUARD)

    def ended(self) -> int:
        """Wait for its end; how it ended."""
        return self._popen.wait(GUARD)

    def said(self) -> str:
        """Wait for its end; what it printed."""
        answer, _ = self._popen.communicate(timeout=GUARD)
        assert self._popen.returncode == 0, self.log()
        return answer

    def log(self) -> str:
        """What it has logged so far."""
        return Path(self._log.name).read_text(encoding="utf-8")

    def close(self) -> None:
        self.kill()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._log.close()


Start = Callable[..., Process]


@contextmanager
def processes(dsn: str) -> Iterator[Start]:
    """Start workers with ``start(lease=…, concurrency=…, grace=…)``; all are gone at the end of the block."""
    ask(dsn, TABLES)
    started: list[Process] = []

    def start(verb: str = "work", **options: object) -> Process:
        if verb == "work":
            options = {"concurrency": 4, "lease": LONG_LEASE, "grace": 30.0} | options
        started.append(Process(verb, dsn, **options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.close()


@contextmanager
def closed_gate(dsn: str) -> Iterator[Callable[[], object]]:
    """Tasks, and the inserts of :func:`gate_inserts`, wait until ``open_gate()`` or the end of the block."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(1)")
        yield lambda: connection.execute("select pg_advisory_unlock_all()")


def gate_inserts(dsn: str, moment: LiteralString, table: LiteralString) -> None:
    """Have each insert into a table wait at the gate, ``before`` or ``after`` its rows are written."""
    ask(
        dsn,
        f"""
        create function wait_at_the_gate() returns trigger language plpgsql as $$
        begin
            perform pg_advisory_xact_lock_shared(1);
            return null;
        end $$;
        create trigger wait_at_the_gate {moment} insert on {table} for each statement execute function wait_at_the_gate();
        """,
    )


def at_the_gate(dsn: str) -> list[int]:
    """The backends that wait at the gate."""
    statement: LiteralString = (
        "select pid from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"
    )
    return [pid for (pid,) in ask(dsn, statement)]


def live_jobs(dsn: str) -> int:
    """How many jobs have not ended."""
    count: int = ask(dsn, "select count(*) from pgqueue.jobs")[0][0]
    return count


def held_by(dsn: str, pid: int) -> int:
    """How many jobs are in the name of a process."""
    count: int = ask(
        dsn,
        "select count(*) from pgqueue.jobs join pgqueue.workers on workers.id = worker_id where pid = %s",
        pid,
    )[0][0]
    return count


def calls_of(dsn: str, pid: int) -> int:
    """How many jobs a process holds whose attempt has left its mark: they are inside a call."""
    count: int = ask(
        dsn,
        """select count(*) from marks
           join pgqueue.jobs on jobs.id = job and attempts = attempt
           join pgqueue.workers on workers.id = worker_id where pid = %s""",
        pid,
    )[0][0]
    return count


def database_clock(dsn: str) -> datetime:
    now: datetime = ask(dsn, "select clock_timestamp()")[0][0]
    return now


def waiting_for_locks(dsn: str) -> list[int]:
    """The backends that wait for a row or a transaction of another backend."""
    statement: LiteralString = """
        select pid from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and wait_event <> 'advisory'"""
    return [pid for (pid,) in ask(dsn, statement)]


def do(queue: PgQueue, plan: Plan[T]) -> T:
    """Run a plan of the store, committed at once."""
    return queue.database.run(plan)


def run_on(connection: psycopg.Connection[Any], plan: Plan[T]) -> T:
    """Run a plan of the store on this connection, in its transaction."""
    return run(plan, StepRunner(connection, catalogue_of("pgqueue")))


def listed(queue: PgQueue, lease: timedelta = LEASE, *, now: datetime | None = None) -> UUID:
    """A worker that is on the list and does nothing by itself."""
    worker = leases.WorkerInfo(uuid4(), "test", 1, 1, "0", None)
    do(queue, leases.register(worker, lease, now=now))
    return worker.id


def claimed(queue: PgQueue, worker: UUID) -> Claim:
    """The one ready job, claimed by this worker."""
    (one,) = do(queue, claim.claim(worker, {"default": 2}))
    return one
