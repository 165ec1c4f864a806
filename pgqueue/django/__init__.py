"""pgqueue in a Django project: an app for ``INSTALLED_APPS``, and the project's queue.

::

    from pgqueue.django import queue

    @queue.task
    def confirm(order_id: int) -> None: ...

The queue is made from ``settings.PGQUEUE`` at its first use; it does not connect then. Names are looked up at their
first use, since Django imports this package before models may be imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgqueue.django.backend import TaskBackend
    from pgqueue.django.djangoqueue import DjangoQueue

    queue: DjangoQueue

__all__ = ["DjangoQueue", "TaskBackend", "queue"]

_PLACES = {"DjangoQueue": "pgqueue.django.djangoqueue", "TaskBackend": "pgqueue.django.backend"}

if not TYPE_CHECKING:  # so that a type checker finds the names above, and no others

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any attribute
        """Find a name of this package where it is defined; the queue is made, once."""
        if name == "queue":
            return import_module("pgqueue.django.djangoqueue").project_queue()
        if name in _PLACES:
            return getattr(import_module(_PLACES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
