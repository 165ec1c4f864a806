"""A worker's own connections: one plan at a time, with a deadline for each, opened again whenever one is lost.

This file decides by the error's class what is tried again: while the server is away, read-only, out of resources or
busy, the same statement may succeed later. The caller judges a refusal of the statement itself. A connection of which
the caller asks for it leaves locked rows to the caller, too.

A deadline cuts the connection instead of cancelling the plan: a server that answers nothing does not answer a
cancellation either.

What is logged of failures is decided in :mod:`pgqueue.worker.troubles`.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import psycopg
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential, wait_random

from pgqueue.errors import ConnectionFailed, SchemaMissing
from pgqueue.store.connections.answering import NoAnswer, cut_off, within
from pgqueue.store.connections.connection import OwnAsyncConnection
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import LEAST_PATIENCE, hosts_of
from pgqueue.store.connections.session import NO_SETTINGS, OWN, PLANNER, widen
from pgqueue.store.jobs.claim import LARGEST_ANSWER
from pgqueue.store.jobs.sweep import missed_partition
from pgqueue.store.plan import Plan, arun
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.troubles import KEEPS_CONNECTION, Troubles

T = TypeVar("T")
log = worker_log()

AWAY = (psycopg.OperationalError, psycopg.InterfaceError, ConnectionFailed, SchemaMissing)
"""Raised when a connection is lost, or when the tables are missing, for example while an operator makes them again."""
LATER = ("08", "25006", "25P03", "25P04", "40", "55", "57", "53", "58")
"""SQLSTATEs after which the same statement may succeed later: connection, read-only server, our transaction timed out,
serialization, object in use, operator intervention, out of resources, system error. Not so 54, a limit of the program:
a value that is too large stays too large."""
LONGEST_PAUSE = 2.0
"""Seconds between two tries: a worker works again within 3 s of the server's return."""
LONG_READ = 600.0
"""The deadline, in seconds, of a plan that reads the jobs from end to end (0.1 s for a million, when in memory)."""
UNCONFIRMED: Mapping[str, str] = {"synchronous_commit": "off"}
"""For claims. No program outside of the database is told of a claim, so it need not be on disk before the work begins.
A server that crashes within its wal_writer_delay may forget it: then the job is ready again, and its fence holds."""
LOCK_TIMEOUT: Mapping[str, str] = {"lock_timeout": "100ms"}
LOCKED = (psycopg.errors.LockNotAvailable,)
"""For verdicts: the completer is told of rows that another transaction has locked."""
SPARE = 1.0
"""Seconds that a new connection has, beside the time of each host."""


