"""From a task to its queue."""

from typing import Any

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError


def app_of(task: Task[..., Any]) -> PgQueue:
    """The queue that a task was registered on.

    Raises:
        ConfigurationError: this is no task, or it was made by something else.
    """
    runner = getattr(task, "_runner", None)
    if not isinstance(runner, PgQueue):
        raise ConfigurationError(f"{task!r} is no task of a PgQueue; give the decorated function itself")
    return runner
