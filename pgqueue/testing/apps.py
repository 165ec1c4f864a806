"""From what a test names as a task to the queue's own task, to its queue, and to the arguments of its jobs.

A test may name a task of a :class:`~pgqueue.PgQueue`, or one of Django's Tasks on pgqueue's backend. This package knows
nothing of Django: a task of Django's has a backend, and pgqueue's backend has ``queue_task``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError
from pgqueue.values.payloads.storable import object_of


class DjangoTask(Protocol):
    """One of Django's Tasks."""

    @property
    def module_path(self) -> str:
        """Where it stands."""

    def get_backend(self) -> Any:  # noqa: ANN401 - a backend of any kind
        """What it is enqueued with."""


AnyTask: TypeAlias = Task[..., Any] | DjangoTask


def task_of(given: AnyTask) -> Task[..., Any]:
    """The queue's own task.

    Raises:
        ConfigurationError: this is no task, or none that a queue of ours runs.
    """
    if isinstance(given, Task):
        return given
    if not hasattr(given, "get_backend"):
        raise ConfigurationError(f"{given!r} is no task of a PgQueue; give the decorated function itself")
    backend = given.get_backend()
    if not hasattr(backend, "queue_task"):
        raise ConfigurationError(
            f"{given.module_path} is enqueued with {type(backend).__module__}.{type(backend).__qualname__}: "
            "name pgqueue.django.TaskBackend in TASKS, in the settings of the tests"
        )
    task: Task[..., Any] = backend.queue_task(given)
    return task


def app_of(task: Task[..., Any]) -> PgQueue:
    """The queue that a task was registered on.

    Raises:
        ConfigurationError: this is no task, or it was made by something else.
    """
    queue = getattr(task, "_queue", None)
    if not isinstance(queue, PgQueue):
        raise ConfigurationError(f"{task!r} is no task of a PgQueue; give the decorated function itself")
    return queue


def arguments_of(given: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a job of this call carries, as plain JSON values; of one of Django's Tasks, without what its backend adds.

    Raises:
        PayloadNotEncodable: the task cannot be called with these arguments.
    """
    task = task_of(given)
    limit = app_of(task).max_payload
    if isinstance(given, Task):
        return _plain(task.signature.encode(tuple(args), dict(kwargs), limit=limit))
    return call_of(_plain(task.signature.encode((list(args), dict(kwargs)), {}, limit=limit)))


def call_of(carried: Mapping[str, Any]) -> dict[str, Any]:
    """The call of one of Django's Tasks: what its job carries, without what its backend adds."""
    return {"args": carried.get("args") or [], "kwargs": carried.get("kwargs") or {}}


def _plain(encoded: bytes) -> dict[str, Any]:
    return object_of(encoded)
