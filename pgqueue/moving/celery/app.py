"""``Celery``: the app, which registers tasks with a queue, and reads the settings of a Celery project."""

import importlib.util
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import import_module
from re import Pattern
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, Protocol, TypeVar, cast, overload
from zoneinfo import ZoneInfo

from pgqueue.app.late_tasks import LATE_TASKS
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.registry import Registry
from pgqueue.errors import InvalidOption, UnknownTask
from pgqueue.moving.celery import schedules
from pgqueue.moving.celery.canvas import Signature
from pgqueue.moving.celery.conf import Settings, is_setting, named
from pgqueue.moving.celery.control import Control, Signal
from pgqueue.moving.celery.options import task_options
from pgqueue.moving.celery.result import AsyncResult, process
from pgqueue.moving.celery.task import CeleryTask
from pgqueue.moving.strict import honoured_options, missing
from pgqueue.values.hints import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("pgqueue")
BROKERS = {"redis": "redis", "rediss": "redis", "sentinel": "redis", "amqp": "rabbitmq", "amqps": "rabbitmq", "pyamqp": "rabbitmq"}  # fmt: skip
"""The scheme of a broker's URL, and the broker."""
SAME = ("amqp", "autofinalize", "backend", "changes", "control", "events", "fixups", "loader", "log", "main", "set_as_current", "strict_typing", "tasks")  # fmt: skip
REMEDIES = {
    "Beat": "any worker fires the schedules: pgqueue --app module:app worker",
    "Worker": "start workers with pgqueue --app module:app worker",
    "amqp": "there is no broker; queues need no declaration",
    "backend": "results are in PostgreSQL; use AsyncResult(id)",
    "connection": "there is no broker; app.queue is the queue",
    "events": "use hooks: @queue.on('failed'), or pgqueue metrics",
    "log": "configure Python's logging",
    "signals": "use hooks: @queue.on('failed'), or PgQueue(middleware=[...])",
    "start": "start workers with pgqueue --app module:app worker",
    "steps": "write PgQueue(middleware=[...])",
    "worker_main": "start workers with pgqueue --app module:app worker",
}


class TaskDecorator(Protocol):
    """``@app.task(...)``: the function's signature becomes the task's."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> CeleryTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> CeleryTask[P, R]: ...


class BoundTaskDecorator(Protocol):
    """``@app.task(bind=True)``: the first parameter is the task itself."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Awaitable[R]], /) -> CeleryTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> CeleryTask[P, R]: ...


