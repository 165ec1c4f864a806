"""A queue's tasks as a worker sees them: the registered ones, and Django tasks in modules that a job names.

A look-up of a task imports nothing, because it runs on the event loop and under a lock. :meth:`ImportedTasks.load` imports; a
thread calls it. In a project without Django's Tasks it imports nothing of them.

A job's name is text from any client that may enqueue, and to import a module is to run it. So a worker imports a module
only if it belongs to an installed app and its source decorates a function of that name with a decorator whose own name
contains ``task``. The source is found and read without running any code, also of the packages above it. ``__main__``
modules and scripts are never imported. An error of an import, also ``SystemExit``, is logged.

A refused name is not looked for again for :data:`AGAIN_AFTER` seconds, because many jobs may have the same name.
"""

import ast
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task, TaskLoader
from pgqueue.errors import PgQueueError

if TYPE_CHECKING:
    from pgqueue.django.backend_api import AnyTask

log = logging.getLogger("pgqueue.django")

AGAIN_AFTER = 60.0
"""Seconds."""
MOST_REFUSED = 1000
TRIES = 10

ADOPTER = "pgqueue.django.backend_tasks"

_parsing = threading.Lock()

_refused: dict[str, float] = {}
"""Refused names, and when they were refused, in seconds of the monotonic clock."""


class ImportedTasks(TaskLoader):
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
            if loaded_object(name) is None or ADOPTER not in sys.modules or not _is_used():
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
        if not _is_used() or not load(name):
            return False
        try:
            self._register_imported(name)
        except (KeyError, ImproperlyConfigured):  # ImproperlyConfigured: Django's Tasks are not installed
            refuse(name)
        except PgQueueError:
            log.exception("a Django task cannot be registered: its jobs wait", extra={"task": name})
            refuse(name)
        return name in self

    def _register_imported(self, name: str) -> Task[..., Any]:
        if (task := find_django_task(name)) is None:
            return self._registered[name]  # importing its module may have registered it
        from pgqueue.django.backend_tasks import adopt  # noqa: PLC0415 - Django's Tasks may not be installed

        return adopt(self._queue, task)


def find_django_task(path: str) -> "AnyTask | None":
    """The Django task at an import path in a loaded module, or None."""
    from pgqueue.django.backend_api import Task as DjangoTask  # noqa: PLC0415 - Django's Tasks may not be installed

    found = loaded_object(path)
    return found if isinstance(found, DjangoTask) else None


def loaded_object(name: str) -> object:
    """The object with a dotted name in a loaded module, or None; nothing is imported or called."""
    module = sys.modules.get(name.rpartition(".")[0])
    return vars(module).get(name.rpartition(".")[2]) if isinstance(module, ModuleType) else None


def load(name: str, *, now: float | None = None) -> bool:
    """Import the module that declares a task, if that is allowed. It may block, and does not raise.

    Args:
        name: the task's name, as in the job.
        now: seconds of the monotonic clock; by default its current time.

    Returns:
        Whether its module is loaded now.
    """
    now = time.monotonic() if now is None else now
    if now - _refused.get(name, -AGAIN_AFTER) < AGAIN_AFTER:
        return False
    module = name.rpartition(".")[0]
    if (module in sys.modules or _may_be_imported(name)) and _import_module(module):
        return True
    refuse(name, now=now)
    return False


def refuse(name: str, *, now: float | None = None) -> None:
    """Do not look for a name again for :data:`AGAIN_AFTER` seconds; arguments as for :func:`load`."""
    if len(_refused) >= MOST_REFUSED:
        _refused.clear()
    _refused[name] = time.monotonic() if now is None else now


def forget() -> None:
    """Forget the refused names."""
    _refused.clear()


def count_refused_names() -> int:
    """The number of refused names."""
    return len(_refused)


def _is_used() -> bool:
    return hasattr(settings, "TASKS")


def _import_module(module: str) -> bool:
    """Import a module, or wait for the thread that imports it; return whether it is loaded."""
    try:
        import_module(module)
    except BaseException as error:  # a module may raise anything, SystemExit included
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        log.exception(
            "the module of a task cannot be imported: its jobs wait, and the worker tries again after 60 s",
            extra={"source": module},
        )
        return False
    return True


def _may_be_imported(name: str) -> bool:
    module, _, function = name.rpartition(".")
    if "__main__" in name or not all(part.isidentifier() for part in name.split(".")):
        return False
    app = apps.get_containing_app_config(module)
    if app is None or app.module is None:
        if module.partition(".")[0] in sys.modules:
            log.warning(
                "a job's task is not imported, because its module is in no app of INSTALLED_APPS: add its package "
                "there, or import the module in the tasks.py of an app",
                extra={"task": name},
            )
        return False
    spec = _spec(app.module, module)
    return spec is not None and _declares(spec, function)


def _spec(package: ModuleType, module: str) -> ModuleSpec | None:
    path = getattr(package, "__path__", None)
    spec = None
    name = package.__name__
    # Package by package, since find_spec() imports the packages above a module.
    for part in module.removeprefix(name).split(".")[1:]:
        if path is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, path)
        path = None if spec is None else spec.submodule_search_locations
    return spec


def _declares(spec: ModuleSpec, function: str) -> bool:
    """Whether a module's source decorates such a function as a task; a module without source declares nothing."""
    try:
        source = spec.loader.get_source(spec.name)  # type: ignore[union-attr]  # a spec without a loader raises, which is caught
        body = _parse_source(source or "").body
    except Exception:
        log.warning(
            "the source of a task's module cannot be read: the module is not imported",
            extra={"source": spec.name},
            exc_info=True,
        )
        return False
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == function
        and any(_is_of_a_task(decorator) for decorator in node.decorator_list)
        for node in body
    )


def _parse_source(source: str) -> ast.Module:
    """The syntax tree of a source.

    Python 3.11 fails now and then where two threads parse at once (https://github.com/python/cpython/issues/106905). Ours
    do it in turn; where a thread of another library parses, too, we try again.
    """
    with _parsing:
        for _ in range(TRIES - 1):
            with suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)


def _is_of_a_task(decorator: ast.expr) -> bool:
    """``@task``, ``@queue.task``, ``@shared_task(...)`` and the like."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return "task" in ast.unparse(called).rpartition(".")[2].lower()
