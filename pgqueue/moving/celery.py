"""Call sites written for Celery, on pgqueue: ``@app.task``, ``.delay``, ``.apply_async``, ``AsyncResult``.

::

    queue = PgQueue()
    app = Celery(queue)
    shared_task = app.task

Tasks keep Celery's meaning: an error is not retried unless the task says so, with ``autoretry_for`` or ``self.retry``;
a task with neither, and without ``acks_late``, is never started twice. An option that is not honoured raises an error
that names it. The guide is ``docs/moving/from-celery.md``.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, NoReturn, ParamSpec, TypeVar, overload

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError, InvalidOption, JobFailed, JobNotFound, RetryLater
from pgqueue.moving.celery_options import (
    CALL_OPTIONS,
    CALL_REMEDIES,
    CANVAS,
    RETRY_REMEDIES,
    TASK_OPTIONS,
    TASK_REMEDIES,
    TaskOptions,
)
from pgqueue.moving.strict import honoured_options, require_faithful
from pgqueue.values.jobs.job import JobState

P = ParamSpec("P")
R = TypeVar("R")

STATES = MappingProxyType(
    {
        JobState.RUNNING: "STARTED",
        JobState.SUCCEEDED: "SUCCESS",
        JobState.DEAD: "FAILURE",
        JobState.CANCELLED: "REVOKED",
    }
)


class Celery:
    """Replaces a Celery app; its tasks are registered with a queue."""

    def __init__(self, queue: PgQueue, *, broker: Literal["rabbitmq", "redis"] | None = None) -> None:
        """Register tasks with this queue.

        Args:
            queue: where jobs go.
            broker: the broker for which the numbers in ``priority=`` were written. With ``rabbitmq`` higher runs
                sooner; with ``redis`` lower does, and the sign is changed. With None, ``priority=`` is an error.

        Raises:
            InvalidOption: the broker is another one.
        """
        if broker not in (None, "rabbitmq", "redis"):
            raise InvalidOption(
                f"broker={broker!r}: use 'rabbitmq' or 'redis', the broker for which the priorities were written"
            )
        self.queue = queue
        self._broker = broker

    @overload
    def task(self, function: Callable[P, R], /) -> "CeleryTask[P, R]": ...
    @overload
    def task(self, /, **options: object) -> Callable[[Callable[..., R]], "CeleryTask[..., R]"]: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: object) -> Any:
        """Register a function, as Celery's ``@app.task`` and ``@shared_task`` do; with or without parentheses.

        Args:
            function: the function, if the decorator has no parentheses.
            **options: those of :class:`TaskOptions`.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
        """
        chosen = TaskOptions(**honoured_options("Celery", options, TASK_OPTIONS, TASK_REMEDIES))

        def register(decorated: Callable[..., Any]) -> CeleryTask[..., Any]:
            run = _with_self(decorated, chosen) if chosen.bind else decorated
            task = self.queue.task(
                name=chosen.name,
                queue=chosen.queue,
                priority=self.priority(chosen.priority),
                retry=chosen.policy(),
                timeout=chosen.time_limit,
            )(run)
            return CeleryTask(self, task, bound=chosen.bind)

        return register if function is None else register(function)

    def send_task(
        self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: object
    ) -> "AsyncResult[Any]":
        """Enqueue a registered task by its name.

        Args:
            name: the task's name.
            args: its positional arguments.
            kwargs: its keyword arguments.
            **options: as for :meth:`CeleryTask.apply_async`.
        """
        task: CeleryTask[..., Any] = CeleryTask(self, self.queue.find_task(name), bound=False)
        return task.apply_async(args, kwargs, **options)

    def AsyncResult(self, task_id: str | int) -> "AsyncResult[Any]":  # noqa: N802 - Celery's own name
        """A job by its id."""
        return AsyncResult(task_id, self.queue)

    def priority(self, number: int | None) -> int | None:
        """A priority of the call site, as pgqueue's priority.

        Raises:
            InvalidOption: the app has no ``broker``.
        """
        if number is not None and self._broker is None:
            raise InvalidOption(
                f"priority={number!r}: on RabbitMQ higher runs sooner, on Redis lower does; "
                "name your broker: Celery(queue, broker='rabbitmq') or 'redis'"
            )
        return -number if number is not None and self._broker == "redis" else number


class CeleryTask(Generic[P, R]):
    """Replaces a Celery task.

    Attributes:
        task: the pgqueue task: for ``using``, ``enqueue`` and everything that Celery does not have.
        name: its name.
    """

    def __init__(self, app: Celery, task: Task[..., Any], *, bound: bool) -> None:
        """Made by :meth:`Celery.task`."""
        self.task = task
        self.name = task.name
        self._app = app
        self._bound = bound
        self.__doc__ = task.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function at once, in this process."""
        first = (None,) if self._bound else ()
        return self.task.function(*first, *args, **kwargs)  # type: ignore[no-any-return]  # the function's own

    def __getattr__(self, name: str) -> NoReturn:
        if name in CANVAS:
            raise ConfigurationError(
                f"{self.name}.{name}: pgqueue has no signatures; use task.call(...) of the attribute 'task', "
                "and put such calls into pgqueue.chain, pgqueue.group or pgqueue.Workflow"
            )
        raise AttributeError(
            f"pgqueue's stand-in for a Celery task has no {name!r}; see docs/moving/from-celery.md"
        )

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncResult[R]":
        """Enqueue a call with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: object
    ) -> "AsyncResult[R]":
        """Enqueue a call.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            **options: ``countdown`` in seconds, ``eta`` with a time zone, ``queue``, ``priority``.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
            PayloadNotEncodable: an argument would arrive as another value.
        """
        chosen = honoured_options("Celery", options, CALL_OPTIONS, CALL_REMEDIES)
        countdown = chosen.get("countdown")
        task = self.task.using(
            queue=chosen.get("queue"),
            priority=self._app.priority(chosen.get("priority")),
            run_at=chosen.get("eta"),
            delay=None if countdown is None else timedelta(seconds=countdown),
        )
        given, named = tuple(args or ()), dict(kwargs or {})
        require_faithful(self._app.queue, task, given, named)
        return AsyncResult(task.enqueue(*given, **named).id, self._app.queue)


class AsyncResult(Generic[R]):
    """A job, with Celery's methods.

    Attributes:
        id: the job's id as a string.
    """

    def __init__(self, task_id: str | int, queue: PgQueue) -> None:
        """Name a job.

        Args:
            task_id: its id.
            queue: its queue.

        Raises:
            InvalidOption: it cannot be an id of pgqueue.
        """
        if not str(task_id).isdecimal():
            raise InvalidOption(
                f"task_id={task_id!r} is no id of a job in pgqueue; "
                "the results of Celery's tasks are in Celery's result backend"
            )
        self.id = str(task_id)
        self._queue = queue

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED; PENDING, too, if there is no such job."""
        try:
            job = self._queue.job(int(self.id))
        except JobNotFound:
            return "PENDING"
        return STATES.get(job.state, "RETRY" if job.attempts else "PENDING")

    status = state

    @property
    def result(self) -> "R | JobFailed | None":
        """What the task returned; the failure, if it failed; None before it has ended."""
        if not self.ready():
            return None
        try:
            return self.get()
        except JobFailed as failure:
            return failure

    def ready(self) -> bool:
        """Whether the job has ended."""
        return self.state in {"SUCCESS", "FAILURE", "REVOKED"}

    def successful(self) -> bool:
        """Whether it succeeded."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether it is dead."""
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, *, propagate: bool = True) -> "R | JobFailed":
        """Wait for the result.

        Args:
            timeout: how long to wait, in seconds; None: without limit.
            propagate: raise a failure; False returns it.

        Raises:
            JobFailed: the job is dead or was revoked. The message names the task's exception.
            JobNotDone: it has not ended within the timeout; a :class:`TimeoutError`.
        """
        try:
            return self._queue.result(int(self.id), timeout=timeout)  # type: ignore[no-any-return]  # any JSON
        except JobFailed as failure:
            if propagate:
                raise
            return failure

    def revoke(self, *, terminate: bool = False) -> None:
        """Cancel the job if it waits; with ``terminate``, ask the worker of a running one to stop it, too."""
        if terminate or self.state != "STARTED":
            self._queue.cancel(int(self.id))


