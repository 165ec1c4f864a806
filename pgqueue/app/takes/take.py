"""Pull style: take jobs, hold them, settle them.

::

    with queue.take(10, queues=["mail"], timeout=5) as jobs:
        for job in jobs:
            send(job.args["to"])

A take is a worker while it lasts: it has a row, a lease and a heartbeat, and it promotes and reclaims while it
waits, so that a program that only takes needs no worker beside it.

This file waits: for jobs, and for the database, but never longer than :attr:`TakeBase.answer_within` for one answer. What
becomes of the jobs is decided in :mod:`pgqueue.app.takes.base`. If entering the block fails, the take requeues all that it
has claimed, and stops its heartbeat.
"""

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg.generators import fetch_many
from psycopg.pq import TransactionStatus

from pgqueue.app.logger import bounded_logger
from pgqueue.app.takes.base import TakeBase, TakeStep
from pgqueue.errors import ConnectionFailed, Duration, JobError, PgQueueError, as_delay
from pgqueue.store.connections.answering import within
from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.drive import adrive, drive
from pgqueue.store.jobs.sweep import (
    aagain_after_deadlock,
    again_after_deadlock,
)
from pgqueue.store.plan import Plan, arun, run
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import checked_report
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.values.payloads.storable import object_of

log = bounded_logger("pgqueue.take")


class Take(TakeBase):
    """``with queue.take(...) as jobs``."""

    _connection: OwnConnection

    def __enter__(self) -> "list[TakenJob]":
        """Wait for jobs; an empty list when the timeout passes first."""
        self.begin()
        self._one_at_a_time = threading.Lock()
        self._connection = self.database.connect(self.database.listen_dsn, settings=self.settings)
        try:
            if self.listening is not None:
                self._connection.execute(self.listening.encode())
            drive(self.wait_for_jobs(), self._do)
            jobs = [TakenJob(held, self.args[held.id], self) for held in self.held.values()]
            self.heartbeat.start()
            self.observers.started(list(self.held.values()))
        except BaseException:
            self._give_up()
            raise
        return jobs

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Complete what is left, or return it if the block raised."""
        try:
            if self.held and not self.forked:
                self.settle(self.ending(error))
        except (psycopg.Error, PgQueueError) as failure:
            if error is None:
                raise
            _log_failure(failure)  # what the block raised goes on
        finally:
            self._give_up()

    def settle(self, verdicts: list[Verdict]) -> None:
        """Record verdicts, and forget the claims.

        Raises:
            Superseded: the lease was lost.
            JobError: one of the jobs is settled already, or another process holds them.
        """
        self.let_go(verdicts)
        self.require_all(verdicts, again_after_deadlock(self._run)(self.recording(verdicts)))

    def _give_up(self) -> None:
        if self.forked:
            return
        try:
            self.heartbeat.stop()
            with suppress(psycopg.Error, PgQueueError):
                self._end_interrupted_statement()
                self._run(self.giving_up())
        finally:
            self._connection.close()

    def _end_interrupted_statement(self) -> None:
        """Where Ctrl-C came between a statement and its answer, wait for the answer, and go on with another connection.

        It may have claimed jobs, which are found only after it has ended.
        """
        server = self._connection.pgconn
        if self._connection.closed or server.transaction_status == TransactionStatus.IDLE:
            return
        with suppress(psycopg.Error), within(self.answer_within, self._connection):
            self._connection.wait(fetch_many(server))
        self._connection.close()

    def _do(self, step: TakeStep) -> object:
        if isinstance(step, Plan):
            return self._run(step)
        for _ in self._connection.notifies(timeout=step, stop_after=1):
            pass
        return None

    def _run(self, plan: Plan[Any]) -> Any:  # noqa: ANN401 - the plan's own result
        bounded = self.database.bounded(plan, self.settings)
        with self._one_at_a_time:  # the time that a plan waits for another is not the database's silence
            if self._connection.closed:
                self._connection = self.database.connect(settings=self.settings)
            try:
                with within(self.answer_within, self._connection):
                    return run(bounded, self._connection.steps(self.database.catalogue))
            except psycopg.OperationalError as error:
                raise _failure(self._connection, error) from error


class AsyncTake(TakeBase):
    """``async with queue.atake(...) as jobs``."""

    _connection: OwnAsyncConnection

    async def __aenter__(self) -> "list[TakenJob]":
        """Wait for jobs; an empty list when the timeout passes first."""
        self.begin()
        self._one_at_a_time = asyncio.Lock()
        self._connection = await self.database.aconnect(self.database.listen_dsn, settings=self.settings)
        try:
            if self.listening is not None:
                await self._connection.execute(self.listening.encode())
            await adrive(self.wait_for_jobs(), self._do)
            jobs = [TakenJob(held, self.args[held.id], self) for held in self.held.values()]
            self.heartbeat.start()
            self.observers.started(list(self.held.values()))
        except BaseException:
            await self._give_up()
            raise
        return jobs

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Complete what is left, or return it if the block raised."""
        try:
            if self.held and not self.forked:
                await self.asettle(self.ending(error))
        except (psycopg.Error, PgQueueError) as failure:
            if error is None:
                raise
            _log_failure(failure)  # what the block raised goes on
        finally:
            await self._give_up()

    async def asettle(self, verdicts: list[Verdict]) -> None:
        """As :meth:`Take.settle`, awaited."""
        self.let_go(verdicts)
        self.require_all(verdicts, await aagain_after_deadlock(self._run)(self.recording(verdicts)))

    async def _give_up(self) -> None:
        if self.forked:
            return
        try:
            self.heartbeat.stop()
            with suppress(psycopg.Error, PgQueueError):
                await self._run(self.giving_up())
        finally:
            await self._connection.close()

    async def _do(self, step: TakeStep) -> object:
        if isinstance(step, Plan):
            return await self._run(step)
        async for _ in self._connection.notifies(timeout=step, stop_after=1):
            pass
        return None

    async def _run(self, plan: Plan[Any]) -> Any:  # noqa: ANN401 - the plan's own result
        bounded = self.database.bounded(plan, self.settings)
        async with self._one_at_a_time:  # a wait for another plan is not the database's silence
            if self._connection.closed:
                self._connection = await self.database.aconnect(settings=self.settings)
            try:
                with within(self.answer_within, self._connection):
                    return await arun(bounded, self._connection.steps(self.database.catalogue))
            except psycopg.OperationalError as error:
                raise _failure(self._connection, error) from error


