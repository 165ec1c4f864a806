"""A process in which a worker runs attempts: the worker's side.

The process (:mod:`pgqueue.cli.attempt_process`) imports the app, and reads claims from its standard input, one after the other. For each
it answers on a pipe: first that the attempt begins, then how it ended. The worker ends the process when the attempt is stopped or takes too long; the process ends by itself when the worker is gone.

Such a process is started for a job that may have killed workers (:func:`run_alone`), or is kept for the tasks that say so
(:mod:`pgqueue.worker.kept_processes`).
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

import msgspec

from pgqueue.app.context import AttemptHost
from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.connections.database import Database
from pgqueue.values.jobs import verdict as verdicts
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Succeeded, Verdict, failed_verdict
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.values.workers.lease import spoken_bytes
from pgqueue.worker.attempt import Attempt, timed_out
from pgqueue.worker.before_attempt import EarlyEnd, end_as_crashed
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.memory import free_memory, resident_memory

log = worker_log()

LOOK_EVERY = 0.1
"""Seconds between two looks at the memory of a process that has a limit."""
CLEAN_UP = 2.0
"""Seconds that a process has to end by itself after SIGTERM, or after its last answer."""
MARGIN = 0.3
"""Seconds that a process has to answer after the timeout, which it applies itself."""
STARTS_IN = 120.0
"""Seconds in which the process must have imported the app."""
LENGTH_BYTES = 4
NOWHERE = "no module has the queue as an attribute; give --app, or set worker.app"


class ProcessOrder(msgspec.Struct, frozen=True):
    """What the process is told of an attempt.

    Attributes:
        claim: the attempt.
        timeout: seconds that it may take; None: as long as it likes.
        memory: bytes that it may take beyond what the app takes; None: no limit.
        dsn: where the database is; None: where the app says.
        schema: where the tables are; None: where the app says.
        log_level: the lowest level to log.
    """

    claim: Claim
    timeout: float | None
    memory: int | None
    dsn: str | None
    schema: str | None
    log_level: int

    @classmethod
    def of(cls, host: AttemptHost, attempt: Attempt, memory: int | None = None) -> "ProcessOrder":
        """The order of an attempt."""
        database: Any = host.database.itself
        own = type(database) is Database
        timeout = attempt.context.timeout
        return cls(
            attempt.claim,
            None if timeout is None else timeout.total_seconds(),
            memory,
            database.dsn if own else None,
            database.catalogue.schema if own else None,
            worker_log().getEffectiveLevel(),
        )


class ProcessAnswer(msgspec.Struct, frozen=True):
    """How the attempt ended, as the process says it.

    Attributes:
        kind: the name of the verdict's class; None: nothing is to be recorded.
        verdict: its fields.
        completed: for how many seconds the attempt had run when its own transaction had completed the job; None: it has not.
        out_of_memory: whether the limit of memory was reached.
        memory: the resident memory of the process in bytes, if that limit was reached; None: the system does not say.
    """

    kind: str | None = None
    verdict: msgspec.Raw = msgspec.Raw(b"\xc0")
    completed: float | None = None
    out_of_memory: bool = False
    memory: int | None = None

    @classmethod
    def of(
        cls,
        verdict: Verdict | None,
        *,
        completed: float | None = None,
        out_of_memory: bool = False,
        memory: int | None = None,
    ) -> "ProcessAnswer":
        """The answer that carries a verdict."""
        kind = None if verdict is None else type(verdict).__name__
        told = msgspec.Raw(msgspec.msgpack.encode(verdict))
        return cls(kind, told, completed, out_of_memory, memory)

    def read(self, claim: Claim) -> Verdict | None:
        """The verdict that it carries."""
        if self.kind is None:
            return None
        found: Verdict = msgspec.msgpack.decode(self.verdict, type=getattr(verdicts, self.kind))
        return msgspec.structs.replace(found, claim=claim)


async def run_alone(
    host: AttemptHost, queue: PgQueue, app: str | None, attempt: Attempt, begun: CrashCount
) -> EarlyEnd:
    """Run an attempt alone, in a process with a limit of memory. If it ends without an answer, the job has killed it, and is dead.

    Args:
        host: runs the worker's attempts.
        queue: whose task it is.
        app: where a process finds the queue, as ``module:attribute``; None: it is looked for in what is imported.
        attempt: which.
        begun: how many workers the job has killed.
    """
    claim, limit = attempt.claim, _limit(attempt)
    place = app or place_of(queue)
    if place is None:
        return end_as_crashed(attempt, begun, None, f"it cannot run alone: {NOWHERE}")
    fields: dict[str, object] = {"job": claim.id, "task": claim.task, "attempt": claim.attempt}
    said = "no limit" if limit is None else spoken_bytes(limit)
    log.warning(
        "job runs alone in a process of its own: it may have killed workers",
        extra={**fields, "crashes": begun.crashes, "memory": said},
    )
    child = await AttemptProcess.start(place)
    try:
        if not await child.begin(ProcessOrder.of(host, attempt, limit)):
            return EarlyEnd(not_started(claim, child))
        looking = asyncio.create_task(child.watch_memory())
        try:
            answered = await child.answer(attempt)
        finally:
            looking.cancel()
    finally:
        await child.end()
    if answered is None:
        how = f"its own process: {child.how()}"
        return end_as_crashed(attempt, begun, attempt.context.seconds, how, child.memory)
    answer, verdict = answered
    if answer.out_of_memory:
        how = f"used up the {said} of its own process"
        return end_as_crashed(attempt, begun, attempt.context.seconds, how, answer.memory)
    note_completed(host, attempt, answer)
    return EarlyEnd(verdict)


def not_started(claim: Claim, child: "AttemptProcess") -> Verdict:
    """The verdict on an attempt whose process did not begin it."""
    error = AttemptError(claim.attempt, "NotIsolated", f"its own process did not start: {child.how()}")
    return failed_verdict(claim, error)


def note_completed(host: AttemptHost, attempt: Attempt, answer: ProcessAnswer) -> None:
    """Tell of a job that its own transaction has completed in the process."""
    if answer.completed is not None:
        attempt.context.completed = True
        host.observers.ended([Succeeded(attempt.claim, answer.completed)])


def place_of(queue: PgQueue) -> str | None:
    """Where a process finds the queue: ``module:attribute`` of an imported module; None: nowhere."""
    for name, module in sorted(sys.modules.items()):
        if name != "__main__" and not name.startswith("pgqueue."):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is queue:
                    return f"{name}:{attribute}"
    return None


class AttemptProcess:
    """A process that runs attempts, one at a time.

    Attributes:
        memory: its resident memory in bytes, at the last look; None: it was never seen.
        process: the process itself.
        answers: the pipe on which it answers.
    """

    process: Process
    answers: asyncio.StreamReader
    _transport: asyncio.BaseTransport | None = None
    _watching: "asyncio.Task[None] | None" = None

    def __init__(self) -> None:
        self.memory: int | None = None
        self._unreadable = False

    @classmethod
    async def start(cls, place: str) -> "AttemptProcess":
        """Start a process that finds the queue at this place.

        Raises:
            OSError: the system starts no more processes.
        """
        self = cls()
        reading, writing = os.pipe()
        pipe = os.fdopen(reading, "rb", 0)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pgqueue.cli.attempt_process", place, str(writing)),
                stdin=PIPE,
                pass_fds=[writing],
                start_new_session=True,  # Ctrl-C in a terminal is for the worker
                env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(writing)
        self.answers = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(self.answers)
        try:
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        except BaseException:
            pipe.close()
            await self.end()
            raise
        self._watching = asyncio.create_task(self._end_answers())
        return self

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.returncode is not None

    async def begin(self, order: ProcessOrder) -> bool:
        """Tell it what to run; whether it begins, for which a new process has to import the app."""
        with suppress(ConnectionError, TimeoutError):
            self.process.stdin.write(frame_message(msgspec.msgpack.encode(order)))  # type: ignore[union-attr]  # it is a pipe
            async with asyncio.timeout(STARTS_IN):
                return await self._frame() is not None
        return False

    async def answer(self, attempt: Attempt) -> tuple[ProcessAnswer, Verdict | None] | None:
        """Wait for the end of the attempt: the answer and its verdict; None: the process ended without one.

        Raises:
            TimedOut: it took too long, and the process did not say so.
        """
        limit = attempt.context.timeout
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds() + MARGIN):
                data = await self._frame()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            raise timed_out(attempt) from None
        return None if data is None else self._read(data, attempt.claim)

    def how(self) -> str:
        """How it ended."""
        if self._unreadable:
            return "an answer that makes no sense"
        code = self.process.returncode
        if code is None:
            return "no answer"
        if code >= 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"signal {-code} ({signal.Signals(-code).name})"
        return f"signal {-code}"

    async def watch_memory(self) -> None:
        """Look at its memory for ever."""
        while True:
            self.memory = resident_memory(self.process.pid) or self.memory
            await asyncio.sleep(LOOK_EVERY)

    async def end(self) -> None:
        """Have it end, and everything that it has started."""
        try:
            if not self.has_ended:
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLEAN_UP):
                        await self.process.wait()
        finally:  # also if the worker stops meanwhile
            self._signal(signal.SIGKILL)
            try:
                await self._reap()
            finally:
                self._close()

    def _close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._transport is not None:
            self._transport.close()
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def _reap(self) -> None:
        """Wait for a killed process. A cancel meanwhile is raised afterwards: the event loop must not close before."""
        cancelled: asyncio.CancelledError | None = None
        while self.process.returncode is None:
            try:
                await self.process.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _frame(self) -> bytes | None:
        """Return the next answer; None: there is none, and the process has ended."""
        try:
            length = int.from_bytes(await self.answers.readexactly(LENGTH_BYTES), "big")
            return await self.answers.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEAN_UP):
                    await self.process.wait()
            return None

    async def _end_answers(self) -> None:
        """A while after the process has ended, there is no answer: what it started may have the pipe open for ever."""
        await self.process.wait()
        await asyncio.sleep(1.0)
        self.answers.feed_eof()

    def _read(self, data: bytes, claim: Claim) -> tuple[ProcessAnswer, Verdict | None] | None:
        try:
            answer = msgspec.msgpack.decode(data, type=ProcessAnswer)
            return answer, answer.read(claim)
        except (msgspec.MsgspecError, ValueError, AttributeError):  # the job wrote to the pipe itself
            self._unreadable = True
            return None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            # What is left of its group keeps the id from being used again.
            os.killpg(self.process.pid, number)


def frame_message(data: bytes) -> bytes:
    """A message with its length."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def _limit(attempt: Attempt) -> int | None:
    """How many bytes the attempt may take."""
    given = None if attempt.task is None else attempt.task.crashes.bytes
    free = free_memory()
    return given if given is not None or free is None else max(free // 2, 1)