class Celery:
    """Replaces a Celery app; its tasks are registered with a queue.

    Attributes:
        conf: its settings.
        Task: the class of its tasks.
        main: the app's name.
    """

    def __init__(
        self,
        main: PgQueue | str | None = None,
        *,
        queue: PgQueue | None = None,
        broker: str | None = None,
        include: Iterable[str] = (),
        config_source: object = None,
        namespace: str | None = None,
        task_cls: type[CeleryTask[..., Any]] | str | None = None,
        **settings: Any,
    ) -> None:
        """Register tasks with this queue.

        Args:
            main: where jobs go; or, as in Celery, the app's name.
            queue: where jobs go. None: that of the Django project, or ``PgQueue()``, which finds PGQUEUE_DSN or DATABASE_URL.
            broker: the broker for which the numbers in ``priority=`` were written, or its URL. With ``rabbitmq`` higher runs
                sooner; with ``redis`` lower does, and the sign is changed. With None, ``priority=`` is an error.
            include: modules that a worker imports when it starts.
            config_source: as for :meth:`config_from_object`.
            namespace: as for :meth:`config_from_object`.
            task_cls: the class of its tasks.
            **settings: of ``conf``. ``backend`` and others that Celery itself needs are not read.

        Raises:
            InvalidOption: the broker is another one, or an option is unknown.
        """
        if broker not in (None, "rabbitmq", "redis") and "://" not in str(broker):
            raise InvalidOption(
                f"broker={broker!r}: use 'rabbitmq' or 'redis', the broker for which the priorities were written, or its URL"
            )
        self.main = main if isinstance(main, str) else None
        given = main if isinstance(main, PgQueue) else queue
        if given is not None:
            self.queue = given
        self.conf, self.control = Settings(), Control(lambda: self.queue)
        self.on_after_configure, self.on_after_finalize = Signal(), Signal()
        self.Task = (
            CeleryTask if task_cls is None else named(task_cls) if isinstance(task_cls, str) else task_cls
        )
        self.tasks: dict[str, CeleryTask[..., Any]] = {}
        self._broker, self._include, self._finalized = broker, [*include], False
        self._packages: list[tuple[Any, str | None]] = []
        known = [name for name in settings if is_setting(name)]
        self.conf.update(honoured_options("Celery", settings, known, {}, SAME))
        if config_source is not None:
            self.config_from_object(config_source, namespace=namespace)
        process.current = self
        LATE_TASKS.add(self)

    @cached_property
    def queue(self) -> PgQueue:
        """Where jobs go."""
        django = sys.modules.get("django.conf")
        if django is not None and "pgqueue.django" in getattr(django.settings, "INSTALLED_APPS", ()):
            return cast("PgQueue", import_module("pgqueue.django").queue)  # loaded only if the project has it
        return PgQueue()

    @property
    def timezone(self) -> tzinfo:
        """That of ``conf.timezone``; UTC by default."""
        found = self.conf.timezone or "UTC"
        return ZoneInfo(found) if isinstance(found, str) else found

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> CeleryTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> CeleryTask[P, R]: ...
    @overload
    def task(self, /, *, bind: Literal[True], **options: Any) -> BoundTaskDecorator: ...
    @overload
    def task(self, /, **options: Any) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function, as Celery's ``@app.task``; with or without parentheses.

        Args:
            function: the function, if the decorator has no parentheses.
            **options: those of :class:`TaskOptions`.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
        """
        task_options(options.get("base") or self.Task, options)  # refuses them where they are written

        def register(decorated: Callable[..., Any]) -> CeleryTask[..., Any]:
            return self._add(self.Task.declared(self, decorated, options))

        return register if function is None else register(function)

    def register_task(self, task: CeleryTask[..., Any] | type[CeleryTask[..., Any]]) -> CeleryTask[..., Any]:
        """Register a task that is a class with a method ``run``."""
        kind = task if isinstance(task, type) else type(task)
        name = vars(kind).get("name") or f"{kind.__module__}.{kind.__qualname__}"
        return self._add(kind.declared(self, kind.run, {"name": name, "bind": True}))

    def find(self, name: str) -> CeleryTask[..., Any]:
        """A task by its name.

        Raises:
            UnknownTask: no task of this app has it.
        """
        if name not in self.tasks:
            self._import()
            self._adopt_shared()
        if name not in self.tasks:
            raise UnknownTask(
                f"no task {name!r} is registered with this app{did_you_mean(name, self.tasks)}; of a task that only the workers "
                "know, write app.queue.enqueue_named(name, {...})"
            )
        return self.tasks[name]

    def send_task(
        self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult[Any]:
        """Enqueue a task by its name; arguments as for :meth:`CeleryTask.apply_async`."""
        return self.find(name).apply_async(args, kwargs, **options)

    def signature(
        self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature[Any]:
        """A signature of a task by its name."""
        return self.find(name).signature(args, kwargs, **options)

    def AsyncResult(self, task_id: str | int) -> AsyncResult[Any]:  # noqa: N802 - Celery's own name
        """A job by its id."""
        return AsyncResult(task_id, self.queue)

    def config_from_object(self, source: object, *, namespace: str | None = None, **_: object) -> None:
        """Take settings; arguments as for :meth:`Settings.read`."""
        self.conf.read(source, namespace)

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
        *,
        force: bool = False,
    ) -> None:
        """Import the module ``tasks`` of packages when a worker starts; with ``force``, now.

        Args:
            packages: their names, or a function that returns them; None: the Django project's installed apps.
            related_name: the module's name; None: the packages themselves.
            force: whether to import them now.
        """
        self._packages.append((packages, related_name))
        if force:
            self._import()

    def add_periodic_task(
        self, when: Any, task: Signature[Any], *, name: str | None = None, **options: Any
    ) -> str:
        """Add an entry to ``beat_schedule``."""
        name = name or repr(task)
        entry = {"task": task.task.name, "args": task.args, "kwargs": task.kwargs, "schedule": when}
        self.conf["beat_schedule"] = {
            **(self.conf.beat_schedule or {}),
            name: {**entry, "options": task.options | options},
        }
        return name

    def priority(self, number: int | None) -> int | None:
        """A priority of the call site, as pgqueue's priority.

        Raises:
            InvalidOption: the app has no ``broker``.
        """
        broker = self._broker or self.conf.broker_url or ""
        broker = BROKERS.get(broker.partition("://")[0].partition("+")[0], broker)
        if number is not None and broker not in BROKERS.values():
            raise InvalidOption(
                f"priority={number!r}: on RabbitMQ higher runs sooner, on Redis lower does; "
                "name your broker: Celery(queue, broker='rabbitmq') or 'redis'"
            )
        return -number if number is not None and broker == "redis" else number

    def route(
        self, task: CeleryTask[..., Any], args: Any, kwargs: Any, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Where a call goes: as its options say, else its task, else ``task_routes``."""
        own = {"queue": task.queue, **{name: value for name, value in options.items() if value is not None}}
        if own["queue"] is not None:
            return own
        routes = self.conf.task_routes or ()
        for one in routes if isinstance(routes, list | tuple) else [routes]:
            route = named(one) if isinstance(one, str) else one
            found = (
                route(task.name, args, kwargs, own, task=task)
                if callable(route)
                else _match(route, task.name)
            )
            if found:
                said = {"queue": found} if isinstance(found, str) else found
                known = honoured_options(
                    "a route of Celery", said, ("queue", "priority"), {}, ("delivery_mode",)
                )
                return {**known, **{name: value for name, value in own.items() if value is not None}}
        return own

    def finalize(self, queue: Registry | None = None) -> None:
        """Import the modules of tasks, register their tasks, declare ``beat_schedule``; a worker does it when it starts.

        Args:
            queue: only if this is the app's queue; None: in any case.
        """
        if self._finalized or (queue is not None and queue is not self.queue):
            return
        self._finalized = True
        self._import()
        for receiver in [*self.on_after_configure.receivers, *self.on_after_finalize.receivers]:
            receiver(sender=self)
        self._adopt_shared()
        for task in [*self.tasks.values()]:
            _ = task.task
        schedules.declare(self.queue, self.conf.beat_schedule or {}, self.find, self.timezone)
        if ignored := "; ".join(self.conf.not_honoured()):
            self.queue.on("worker_started")(
                lambda _: log.warning("settings of Celery that pgqueue does not honour: %s", ignored)
            )

    def _import(self) -> None:
        for module in [*self._include, *(self.conf.include or ()), *(self.conf.imports or ())]:
            import_module(module)
        for packages, related in self._packages:
            found = _django_apps() if packages is None else packages() if callable(packages) else packages
            for package in [found] if isinstance(found, str) else found:
                module = f"{package}.{related}" if related else package
                import_module(package)
                if importlib.util.find_spec(module) is not None:
                    import_module(module)

    def _adopt_shared(self) -> None:
        for task in [one for one in process.shared if one.app is self]:
            process.shared.remove(task)
            self._add(task)

    def _add(self, task: CeleryTask[..., Any]) -> CeleryTask[..., Any]:
        self.tasks[task.name] = task
        if self._finalized:
            _ = task.task
        return task

    def __getattr__(self, name: str) -> NoReturn:
        raise missing(
            "a Celery app",
            name,
            REMEDIES,
            ["autodiscover_tasks", "conf", "config_from_object", "control", "task"],
        )