def passes(error: BaseException) -> bool:
    """Whether the same statement may succeed later."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(LATER) or missed_partition(error)
    return isinstance(error, AWAY)


class WorkerConnection:
    """Runs plans. While the database is away it tries again, with growing pauses.

    Attributes:
        name: for the log.
        losses: how many plans have been cut off. What each had asked for may have been done or not.
    """

    def __init__(
        self,
        name: str,
        database: Database,
        *,
        bound: float = 10.0,
        settings: Mapping[str, str] = NO_SETTINGS,
        told: tuple[type[Exception], ...] = (),
        reads: int = 0,
    ) -> None:
        """``bound``: the deadline of a plan, and of connecting, in seconds.

        ``settings`` are not made behind a transaction pooler.

        ``told``: errors that are raised to the caller, though the same statement may succeed later. ``reads``: how many bytes to
        read at once, where answers may be long; 0: as few as the driver does.
        """
        self.name = name
        self.losses = 0
        self._database = database
        self._bound = bound
        self._settings = {**OWN, **PLANNER, **settings}
        self._told = told
        self._reads = reads
        self._connection: OwnAsyncConnection | None = None
        self._lock = asyncio.Lock()
        self._runs = self._is_cut = False
        self._troubles = Troubles(name)

    async def run(
        self,
        plan: Plan[T],
        then: Callable[[T], object] | None = None,
        *,
        bound: float | None = None,
        told: tuple[type[Exception], ...] = (),
    ) -> T:
        """Run a plan until it has been run.

        The connection may be lost after the database did what it was asked, so a plan may run twice: every
        plan a worker sends can bear that.

        Args:
            plan: what to run; in one transaction, if it needs one.
            then: called with the result before another plan can run on this connection.
            bound: the deadline of each try in seconds; by default the connection's.
            told: errors that are raised to the caller, as those of the connection are.

        Returns:
            The plan's result.

        Raises:
            psycopg.Error: the database refused the statement itself, or the caller asked to be told of such errors.
        """
        try:
            return await self.once(plan, then, bound=bound)
        except (psycopg.Error, ConnectionFailed, SchemaMissing) as error:
            if not self._tries_again(error) or isinstance(error, told):
                raise
            self._troubles.failed(error)
        patient = AsyncRetrying(
            retry=retry_if_exception(lambda error: self._tries_again(error) and not isinstance(error, told)),
            wait=wait_exponential(multiplier=0.1, max=LONGEST_PAUSE) + wait_random(0, 0.1),
            before_sleep=self._log_retry,
            reraise=True,
        )
        try:
            result: T = await patient(self.once, plan, then, bound=bound)
        except BaseException:
            self._troubles.plan_given_up()
            raise
        self._troubles.plan_done()
        return result

    async def once(
        self,
        plan: Plan[T],
        then: Callable[[T], object] | None = None,
        *,
        bound: float | None = None,
    ) -> T:
        """Try a plan once; as for :meth:`run`, but every error is raised.

        Raises:
            NoAnswer: no answer came before the deadline, and the worker has closed the connection.
            psycopg.Error: the statement was refused, or the connection lost.
            ConnectionFailed: there is no connection to be had.
        """
        plan = self._database.bounded(plan, self._settings)
        async with self._lock:
            try:
                connection = self._connection or await self.connect()
                self._runs = True
                with within(self._bound if bound is None else bound, connection):
                    result = await arun(plan, connection.steps(self._database.catalogue))
            except BaseException as error:
                self.losses += 1
                if not (isinstance(error, psycopg.Error) and _keeps_connection(error)):
                    await self.close()
                if self._is_cut and isinstance(error, AWAY):
                    raise NoAnswer("the worker closed the connection, since a plan took too long") from error
                raise
            finally:
                self._runs = self._is_cut = False
            self._troubles.connection_works()
            if then is not None:
                then(result)
            return result

    def cut(self) -> None:
        """End the connection under the plan that runs now, if one does: :meth:`run` tries it again on a new one."""
        if self._runs and self._connection is not None:
            self._is_cut = True
            cut_off(self._connection)

    async def settled(self) -> None:
        """Wait until the plan that runs now has ended, and its caller knows its result."""
        async with self._lock:
            pass

    async def opened(self) -> OwnAsyncConnection:
        """The connection; it is opened, if it is not.

        Raises:
            ConnectionFailed: as for :meth:`connect`.
        """
        async with self._lock:
            return self._connection or await self.connect()

    async def connect(self) -> OwnAsyncConnection:
        """Open the connection.

        Raises:
            ConnectionFailed: it was refused, or not there before the deadline.
        """
        hosts = hosts_of(self._database.dsn)
        bound = self._bound if hosts == 1 else max(self._bound, hosts * LEAST_PATIENCE + SPARE)
        try:
            async with asyncio.timeout(bound):
                connection = self._connection = await self._database.aconnect(
                    settings=self._settings, within=bound
                )
                if self._reads:
                    await arun(widen(self._reads), connection.steps(self._database.catalogue))
        except TimeoutError as error:
            raise ConnectionFailed(f"no connection within {bound:g} s") from error
        return connection

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        """Use the connection in a block; it is closed outside of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    def _tries_again(self, error: BaseException) -> bool:
        return passes(error) and not isinstance(error, self._told)

    def _log_retry(self, state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            self._troubles.failed(error)


class Connections:
    """The connections of one worker, besides the one on which it listens.

    Attributes:
        users: those of the workers that run and share them.
    """

    claiming: WorkerConnection
    finishing: WorkerConnection
    upkeep: WorkerConnection
    progress: WorkerConnection

    def __init__(self, database: Database, *, lease: timedelta, shared: "Connections | None" = None) -> None:
        """``shared``: of another worker in the same event loop: all but those of the heartbeat's thread are used by both."""
        # A plan may take half of the lease, the renewal a quarter.
        bound = lease.total_seconds() / 2
        patient = {"lock_timeout": f"{max(1, min(600_000, int(bound * 500)))}ms"}
        own = partial(WorkerConnection, database=database, bound=bound)
        self.stand_in = own("finishes while blocked", settings=LOCK_TIMEOUT, told=LOCKED)
        self.heartbeat = own("heartbeat", settings=patient, bound=bound / 2)
        self._database = database
        self.users: set[Connections] = set() if shared is None else shared.users
        if shared is not None:
            self.claiming, self.finishing = shared.claiming, shared.finishing
            self.upkeep, self.progress = shared.upkeep, shared.progress
            return
        self.claiming = own("claims", settings={**patient, **UNCONFIRMED}, reads=LARGEST_ANSWER)
        self.finishing = own("finishes", settings=LOCK_TIMEOUT, told=LOCKED)
        self.upkeep = own("upkeep", settings=patient)
        self.progress = own("progress", settings=patient)

    def for_once(self, name: str) -> WorkerConnection:
        """One for a plan that may wait for a lock or read a table from end to end: no other plan must wait for it."""
        return WorkerConnection(name, self._database)

    def use(self) -> None:
        """A worker runs on them, until :meth:`close`."""
        self.users.add(self)

    async def close(self) -> None:
        """Close those of the worker's event loop, if no other worker shares them. The heartbeat closes its own."""
        self.users.discard(self)
        if self.users:
            return
        for connection in (self.claiming, self.finishing, self.upkeep, self.progress):
            await connection.close()


def _keeps_connection(error: psycopg.Error) -> bool:
    """Whether the connection can be used again: the server refused the statement, or asks to try again."""
    state = error.sqlstate
    return state is not None and (not state.startswith(LATER) or state.startswith(KEEPS_CONNECTION))
