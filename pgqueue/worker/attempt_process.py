"""Runs an attempt alone, in a process of its own with a limit of memory: the worker's side.

The process (:mod:`pgqueue.cli.attempt_process`) imports the app, reads the claim from its standard input, and answers on a pipe: first
that it is ready and has how much memory, then how the attempt ended. If it ends without the second answer, or says that the memory was used up, the
job has killed it, and is dead. The worker kills the process when the attempt is stopped or takes too long; the process ends by
itself when the worker is gone.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.connections.database import Database
from pgqueue.values.jobs import verdict as verdicts
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Succeeded, Verdict, failed_verdict
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.values.workers.lease import spoken_bytes
from pgqueue.worker.attempt import Attempt, timed_out
from pgqueue.worker.before_attempt import EarlyEnd, QuarantineHost, end_as_crashed
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.memory import free_memory, resident_memory

log = worker_log()

LOOK_EVERY = 0.1
"""Seconds between two looks at the memory of the process."""
CLEAN_UP = 2.0
"""Seconds that a process has to end by itself after SIGTERM, or after its last answer."""
STARTS_IN = 120.0
"""Seconds in which the process must have imported the app."""
LENGTH_BYTES = 4


class ProcessOrder(msgspec.Struct, frozen=True):
    """What the process is told.

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


class ProcessAnswer(msgspec.Struct, frozen=True):
    """How the attempt ended, as the process says it.

    Attributes:
        kind: the name of the verdict's class; None: nothing is to be recorded.
        verdict: its fields.
        completed: for how many seconds the attempt had run when its own transaction had completed the job; None: it has not.
        out_of_memory: whether the limit of memory was reached.
        memory: the resident memory of the process in bytes; None: the system does not say.
    """

    kind: str | None = None
    verdict: msgspec.Raw = msgspec.Raw(b"\xc0")
    completed: float | None = None
    out_of_memory: bool = False
    memory: int | None = None

    @classmethod
    def of(
        cls, verdict: Verdict | None, *, completed: float | None = None, out_of_memory: bool = False
    ) -> "ProcessAnswer":
        """The answer that carries a verdict."""
        kind = None if verdict is None else type(verdict).__name__
        told = msgspec.Raw(msgspec.msgpack.encode(verdict))
        return cls(kind, told, completed, out_of_memory, resident_memory())

    def read(self, claim: Claim) -> Verdict | None:
        """The verdict that it carries."""
        if self.kind is None:
            return None
        found: Verdict = msgspec.msgpack.decode(self.verdict, type=getattr(verdicts, self.kind))
        return msgspec.structs.replace(found, claim=claim)


