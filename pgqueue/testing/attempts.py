"""One attempt in the process of a test: the worker's own executor, and a place to run in."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.testing.trouble import WorkerDied
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.worker import batches
from pgqueue.worker.attempt import Attempt, BatchAttempt
from pgqueue.worker.before_attempt import end_as_crashed
from pgqueue.worker.executor import Executor, limit


class RecordingExecutor(Executor):
    """The worker's executor, which keeps what attempts raised; of an attempt whose worker died it says nothing.

    A job that has killed as many workers as its task allows runs here, and is dead if its worker dies once more: a test has
    one process.

    Attributes:
        errors: by job id.
    """

    def __init__(self, queue: PgQueue) -> None:
        super().__init__(queue, observers=queue.observers)
        self.errors: dict[int, BaseException] = {}
        self._alone: dict[int, CrashCount] = {}

    async def run_alone(self, attempt: Attempt, begun: CrashCount) -> None:
        """Remember that the attempt would have a process of its own."""
        self._alone[attempt.claim.id] = begun

    def failed(
        self, task: Task[..., Any], attempt: Attempt, error: BaseException, *, logged: bool = False
    ) -> Verdict | None:
        """As a worker does; where that process died, the job is dead."""
        begun = self._alone.pop(attempt.claim.id, None)
        if begun is None or not isinstance(error, WorkerDied):
            return super().failed(task, attempt, error, logged=logged)
        self.note(attempt.claim, error)
        return end_as_crashed(attempt, begun, attempt.context.seconds, "its own process").verdict

    def note(self, claim: Claim, error: BaseException) -> bool:
        """Keep an error; nothing is recorded of an attempt whose worker died."""
        self.errors[claim.id] = error
        return not isinstance(error, WorkerDied)


class Loop:
    """An event loop in a thread of its own, for ``async def`` tasks of a blocking test; started when needed."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        """``close`` is awaited in the loop at its end."""
        self._close = close
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event

    def run(self, executor: Executor, attempt: Attempt) -> list[Verdict]:
        """Run an attempt, of one job or of a batch: a plain function in this thread, another in the loop."""
        if attempt.plain:
            return contextvars.copy_context().run(run_plain, executor, attempt, self._running())
        return asyncio.run_coroutine_threadsafe(_run(executor, attempt), self._running()).result()

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            self._thread = threading.Thread(target=asyncio.run, args=[self._serve()], name="pgqueue-drain")
            self._thread.start()
            self._started.wait()
        return self._loop

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stopped.wait()
        await self._close()


async def arun(executor: Executor, attempt: Attempt) -> list[Verdict]:
    """Run an attempt: a plain function in another thread, any other in this loop.

    Raises:
        asyncio.CancelledError: the caller was cancelled meanwhile, which the task took for its own.
    """
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert me is not None  # noqa: S101 - for the type checker
    asked_before = me.cancelling()
    if attempt.plain:
        verdicts = await asyncio.to_thread(run_plain, executor, attempt, loop)
    else:  # what it sets in context variables stays in its task
        verdicts = await asyncio.create_task(_run(executor, attempt))
    if me.cancelling() > asked_before:
        raise asyncio.CancelledError
    return verdicts


def run_plain(executor: Executor, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> list[Verdict]:
    """Run an attempt of a plain function in this thread.

    It cannot be stopped when its time is up: its context says so, and what it returns later is not recorded.
    """
    seconds = limit(attempt)
    if seconds > threading.TIMEOUT_MAX:  # as one that is not limited has it
        return _run_plain(executor, attempt, loop)
    passed: list[Verdict] = []
    timer = threading.Timer(seconds, lambda: passed.extend(_timed_out(executor, attempt)))
    timer.daemon = True
    timer.start()
    try:
        verdicts = _run_plain(executor, attempt, loop)
    finally:
        timer.cancel()
        timer.join()
    return passed or verdicts


async def _run(executor: Executor, attempt: Attempt) -> list[Verdict]:
    if not isinstance(attempt, BatchAttempt):
        return _known_verdicts([await executor.run(attempt)])
    await batches.run(executor, attempt)
    return _known_verdicts(one.verdict for one in attempt.members)


def _run_plain(executor: Executor, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> list[Verdict]:
    if not isinstance(attempt, BatchAttempt):
        return _known_verdicts([executor.run_plain(attempt, loop)])
    batches.run_plain(executor, attempt, loop)
    return _known_verdicts(one.verdict for one in attempt.members)


def _timed_out(executor: Executor, attempt: Attempt) -> list[Verdict]:
    return _known_verdicts(executor.timed_out(one) for one in attempt.members or (attempt,))


def _known_verdicts(verdicts: Iterable[Verdict | None]) -> list[Verdict]:
    return [one for one in verdicts if one is not None]
