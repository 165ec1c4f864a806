"""Django's tasks as pgqueue's: an enqueue or a worker registers a task under its import path at its first use.

This path is the task's name in the database. ``backend_modules.py`` decides which modules a worker imports to find it. What is
registered calls the task's function with its context, between two signals: ``task_started`` is sent before the function,
``task_finished`` when it has returned, or has failed for the last time. The outcome is recorded just after: a receiver that
asks the database sees a running job.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from pgqueue.app.context import Context
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task as QueueTask
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
from pgqueue.errors import DuplicateTask, InvalidOption, UnknownTask, as_limit
from pgqueue.values.hints import remedy
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.options import JobOptions
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.verdict import note_logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The ``OPTIONS`` of a backend, which Django's Tasks do not have.

    Attributes:
        max_attempts: after how many attempts a job is dead; by default that of ``retry``, or 1.
        retry: when failed jobs run again.
        timeout: how long an attempt may take, in seconds or as a timedelta; None: without limit.

    Raises:
        InvalidOption: a value is out of its range.
    """

    max_attempts: int | None = None
    retry: Retry | None = None
    timeout: float | timedelta | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retry, Retry | None):
            raise InvalidOption(f"retry={self.retry!r}: use a pgqueue.Retry")
        JobOptions(max_attempts=self.attempts)
        as_limit("timeout", self.timeout)

    @property
    def rule(self) -> Retry:
        """The policy that judges a failed attempt."""
        return Retry() if self.retry is None else self.retry

    @property
    def attempts(self) -> int | None:
        """How many attempts a job has: one, unless the options set more; None: as its queue says."""
        if self.max_attempts is not None:
            return self.max_attempts
        return 1 if self.retry is None else self.retry.max_attempts


def policy_of(options: Mapping[str, Any]) -> Policy:
    """A backend's ``OPTIONS``, checked.

    Raises:
        InvalidOption: there is no such option, or its value is out of its range.
    """
    known = [field.name for field in fields(Policy)]
    for name in options:
        if name not in known:
            raise InvalidOption(f"OPTIONS[{name!r}]: there is no such option; {remedy(str(name), known)}")
    return Policy(**options)


def adopt(queue: PgQueue, task: AnyTask) -> QueueTask[..., Any]:
    """The queue's task for a declared Django task; registered now if it is new."""
    name = task.module_path
    try:
        return queue.find_task(name)
    except UnknownTask:
        policy: Policy = policy_of(task.get_backend().options)
    register = queue.task(
        name=name,
        queue=task.queue_name,
        retry=policy.rule,
        max_attempts=policy.attempts,
        timeout=policy.timeout,
    )
    try:
        return register(_work_of(task, queue))
    except DuplicateTask:  # by another thread, meanwhile
        return queue.find_task(name)


def _work_of(task: AnyTask, jobs: JobMethods) -> Callable[..., Any]:
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
