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
from pgqueue.django.backend_modules import find_django_task
from pgqueue.django.backend_results import DjangoCall, as_instant, result_of
from pgqueue.django.backend_tasks import Policy, adopt, policy_of
from pgqueue.django.djangoqueue import project_queue
from pgqueue.errors import ConfigurationError, InvalidOption, JobNotFound
from pgqueue.values.jobs.job import ARGS_NOT_KEPT, Job
from pgqueue.values.jobs.options import check_one_queue

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
        """Raise an error for a task that pgqueue cannot run.

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
            task: what to run, with its options.
            args: positional arguments; values with a JSON form.
            kwargs: keyword arguments; values with a JSON form.

        Returns:
            A result that is READY; other connections see it when the transaction commits.

        Raises:
            InvalidTask: pgqueue cannot run the task, or the task is not at its import path.
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
        call = DjangoCall(result.args, result.kwargs, self.alias, as_instant(task.run_after))
        handle = job.enqueue(*msgspec.structs.astuple(call))
        object.__setattr__(result, "id", str(handle.id))
        task_enqueued.send(type(self), task_result=result)
        return result

    def queue_task(self, task: AnyTask) -> QueueTask[..., Any]:
        """The task of the project's queue for a Django task; its jobs are enqueued and run as this task.

        Raises:
            InvalidTask: the task is not at its import path, or no worker can import its module.
        """
        return adopt(project_queue(), _declared_at(task.module_path))

    def get_result(self, result_id: str) -> AnyResult:
        """The result of an enqueue, while its job has a record.

        Raises:
            TaskResultDoesNotExist: there is no such job, its history was dropped, or its task is not a Django task.
        """
        job = _job(result_id)
        if (task := find_django_task(job.task)) is None and project_queue().load_task(job.task):
            task = find_django_task(job.task)
        if task is None:
            raise TaskResultDoesNotExist(f"{result_id}: its job is of {job.task}, which is not a Django task")
        try:
            call = DjangoCall() if ARGS_NOT_KEPT in job.args else msgspec.convert(job.args, DjangoCall)
        except msgspec.ValidationError as error:
            raise TaskResultDoesNotExist(
                f"{result_id}: its job's arguments are not those of a Django task: {error}"
            ) from error
        return result_of(job, call, task)

    @property
    def policy(self) -> Policy:
        """The ``OPTIONS``, checked."""
        return policy_of(self.options)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - Django's own
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
                f"{here}: the results of tasks that succeeded cannot be read, because no history is kept.",
                hint="Give PGQUEUE a 'HISTORY' of a day or more.",
                id="pgqueue.tasks.W001",
            )

    def _ready(
        self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "TaskResult[P, R]":
        """Return a result without an id. Its constructor makes JSON values of the arguments, or raises."""
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
    # The id may be any text from an address.
    text = str(result_id)
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_ID)) and int(text) <= LARGEST_ID
    ):
        raise TaskResultDoesNotExist(result_id)
    try:
        return project_queue().job(int(text))
    except JobNotFound as error:
        raise TaskResultDoesNotExist(result_id) from error


def _declared_at(path: str) -> AnyTask:
    if path.startswith("__main__."):
        raise InvalidTask(
            f"{path} is in the main module of this program, which no worker imports: "
            "move the task into the tasks.py of an app, and import it from there"
        )
    found = find_django_task(path)
    if found is None:
        raise InvalidTask(
            f"there is no task at {path}, where workers look for it; keep the name of the decorated function"
        )
    return found


def _problem_with_queue(name: str) -> str | None:
    try:
        project_queue().require_queue(check_one_queue("queue", name))
    except ConfigurationError as error:
        return str(error)
    return None
