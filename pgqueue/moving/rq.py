"""Call sites written for RQ, on pgqueue: ``Queue.enqueue``, ``enqueue_in``, ``enqueue_at``, ``@job``, ``Job``.

::

    queue = PgQueue()
    register(queue, send_receipt, resize_image)
    mail = Queue("mail", connection=queue)
    mail.enqueue(send_receipt, 42)

RQ's worker imports any function that a job names; a pgqueue worker runs only functions that are registered with its
queue, so register each function once. Jobs keep RQ's meaning: one attempt unless ``retry=`` allows more, retried at
once, 180 seconds each. An option that is not honoured raises an error that names it. The guide is
``docs/moving/from-rq.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import update_wrapper
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, TypeVar

from tenacity.stop import stop_after_attempt
from tenacity.wait import wait_none

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption
from pgqueue.moving.strict import honoured_options, path_of, require_faithful, require_task
from pgqueue.values.jobs import job as values
from pgqueue.values.jobs import retry as policies
from pgqueue.values.jobs.job import JobState

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 180
FRONT = 100
"""The priority of ``at_front=True``: before every job of lower priority."""

KNOWN = ("at_front", "retry")
CALLBACK = "use pgqueue.group([task.call(...)], on_success=..., on_failure=...), or a hook: @queue.on('dead')"
LIMIT = "a time limit belongs to the function: register(queue, function, timeout=...)"
KEPT = "the queue sets how long ended jobs are kept: PgQueue(history=...)"
REMEDIES = {
    "depends_on": "use pgqueue.chain(first.call(...), second.call(...)).enqueue(), or pgqueue.Workflow",
    "description": "a job has its task's name; omit it",
    "failure_ttl": KEPT,
    "group_id": "use pgqueue.group([task.call(...), ...]).enqueue()",
    "job_id": "the database makes the ids; for at most one live job use task.using(unique_key=...)",
    "job_timeout": LIMIT,
    "meta": "pass the value as an argument, or use pgqueue's own task.using(meta=...)",
    "on_failure": CALLBACK,
    "on_stopped": CALLBACK,
    "on_success": CALLBACK,
    "pipeline": "to enqueue in your transaction, write task.using(connection=...).enqueue(...)",
    "repeat": "use queue.schedules.add(name, task.call(...), every=..., end=...), or @queue.schedule",
    "result_ttl": KEPT,
    "timeout": LIMIT,
    "ttl": "use task.using(expires_in=...).enqueue(...)",
}
STATUSES = MappingProxyType(
    {
        JobState.BLOCKED: "deferred",
        JobState.SCHEDULED: "scheduled",
        JobState.READY: "queued",
        JobState.RUNNING: "started",
        JobState.SUCCEEDED: "finished",
        JobState.DEAD: "failed",
        JobState.CANCELLED: "canceled",
    }
)


@dataclass(frozen=True)
class Retry:
    """RQ's ``Retry``: the number of further attempts after the first.

    Attributes:
        max: the number of further attempts.
        interval: must be 0: the wait between attempts belongs to the function.

    Raises:
        InvalidOption: ``max`` is below 1, or there is an interval.
    """

    max: int
    interval: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        if self.max < 1:
            raise InvalidOption(f"Retry(max={self.max!r}): use a number from 1")
        if self.interval not in (0, [], ()):
            raise InvalidOption(
                f"Retry(interval={self.interval!r}): how long to wait belongs to the function; "
                "register it with @queue.task(retry=pgqueue.Retry(wait=...))"
            )


def register(
    queue: PgQueue,
    *functions: Callable[..., Any],
    timeout: float | None = DEFAULT_TIMEOUT,
    retry: Retry | None = None,
) -> None:
    """Make functions known to the workers of a queue, under their dotted paths and with RQ's meaning.

    Args:
        queue: the queue whose workers run them.
        *functions: any functions, yours or a library's.
        timeout: how many seconds an attempt may take; -1 or None: without limit.
        retry: how many further attempts a failed job has, unless its enqueue sets it.
    """
    for function in functions:
        queue.task(
            name=path_of(function),
            timeout=None if timeout == -1 else timeout,
            retry=policies.Retry(wait=wait_none(), stop=stop_after_attempt(_attempts(retry))),
        )(function)


class Queue:
    """Replaces an RQ queue.

    Attributes:
        name: the queue's name.
        connection: the :class:`PgQueue` that it belongs to.
    """

    def __init__(self, name: str = "default", connection: PgQueue | None = None) -> None:
        """Name a queue.

        Args:
            name: its name.
            connection: your ``PgQueue``, in place of the Redis connection.

        Raises:
            InvalidOption: the connection is no ``PgQueue``.
        """
        if not isinstance(connection, PgQueue):
            raise InvalidOption(
                f"connection={connection!r}: give your PgQueue, in place of the Redis connection"
            )
        self.name = name
        self.connection = connection

    def enqueue(self, f: Callable[..., Any] | str, *args: object, **kwargs: object) -> "Job":
        """Enqueue a call.

        Args:
            f: a registered function, or its dotted path.
            *args: the function's positional arguments.
            **kwargs: the function's keyword arguments, and RQ's options: ``retry``, ``at_front``. RQ's explicit
                ``args=`` and ``kwargs=`` work, too.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
            UnknownTask: the function is not registered.
            PayloadNotEncodable: an argument would arrive as another value.
        """
        return self._enqueue(f, args, kwargs)

    def enqueue_in(
        self, time_delta: timedelta, func: Callable[..., Any] | str, *args: object, **kwargs: object
    ) -> "Job":
        """Enqueue a call that is due after ``time_delta``; otherwise as :meth:`enqueue`."""
        return self._enqueue(func, args, kwargs, delay=time_delta)

    def enqueue_at(
        self, datetime: datetime, f: Callable[..., Any] | str, *args: object, **kwargs: object
    ) -> "Job":
        """Enqueue a call that is due at an instant, with a time zone; otherwise as :meth:`enqueue`."""
        return self._enqueue(f, args, kwargs, run_at=datetime)

    def enqueue_call(
        self,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: object,
    ) -> "Job":
        """Enqueue a call whose arguments are separate from the options; otherwise as :meth:`enqueue`."""
        return self._enqueue(func, (), {**options, "args": args, "kwargs": kwargs})

    def _enqueue(
        self,
        function: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        **due: Any,  # noqa: ANN401 - those of Task.using
    ) -> "Job":
        options, args, kwargs = _without_options(args, kwargs)
        task = require_task(
            self.connection, function, "register(queue, function) makes it known to workers"
        ).using(
            queue=self.name,
            priority=FRONT if options.get("at_front") else None,
            max_attempts=_attempts(options["retry"]) if options.get("retry") else None,
            **due,
        )
        require_faithful(self.connection, task, args, kwargs)
        return Job(task.enqueue(*args, **kwargs).id, self.connection)


class Job:
    """A job, with RQ's methods.

    Attributes:
        id: its id as a string.
    """

    def __init__(self, id: str | int, connection: PgQueue) -> None:  # noqa: A002 - RQ's own name
        """Name a job.

        Args:
            id: its id.
            connection: your ``PgQueue``.

        Raises:
            InvalidOption: it cannot be an id of pgqueue.
        """
        if not str(id).isdecimal():
            raise InvalidOption(f"id={id!r} is no id of a job in pgqueue; RQ's jobs are in Redis")
        self.id = str(id)
        self._queue = connection

    @classmethod
    def fetch(cls, id: str | int, connection: PgQueue) -> "Job":  # noqa: A002 - RQ's own name
        """A job by its id.

        Args:
            id: its id.
            connection: your ``PgQueue``.

        Raises:
            JobNotFound: the job has no record.
        """
        found = cls(id, connection)
        found.recorded()
        return found

    def recorded(self) -> values.Job:
        """Its record in pgqueue.

        Raises:
            JobNotFound: the job has no record.
        """
        return self._queue.job(int(self.id))

    def get_status(self) -> str:
        """One of queued, scheduled, deferred, started, finished, failed and canceled."""
        return STATUSES[self.recorded().state]

    @property
    def is_queued(self) -> bool:
        """Whether it waits for a worker."""
        return self.get_status() == "queued"

    @property
    def is_started(self) -> bool:
        """Whether it runs."""
        return self.get_status() == "started"

    @property
    def is_finished(self) -> bool:
        """Whether it succeeded."""
        return self.get_status() == "finished"

    @property
    def is_failed(self) -> bool:
        """Whether it is dead."""
        return self.get_status() == "failed"

    def return_value(self) -> Any:  # noqa: ANN401 - any JSON
        """What the function returned; None before the job has ended, and if it failed."""
        return self.recorded().result

    @property
    def result(self) -> Any:  # noqa: ANN401 - any JSON
        """As :meth:`return_value`."""
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of the last attempt that failed."""
        errors = self.recorded().errors
        return errors[-1].traceback or errors[-1].message if errors else None

    def cancel(self) -> None:
        """Cancel it if it waits; a running job continues, as in RQ."""
        if not self.is_started:
            self._queue.cancel(int(self.id))