async def run(
    host: QuarantineHost, queue: PgQueue, app: str | None, attempt: Attempt, begun: CrashCount
) -> EarlyEnd:
    """Run an attempt alone.

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
        return end_as_crashed(
            attempt, begun, None, "it cannot run alone: no module has the queue as an attribute; give --app"
        )
    fields: dict[str, object] = {"job": claim.id, "task": claim.task, "attempt": claim.attempt}
    said = "no limit" if limit is None else spoken_bytes(limit)
    log.warning(
        "job runs alone in a process of its own: it may have killed workers",
        extra={**fields, "crashes": begun.crashes, "memory": said},
    )
    child = AttemptProcess(attempt)
    async with _open_process(place, child):
        if not await child.ready(_order(host, attempt, limit)):
            error = AttemptError(
                claim.attempt, "NotIsolated", f"its own process did not start: {child.how()}"
            )
            return EarlyEnd(failed_verdict(claim, error))
        answered = await child.answer()
    seconds = attempt.context.seconds
    if answered is None:
        return end_as_crashed(attempt, begun, seconds, f"its own process: {child.how()}", child.memory)
    answer, verdict = answered
    if answer.out_of_memory:
        return end_as_crashed(
            attempt, begun, seconds, f"used up the {said} of its own process", answer.memory
        )
    if answer.completed is not None:
        attempt.context.completed = True
        host.observers.ended([Succeeded(claim, answer.completed)])
    return EarlyEnd(verdict)


def place_of(queue: PgQueue) -> str | None:
    """Where a process finds the queue: ``module:attribute`` of an imported module; None: nowhere."""
    for name, module in sorted(sys.modules.items()):
        if name != "__main__" and not name.startswith("pgqueue."):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is queue:
                    return f"{name}:{attribute}"
    return None


class AttemptProcess:
    """The process of one attempt.

    Attributes:
        memory: its resident memory in bytes, at the last look; None: it was never seen.
        process: the process itself.
        answers: the pipe on which it answers.
    """

    process: Process
    answers: asyncio.StreamReader

    def __init__(self, attempt: Attempt) -> None:
        self.memory: int | None = None
        self._attempt = attempt
        self._unreadable = False

    async def ready(self, order: ProcessOrder) -> bool:
        """Tell it what to run; whether it has imported the app."""
        with suppress(ConnectionError, TimeoutError):
            self.process.stdin.write(frame_message(msgspec.msgpack.encode(order)))  # type: ignore[union-attr]  # it is a pipe
            async with asyncio.timeout(STARTS_IN):
                said = await self._frame()
            if said is not None:
                self.memory = msgspec.msgpack.decode(said, type=int | None)
                return True
        return False

    async def answer(self) -> tuple[ProcessAnswer, Verdict | None] | None:
        """Wait for the end of the attempt: the answer and its verdict; None: the process ended without one.

        Raises:
            TimedOut: it took too long.
        """
        limit = self._attempt.context.timeout
        # a coroutine is stopped by its own process, which has a second more for that
        margin = 0.0 if self._attempt.plain else 1.0
        looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds() + margin):
                data = await self._frame()
        except TimeoutError as error:
            raise timed_out(self._attempt) from error
        finally:
            looking.cancel()
        return None if data is None else self._read(data)

    def _read(self, data: bytes) -> tuple[ProcessAnswer, Verdict | None] | None:
        try:
            answer = msgspec.msgpack.decode(data, type=ProcessAnswer)
            return answer, answer.read(self._attempt.claim)
        except (msgspec.MsgspecError, ValueError, AttributeError):  # the job wrote to the pipe itself
            self._unreadable = True
            return None

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

    async def end(self) -> None:
        """Have it end, and everything that it has started."""
        try:
            if self.process.returncode is None:
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLEAN_UP):
                        await self.process.wait()
        finally:  # also if the worker stops meanwhile
            self._signal(signal.SIGKILL)
            await self._reap()

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
        reading, ending = asyncio.create_task(_read(self.answers)), asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # what it started may have the pipe open for ever
                await asyncio.wait({reading}, timeout=1.0)
            if not reading.done():
                return None
            data = reading.result()
            if data is None:
                await asyncio.wait({ending}, timeout=CLEAN_UP)
            return data
        finally:
            reading.cancel()
            ending.cancel()

    async def _look(self) -> None:
        while True:
            self.memory = resident_memory(self.process.pid) or self.memory
            await asyncio.sleep(LOOK_EVERY)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            # What is left of its group keeps the id from being used again.
            os.killpg(self.process.pid, number)


@asynccontextmanager
async def _open_process(place: str, child: AttemptProcess) -> AsyncIterator[None]:
    reading, writing = os.pipe()
    pipe = os.fdopen(reading, "rb", 0)
    try:
        child.process = await asyncio.create_subprocess_exec(
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
    child.answers = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(child.answers)
    transport: asyncio.BaseTransport | None = None
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        yield
    finally:
        try:
            await child.end()
        finally:
            (pipe if transport is None else transport).close()
            child.process.stdin.close()  # type: ignore[union-attr]  # it is a pipe


async def _read(answers: asyncio.StreamReader) -> bytes | None:
    try:
        length = int.from_bytes(await answers.readexactly(LENGTH_BYTES), "big")
        return await answers.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def frame_message(data: bytes) -> bytes:
    """A message with its length."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def _order(host: QuarantineHost, attempt: Attempt, memory: int | None) -> ProcessOrder:
    database: Any = host.database.itself
    own = type(database) is Database
    timeout = attempt.context.timeout
    return ProcessOrder(
        attempt.claim,
        None if timeout is None else timeout.total_seconds(),
        memory,
        database.dsn if own else None,
        database.catalogue.schema if own else None,
        worker_log().getEffectiveLevel(),
    )


def _limit(attempt: Attempt) -> int | None:
    """How many bytes the attempt may take."""
    given = None if attempt.task is None else attempt.task.crashes.bytes
    free = free_memory()
    return given if given is not None or free is None else max(free // 2, 1)
