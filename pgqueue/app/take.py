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
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import psycopg

from pgqueue.errors import InvalidOption, JobError, Superseded
from pgqueue.store import claim, finish, upkeep
from pgqueue.store.connection import Awaiting, Blocking
from pgqueue.store.database import Database
from pgqueue.store.plan import Plan, arun, run
from pgqueue.values.job import Claim
from pgqueue.values.options import check_name
from pgqueue.values.verdict import Again, Buried, Returned, Succeeded, Verdict, describe
from pgqueue.values.version import __version__

POLL = 1.0


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

    def __init__(self, held: Claim, hold: "_Hold") -> None:
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
        self._hold.blocking().settle([self._hold.success(self._claim)])

    async def acomplete(self) -> None:
        """Record success now, ahead of the others.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        await self._hold.awaiting().settle([self._hold.success(self._claim)])

    def fail(self, error: BaseException | str, *, delay: timedelta = timedelta(0)) -> None:
        """Record failure now: back in line after ``delay``, or dead if that was the last attempt.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        self._hold.blocking().settle([self._hold.failure(self._claim, error, delay)])

    async def afail(self, error: BaseException | str, *, delay: timedelta = timedelta(0)) -> None:
        """Record failure now: back in line after ``delay``, or dead if that was the last attempt.

        Raises:
            Superseded: the lease was lost, and the job is somebody else's.
            JobError: it is settled already.
        """
        await self._hold.awaiting().settle([self._hold.failure(self._claim, error, delay)])


class _Hold:
    """What both kinds of take share: who they are, what they hold, and what to make of its end."""

    def __init__(
        self,
        database: Database,
        count: int,
        *,
        queues: Sequence[str] | None,
        timeout: timedelta | None,
        lease: timedelta,
        keep: bool,
    ) -> None:
        if count < 1:
            raise InvalidOption(f"take({count!r}): take at least one job")
        if timeout is not None and timeout < timedelta(0):
            raise InvalidOption(
                f"take(timeout={timeout!r}): use zero or more seconds, or None to wait for ever"
            )
        self.database = database
        self.count = count
        self.queues = None if queues is None else [check_name("queue", name) for name in queues]
        self.timeout = None if timeout is None else timeout.total_seconds()
        self.lease = lease
        self.keep = keep
        self.worker = claim.WorkerInfo(
            uuid4(), socket.gethostname(), os.getpid(), count, __version__, self.queues
        )
        self.held: dict[int, Claim] = {}
        self.taken_at = 0.0

    @property
    def beat(self) -> float:
        return self.lease.total_seconds() / 3

    def look(self) -> Plan[float]:
        """Claim what is ready into ``held``; returns for how long to wait if that was nothing."""
        if not (yield from claim.renew(self.worker.id, self.lease)):
            yield from claim.register(self.worker, self.lease)
        promoted = yield from upkeep.promote()
        yield from upkeep.reclaim()
        names = self.queues if self.queues is not None else (yield from claim.busy_queues())
        for name in names:
            for one in (yield from claim.claim(self.worker.id, {name: self.count - len(self.held)})):
                self.held[one.id] = one
            if len(self.held) == self.count:
                break
        self.taken_at = time.monotonic()
        return POLL if promoted.next_in is None else max(0.0, min(POLL, promoted.next_in))

    def success(self, held: Claim) -> Succeeded:
        return Succeeded(held, time.monotonic() - self.taken_at)

    def failure(self, held: Claim, error: BaseException | str, delay: timedelta = timedelta(0)) -> Verdict:
        described = describe(error if isinstance(error, BaseException) else JobError(error), held.attempt)
        if held.attempt >= held.max_attempts:
            return Buried(held, time.monotonic() - self.taken_at, "exhausted", described)
        return Again(held, delay, described)

    def ending(self, error: BaseException | None) -> list[Verdict]:
        """What becomes of everything still held when the block is left."""
        if error is None:
            return [self.success(held) for held in self.held.values()]
        if isinstance(error, Exception):
            return [self.failure(held, error) for held in self.held.values()]
        return [Returned(held) for held in self.held.values()]  # interrupted, not failed: attempts unspent

    def recording(self, verdicts: list[Verdict]) -> Plan[set[int]]:
        return finish.finish(self.worker.id, verdicts, keep=self.keep)

    def let_go(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            if self.held.pop(verdict.claim.id, None) is None:
                raise JobError(f"job {verdict.claim.id} is settled already")

    @staticmethod
    def require_all(verdicts: list[Verdict], done: set[int]) -> None:
        lost = sorted({verdict.claim.id for verdict in verdicts} - done)
        if lost:
            raise Superseded(f"the lease was lost, and with it job {', '.join(map(str, lost))}: not recorded")

    def listening(self) -> bool:
        return self.database.listen_dsn is not None

    def listen_statement(self) -> bytes:
        return f'listen "{self.database.catalogue.wake_channel}"'.encode()

    def blocking(self) -> "Take":
        raise JobError("this take is asynchronous; await job.acomplete() or job.afail()")

    def awaiting(self) -> "AsyncTake":
        raise JobError("this take is blocking; use job.complete() or job.fail()")


class Take(_Hold):
    """``with queue.take(...) as jobs``."""

    def __enter__(self) -> list[TakenJob]:
        """Wait for jobs; an empty list when the timeout passes first."""
        self._stop = threading.Event()
        self._connection = self.database.connect(self.database.listen_dsn)
        self._heart = threading.Thread(target=self._keep_alive, name="pgqueue-take", daemon=True)
        try:
            if self.listening():
                self._connection.execute(self.listen_statement())
            self._wait_for_jobs()
        except BaseException:
            self._connection.close()
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
        finally:
            with suppress(psycopg.Error):
                self._run(claim.leave(self.worker.id))
            self._connection.close()

    def settle(self, verdicts: list[Verdict]) -> None:
        """Record verdicts, and forget the claims."""
        self.let_go(verdicts)
        self.require_all(verdicts, self._run(self.recording(verdicts)))

    def blocking(self) -> Self:
        """This take, for jobs that are settled one by one."""
        return self

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


class AsyncTake(_Hold):
    """``async with queue.atake(...) as jobs``."""

    async def __aenter__(self) -> list[TakenJob]:
        """Wait for jobs; an empty list when the timeout passes first."""
        self._connection = await self.database.aconnect(self.database.listen_dsn)
        try:
            if self.listening():
                await self._connection.execute(self.listen_statement())
            await self._wait_for_jobs()
        except BaseException:
            await self._connection.close()
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
                await self.settle(self.ending(error))
        finally:
            with suppress(psycopg.Error):
                await self._run(claim.leave(self.worker.id))
            await self._connection.close()

    async def settle(self, verdicts: list[Verdict]) -> None:
        """Record verdicts, and forget the claims."""
        self.let_go(verdicts)
        self.require_all(verdicts, await self._run(self.recording(verdicts)))

    def awaiting(self) -> Self:
        """This take, for jobs that are settled one by one."""
        return self

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