class JobFunction(Generic[P, R]):
    """The function that ``@job`` returns, with ``delay``.

    Attributes:
        task: the pgqueue task.
    """

    __name__: str

    def __init__(self, function: Callable[P, R], queue: Queue, task: Task[..., Any]) -> None:
        """Made by :func:`job`."""
        update_wrapper(self, function)
        self.task = task
        self._function = function
        self._queue = queue

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function at once, in this process."""
        return self._function(*args, **kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a call with these arguments."""
        return self._queue.enqueue_call(self.task.name, args, kwargs)


def job(
    queue: Queue | str,
    connection: PgQueue | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    retry: Retry | None = None,
    **options: object,
) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
    """RQ's decorator: registers the function, and gives it ``delay``.

    Args:
        queue: a :class:`Queue`, or a name with the connection beside it.
        connection: your ``PgQueue``.
        timeout: as for :func:`register`.
        retry: as for :func:`register`.
        **options: none is honoured.

    Raises:
        InvalidOption: an option is not honoured; the message says what to do instead.
    """
    honoured_options("RQ", options, (), REMEDIES)
    target = Queue(queue, connection) if isinstance(queue, str) else queue

    def decorate(function: Callable[P, R]) -> JobFunction[P, R]:
        register(target.connection, function, timeout=timeout, retry=retry)
        return JobFunction(function, target, target.connection.find_task(path_of(function)))

    return decorate


def _without_options(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]:
    """Return RQ's options, and the function's positional and keyword arguments."""
    given = {name: value for name, value in kwargs.items() if name in KNOWN or name in REMEDIES}
    rest = {name: value for name, value in kwargs.items() if name not in given}
    if "args" in rest or "kwargs" in rest:
        if args:
            raise InvalidOption(
                f"args={rest.get('args')!r}: give positional arguments in one of the two ways"
            )
        args, rest = tuple(rest.get("args") or ()), dict(rest.get("kwargs") or {})
    return honoured_options("RQ", given, KNOWN, REMEDIES), args, rest


def _attempts(retry: "Retry | int | None") -> int:
    match retry:
        case None:
            return 1
        case int():
            return Retry(retry).max + 1
        case Retry():
            return retry.max + 1
        case _:
            raise InvalidOption(f"retry={retry!r}: use pgqueue.moving.rq.Retry(max=...) or a number")
