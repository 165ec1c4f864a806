"""The backend for Django's Tasks: code written to Django's own API, run by pgqueue's workers.

``TASKS = {"default": {"BACKEND": "pgqueue.django.TaskBackend"}}``
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec
from django.apps import apps
from django.core import checks
from django.utils import timezone

from pgqueue.app.task import Task as QueueTask
from pgqueue.django.backend_api import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from pgqueue.django.backend_results import Call, as_instant, result_of
from pgqueue.django.backend_tasks import Policy, adopt, declared, policy_of
from pgqueue.django.djangoqueue import project_queue
from pgqueue.errors import ConfigurationError, InvalidOption, JobNotFound
from pgqueue.values.job import Job
from pgqueue.values.options import check_name

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_ID = (1 << 63) - 1


class TaskBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs, on Django's own connection and so in its transaction."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        """Refuse a task that cannot be run here.

        Raises:
            InvalidTask: Django's own rules are broken, or the queue is not one that ``PGQUEUE`` allows.
        """
        super().validate_task(task)
        problem = _problem_with_queue(task.queue_name)
        if problem is not None:
            raise InvalidTask(problem)

    def enqueue(
        self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "TaskResult[P, R]":
        """Add a job, in the transaction that Django is in.

        Args:
            task: what to run, and how it is to be queued.
            args: positional arguments; what JSON can carry.
            kwargs: keyword arguments, likewise.

        Returns:
            A result that is READY; others see it once the transaction commits.

        Raises:
            InvalidTask: the task cannot be run here, or does not stand where its path says.
            TypeError: an argument has no JSON form.
        """
        self.validate_task(task)
        queue_task = self.queue_task(task)
        result = self._ready(task, args, kwargs)
        job = queue_task.using(
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=as_instant(task.run_after),
            max_attempts=self.policy.attempts,
        )
        call = Call(result.args, result.kwargs, self.alias, as_instant(task.run_after))
        handle = job.enqueue(*msgspec.structs.astuple(call))
        object.__setattr__(result, "id", str(handle.id))
        task_enqueued.send(type(self), task_result=result)
        return result

    def queue_task(self, task: AnyTask) -> QueueTask[..., Any]:
        """The project's queue's own task for one of Django's, as which its jobs are enqueued and run.

        Raises:
            InvalidTask: it does not stand where its path says, or no worker can import its module.
        """
        return adopt(project_queue(), _standing(task.module_path))

    def get_result(self, result_id: str) -> AnyResult:
        """The result of an enqueue, for as long as its job is on record.

        Raises:
            TaskResultDoesNotExist: there is no such job, its history was dropped, or it is none of a task of
                Django's.
        """
        job = _job(result_id)
        if (task := declared(job.task)) is None and project_queue().load_task(job.task):
            task = declared(job.task)
        if task is None:
            raise TaskResultDoesNotExist(f"{result_id}: its job is of {job.task}, no task of Django's")
        try:
            call = msgspec.convert(job.args, Call)
        except msgspec.ValidationError as error:
            raise TaskResultDoesNotExist(f"{result_id}: its job carries no call: {error}") from error
        return result_of(job, call, task)

    @property
    def policy(self) -> Policy:
        """The ``OPTIONS``, checked."""
        return policy_of(self.options)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - whatever Django hands on
        """Django's system check of this backend's settings."""
        return [*super().check(**kwargs), *self._check_settings()]

    def _check_settings(self) -> Iterator[checks.CheckMessage]:
        here = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("pgqueue.django"):
            yield checks.Error(
                f"{here} names pgqueue's backend, but its app is not installed.",
                hint="Add 'pgqueue.django' to INSTALLED_APPS.",
                id="pgqueue.tasks.E001",
            )
            return
        try:
            _ = self.policy
        except InvalidOption as error:
            yield checks.Error(f"{here}: {error}", id="pgqueue.tasks.E002")
        for problem in filter(None, map(_problem_with_queue, sorted(self.queues))):
            yield checks.Error(f"{here}['QUEUES']: {problem}", id="pgqueue.tasks.E003")
        if not project_queue().keeps_history:
            yield checks.Warning(
                f"{here}: the results of tasks that succeeded cannot be read, for no history is kept.",
                hint="Give PGQUEUE a 'HISTORY' of a day or more.",
                id="pgqueue.tasks.W001",
            )

    def _ready(
        self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "TaskResult[P, R]":
        """A result without an id; making it turns the arguments into what JSON can carry, or fails."""
        return TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


def _job(result_id: str) -> Job:
    """The job of a result's id; the id may be anything that somebody put into an address."""
    text = str(result_id)
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_ID)) and int(text) <= LARGEST_ID
    ):
        raise TaskResultDoesNotExist(result_id)
    try:
        return project_queue().job(int(text))
    except JobNotFound as error:
        raise TaskResultDoesNotExist(result_id) from error


def _standing(path: str) -> AnyTask:
    """The task at its import path, where workers look for it.

    Raises:
        InvalidTask: it is not there, or no worker can import its module.
    """
    if path.startswith("__main__."):
        raise InvalidTask(
            f"{path} is in the program that runs, which no worker imports: "
            "move the task into the tasks.py of an app, and import it from there"
        )
    standing = declared(path)
    if standing is None:
        raise InvalidTask(
            f"no task stands at {path}, where workers look for it; keep the name of the decorated function"
        )
    return standing


def _problem_with_queue(name: str) -> str | None:
    try:
        project_queue().require_queue(check_name("queue", name))
    except ConfigurationError as error:
        return str(error)
    return None
