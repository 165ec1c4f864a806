"""The demo's app, its place in a database, and its worker processes.

The app is written like a user's: a queue, a task, and a table that the task writes to. Workers load it with
``--app pgqueue.cli.demo_stage:queue``.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from tenacity import stop_after_attempt, wait_fixed

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.bench.own_schema import own_schema
from pgqueue.cli.demo_verdict import TRAP_ATTEMPTS, WORKER_LOST, DemoFile, Measure, Record, measure_file
from pgqueue.errors import PgQueueError
from pgqueue.store.connections.database import Database
from pgqueue.store.plan import Row
from pgqueue.store.schema import schema
from pgqueue.values.jobs.job import AttemptError
from pgqueue.values.jobs.retry import Retry

SCHEMA = "pgqueue_demo"

queue = PgQueue(schema=SCHEMA)
Connection: TypeAlias = psycopg.Connection[Any]

COMMAND = "pgqueue demo"
FILES = f"""
create table {SCHEMA}.files (
    job_id bigint primary key,
    path   text not null,
    times  integer not null default 0,
    sha256 text,
    bytes  bigint,
    lines  bigint
)"""
PROGRESS = f"""
select count(*) filter (where state in ('succeeded', 'dead', 'cancelled')), count(*),
       count(*) filter (where state = 'running'), count(*) filter (where state = 'dead'),
       count(*) filter (where errors @> '[{{"type": "{WORKER_LOST}"}}]'),
       count(*) filter (where state = 'running'
                          and worker_id in (select id from {SCHEMA}.workers where lease_until > now()))
from {SCHEMA}.all_jobs"""
RECORDS = f"""
select file.path, array_remove(array_agg(job.state), null), file.times, file.sha256, file.bytes, file.lines,
       (array_agg(job.errors))[1], coalesce(max(job.max_attempts), 0)
from {SCHEMA}.files as file left join {SCHEMA}.all_jobs as job on job.id = file.job_id
group by file.job_id
order by file.job_id"""
SECONDS = f"select extract(epoch from max(ended_at) - min(started_at))::float8 from {SCHEMA}.all_jobs"
HELD = f"select count(*) from {SCHEMA}.jobs where status = 'running' and worker_id = %s"
HOLDER = f"""
select worker.pid, worker.id
from {SCHEMA}.jobs as job join {SCHEMA}.workers as worker on worker.id = job.worker_id
where job.id = %(job)s
  and exists (select from pg_stat_activity where wait_event_type = 'Lock' and %(gate)s = any(pg_blocking_pids(pid)))"""
WORKER = (sys.executable, "-m", "pgqueue", "--app", "pgqueue.cli.demo_stage:queue", "worker")
SETTINGS = ("--concurrency", "4", "--lease", "2", "--sweep", "1")
NOT_FOR_WORKERS = frozenset({"PGQUEUE_APP", "PGQUEUE_DIRECT_DSN", "PGQUEUE_REPLICA_DSN", "DATABASE_URL"})
GRACE = 10.0
LAST_LINES = 15


@queue.task(name="measure", retry=Retry(wait=wait_fixed(0.5), stop=stop_after_attempt(5)))
def measure(ctx: Context, path: str) -> None:
    """Hash and measure a file. The result and the job's completion commit in one transaction."""
    found = measure_file(Path(path))
    with ctx.transaction() as connection:
        connection.execute(
            f"update {SCHEMA}.files set sha256 = %s, bytes = %s, lines = %s, times = times + 1 where job_id = %s",
            [found.sha256, found.bytes, found.lines, ctx.job.id],
        )


class DemoProgress(NamedTuple):
    """The numbers of jobs by state.

    Attributes:
        ended: succeeded, dead or cancelled.
        jobs: all jobs.
        running: claimed by a worker, lost or alive.
        dead: in the dead table.
        reclaimed: reclaimed from a lost worker.
        with_live_worker: running with a worker whose lease has not passed.
    """

    ended: int
    jobs: int
    running: int
    dead: int
    reclaimed: int
    with_live_worker: int


class JobHolder(NamedTuple):
    """The worker that holds a job."""

    pid: int
    id: UUID


@contextmanager
def stage(dsn: str) -> Iterator[Connection]:
    """Make the demo's schema, and drop it at the end.

    Args:
        dsn: the database.

    Yields:
        A connection in autocommit mode.

    Raises:
        ConfigurationError: the schema is not the demo's, or another demo runs, or this user may not make it.
        ConnectionFailed: no connection could be made.
    """
    database = Database(dsn, schema=SCHEMA)
    with own_schema(database, COMMAND):
        schema.migrate(database.dsn, schema=SCHEMA)
        with database.connect() as connection:
            connection.execute(FILES)
            yield connection


