"""A queue's tasks as a worker sees them: the registered ones, and Django tasks in loaded modules.

A look-up of a task imports nothing, because it runs on the event loop and under a lock. :meth:`ImportedTasks.load`
imports, by the rule of ``backend_modules.py``; a thread calls it. In a project without Django's Tasks it imports nothing
of them.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.django import backend_modules
from pgqueue.errors import PgQueueError

log = logging.getLogger("pgqueue.django")

ADOPTER = "pgqueue.django.backend_tasks"


class ImportedTasks(Mapping[str, Task[..., Any]]):
    """The registered tasks by name; a Django task is registered at its first look-up."""

    def __init__(self, queue: PgQueue, registered: Mapping[str, Task[..., Any]]) -> None:
        """``registered`` are the queue's registered tasks; the mapping changes with the queue."""
        self._queue = queue
        self._registered = registered

    def __getitem__(self, name: str) -> Task[..., Any]:
        """A task by its name, registered now if it is a Django task in a loaded module."""
        try:
            return self._registered[name]
        except KeyError:
            if backend_modules.loaded_object(name) is None or ADOPTER not in sys.modules or not _is_used():
                raise
        try:
            return self._register_imported(name)
        except PgQueueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    def load(self, name: str) -> bool:
        """Import the module of a task, if that is allowed; returns whether the task is registered now. It may block."""
        if not _is_used() or not backend_modules.load(name):
            return False
        try:
            self._register_imported(name)
        except (KeyError, ImproperlyConfigured):  # ImproperlyConfigured: Django's Tasks are not installed
            backend_modules.refuse(name)
        except PgQueueError:
            log.exception("a Django task cannot be registered: its jobs wait", extra={"task": name})
            backend_modules.refuse(name)
        return name in self

    def _register_imported(self, name: str) -> Task[..., Any]:
        """Return the registered task.

        Raises:
            KeyError: there is no Django task at this path.
        """
        from pgqueue.django import backend_tasks  # noqa: PLC0415 - Django's Tasks may not be installed

        task = backend_tasks.find_django_task(name)
        if task is not None:
            return backend_tasks.adopt(self._queue, task)
        return self._registered[name]  # importing its module may have registered it


def _is_used() -> bool:
    return hasattr(settings, "TASKS")
