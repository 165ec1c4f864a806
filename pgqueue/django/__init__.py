"""pgqueue in a Django project: an app for ``INSTALLED_APPS``, and the project's queue.

::

    from pgqueue.django import queue

    @queue.task
    def confirm(order_id: int) -> None: ...

The queue is made from ``settings.PGQUEUE`` when it is first asked for; nothing is connected. Names are looked up
when asked for, since Django imports this package before its models may be.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgqueue.django.backend import TaskBackend
    from pgqueue.django.djangoqueue import DjangoQueue

    queue: DjangoQueue

__all__ = ["DjangoQueue", "TaskBackend", "queue"]

_PLACES = {"DjangoQueue": "pgqueue.django.djangoqueue", "TaskBackend": "pgqueue.django.backend"}

if not TYPE_CHECKING:  # a type checker shall find the names above, and no others

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever is asked for
        """Find a name of this package where it is defined; the queue is made, once."""
        if name == "queue":
            return import_module("pgqueue.django.djangoqueue").project_queue()
        if name in _PLACES:
            return getattr(import_module(_PLACES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
