"""A job as Django's Tasks see it: the call that is stored, and the result that is read back."""

import copy
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from pgqueue.django.backend_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from pgqueue.values.jobs.job import AttemptError, Job, JobState
from pgqueue.values.jobs.verdict import why_not_kept

STATUS = {
    JobState.BLOCKED: TaskResultStatus.READY,
    JobState.SCHEDULED: TaskResultStatus.READY,
    JobState.READY: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobState.CANCELLED: TaskResultStatus.FAILED,
    JobState.DEAD: TaskResultStatus.FAILED,
}
UNKNOWN_WORKER = "unknown"
CANCELLED = TaskError(
    exception_class_path="asyncio.exceptions.CancelledError",
    traceback="asyncio.exceptions.CancelledError: the job was cancelled\n",
)
# pgqueue's error type for an attempt whose worker was lost; it is no class.
WORKER_LOST = "WorkerLost"


class DjangoCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a Django task's job; the parameters of the function that the worker calls.

    Attributes:
        args: positional arguments, as plain JSON values.
        kwargs: keyword arguments, as plain JSON values.
        backend: the alias in ``TASKS`` under which it was enqueued.
        run_after: the earliest time to run, as given.
    """

    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = {}  # copied for each
    backend: str = DEFAULT_TASK_BACKEND_ALIAS
    run_after: datetime | None = None


def result_of(job: Job, call: DjangoCall, task: AnyTask) -> AnyResult:
    """A job's record, as a result.

    Args:
        job: the record.
        call: its arguments.
        task: the task whose path is the job's name.
    """
    failed = [error.at for error in _failures(job) if error.at is not None]
    result = TaskResult(
        task=as_enqueued(task, job, call),
        id=str(job.id),
        status=STATUS[job.state],
        enqueued_at=as_django(job.created_at),
        started_at=as_django(failed[0] if failed else job.started_at),
        finished_at=as_django(job.ended_at),
        last_attempted_at=as_django(job.started_at or (failed[-1] if failed else None)),
        args=list(call.args),
        kwargs=call.kwargs,
        backend=call.backend,
        errors=_errors(job),
        worker_ids=_workers(job),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def as_enqueued(task: AnyTask, job: Job, call: DjangoCall) -> AnyTask:
    """The task with the options of the enqueue.

    They were valid then. ``task.using`` would check them again, and raise an error for a job whose queue is no longer in
    the settings.
    """
    enqueued = copy.copy(task)
    options = {
        "priority": job.priority,
        "queue_name": job.queue,
        "backend": call.backend,
        "run_after": call.run_after,
    }
    for name, value in options.items():
        object.__setattr__(enqueued, name, value)
    return enqueued


def task_error(error: AttemptError) -> TaskError:
    """The error of an attempt as Django's class, with an importable path of the exception's class."""
    text = f"{error.type}: {error.message}\n"
    kind = "pgqueue.errors.Superseded" if error.type == WORKER_LOST else error.type
    path = kind if "." in kind else f"builtins.{kind}"
    return TaskError(exception_class_path=path, traceback=error.traceback or text)


def as_django(moment: datetime | None) -> datetime | None:
    """A moment in the project's form: naive if ``USE_TZ`` is off."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def as_instant(moment: datetime | None) -> datetime | None:
    """A project's moment as an instant: with its time zone."""
    if moment is None or timezone.is_aware(moment):
        return moment
    return timezone.make_aware(moment)


def _failures(job: Job) -> Sequence[AttemptError]:
    return job.errors if why_not_kept(job) is None else job.errors[:-1]


def _errors(job: Job) -> list[TaskError]:
    errors = [task_error(error) for error in _failures(job)]
    # A cancelled job has one more, since its status is FAILED, too.
    return [*errors, CANCELLED] if job.state is JobState.CANCELLED else errors


def _workers(job: Job) -> list[str]:
    """Return one worker for each attempt: Django counts attempts by this list. Only the last attempt's worker is recorded."""
    if not job.attempts:
        return []
    last = UNKNOWN_WORKER if job.worker_id is None else str(job.worker_id)
    return [*[UNKNOWN_WORKER] * (job.attempts - 1), last]