def enqueue(connection: Connection, files: Sequence[DemoFile]) -> list[int]:
    """Add a row and a job for each file, in the connection's transaction.

    Returns:
        The jobs' ids, in the order of the files.
    """
    calls = [
        (measure if file.stamp else measure.using(max_attempts=TRAP_ATTEMPTS)).call(str(file.path))
        for file in files
    ]
    handles = queue.enqueue_many(calls, connection=connection)
    with connection.cursor().copy(f"copy {SCHEMA}.files (job_id, path) from stdin") as rows:
        for handle, file in zip(handles, files, strict=True):
            rows.write_row((handle.id, str(file.path)))
    return [handle.id for handle in handles]


def progress(connection: Connection) -> DemoProgress:
    """The numbers of jobs by state now."""
    return DemoProgress(*connection.execute(PROGRESS).fetchone() or [0] * 6)


def count_held_jobs(connection: Connection, holder: JobHolder) -> int:
    """How many jobs a worker holds."""
    (count,) = connection.execute(HELD, [holder.id]).fetchone() or (0,)
    return int(count)


def records(connection: Connection) -> list[Record]:
    """The database's record of every file."""
    return [_record(row) for row in connection.execute(RECORDS)]


def seconds(connection: Connection) -> float:
    """How long the jobs took, from the start of the first to the end of the last."""
    (found,) = connection.execute(SECONDS).fetchone() or (None,)
    return found or 0.0


class Gate:
    """A lock on one file's row, held by a separate transaction, as another part of an app might hold it.

    The worker that runs this file's job hashes the file, begins its transaction and waits for the lock. So at that
    moment a worker is certainly in the middle of a job, on a machine of any speed and with any number of files.
    """

    def __init__(self, connection: Connection, job_id: int) -> None:
        self._pid = connection.info.backend_pid
        self._job_id = job_id

    def waiting(self, connection: Connection) -> JobHolder | None:
        """The worker that waits for the lock, if there is one yet; ``connection`` is another connection."""
        row = connection.execute(HOLDER, {"job": self._job_id, "gate": self._pid}).fetchone()
        return JobHolder(*row) if row else None


@contextmanager
def gate(dsn: str, job_id: int) -> Iterator[Gate]:
    """Lock a file's row for the length of the block."""
    with Database(dsn, schema=SCHEMA).connect() as connection, connection.transaction():
        connection.execute(f"select from {SCHEMA}.files where job_id = %s for update", [job_id])
        yield Gate(connection, job_id)


def _record(row: Row) -> Record:
    path, states, times, sha256, size, lines, errors, max_attempts = row
    found = None if sha256 is None else Measure(sha256, size, lines)
    told = msgspec.convert(errors or [], tuple[AttemptError, ...])
    return Record(path, tuple(states), times, found, told, max_attempts)


class WorkerFailed(PgQueueError):
    """A worker process ended, or did not stop.

    Attributes:
        log: the last lines of its log.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class WorkerProcesses:
    """Worker processes; leaving the block stops them all."""

    def __init__(self, dsn: str, folder: Path, command: Sequence[str] = ()) -> None:
        """``command`` starts a worker, in place of the demo's command."""
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_WORKERS}
        self._environment = {**kept, "PGQUEUE_DSN": dsn}
        self._folder = folder
        self._command = command or WORKER
        self._logs: dict[int, Path] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM if error is None else signal.SIGKILL)
        for process in self._running.values():
            _wait(process)
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        """The process ids of running workers."""
        return list(self._running)

    def start(self) -> int:
        """Start a worker.

        It has its own process group, so Ctrl-C reaches only the demo, which then stops the worker. The worker stops by
        itself when the demo is gone.

        Returns:
            Its process id.
        """
        path = self._folder / f"worker-{len(self._logs) + 1}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - a fixed command
                [*self._command, *SETTINGS, "--supervisor", str(os.getpid())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._logs[process.pid] = path
        self._running[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> None:
        """Kill a worker as a crash or the out-of-memory killer would, and wait until it is gone."""
        process = self._running.pop(pid)
        process.kill()
        process.wait()

    def check(self) -> None:
        """Check that all workers are alive.

        Raises:
            WorkerFailed: a worker has ended.
        """
        for pid, process in self._running.items():
            status = process.poll()
            if status is not None:
                raise WorkerFailed(f"worker {pid} ended by itself, with status {status}", self._tail(pid))

    def _tail(self, pid: int) -> str:
        lines = self._logs[pid].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