class TakenJob:
    """A job held by a take.

    Attributes:
        id: the job's id.
        task: the name it was enqueued under.
        queue: the queue it was taken from.
        args: its arguments by parameter name, as plain JSON values.
        attempt: which attempt this is, from 1.
        meta: what the enqueuer sent along with the job; empty: nothing.
        lost: whether the lease was lost, so that the job may run elsewhere.
        cancelled: whether a caller asked to cancel the job.
    """

    __slots__ = ("_claim", "_take", "args")

    def __init__(self, held: Claim, args: dict[str, Any], take: Take | AsyncTake) -> None:
        """Made by a take."""
        self._claim = held
        self._take = take
        self.args = args

    def __repr__(self) -> str:
        return f"<TakenJob {self.id} {self.task} attempt {self.attempt}{' lost' if self.lost else ''}>"

    @property
    def id(self) -> int:
        """The job's id."""
        return self._claim.id

    @property
    def task(self) -> str:
        """The name it was enqueued under."""
        return self._claim.task

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.attempt

    @property
    def meta(self) -> dict[str, Any]:
        """What the enqueuer sent along with the job; empty: nothing."""
        return {} if self._claim.meta is None else object_of(self._claim.meta)

    @property
    def lost(self) -> bool:
        """Whether the lease was lost, so that the job may run elsewhere; known at the heartbeat after it."""
        return self._take.lost

    @property
    def cancelled(self) -> bool:
        """Whether a caller asked to cancel the job; known within a second."""
        return self.id in self._take.cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the job is, as :meth:`pgqueue.Context.progress` does; the take's heartbeat writes it within a second.

        Args:
            done: how much is done.
            total: of how much; None: that is not known.
            message: for people; its first 500 characters are kept.

        Raises:
            InvalidOption: a number is negative, not finite or over 10^15; or a value is of another type.
        """
        self._take.board.put(self._claim, checked_report(done, total, message))

    def complete(self) -> None:
        """Record success now, ahead of the others.

        Raises:
            Superseded: the lease was lost; the job is another worker's.
            JobError: it is settled already, or the take is asynchronous.
        """
        self._blocking_take().settle([self._take.success(self._claim)])

    async def acomplete(self) -> None:
        """As :meth:`complete`, awaited; for a job of ``atake``."""
        await self._async_take().asettle([self._take.success(self._claim)])

    def fail(self, error: BaseException | str, *, delay: Duration | None = None) -> None:
        """Record failure now: the job runs again after ``delay``, or is dead if that was the last attempt.

        Args:
            error: an exception, or a message.
            delay: seconds, or a timedelta; 0: at once. None: as the task's retry policy decides on the error,
                the default policy where this queue does not know the task.

        Raises:
            InvalidOption: the delay is out of its range; nothing is recorded.
            Superseded: the lease was lost; the job is another worker's.
            JobError: it is settled already, or the take is asynchronous.
        """
        self._blocking_take().settle([self._take.failure(self._claim, error, as_delay("delay", delay))])

    async def afail(self, error: BaseException | str, *, delay: Duration | None = None) -> None:
        """As :meth:`fail`, awaited; for a job of ``atake``."""
        await self._async_take().asettle([self._take.failure(self._claim, error, as_delay("delay", delay))])

    def _blocking_take(self) -> Take:
        if isinstance(self._take, Take):
            return self._take
        raise JobError("this take is asynchronous; await job.acomplete() or job.afail()")

    def _async_take(self) -> AsyncTake:
        if isinstance(self._take, AsyncTake):
            return self._take
        raise JobError("this take is blocking; use job.complete() or job.fail()")


def _failure(connection: OwnConnection | OwnAsyncConnection, error: psycopg.OperationalError) -> Exception:
    """Return an error in our words if the connection was lost, or cut off because nothing came; else the error itself."""
    if not connection.closed:
        return error
    return ConnectionFailed(
        f"the take's connection was lost: {str(error).strip()}; whether the last step was recorded is not known"
    )


def _log_failure(failure: Exception) -> None:
    log.warning("jobs of a failed take were not recorded; their lease will pass", exc_info=failure)
