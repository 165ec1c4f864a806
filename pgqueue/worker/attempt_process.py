"""A process in which a worker runs attempts: the worker's side.

The process (:mod:`pgqueue.cli.attempt_process`) imports the app, and reads claims from its standard input, one after the other. For each
it answers on a pipe: first that the attempt begins, then how it ended. On a third pipe the worker stops it. The worker ends the process when the attempt is stopped or takes too long; the process ends by itself when the worker is gone.

Such a process is started for a job that may have killed workers (:func:`run_alone`), or is kept for the tasks that say so
(:mod:`pgqueue.worker.kept_processes`).
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

import msgspec

from pgqueue.app.context import AttemptHost
from pgqueue.app.pgqueue import PgQueue
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Stop, Succeeded, Verdict, failed_verdict
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.values.workers.lease import spoken_bytes
from pgqueue.worker.attempt import Attempt, timed_out
from pgqueue.worker.before_attempt import EarlyEnd, end_as_crashed
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.memory import descendants, free_memory, resident_memory
from pgqueue.worker.process_messages import (
    LENGTH_BYTES,
    LONGEST,
    STOPS,
    ProcessAnswer,
    ProcessOrder,
    frame_message,
)

log = worker_log()

BOOT = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module('pgqueue.cli.attempt_process', run_name='__main__', alter_sys=True)"
)
"""The process looks for modules where the worker does. PYTHONPATH would do the same to each Python that a task starts."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the memory of a process that has a limit."""
CLEAN_UP = 2.0
"""Seconds that a process has to end by itself after it was stopped, or after its last answer."""
MARGIN = 0.25
"""Seconds that a process has to answer after the timeout, which it applies itself."""
LATE = 0.1
"""Seconds in which an answer is read that came before, while the event loop was blocked."""
STARTS_IN = 120.0
"""Seconds in which the process must have imported the app."""
GOES_ON_IN = 2.0
"""Seconds in which a process that has run attempts must begin the next one."""
NOWHERE = "no module has the queue as an attribute; give --app, or set worker.app"


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
        await child.end(attempt.stopped)
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
    _control: int | None = None

    def __init__(self) -> None:
        self.memory: int | None = None
        self._said: str | None = None
        self._length: int | None = None
        self._last: bytes | None = None
        self._is_used = self._is_swept = False

    @classmethod
    async def start(cls, place: str) -> "AttemptProcess":
        """Start a process that finds the queue at this place.

        Raises:
            OSError: the system starts no more processes.
        """
        self = cls()
        reading, writing = os.pipe()
        control, self._control = os.pipe()
        pipe = os.fdopen(reading, "rb", 0)
        paths = json.dumps([os.fspath(one) for one in sys.path if isinstance(one, str | os.PathLike)])
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", BOOT, paths, place, str(writing), str(control)),
                stdin=PIPE,
                pass_fds=[writing, control],
                start_new_session=True,  # Ctrl-C in a terminal is for the worker
            )
        except BaseException:
            pipe.close()
            os.close(self._control)
            raise
        finally:
            os.close(writing)
            os.close(control)
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
        if self.has_ended:
            return False
        within, self._is_used = GOES_ON_IN if self._is_used else STARTS_IN, True
        with suppress(
            ConnectionError, TimeoutError, RuntimeError, msgspec.MsgspecError
        ):  # what loops raise of a closed pipe
            self.process.stdin.write(frame_message(msgspec.msgpack.encode(order)))  # type: ignore[union-attr]  # it is a pipe
            async with asyncio.timeout(within):
                data = await self._frame()
            if data is not None:
                self._said = msgspec.msgpack.decode(data, type=str | None)
                return self._said is None
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
            try:
                async with asyncio.timeout(LATE):
                    data = await self._frame()
            except TimeoutError:
                self.kill()
                raise timed_out(attempt) from None
        if (
            data is None and self.process.returncode == -signal.SIGALRM
        ):  # the function has taken the handler away
            raise timed_out(attempt)
        return None if data is None else self._read(data, attempt.claim)

    def last_answer(self, attempt: Attempt) -> ProcessAnswer | None:
        """What a process has still answered when it was stopped; None: nothing."""
        read = None if self._last is None else self._read(self._last, attempt.claim)
        return None if read is None else read[0]

    def how(self) -> str:
        """How it ended."""
        if self._said is not None:
            return self._said
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

    async def end(self, why: Stop | None = None) -> None:
        """Have it end, and everything that it has started; ``why`` its attempt was stopped, if it was."""
        try:
            if not self.has_ended:
                self._stop(why)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLEAN_UP):
                        self._last = await self._frame()
        finally:  # also if the worker stops meanwhile
            self.kill()
            try:
                await self._reap()
            finally:
                self._close()

    def _close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._transport is not None:
            self._transport.close()
        if self._control is not None:
            os.close(self._control)
            self._control = None
        if self.process.stdin is not None:
            self.process.stdin.close()

    def kill(self) -> None:
        """Kill it, and everything that it has started."""
        if self._is_swept:
            return
        started = [] if self.has_ended else descendants(self.process.pid)
        for kill, pid in ((os.killpg, self.process.pid), *((os.kill, one) for one in started)):
            with suppress(ProcessLookupError, PermissionError):
                # What is left of its group keeps the id from being used again.
                kill(pid, signal.SIGKILL)

    def _stop(self, why: Stop | None) -> None:
        """Have it stop what runs, and end. Not by SIGTERM: a service manager may send that to all processes of a service."""
        if self._control is not None:
            with suppress(OSError):
                os.write(self._control, next((word for word, one in STOPS.items() if one is why), b"s"))

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
            if self._length is None:  # else a read was cancelled after it
                self._length = int.from_bytes(await self.answers.readexactly(LENGTH_BYTES), "big")
            if self._length > LONGEST:
                self.kill()
                self._length = 0
            data = await self.answers.readexactly(self._length)
        except (asyncio.IncompleteReadError, ConnectionError):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEAN_UP):
                    await self.process.wait()
            return None
        self._length = None
        return data

    async def _end_answers(self) -> None:
        """A while after the process has ended, there is no answer: what it started may have the pipe open for ever."""
        await self.process.wait()
        self.kill()
        self._is_swept = True  # from now on another process may get its id
        await asyncio.sleep(1.0)
        self.answers.feed_eof()

    def _read(self, data: bytes, claim: Claim) -> tuple[ProcessAnswer, Verdict | None] | None:
        try:
            answer = msgspec.msgpack.decode(data, type=ProcessAnswer)
            return answer, answer.read(claim)
        except (msgspec.MsgspecError, ValueError, AttributeError):  # the job wrote to the pipe itself
            self._said = "an answer that makes no sense"
            return None


def _limit(attempt: Attempt) -> int | None:
    """How many bytes the attempt may take."""
    given = None if attempt.task is None else attempt.task.crashes.bytes
    free = free_memory()
    return given if given is not None or free is None else max(free // 2, 1)
