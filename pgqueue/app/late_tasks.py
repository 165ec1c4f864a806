"""Tasks that are registered with a queue only when a worker starts, or when a command looks for the app."""

from typing import Protocol
from weakref import WeakSet

from pgqueue.app.registry import Registry


class LateTasks(Protocol):
    """Knows tasks that are not registered yet, and the queue that they belong to."""

    @property
    def queue(self) -> Registry:
        """The queue."""

    def finalize(self, queue: Registry, /) -> object:
        """Register the tasks, if this is their queue; the second time it does nothing."""


LATE_TASKS: WeakSet[LateTasks] = WeakSet()
"""All of this process."""


def queue_behind(found: object) -> object:
    """The queue of something that has late tasks; anything else as it is."""
    return next((one.queue for one in LATE_TASKS if one is found), found)


def register_late_tasks(queue: Registry) -> None:
    """Have all tasks of a queue registered."""
    for one in tuple(LATE_TASKS):
        one.finalize(queue)
