"""What the faults and the load share: the database, the way to it, the processes, and the clock of the run."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString, NamedTuple, TypeAlias
from uuid import UUID

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pgqueue.chaos.cluster import PostgresCluster
from pgqueue.chaos.fleet import Fleet, FleetProcess
from pgqueue.chaos.log import LogWatch
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
