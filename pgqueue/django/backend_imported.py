"""A queue's tasks as a worker sees them: those that are registered, and Django's, imported when first asked for.

A project that does not use Django's Tasks loads nothing of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task


class ImportedTasks(Mapping[str, Task[..., Any]]):
    """The registered tasks by name; one of Django's is registered when it is first asked for."""

    def __init__(self, queue: PgQueue, registered: Mapping[str, Task[..., Any]]) -> None:
        """Begin with what is registered.

        Args:
            queue: where to register what is found.
            registered: its tasks, as they come.
        """
        self._queue = queue
        self._registered = registered

    def __getitem__(self, name: str) -> Task[..., Any]:
        """A task by its name, imported if need be."""
        try:
            return self._registered[name]
        except KeyError:
            return self._imported(name)

    def __iter__(self) -> Iterator[str]:
        """The names that are registered so far."""
        return iter(self._registered)

    def __len__(self) -> int:
        """How many are registered so far."""
        return len(self._registered)

    def _imported(self, name: str) -> Task[..., Any]:
        if not hasattr(settings, "TASKS"):
            raise KeyError(name)
        try:
            from pgqueue.django import backend_tasks  # noqa: PLC0415 - Django's Tasks may not be installed
        except ImproperlyConfigured:
            raise KeyError(name) from None
        task = backend_tasks.declared(name)
        if task is not None:
            return backend_tasks.adopt(self._queue, task)
        return self._registered[name]  # importing its module may have registered it
