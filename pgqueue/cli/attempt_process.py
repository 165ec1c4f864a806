"""Runs attempts in this process, for a worker: ``python -m pgqueue.cli.attempt_process MODULE:ATTRIBUTE FD``.

The main thread runs plain functions, so that a signal can end them. The worker's side, and what the two tell each other, is in
:mod:`pgqueue.worker.attempt_process`.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from pgqueue.app.context import Context
from pgqueue.app.flows import workflow
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.cli import logs
from pgqueue.cli.app import find
from pgqueue.store.jobs import notes
from pgqueue.values.jobs.job import Claim, JobFlags
from pgqueue.values.jobs.verdict import Unknown, Verdict
from pgqueue.worker import batches
from pgqueue.worker.attempt import Attempt, BatchAttempt, Stop, run_to_the_end, timed_out
from pgqueue.worker.attempt_process import LENGTH_BYTES, ProcessAnswer, ProcessOrder, frame_message
from pgqueue.worker.executor import UNKNOWN_AFTER, UNKNOWN_TASK_DELAY, Executor
from pgqueue.worker.memory import resident_memory

PR_SET_PDEATHSIG = 1
REPORT_EVERY = 1.0
"""Seconds between two writes of what the job reports of its progress."""


class ChildExecutor(Executor):
    """The worker's executor, for one attempt after the other.

    Attributes:
        order: what the worker said of the attempt.
        out_of_memory: whether the attempt ended since it had reached the limit.
    """

    order: ProcessOrder
    out_of_memory: bool

    def timeout(self, claim: Claim) -> timedelta | None:  # noqa: ARG002 - there is one
        """As the worker said."""
        return None if self.order.timeout is None else timedelta(seconds=self.order.timeout)

    def failed(self, attempt: Attempt, error: BaseException, *, logged: bool = False) -> Verdict | None:
        """Note whether the limit of memory was the reason."""
        self.out_of_memory = self.order.memory is not None and isinstance(error, MemoryError)
        return super().failed(attempt, error, logged=logged)


class AttemptServer:
    """Runs attempts, one at a time, and answers.

    Attributes:
        busy: whether an attempt runs.
        ending: whether this process is to end after its attempt.
    """

    def __init__(self, queue: PgQueue, channel: int) -> None:
        self.busy = threading.Event()
        self.ending = False
        self._queue = queue
        self._channel = channel
        self._executor = ChildExecutor(queue)
        self._attempt: Attempt | None = None
        self._interruptible = False
        looping = threading.Event()
        threading.Thread(
            target=run_to_the_end, args=(self._loop_for_ever(looping),), name="pgqueue-loop", daemon=True
        ).start()
        looping.wait()
        threading.Thread(target=self._report, name="pgqueue-progress", daemon=True).start()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._time_out)

    def run(self, order: ProcessOrder) -> None:
        """Run an attempt, and answer first that it begins, then how it ended."""
        executor = self._executor
        executor.order, executor.out_of_memory = order, False
        flags = None if order.claim.flags is None else (order.claim.flags & ~JobFlags.SUSPECT) or None
        claim = msgspec.structs.replace(order.claim, flags=flags, expires_in=None, latest=None)
        if claim.task not in self._queue.tasks:
            self._queue.load_task(claim.task)
        task = self._queue.tasks.get(claim.task)
        if task is None:
            self._say(None)
            self._say(ProcessAnswer.of(Unknown(claim, UNKNOWN_TASK_DELAY, UNKNOWN_AFTER)))
            return
        _ = task.signature
        if order.memory is not None:
            _limit_memory(order.memory)
        self._say(None)
        attempt = self._attempt = _attempt(claim, task, executor)
        self.busy.set()
        verdict = contextvars.copy_context().run(self._run, attempt)
        self.busy.clear()
        self._attempt = None
        self._write_reports()
        context = attempt.members[0].context if attempt.members else attempt.context
        completed = context.seconds if context.completed else None
        memory = resident_memory() if executor.out_of_memory else None
        answer = ProcessAnswer.of(
            verdict, completed=completed, out_of_memory=executor.out_of_memory, memory=memory
        )
        self._say(answer)

    def _run(self, attempt: Attempt) -> Verdict | None:
        if not attempt.plain:
            return asyncio.run_coroutine_threadsafe(self._await(attempt), self._loop).result()
        try:
            self._interruptible = True
            signal.setitimer(signal.ITIMER_REAL, self._executor.order.timeout or 0.0)
            if isinstance(attempt, BatchAttempt):
                batches.run_plain(self._executor, attempt, self._loop)
                verdict = attempt.members[0].verdict
            else:
                verdict = self._executor.run_plain(attempt, self._loop)
            self._interruptible = False
        except BaseException as error:  # noqa: BLE001 - a signal came while the attempt was judged
            self._interruptible = False
            verdict = self._executor.broken_off(attempt.members[0] if attempt.members else attempt, error)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        return verdict

    async def _await(self, attempt: Attempt) -> Verdict | None:
        attempt.runner = asyncio.current_task()
        try:
            if not isinstance(attempt, BatchAttempt):
                return await self._executor.run(attempt)
            await batches.run(self._executor, attempt)
        except GeneratorExit as error:
            if not attempt.members:
                return self._executor.broken_off(attempt, error)
        return attempt.members[0].verdict

    def _stop(self, _: int, __: FrameType | None) -> None:
        """End the attempt, and then this process."""
        self.ending = True
        attempt = self._attempt
        if attempt is None:
            raise SystemExit
        if not attempt.plain:
            self._loop.call_soon_threadsafe(attempt.stop, Stop.SHUTDOWN)
            return
        attempt.stop(Stop.SHUTDOWN)
        self._interrupt(asyncio.CancelledError())

    def _time_out(self, _: int, __: FrameType | None) -> None:
        if self._attempt is not None:
            self._interrupt(timed_out(self._attempt))

    def _interrupt(self, error: BaseException) -> None:
        """Raise an error in the function that runs, in this same thread; once, as its clean-up must not be disturbed."""
        if self._interruptible:
            self._interruptible = False
            raise error

    async def _loop_for_ever(self, looping: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        looping.set()
        await asyncio.Event().wait()

    def _report(self) -> None:
        while self.busy.wait():
            time.sleep(REPORT_EVERY)
            self._write_reports()

    def _write_reports(self) -> None:
        with contextlib.suppress(Exception), self._executor.board.writing() as reports:
            if reports:  # progress is for people: the attempt goes on after an error
                self._executor.database.run(notes.report(reports))

    def _say(self, what: object) -> None:
        view = memoryview(frame_message(msgspec.msgpack.encode(what)))
        while view:
            view = view[os.write(self._channel, view) :]


class Orders:
    """What the worker sends. The end of the pipe is the end of the worker.

    Attributes:
        awaited: whether the main thread waits for an order. If it does something else, this process ends at the end of the pipe.
    """

    def __init__(self) -> None:
        self.awaited = True
        self._pipe = os.fdopen(os.dup(0), "rb", 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what a task starts must not read the orders
        os.close(nothing)
        threading.Thread(target=self._watch, name="pgqueue-worker-gone", daemon=True).start()

    def next(self) -> ProcessOrder | None:
        """Wait for the next order; None: the worker wants no more, or the job has closed the pipe."""
        self.awaited = True
        with contextlib.suppress(OSError, ValueError):
            if len(length := self._read(LENGTH_BYTES)) == LENGTH_BYTES:
                data = self._read(int.from_bytes(length, "big"))
                self.awaited = False
                return msgspec.msgpack.decode(data, type=ProcessOrder)
        return None

    def _read(self, length: int) -> bytes:
        parts, left = [], length
        while left and (part := self._pipe.read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _watch(self) -> None:
        closing = select.poll()
        closing.register(self._pipe, 0)
        closing.poll()
        if not self.awaited:
            os._exit(1)


def main() -> NoReturn:
    """Run what standard input says, and answer on the file descriptor that was given."""
    place, channel = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(channel, False)  # noqa: FBT003 - as the library has it
    _end_with_worker()
    orders = Orders()
    order = orders.next()
    if order is None:
        os._exit(0)
    logs.configure(logging.getLevelName(order.log_level), logs.form_of_parent())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel ends this process before the worker
    queue = find(place)
    if order.dsn is not None:
        queue.database = queue.database.but(dsn=order.dsn, schema=order.schema)
    workflow.register(queue)
    server = AttemptServer(queue, channel)
    with contextlib.suppress(SystemExit):
        while order is not None and not server.ending:
            server.run(order)
            order = None if server.ending else orders.next()
    with contextlib.suppress(Exception):
        queue.close()
    logging.shutdown()
    os._exit(0)  # a thread of the app's may never end


def _attempt(claim: Claim, task: Task[..., Any], executor: ChildExecutor) -> Attempt:
    if task.batching is not None:
        return BatchAttempt([claim], task, executor)
    return Attempt(claim, task, Context(claim, executor), plain=not task.is_async)


def _limit_memory(memory: int) -> None:
    """Let this process take this many bytes more than it has."""
    with contextlib.suppress(ImportError, OSError, ValueError, StopIteration):
        import resource  # noqa: PLC0415 - not on every system

        lines = Path("/proc/self/status").read_text().splitlines()
        data = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = data + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def _end_with_worker() -> None:
    """Have the kernel kill this process when the worker dies, even if its code holds the GIL. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
