"""Runs one attempt in this process, for a worker that fears it: ``python -m pgqueue.cli.attempt_process MODULE:ATTRIBUTE FD``.

The worker's side, and what the two tell each other, is in :mod:`pgqueue.worker.attempt_process`.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from pgqueue.worker.attempt import Attempt, BatchAttempt, Stop, run_to_the_end
from pgqueue.worker.attempt_process import LENGTH_BYTES, ProcessAnswer, ProcessOrder, frame_message
from pgqueue.worker.executor import UNKNOWN_AFTER, UNKNOWN_TASK_DELAY, Executor
from pgqueue.worker.memory import resident_memory

PR_SET_PDEATHSIG = 1
REPORT_EVERY = 1.0
"""Seconds between two writes of what the job reports of its progress."""


class SingleAttemptExecutor(Executor):
    """The worker's executor, for one attempt.

    Attributes:
        out_of_memory: whether the attempt ended since it had reached the limit.
    """

    def __init__(self, queue: PgQueue, order: ProcessOrder) -> None:
        super().__init__(queue)
        self._order = order
        self.out_of_memory = False

    def timeout(self, claim: Claim) -> timedelta | None:  # noqa: ARG002 - there is one
        """As the worker said."""
        return None if self._order.timeout is None else timedelta(seconds=self._order.timeout)

    def failed(self, attempt: Attempt, error: BaseException, *, logged: bool = False) -> Verdict | None:
        """Note whether the limit of memory was the reason."""
        self.out_of_memory = self._order.memory is not None and isinstance(error, MemoryError)
        return super().failed(attempt, error, logged=logged)


def main() -> None:
    """Run what standard input says, and answer on the file descriptor that was given."""
    place, channel = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(channel, False)  # noqa: FBT003 - as the library has it
    _end_with_worker()
    length = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "big")
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(length), type=ProcessOrder)
    threading.Thread(target=_watch_worker, name="pgqueue-worker-gone", daemon=True).start()
    logs.configure(logging.getLevelName(order.log_level), logs.form_of_parent())
    queue = find(place)
    if order.dsn is not None:
        queue.database = queue.database.but(dsn=order.dsn, schema=order.schema)
    workflow.register(queue)
    answer = run_to_the_end(_serve(queue, order, channel))
    _write(channel, frame_message(msgspec.msgpack.encode(answer)))
    logging.shutdown()
    os._exit(0)  # a thread of the app's may never end


async def _serve(queue: PgQueue, order: ProcessOrder, channel: int) -> ProcessAnswer:
    claim = msgspec.structs.replace(order.claim, flags=_without_suspicion(order.claim.flags), expires_in=None)
    executor = SingleAttemptExecutor(queue, order)
    if claim.task not in queue.tasks:
        queue.load_task(claim.task)
    task = queue.tasks.get(claim.task)
    if task is None:
        _say_ready(channel)
        return ProcessAnswer.of(
            Unknown(claim, UNKNOWN_TASK_DELAY, UNKNOWN_AFTER), completed=None, out_of_memory=False
        )
    _ = task.signature
    _limit_memory(order.memory)
    _say_ready(channel)
    attempt = _attempt(claim, task, executor)
    reporting = asyncio.create_task(_report(executor))
    work = asyncio.create_task(_run(executor, attempt))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, attempt.stop, Stop.SHUTDOWN)
    verdict = await work
    reporting.cancel()
    await _write_reports(executor)
    context = attempt.members[0].context if attempt.members else attempt.context
    completed = context.seconds if context.completed else None
    await queue.aclose()
    return ProcessAnswer.of(verdict, completed=completed, out_of_memory=executor.out_of_memory)


def _attempt(claim: Claim, task: Task[..., Any], executor: SingleAttemptExecutor) -> Attempt:
    if task.batching is not None:
        return BatchAttempt([claim], task, executor)
    return Attempt(claim, task, Context(claim, executor), plain=not task.is_async)


async def _run(executor: SingleAttemptExecutor, attempt: Attempt) -> Verdict | None:
    loop = asyncio.get_running_loop()
    if not attempt.plain:
        attempt.runner = asyncio.current_task()
    try:
        if isinstance(attempt, BatchAttempt):
            if attempt.plain:
                await asyncio.to_thread(batches.run_plain, executor, attempt, loop)
            else:
                await batches.run(executor, attempt)
        elif attempt.plain:
            return await asyncio.to_thread(executor.run_plain, attempt, loop)
        else:
            return await executor.run(attempt)
    except GeneratorExit as error:
        if not attempt.members:
            return executor.broken_off(attempt, error)
    return attempt.members[0].verdict


async def _report(executor: SingleAttemptExecutor) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY)
        await _write_reports(executor)


async def _write_reports(executor: SingleAttemptExecutor) -> None:
    with contextlib.suppress(Exception), executor.board.writing() as reports:
        if reports:  # progress is for people: the attempt goes on after an error
            await executor.database.arun(notes.report(reports))


def _without_suspicion(flags: int | None) -> int | None:
    return None if flags is None else (flags & ~JobFlags.SUSPECT) or None


def _limit_memory(memory: int | None) -> None:
    """Let this process take this many bytes more than it has. If the machine runs out of memory, the kernel ends it first."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if memory is None:
        return
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


def _watch_worker() -> None:
    """End this process when the worker ends: its pipe is closed then."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _say_ready(channel: int) -> None:
    _write(channel, frame_message(msgspec.msgpack.encode(resident_memory())))


def _write(channel: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(channel, view) :]


if __name__ == "__main__":
    main()
