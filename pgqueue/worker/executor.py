"""One attempt, top to bottom: find the task, read the arguments, call, judge."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from pgqueue.app.task import Task
from pgqueue.errors import PayloadError, PayloadNotDecodable, Superseded, TimedOut
from pgqueue.values.job import Claim
from pgqueue.values.payload import encode_result
from pgqueue.values.retry import Retry
from pgqueue.values.verdict import Again, Buried, Cancelled, Returned, Succeeded, Verdict, describe, judge
from pgqueue.worker.attempt import Attempt, Stop
from pgqueue.worker.pools import Threads

log = logging.getLogger("pgqueue.worker")

UNKNOWN_TASK_DELAY = timedelta(seconds=15)


class Executor:
    """Runs attempts, and says what becomes of their jobs. Never raises."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], threads: Threads, *, longest_result: int) -> None:
        """Remember what there is to run.

        Args:
            tasks: by name.
            threads: for plain functions.
            longest_result: the most bytes a return value may take as JSON; a longer one is not kept.
        """
        self._tasks = tasks
        self._threads = threads
        self._longest_result = longest_result
        self._warned_at: dict[str, float] = {}

    async def execute(self, attempt: Attempt) -> Verdict | None:
        """Run one attempt.

        Returns:
            What to record; None where there is nothing to: the task's own transaction has completed the
            job, or the job is no longer this attempt's.
        """
        attempt.begun = True
        task = self._tasks.get(attempt.claim.task)
        if task is None:
            return self._unknown(attempt.claim)
        return await self._run(task, attempt)

    async def _run(self, task: Task[..., Any], attempt: Attempt) -> Verdict | None:
        if attempt.stopped is not None:
            return self._stopped(task, attempt, asyncio.CancelledError())
        try:
            args, kwargs = task.signature.decode(attempt.claim.args, attempt.context)
        except PayloadNotDecodable as error:
            return self._undecodable(attempt.claim, error)
        try:
            value = await self._call(task, attempt, args, kwargs)
        except asyncio.CancelledError as error:
            return self._stopped(task, attempt, error)
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit included
            return self._failed(task, attempt, error)
        if attempt.context.completed:
            return None
        return Succeeded(attempt.claim, attempt.context.seconds, self._result(attempt.claim, value))

    async def _call(
        self, task: Task[..., Any], attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401
        attempt.interruptible = task.is_async
        if task.is_async:
            running = task.function(*args, **kwargs)
        else:
            running = self._in_thread(partial(task.function, *args, **kwargs))
        if task.timeout is None:
            return await running
        try:
            async with asyncio.timeout(task.timeout.total_seconds()) as limit:
                return await running
        except TimeoutError as error:
            if not limit.expired():
                raise
            attempt.context.cancelled = True
            raise TimedOut(f"the attempt took longer than the task's timeout of {task.timeout}") from error

    async def _in_thread(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
        value = await self._threads.run(call)
        return (
            await value if inspect.isawaitable(value) else value
        )  # a plain function may hand out a coroutine

    def _unknown(self, claim: Claim) -> Verdict:
        """Give the job to another worker that knows its task; meanwhile it stands aside."""
        now = time.monotonic()
        if now - self._warned_at.get(claim.task, -1e9) > UNKNOWN_TASK_DELAY.total_seconds():
            self._warned_at[claim.task] = now
            log.warning(
                "task is not registered here; its jobs are left to other workers",
                extra={"task": claim.task, "job": claim.id, "delay": str(UNKNOWN_TASK_DELAY)},
            )
        return Returned(claim, UNKNOWN_TASK_DELAY)

    def _undecodable(self, claim: Claim, error: PayloadNotDecodable) -> Verdict:
        log.error(
            "job is dead: undecodable", extra={"job": claim.id, "task": claim.task, "error": str(error)}
        )
        return Buried(claim, 0.0, "undecodable", describe(error, claim.attempt))

    def _stopped(
        self, task: Task[..., Any], attempt: Attempt, error: asyncio.CancelledError
    ) -> Verdict | None:
        if attempt.context.completed or attempt.stopped is Stop.LOST:
            return None
        match attempt.stopped:
            case Stop.SHUTDOWN:
                return Returned(attempt.claim)
            case Stop.CANCEL:
                return Cancelled(attempt.claim)
            case _:  # the task cancelled itself
                return self._failed(task, attempt, error)

    def _failed(self, task: Task[..., Any], attempt: Attempt, error: BaseException) -> Verdict | None:
        fields = {"job": attempt.claim.id, "task": task.name, "attempt": attempt.claim.attempt}
        if attempt.context.completed:
            log.error("task raised after its transaction had completed the job", extra=fields, exc_info=error)
            return None
        if isinstance(error, Superseded):
            log.warning("attempt superseded: its transaction was rolled back", extra=fields)
            return None
        verdict = self._judge(task, attempt, error)
        match verdict:
            case Buried():
                log.error("job is dead: %s", verdict.reason, extra=fields, exc_info=error)
            case Again():
                log.warning(
                    "attempt failed", extra={**fields, "retry_in": str(verdict.delay)}, exc_info=error
                )
        return verdict

    def _judge(self, task: Task[..., Any], attempt: Attempt, error: BaseException) -> Verdict:
        try:
            return judge(attempt.claim, error, retry=task.retry, seconds=attempt.context.seconds)
        except Exception:
            log.exception("retry policy failed; the default one decides", extra={"task": task.name})
            return judge(attempt.claim, error, retry=Retry(), seconds=attempt.context.seconds)

    def _result(self, claim: Claim, value: object) -> bytes | None:
        """The return value as JSON, or None where it cannot be kept: the work is done all the same."""
        try:
            data = encode_result(value)
        except PayloadError as error:
            log.warning("result not kept: %s", error, extra={"job": claim.id, "task": claim.task})
            return None
        if data is not None and len(data) > self._longest_result:
            log.warning(
                "result not kept: %d bytes as JSON, over the limit of %d",
                len(data),
                self._longest_result,
                extra={"job": claim.id, "task": claim.task},
            )
            return None
        return data
