"""What the faults and the load share: the database, the way to it, the processes, and the clock of the run.

Worker processes are started with the command line as a user does, and killed, frozen, stopped and replaced.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, NamedTuple, Self, TypeAlias
from uuid import UUID

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pgqueue.chaos.cluster import PostgresCluster
from pgqueue.chaos.log import FOLDER, WORKER, LogWatch, path_of
from pgqueue.chaos.proxy import Proxy
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.errors import ConnectionFailed, PgQueueError
from pgqueue.store.connections.database import Database

Connection: TypeAlias = psycopg.Connection[Any]
HELD: LiteralString = f"""
select array_agg(job.id), worker.id
from {SCHEMA}.workers as worker join {SCHEMA}.jobs as job on job.worker_id = worker.id and job.status = 'running'
where worker.pid = %s group by worker.id"""
STILL_HELD: LiteralString = f"""
select count(*) from {SCHEMA}.jobs where id = any(%s) and worker_id = %s and status = 'running'"""
LOOK_EVERY = 0.1
CONNECTS_WITHIN = 30.0
"""Seconds in which a fault has to get a connection; later the run ends with an error."""

APP = "pgqueue.chaos.tasks:queue"
NOT_FOR_CHILDREN = frozenset(
    {"PGQUEUE_APP", "PGQUEUE_DSN", "PGQUEUE_DIRECT_DSN", "DATABASE_URL", "PGOPTIONS"}
)
GRACE = 3.0
"""Seconds that a worker which stops gives its running jobs."""
ENDS_WITHIN = 30.0
LAST_LINES = 12
MOST_REMEMBERED = 64
"""Processes, ended ones among them, after which the ended ones are forgotten."""
NO_ENV: Mapping[str, str] = {}


class FleetProcess:
    """A process of the run."""

    def __init__(self, popen: "subprocess.Popen[bytes]", output: Path) -> None:
        self._popen = popen
        self._output = output
        self.pid = popen.pid

    @property
    def status(self) -> int | None:
        """How it ended; None: it runs."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def end(self, *, at_once: bool = False) -> int:
        """End it, gracefully or with SIGKILL; how it ended. One that does not end in time is killed."""
        self._popen.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        self._popen.send_signal(signal.SIGCONT)
        try:
            return self._popen.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def last_words(self) -> str:
        """The last lines of its output."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


class ProcessEnd(NamedTuple):
    """When a process was gone, in seconds of the monotonic clock, and whether it had returned its jobs."""

    at: float
    returned: bool


class Fleet:
    """All processes of a run; leaving the block ends them.

    Attributes:
        workers: those that work now and are not part of a fault.
        left: when processes were gone, in seconds of the monotonic clock; and whether they were told to stop.
        surprises: what is to be told of workers that ended by themselves, or did not stop when asked.
    """

    def __init__(self, dsn: str, folder: Path, words: Sequence[str]) -> None:
        """``dsn`` leads to the database through the proxy."""
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN}
        self._env = {**kept, "PGQUEUE_DSN": dsn, FOLDER: str(folder)}
        self._folder = folder
        self._words = words
        self._children: list[FleetProcess] = []
        self._started = 0
        self.workers: list[FleetProcess] = []
        self.left: dict[int, ProcessEnd] = {}
        self.surprises: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for child in self._children:
            if child.status is None:
                child.signal(signal.SIGTERM if error is None else signal.SIGKILL)
                child.signal(signal.SIGCONT)
        for child in self._children:
            if child.status is None:
                child.end(at_once=error is not None)

    def worker(self, *words: str, env: Mapping[str, str] = NO_ENV) -> FleetProcess:
        """Start a worker that is not one of :attr:`workers`.

        Args:
            words: further options.
            env: further settings of its environment.
        """
        command = ["-m", "pgqueue", "--app", APP, "worker", "--no-log-jobs", "--supervisor", str(os.getpid())]
        return self.run([*command, *self._words, *words], env=env)

    def hire(self, count: int = 1) -> None:
        """Start workers."""
        self.workers += [self.worker() for _ in range(count)]

    def dismiss(self, worker: FleetProcess, *, at_once: bool) -> None:
        """End a worker, and start another in its place."""
        self.workers.remove(worker)
        self.stopped(worker, at_once=at_once)
        self.hire()

    def stopped(self, worker: FleetProcess, *, at_once: bool = False) -> None:
        """End a worker, and remember if it did not stop as it should."""
        status = worker.end(at_once=at_once)
        self.left[worker.pid] = ProcessEnd(time.monotonic(), returned=not at_once and not status)
        if not at_once and status and self._has_worked(worker):
            self.surprises.append(
                f"a worker that was told to stop ended with status {status}: {worker.last_words()}"
            )

    def replace_ended(self) -> None:
        """Start a worker for each that ended by itself. None should, but one that did not reach the database at its start."""
        for worker in [one for one in self.workers if one.status is not None]:
            self.workers.remove(worker)
            self.left[worker.pid] = ProcessEnd(time.monotonic(), returned=False)
            if self._has_worked(worker):
                self.surprises.append(
                    f"a worker ended by itself with status {worker.status}: {worker.last_words()}"
                )
            self.hire()

    def _has_worked(self, worker: FleetProcess) -> bool:
        """Whether the worker has claimed a job: its log begins with that.

        A worker that never starts shows as work that does not go on.
        """
        return path_of(self._folder, WORKER, worker.pid).exists()

    def run(self, words: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> FleetProcess:
        """Start a Python process; Ctrl-C does not reach it."""
        output = self._folder / f"output-{self._started:05}.log"
        with output.open("wb") as file:
            popen = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, *words],
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,
            )
        self._started += 1
        child = FleetProcess(popen, output)
        self._children.append(child)
        if len(self._children) > MOST_REMEMBERED:
            self._children = [one for one in self._children if one.status is None]
        return child


class HeldJobs(NamedTuple):
    """Jobs that a worker held when it was lost."""

    jobs: list[int]
    worker: UUID


@dataclass
class ChaosStage:
    """What a fault may use.

    Attributes:
        dsn: of the database itself.
        proxied: of the database by way of the proxy; all other processes use this one.
        fleet: the processes.
        watch: what they do.
        proxy: between them and the servers.
        folder: of the logs.
        lease: of the workers, in seconds.
        sweep: how often they look for lost workers, in seconds.
        concurrency: of each worker.
        chance: choices that can be repeated.
        cluster: the servers, if they are the run's own.
        lost: jobs that lost workers held, whose takeover is waited for.
        crashes: spans of the monotonic clock in which a server may have crashed: it may have forgotten the claims just before.
        faults: spans of the monotonic clock in which an answer may not have reached a worker: of each fault, and a lease more.
        taken_over_at: when the last of them was, as far as was looked.
        forgotten: spans of the monotonic clock in which commits may have been lost, since no replica had to have them.
    """

    dsn: str
    proxied: str
    fleet: Fleet
    watch: LogWatch
    proxy: Proxy
    folder: Path
    lease: float
    sweep: float
    concurrency: int
    chance: random.Random
    cluster: PostgresCluster | None = None
    lost: list[HeldJobs] = field(default_factory=list)
    forgotten: list[tuple[float, float]] = field(default_factory=list)
    crashes: list[tuple[float, float]] = field(default_factory=list)
    faults: list[tuple[float, float]] = field(default_factory=list)
    taken_over_at: float = 0.0

    @property
    def own(self) -> PostgresCluster:
        """The servers of the run's own.

        Raises:
            PgQueueError: the database is the user's.
        """
        if self.cluster is None:
            raise PgQueueError("this fault needs servers of the run's own: give no --dsn")
        return self.cluster

    @property
    def a_worker(self) -> FleetProcess:
        """One of the workers."""
        return self.chance.choice(self.fleet.workers)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection to the database itself, past the proxy."""
        with Database(self.dsn, schema=SCHEMA).connect() as connection:
            yield connection

    @contextmanager
    def connection_of_a_fault(self) -> Iterator[Connection]:
        """The same for a fault: it waits while the workers have all connections that the server gives."""
        wait = Retrying(
            retry=retry_if_exception_type(ConnectionFailed),
            wait=wait_fixed(LOOK_EVERY),
            stop=stop_after_delay(CONNECTS_WITHIN),
            reraise=True,
        )
        with ExitStack() as opened:
            yield wait(lambda: opened.enter_context(self.connection()))

    def remember_jobs_of(self, worker: FleetProcess) -> None:
        """Have the recovery wait until no job is held any longer by a worker that is lost now."""
        with suppress(psycopg.Error, PgQueueError), self.connection() as connection:
            self.lost += [HeldJobs(*row) for row in connection.execute(HELD, [worker.pid])]

    def taken_over(self, *, within: float) -> bool:
        """Wait until other workers have taken over the jobs of lost ones; False: they have not in time."""
        deadline = time.monotonic() + within
        while self.lost and time.monotonic() < deadline:
            self.watch.look()
            with suppress(psycopg.Error, PgQueueError), self.connection() as connection:
                while self.lost and not _holds(connection, self.lost[0]):
                    self.lost.pop(0)
                    self.taken_over_at = time.monotonic()
            if self.lost:
                time.sleep(LOOK_EVERY)
        return not self.lost

    @contextmanager
    def crashing(self) -> Iterator[None]:
        """A block in which the server crashes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.crashes.append((began, time.monotonic()))

    def hold(self, seconds: float) -> None:
        """Let the fault last."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.watch.look()
            time.sleep(min(LOOK_EVERY, left))


def _holds(connection: Connection, held: HeldJobs) -> bool:
    (count,) = connection.execute(STILL_HELD, [held.jobs, held.worker]).fetchone() or (0,)
    return bool(count)