@overload
def shared_task(function: Callable[P, Awaitable[R]], /) -> CeleryTask[P, R]: ...
@overload
def shared_task(function: Callable[P, R], /) -> CeleryTask[P, R]: ...
@overload
def shared_task(*, bind: Literal[True], **options: Any) -> BoundTaskDecorator: ...
@overload
def shared_task(**options: Any) -> TaskDecorator: ...
def shared_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """As :meth:`Celery.task`, of the app that was made last; if there is none yet, of the next one."""
    task_options(options.get("base") or CeleryTask, options)

    def register(decorated: Callable[..., Any]) -> CeleryTask[..., Any]:
        app: Celery | None = process.current
        task = (CeleryTask if app is None else app.Task).declared(app, decorated, options)
        if app is not None:
            return app._add(task)  # noqa: SLF001 - the app's own side of it
        process.shared.append(task)
        return task

    return register if function is None else register(function)


def _match(route: Any, name: str) -> Any:
    pairs = [route] if isinstance(route, tuple) and not isinstance(route[0], tuple) else dict(route).items()
    for pattern, found in sorted(pairs, key=lambda pair: pair[0] != name):  # the name itself comes first
        if pattern.search(name) if isinstance(pattern, Pattern) else fnmatchcase(name, pattern):
            return found
    return None


def _django_apps() -> list[str]:
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        return []
    django = import_module("django")
    apps = import_module("django.apps").apps
    if not apps.ready:
        django.setup()
    return [one.name for one in apps.get_app_configs()]
