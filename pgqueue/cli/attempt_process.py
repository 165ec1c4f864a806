"""Runs attempts in this process, for a worker: ``pgqueue.cli.attempt_process MODULE:ATTRIBUTE ANSWERS CONTROL``, two file descriptors.

The main thread runs plain functions, so that a signal can end them. The worker's side is in :mod:`pgqueue.worker.attempt_process`,
and what the two tell each other in :mod:`pgqueue.worker.process_messages`.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import importlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from pgqueue.app.context import Context
from pgqueue.app.flows import workflow
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.shards import on_database, sharded_database
from pgqueue.app.task import Task
from pgqueue.cli import logs
from pgqueue.cli.app import find
from pgqueue.errors import ConfigurationError
from pgqueue.store.jobs import notes
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.jobs.job import Claim, JobFlags
from pgqueue.values.jobs.verdict import Stop, Verdict
from pgqueue.worker import batches
from pgqueue.worker.attempt import Attempt, BatchAttempt, run_to_the_end, timed_out
from pgqueue.worker.executor import Executor
from pgqueue.worker.memory import resident_memory
from pgqueue.worker.process_messages import LENGTH_BYTES, STOPS, ProcessAnswer, ProcessOrder, frame_message

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

    def __init__(self, queue: PgQueue, place: str, channel: int) -> None:
        """``place``: where the queue was found. ``channel``: where to answer. Made in the thread that runs the attempts."""
        self.busy = threading.Event()
        self.ending = False
        self._why = Stop.SHUTDOWN
        self._queue = queue
        self._place = place
        self._channel = channel
        self._thread = threading.get_ident()
        self._executor = ChildExecutor(queue)
        self._attempt: Attempt | None = None
        self._interruptible = False
        self._writing = threading.Lock()  # so that a log's last lines are written last
        looping = threading.Event()
        threading.Thread(
            target=run_to_the_end, args=(self._loop_for_ever(looping),), name="pgqueue-loop", daemon=True
        ).start()
        looping.wait()
        threading.Thread(target=self._report, name="pgqueue-progress", daemon=True).start()

    def run(self, order: ProcessOrder) -> None:
        """Run an attempt, and answer first that it begins, then how it ended."""
        executor = self._executor
        executor.order, executor.out_of_memory = order, False
        flags = None if order.claim.flags is None else (order.claim.flags & ~JobFlags.SUSPECT) or None
        claim = msgspec.structs.replace(order.claim, flags=flags, expires_in=None, latest=None)
        if claim.task not in self._queue.tasks:
            self._queue.load_task(claim.task)
        if claim.task not in self._queue.tasks and order.module is not None:
            importlib.import_module(order.module)
        task = self._queue.tasks.get(claim.task)
        if task is None:
            _say(
                self._channel,
                f"{self._place} in its process has no task {claim.task!r}; give --app, or set worker.app",
            )
            self.ending = True
            return
        _ = task.signature
        if order.memory is not None:
            _limit_memory(order.memory)
        _say(self._channel, None)
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
            verdict,
            completed=completed,
            out_of_memory=executor.out_of_memory,
            memory=memory,
            ends=self.ending,
        )
        _say(self._channel, answer)

    def _run(self, attempt: Attempt) -> Verdict | None:
        if not attempt.plain:
            return asyncio.run_coroutine_threadsafe(self._await(attempt), self._loop).result()
        _take_signals(self._interrupt)  # the function before may have changed them
        seconds = self._executor.order.timeout
        self._due = math.inf if seconds is None else time.monotonic() + seconds
        try:
            self._interruptible = True
            if self.ending:
                self._interrupt()
            signal.setitimer(signal.ITIMER_REAL, seconds or 0.0)
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

    def stop(self, why: Stop) -> None:
        """End the attempt, and then this process. Called in another thread."""
        self._why, self.ending = why, True
        attempt = self._attempt
        if attempt is not None and not attempt.plain:
            self._loop.call_soon_threadsafe(attempt.stop, why)
        elif attempt is not None:
            signal.pthread_kill(self._thread, signal.SIGALRM)

    def _interrupt(self, *_: object) -> None:
        """Raise an error in the function that runs, in this same thread; once, as its clean-up must not be disturbed."""
        attempt, is_stopped = self._attempt, self.ending
        if attempt is None or not self._interruptible or not (is_stopped or time.monotonic() >= self._due):
            return
        self._interruptible = False
        self.ending = True  # what the function has started may go on
        if is_stopped:
            attempt.stop(self._why)
            raise asyncio.CancelledError
        if attempt.runner is not None:
            attempt.runner.cancel()
        raise timed_out(attempt)

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
        with self._writing, contextlib.suppress(Exception):
            for _ in range(self._executor.logs.portions()):
                with self._executor.logs.writing() as portion:
                    self._executor.database.run(notes.keep_logs(portion.stored()))

    def close(self) -> None:
        """Close what this process has open."""
        with contextlib.suppress(Exception):
            self._queue.close()
        logging.shutdown()


class Orders:
    """What the worker sends. The end of the second pipe is the end of the worker.

    Attributes:
        server: runs the attempts; None: the app is being imported.
        awaited: whether the main thread waits for an order. If it does something else, this process ends with the worker.
    """

    def __init__(self, control: int) -> None:
        self.server: AttemptServer | None = None
        self.awaited = True
        self._control = control
        self._pipe = os.fdopen(os.dup(0), "rb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what a task starts must not read the orders
        os.close(nothing)
        threading.Thread(target=self._watch, name="pgqueue-control", daemon=True).start()

    def next(self) -> ProcessOrder | None:
        """Wait for the next order; None: the worker wants no more, or the job has closed the pipe."""
        self.awaited = True
        with contextlib.suppress(OSError, ValueError):
            if len(length := self._pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
                data = self._pipe.read(int.from_bytes(length, "big"))
                self.awaited = False
                return msgspec.msgpack.decode(data, type=ProcessOrder)
        return None

    def _watch(self) -> None:
        said = b""
        with contextlib.suppress(OSError):
            said = os.read(self._control, 1)
        if said in STOPS and self.server is not None and not self.awaited:
            self.server.stop(STOPS[said])
            with contextlib.suppress(OSError):
                os.read(self._control, 1)  # until the worker has killed this process, or is gone itself
            os._exit(1)
        if self.server is not None:
            self.server.close()
        os._exit(0)


def main() -> NoReturn:
    """Run what standard input says, and answer on the file descriptor that was given."""
    place, channel, control = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for one in (channel, control):
        os.set_inheritable(one, False)  # noqa: FBT003 - as the library has it
    signal.signal(signal.SIGTERM, _ignore)
    _end_with_worker()
    orders = Orders(control)
    order = orders.next()
    if order is None:
        os._exit(0)
    logs.configure(logging.getLevelName(order.log_level), logs.form_of_parent())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel ends this process before the worker
    try:
        queue = _found(place, order)
    except ConfigurationError as error:
        _say(channel, str(error))
        raise
    workflow.register(queue)
    server = orders.server = AttemptServer(queue, place, channel)
    while order is not None:
        server.run(order)
        if server.ending:
            # The worker kills this process: it finds what the function has started as long as this process lives.
            threading.Event().wait()
        order = orders.next()
    server.close()
    os._exit(0)  # a thread of the app's may never end


def _found(place: str, order: ProcessOrder) -> PgQueue:
    queue = find(place)
    if order.dsn is None:
        return queue
    if isinstance(queue.database.itself, ShardedDatabase):  # the worker serves one shard
        shards = sharded_database(queue).databases
        return on_database(queue, next(one for one in shards if one.dsn == order.dsn))
    queue.database = queue.database.but(
        dsn=order.dsn, schema=order.schema, behind_pooler=order.behind_pooler, direct_dsn=order.direct_dsn
    )
    return queue


def _say(channel: int, what: object) -> None:
    view = memoryview(frame_message(msgspec.msgpack.encode(what)))
    while view:
        view = view[os.write(channel, view) :]


def _take_signals(interrupt: Callable[..., None]) -> None:
    for number, handler in ((signal.SIGALRM, interrupt), (signal.SIGTERM, _ignore)):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})


def _ignore(*_: object) -> None:
    """The worker decides when this process ends, and says so: a service manager may send SIGTERM to all processes of a service."""


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
