"""Pull style: take jobs, hold them, settle them.

::

    with queue.take(10, queues=["mail"], timeout=5) as jobs:
        for job in jobs:
            send(job.args["to"])

Whoever takes is a worker for that while: it has a row, a lease and a heartbeat, and it promotes and
reclaims while it waits, so that a program that only ever takes needs no worker beside it.
"""

import asyncio
import json
import logging
import threading
import time
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

import psycopg

from pgqueue.app.hold import Hold
from pgqueue.errors import PgQueueError
from pgqueue.store import claim
from pgqueue.store.connection import Awaiting, Blocking
from pgqueue.store.plan import Plan, arun, run
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Verdict

log = logging.getLogger("pgqueue.take")


class TakenJob:
    """A job held by a take.

    Attributes:
        id: the job's id.
        task: the name it was enqueued under.
        queue: where it stood.
        args: its arguments by parameter name, as plain JSON values.
        attempt: which attempt this is, from 1.
    """

    __slots__ = ("_claim", "_hold", "args")

    def __init__(self, held: Claim, hold: Hold) -> None:
        """Made by a take."""
        self._claim = held
        self._hold = hold
        self.args: dict[str, Any] = json.loads(held.args)

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
        """Where it stood."""
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.attempt

    def complete(self) -> None:
        """Record success now, ahead of the others.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        self._hold.settle([self._hold.success(self._claim)])

    async def acomplete(self) -> None:
        """Record success now, ahead of the others.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        await self._hold.asettle([self._hold.success(self._claim)])

    def fail(self, error: BaseException | str, *, delay: timedelta = timedelta(0)) -> None:
        """Record failure now: back in line after ``delay``, or dead if that was the last attempt.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        self._hold.settle([self._hold.failure(self._claim, error, delay)])

    async def afail(self, error: BaseException | str, *, delay: timedelta = timedelta(0)) -> None:
        """Record failure now: back in line after ``delay``, or dead if that was the last attempt.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        await self._hold.asettle([self._hold.failure(self._claim, error, delay)])


class Take(Hold):
    """``with queue.take(...) as jobs``."""

    def __enter__(self) -> list[TakenJob]:
        """Wait for jobs; an empty list when the timeout passes first."""
        self._stop = threading.Event()
        self._connection = self.database.connect(self.database.listen_dsn)
        self._heart = threading.Thread(target=self._keep_alive, name="pgqueue-take", daemon=True)
        try:
            if self.listening is not None:
                self._connection.execute(self.listening.encode())
            self._wait_for_jobs()
        except BaseException:
            self._give_up()
            raise
        self._heart.start()
        return [TakenJob(held, self) for held in self.held.values()]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Complete what is left, or return it if the block raised."""
        try:
            self._stop.set()
            self._heart.join()
            if self.held:
                self.settle(self.ending(error))
        except (psycopg.Error, PgQueueError) as failure:
            if error is None:
                raise
            _log_failure(failure)  # what the block raised goes on
        finally:
            self._give_up()

    def settle(self, verdicts: list[Verdict]) -> None:
        """Record verdicts, and forget the claims."""
        self.let_go(verdicts)
        self.require_all(verdicts, self._run(self.recording(verdicts)))

    def _give_up(self) -> None:
        with suppress(psycopg.Error):
            self._run(self.giving_up())
        self._connection.close()

    def _wait_for_jobs(self) -> None:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            pause = self._run(self.look())
            if self.held:
                return
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    return
            for _ in self._connection.notifies(timeout=pause, stop_after=1):
                pass

    def _keep_alive(self) -> None:
        while not self._stop.wait(self.beat):
            with suppress(psycopg.Error):
                self._run(claim.renew(self.worker.id, self.lease))

    def _run(self, plan: Plan[Any]) -> Any:  # noqa: ANN401 - whatever the plan returns
        return run(plan, Blocking(self._connection, self.database.catalogue))


class AsyncTake(Hold):
    """``async with queue.atake(...) as jobs``."""

    async def __aenter__(self) -> list[TakenJob]:
        """Wait for jobs; an empty list when the timeout passes first."""
        self._connection = await self.database.aconnect(self.database.listen_dsn)
        try:
            if self.listening is not None:
                await self._connection.execute(self.listening.encode())
            await self._wait_for_jobs()
        except BaseException:
            await self._give_up()
            raise
        self._heart = asyncio.create_task(self._keep_alive(), name="pgqueue-take")
        return [TakenJob(held, self) for held in self.held.values()]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Complete what is left, or return it if the block raised."""
        try:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            if self.held:
                await self.asettle(self.ending(error))
        except (psycopg.Error, PgQueueError) as failure:
            if error is None:
                raise
            _log_failure(failure)  # what the block raised goes on
        finally:
            await self._give_up()

    async def asettle(self, verdicts: list[Verdict]) -> None:
        """Record verdicts, and forget the claims."""
        self.let_go(verdicts)
        self.require_all(verdicts, await self._run(self.recording(verdicts)))

    async def _give_up(self) -> None:
        with suppress(psycopg.Error):
            await self._run(self.giving_up())
        await self._connection.close()

    async def _wait_for_jobs(self) -> None:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            pause = await self._run(self.look())
            if self.held:
                return
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    return
            async for _ in self._connection.notifies(timeout=pause, stop_after=1):
                pass

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self.beat)
            with suppress(psycopg.Error):
                await self._run(claim.renew(self.worker.id, self.lease))

    async def _run(self, plan: Plan[Any]) -> Any:  # noqa: ANN401 - whatever the plan returns
        return await arun(plan, Awaiting(self._connection, self.database.catalogue))


def _log_failure(failure: Exception) -> None:
    log.warning("jobs of a failed take were not recorded; their lease will pass", exc_info=failure)