class CeleryRequest(NamedTuple):
    """``self.request``: the job's id, and the number of its retries."""

    id: str | None
    retries: int


class BoundTask:
    """The ``self`` of a task with ``bind=True``.

    Attributes:
        name: the task's name.
    """

    def __init__(self, name: str, context: Context | None, retry_delay: float) -> None:
        """Made for each attempt; without a context the function was called directly."""
        self.name = name
        self._context = context
        self._retry_delay = retry_delay

    @property
    def request(self) -> CeleryRequest:
        """The attempt."""
        if self._context is None:
            return CeleryRequest(None, 0)
        return CeleryRequest(str(self._context.job.id), self._context.attempt - 1)

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        throw: bool = True,
        **options: object,
    ) -> NoReturn:
        """End this attempt, and start another one later; the last attempt raises ``exc``.

        Args:
            exc: the reason.
            countdown: seconds until the next attempt; the task's ``default_retry_delay`` by default.
            throw: must be True.
            **options: none is honoured.

        Raises:
            RetryLater: the attempt ends here.
            InvalidOption: an option is not honoured.
            ConfigurationError: this is no attempt: the function was called directly.
        """
        honoured_options("Celery", options, (), RETRY_REMEDIES)
        if not throw:
            raise InvalidOption(
                "throw=False: a retry always ends the attempt at this line; write raise self.retry(...)"
            )
        context = self._context
        if exc is not None and (context is None or context.attempt >= context.job.max_attempts):
            raise exc
        if context is None:
            raise ConfigurationError(f"{self.name} was called directly: there is no job to retry")
        delay = timedelta(seconds=self._retry_delay if countdown is None else countdown)
        raise RetryLater(delay, "asked to be retried" if exc is None else repr(exc)) from exc


def _with_self(function: Callable[..., Any], options: TaskOptions) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{function.__qualname__}: bind=True is for plain functions; for an async one use @queue.task and a Context"
        )
    name = options.name or f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def run(context: Context | None, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 - the function's own
        return function(BoundTask(name, context, options.default_retry_delay), *args, **kwargs)

    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect reads first
        parameters=[first.replace(annotation=Context), *others]
    )
    run.__annotations__ = {**function.__annotations__, first.name: Context}
    return run
