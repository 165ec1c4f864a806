"""Django's Tasks, from ``django.tasks`` (Django 6.0 and later), else from the package ``django_tasks``.

Both packages have the same names, except for one exception and one function. If both are installed, ``django.tasks`` is
used.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    try:
        from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskContext, TaskResult, TaskResultStatus
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import TaskError
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
        from django.utils.json import normalize_json
    except ImportError:
        try:
            from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, TaskContext, TaskResult, TaskResultStatus
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import Task, TaskError
            from django_tasks.exceptions import InvalidTaskError as InvalidTask
            from django_tasks.exceptions import TaskResultDoesNotExist
            from django_tasks.signals import task_enqueued, task_finished, task_started
            from django_tasks.utils import normalize_json
        except ImportError as error:
            raise ImproperlyConfigured(
                "pgqueue.django.TaskBackend needs Django's Tasks: install Django 6.0 or later, or the package for "
                "earlier releases: pip install django-tasks"
            ) from error
    AnyTask, AnyResult = Task, TaskResult

task_finished_logger = Task.__module__.removesuffix(".base")
"""Where Django's own receiver of ``task_finished`` logs: ``django.tasks``, or ``django_tasks``."""

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_enqueued",
    "task_finished",
    "task_finished_logger",
    "task_started",
]
