"""What a worker calls for a Django task: the function with its context, and the signals around it.

``task_started`` is sent before the function. ``task_finished`` is sent when it has returned, or has failed for the last
time. The outcome is recorded just after: a receiver that asks the database sees a running job.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from pgqueue.app.context import Context
from pgqueue.app.job_methods import JobMethods
from pgqueue.django.backend_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    AnyResult,
    AnyTask,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_finished_logger,
    task_started,
)
from pgqueue.django.backend_results import DjangoCall, result_of, task_error
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.verdict import describe, note_logged


def work_of(task: AnyTask, jobs: JobMethods) -> Callable[..., Any]:
    """The function to register for a Django task; its parameters are the fields of ``DjangoCall``.

    Args:
        task: whose function is run.
        jobs: where to ask about a job that has failed before.
    """
    run = _awaitable_function(task, jobs) if inspect.iscoroutinefunction(task.func) else _plain(task, jobs)
    run.__module__, run.__qualname__ = task.func.__module__, task.func.__qualname__
    run.__doc__ = task.func.__doc__
    return run


def _plain(task: AnyTask, jobs: JobMethods) -> Callable[..., Any]:
    def run(
        ctx: Context,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        backend: str = DEFAULT_TASK_BACKEND_ALIAS,
        run_after: datetime | None = None,
    ) -> object:
        job = _job_of_claim(ctx) if ctx.attempt == 1 else jobs.job(ctx.job.id)
        attempt = _DjangoAttempt(ctx, task, job, DjangoCall(args, kwargs or {}, backend, run_after))
        try:
            task_started.send(attempt.sender, task_result=attempt.result)
            value = normalize_json(attempt.result.task.call(*attempt.args, **attempt.result.kwargs))
        except BaseException as error:
            if attempt.failed(error):
                task_finished.send_robust(attempt.sender, task_result=attempt.result)
                _note_logged(error)
            raise
        attempt.succeeded(value)
        task_finished.send_robust(attempt.sender, task_result=attempt.result)
        return value

    return run


def _awaitable_function(task: AnyTask, jobs: JobMethods) -> Callable[..., Any]:
    # Not asend_robust: its receivers would not see the error that is being handled, and error monitors look for it.
    finished = sync_to_async(task_finished.send_robust)

    async def run(
        ctx: Context,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        backend: str = DEFAULT_TASK_BACKEND_ALIAS,
        run_after: datetime | None = None,
    ) -> object:
        job = _job_of_claim(ctx) if ctx.attempt == 1 else await jobs.ajob(ctx.job.id)
        attempt = _DjangoAttempt(ctx, task, job, DjangoCall(args, kwargs or {}, backend, run_after))
        try:
            await task_started.asend(attempt.sender, task_result=attempt.result)
            value = normalize_json(await attempt.result.task.acall(*attempt.args, **attempt.result.kwargs))
        except asyncio.CancelledError:
            raise  # the worker decides whether the job goes back to its queue or ends
        except BaseException as error:
            if attempt.failed(error):
                await finished(attempt.sender, task_result=attempt.result)
                _note_logged(error)
            raise
        attempt.succeeded(value)
        await finished(attempt.sender, task_result=attempt.result)
        return value

    return run


class _DjangoAttempt:
    """One attempt. ``result`` is what the context and the signals have; it is updated as the attempt runs."""

    def __init__(self, ctx: Context, task: AnyTask, job: Job, call: DjangoCall) -> None:
        self.result: AnyResult = result_of(job, call, task)
        self.sender = type(self.result.task.get_backend())
        self._ctx = ctx

    @property
    def args(self) -> list[Any]:
        given = self.result.args
        return [TaskContext(task_result=self.result), *given] if self.result.task.takes_context else given

    def succeeded(self, value: object) -> None:
        self._finished(TaskResultStatus.SUCCESSFUL)
        object.__setattr__(self.result, "_return_value", value)

    def failed(self, error: BaseException) -> bool:
        """Add the error; returns whether this was the last attempt."""
        self.result.errors.append(task_error(describe(error, self._ctx.attempt)))
        if self._ctx.is_final(error):
            self._finished(TaskResultStatus.FAILED)
            return True
        return False

    def _finished(self, status: TaskResultStatus) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())


def _note_logged(error: BaseException) -> None:
    """Mark an error that Django's receiver of ``task_finished`` has logged, so that the worker does not log it again."""
    if logging.getLogger(task_finished_logger).isEnabledFor(logging.ERROR):
        note_logged(error)


def _job_of_claim(ctx: Context) -> Job:
    """Make the job of a first attempt from its claim, without a query."""
    claim = ctx.job
    return Job(
        id=claim.id,
        state=JobState.RUNNING,
        queue=claim.queue,
        task=claim.task,
        args={},  # the call has them
        priority=claim.priority,
        run_at=claim.run_at,
        created_at=claim.created_at,
        started_at=datetime.now(UTC),
        ended_at=None,
        attempts=claim.attempt,
        max_attempts=claim.max_attempts,
        unique_key=None,
        collisions=0,
        worker_id=claim.worker_id,
        errors=(),
        reason=None,
        result=None,
    )
