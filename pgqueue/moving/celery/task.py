"""A task as Celery's call sites see it: ``delay``, ``apply_async``, ``s``, and in the task itself ``self.request`` and ``self.retry``.

Its pgqueue task is registered when it is first needed, or when a worker starts: until then the app's settings may change.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial, wraps
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, NoReturn, ParamSpec, TypeVar, cast
from uuid import uuid4

from pgqueue.app.context import Context
from pgqueue.app.naming import name_of, require_function
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError, InvalidOption, RetryLater
from pgqueue.moving.celery.canvas import Signature
from pgqueue.moving.celery.exceptions import MaxRetriesExceededError
from pgqueue.moving.celery.following import NOTHING_FAILED, FillingSignature, following
from pgqueue.moving.celery.options import (
    RETRY_REMEDIES,
    TASK_OPTIONS,
    TaskOptions,
    call_options,
    task_options,
    times_of,
)
from pgqueue.moving.celery.result import AsyncResult, EagerResult, process
from pgqueue.moving.strict import honoured_options, missing, require_faithful

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("pgqueue.task")
MANY = "put such calls into group(task.s(item) for item in items); for few large jobs use @queue.batch_task"
REMEDIES = {
    "chunks": MANY,
    "map": MANY,
    "starmap": MANY,
    "replace": "return, and enqueue the other tasks; or add them with ctx.flow of a pgqueue.Context parameter",
    "update_state": "take a parameter annotated pgqueue.Context, and call ctx.progress(done, total)",
    "backend": "results are in PostgreSQL; use AsyncResult(id)",
}
REQUEST_REMEDIES = dict.fromkeys(
    ("chord", "group", "parent_id", "root_id"), "take a parameter annotated pgqueue.Context, and read ctx.flow.id"
)  # fmt: skip
HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")


class ExceptionInfo(NamedTuple):
    """``einfo`` of ``on_failure``: the error and its traceback."""

    exception: BaseException
    traceback: str

    def __str__(self) -> str:
        return self.traceback


@dataclass(frozen=True)
class Request:
    """``self.request``: the attempt that runs; without an id, where the function was called directly."""

    id: str | None = None
    task: str = ""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    context: Context | None = None

    @property
    def called_directly(self) -> bool:
        """Whether this is no attempt of a job."""
        return self.id is None

    @property
    def delivery_info(self) -> dict[str, Any]:
        """The queue, as ``routing_key``, and the priority."""
        job = self.context and self.context.job
        return {"routing_key": job.queue, "priority": job.priority} if job else {}

    def __getattr__(self, name: str) -> NoReturn:
        raise missing("self.request of Celery", name, REQUEST_REMEDIES, ["delivery_info", "retries"])


_request: ContextVar[Request] = ContextVar("_request", default=Request())  # noqa: B039 - it is frozen


class CeleryTask(Generic[P, R]):
    """Replaces a Celery task. Classes of tasks inherit it, with ``on_failure`` and the others that Celery calls.

    Attributes:
        name: its name.
    """

    name: str
    abstract = True
    _app: Any = None  # a Celery; its module imports this one
    _options: TaskOptions
    _function: Callable[..., Any]

    def __init__(self) -> None:
        """Made by :meth:`Celery.task`, without arguments."""

    @classmethod
    def declared(
        cls, app: Any, function: Callable[..., Any], given: Mapping[str, Any]
    ) -> "CeleryTask[..., Any]":
        """A task of this class, or of the ``base`` that is given. Without an app it is that of the app that is current later."""
        base = given.get("base") or cls
        if not (isinstance(base, type) and issubclass(base, CeleryTask)):
            raise InvalidOption(f"base={base!r}: use a class that inherits app.Task of pgqueue.moving.celery")
        require_function(function, named=given.get("name") is not None)
        task = base()
        task._options = task_options(base, given)  # noqa: SLF001 - of this same class
        task.name = name_of(function, task._options.name)  # noqa: SLF001
        task._app, task._function = app, function  # noqa: SLF001
        task.__doc__ = function.__doc__
        return task

    @property
    def app(self) -> Any:
        """Its app.

        Raises:
            ConfigurationError: no app has been made yet.
        """
        if self._app is None:
            if process.current is None:
                raise ConfigurationError(
                    f"shared task {self.name}: no app has been made; import the module with app = Celery(...) first"
                )
            self._app = process.current
        return self._app

    @cached_property
    def task(self) -> Task[..., Any]:
        """The pgqueue task: for ``using``, ``enqueue`` and everything that Celery does not have."""
        options, conf = self._options, self.app.conf
        late = bool(conf.task_acks_late) if options.acks_late is None else options.acks_late
        priority = conf.task_default_priority if options.priority is None else options.priority
        task: Task[..., Any] = self.app.queue.task(
            name=self.name,
            queue=options.queue or conf.task_default_queue,
            priority=self.app.priority(priority),
            retry=options.policy(acks_late=late),
            timeout=options.time_limit or conf.task_time_limit,
        )(self._attempt_function())
        task.signature = FillingSignature(task.function, self.app.queue, task=task.name)
        return task

    @property
    def run(self) -> Callable[..., Any]:
        """The function, with ``self`` if the task is bound; classes of tasks may define it."""
        return partial(self._function, self) if self._options.bind else self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function at once, in this process."""
        return self.run(*args, **kwargs)  # type: ignore[no-any-return]  # the function's own

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def __getattr__(self, name: str) -> Any:
        if name in TASK_OPTIONS and "_options" in vars(self):
            return getattr(self._options, name)
        raise missing("a Celery task", name, REMEDIES, ["apply_async", "delay", "signature"])

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Enqueue a call with these arguments."""
        return self.signature(args, kwargs).apply_async()

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult[R]:
        """Enqueue a call.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            **options: ``countdown`` in seconds, ``eta``, ``expires``, ``queue``, ``priority``, ``link``, ``link_error``.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
            PayloadNotEncodable: an argument would arrive as another value.
        """
        return self.signature(args, kwargs, **options).apply_async()

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        throw: bool = False,
        **options: Any,
    ) -> EagerResult[R]:
        """Run the task here and now, with its retries but without their waits; ``throw`` raises its error."""
        return cast("EagerResult[R]", self.signature(args, kwargs, **options).apply(throw=throw))

    def s(self, *args: Any, **kwargs: Any) -> Signature[R]:
        """A signature: in a chain the result of the task before becomes its first argument."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature[R]:
        """An immutable signature: it does not take the result of the task before."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: object,
    ) -> Signature[R]:
        """A signature with options."""
        return Signature(self, args or (), kwargs or {}, immutable=immutable, **options)

    subtask = signature

    def AsyncResult(self, task_id: str | int) -> AsyncResult[R]:  # noqa: N802 - Celery's own name
        """A job by its id."""
        return AsyncResult(task_id, self.app.queue)

    @property
    def request(self) -> Request:
        """The attempt that runs in this thread or coroutine."""
        return _request.get()

    def retry(  # noqa: PLR0917 - Celery's signature
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        exc: BaseException | None = None,
        throw: bool = True,  # noqa: FBT001, FBT002 - Celery's signature
        eta: object = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: object,
    ) -> NoReturn:
        """End this attempt, and start another one later; the last attempt raises ``exc``.

        Args:
            args: is not honoured.
            kwargs: is not honoured.
            exc: the reason.
            throw: must be True.
            eta: is not honoured.
            countdown: seconds until the next attempt; the task's ``default_retry_delay`` by default.
            max_retries: how often this job may be retried, at most as often as the task says.
            **options: none is honoured.

        Raises:
            RetryLater: the attempt ends here.
            MaxRetriesExceededError: there is no retry left, and no ``exc``.
            InvalidOption: an option is not honoured.
            ConfigurationError: this is no attempt: the function was called directly.
        """
        options |= {"args": args or None, "kwargs": kwargs or None, "eta": eta}
        honoured_options("Celery", options, (), RETRY_REMEDIES)
        if not throw:
            raise InvalidOption("throw=False: a retry always ends the attempt at this line; write raise self.retry(...)")  # fmt: skip
        request, most = self.request, self._options.retries
        if max_retries is not None and max_retries > most:
            raise InvalidOption(f"max_retries={max_retries!r}: give it to the task, which has {most}: @app.task(max_retries=...)")  # fmt: skip
        limit = most if max_retries is None else max_retries
        if request.called_directly or request.retries >= limit:
            if exc is not None:
                raise exc
            if request.called_directly:
                raise ConfigurationError(f"{self.name} was called directly: there is no job to retry")
            raise MaxRetriesExceededError(f"{self.name}[{request.id}]: it was retried {limit} times")
        delay = timedelta(seconds=self._options.default_retry_delay if countdown is None else countdown)
        raise RetryLater(delay, "asked to be retried" if exc is None else repr(exc)) from exc

    def call(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        previous: list[Any] | None,
    ) -> tuple[Task[..., Any], tuple[Any, ...], dict[str, Any]]:
        """A pgqueue task with the options of a call, and its arguments; for ``previous`` see :func:`following`."""
        given, named = tuple(args), dict(kwargs)
        routed = self.app.route(self, given, named, call_options(options))
        task = self.task.using(
            queue=routed.get("queue"),
            priority=self.app.priority(routed.get("priority")),
            **times_of(options, self.app.timezone),
        )
        if previous is not None:
            task = following(task, previous)
        require_faithful(self.app.queue, task, given, named)
        return task, given, named

    def run_eagerly(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EagerResult[R]:
        """Run the function here, again and again while it asks for a retry and has one left."""
        task_id, retries, policy = str(uuid4()), 0, self._options.policy(acks_late=False)
        while True:
            request = Request(task_id, self.name, args, kwargs, retries, is_eager=True)
            try:
                with self._attempt(request) as ended:
                    ended.value = self.run(*args, **kwargs)
                    if inspect.iscoroutine(ended.value):
                        ended.value = asyncio.run(ended.value)
            except RetryLater as asked:
                if retries >= self._options.retries:
                    return EagerResult(task_id, error=asked.__cause__ or asked)
            except Exception as error:  # noqa: BLE001 - the task's own
                if retries >= self._options.retries or not policy.wants_again(error, 1, timedelta(0)):
                    return EagerResult(task_id, error=error)
            else:
                return EagerResult(task_id, value=ended.value)
            retries += 1

    def _attempt_function(self) -> Callable[..., Any]:
        """The function that a worker calls: with the attempt's context before the parameters of the task."""
        function = self.run

        def attempt(context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._attempt(
                Request(str(context.job.id), self.name, args, kwargs, context.attempt - 1, context=context)
            )

        @wraps(self._function)
        def run(context: Context, *args: Any, **kwargs: Any) -> Any:
            if args and args[0] is NOTHING_FAILED:
                return None
            with attempt(context, args, kwargs) as ended:
                ended.value = function(*args, **kwargs)
            return ended.value

        @wraps(self._function)
        async def arun(context: Context, *args: Any, **kwargs: Any) -> Any:
            with attempt(context, args, kwargs) as ended:
                ended.value = await function(*args, **kwargs)
            return ended.value

        made: Any = arun if inspect.iscoroutinefunction(function) else run
        signature, name = inspect.signature(function), "_context"
        context = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=Context)
        made.__signature__ = signature.replace(parameters=[context, *signature.parameters.values()])
        made.__annotations__ = {**self._function.__annotations__, name: Context}
        return cast("Callable[..., Any]", made)

    @contextmanager
    def _attempt(self, request: Request) -> Iterator[SimpleNamespace]:
        """Set ``self.request``, and call what a class of tasks has overridden."""
        token, ended = _request.set(request), SimpleNamespace(value=None)
        about = request.id, request.args, request.kwargs
        try:
            self._tell("before_start", *about)
            yield ended
        except Exception as error:
            info = ExceptionInfo(error, traceback.format_exc())
            final = request.context is None or not self._hooked or request.context.is_final(error)
            self._tell("on_failure" if final else "on_retry", error, *about, info)
            self._tell("after_return", "FAILURE" if final else "RETRY", error, *about, info)
            raise
        else:
            self._tell("on_success", ended.value, *about)
            self._tell("after_return", "SUCCESS", ended.value, *about, None)
        finally:
            _request.reset(token)

    def _no_hook(self, *about: Any) -> None:
        """Overridden by classes of tasks; arguments as in Celery."""

    before_start = on_success = on_failure = on_retry = after_return = _no_hook

    @property
    def _hooked(self) -> bool:
        return any(getattr(type(self), name) is not CeleryTask._no_hook for name in HOOKS)

    def _tell(self, hook: str, *about: object) -> None:
        try:
            getattr(self, hook)(*about)
        except Exception:
            if hook == "before_start":
                raise
            log.exception("%s of task %s raised an error", hook, self.name)
