"""Django's tasks as pgqueue's: an enqueue or a worker registers a task under its import path at its first use.

This path is the task's name in the database. ``backend_modules.py`` decides which modules a worker imports to find it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task as QueueTask
from pgqueue.django.backend_api import AnyTask, Task
from pgqueue.django.backend_modules import loaded_object
from pgqueue.django.backend_work import work_of
from pgqueue.errors import DuplicateTask, InvalidOption, UnknownTask, as_limit
from pgqueue.values.jobs.options import JobOptions
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.nearest import remedy


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


def find_django_task(path: str) -> AnyTask | None:
    """The Django task at an import path in a loaded module, or None."""
    found = loaded_object(path)
    return found if isinstance(found, Task) else None


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
        return register(work_of(task, queue))
    except DuplicateTask:  # by another thread, meanwhile
        return queue.find_task(name)
