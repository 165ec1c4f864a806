"""Call sites written for Procrastinate, on pgqueue: ``@app.task``, ``.defer``, ``.configure(...)``.

::

    queue = PgQueue()
    app = App(queue)

Tasks keep Procrastinate's meaning: no retry unless ``retry=`` is given, and at most one *waiting* job of a
``queueing_lock``; a second one raises :class:`AlreadyEnqueued`. An option that is not honoured raises an error that names
it. The guide is ``docs/moving/from-procrastinate.md``; ``pgqueue adopt procrastinate`` moves waiting jobs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

from tenacity import RetryCallState
from tenacity.retry import retry_if_exception_type
from tenacity.stop import stop_after_attempt

from pgqueue.app.handle import JobHandle
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Call, Task
from pgqueue.errors import InvalidOption, JobError
from pgqueue.moving.strict import FOR_EVER, honoured_options
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.unique import Unique

P = ParamSpec("P")
R = TypeVar("R")

LOCK = "use @queue.task(limit=Limit(1, by=..., ordered=True)), where by names the argument that the lock is made of"
TASK_OPTIONS = ("aliases", "name", "priority", "queue", "queueing_lock", "retry")
TASK_REMEDIES = {
    "lock": LOCK,
    "pass_context": "annotate the first parameter as pgqueue.Context, and omit the option",
    "task_middleware": "wrap the function, or give PgQueue(middleware=[...])",
}
JOB_OPTIONS = (
    "connection",
    "priority",
    "queue",
    "queueing_lock",
    "schedule_at",
    "schedule_in",
    "task_kwargs",
)
JOB_REMEDIES = {"lock": LOCK}
WAITING = Unique(until="started")


class AlreadyEnqueued(JobError):
    """A job with the same ``queueing_lock`` waits already."""


@dataclass(frozen=True, kw_only=True)
class RetryStrategy:
    """Procrastinate's ``RetryStrategy``; Procrastinate's own object works, too.

    The wait before a further attempt is the sum of three parts; ``n`` is the number of attempts before the failed one.

    Attributes:
        max_attempts: how often to try again; None: without end.
        wait: a constant part, in seconds.
        linear_wait: seconds, times ``n``.
        exponential_wait: this number to the power of ``n + 1``, in seconds.
        retry_exceptions: retry only after these; None: after any.
    """

    max_attempts: int | None = None
    wait: int = 0
    linear_wait: int = 0
    exponential_wait: int = 0
    retry_exceptions: tuple[type[BaseException], ...] | None = None


class App:
    """Replaces a Procrastinate app; its tasks are registered with a queue."""

    def __init__(self, queue: PgQueue) -> None:
        """Register tasks with this queue.

        Args:
            queue: where jobs go.
        """
        self.queue = queue

    @overload
    def task(self, function: Callable[P, R], /) -> "ProcrastinateTask[P, R]": ...
    @overload
    def task(self, /, **options: object) -> "Callable[[Callable[P, R]], ProcrastinateTask[P, R]]": ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: object) -> Any:
        """Register a function, as Procrastinate's ``@app.task`` does; with or without parentheses.

        Args:
            function: the function, if the decorator has no parentheses.
            **options: ``name``, ``aliases``, ``queue``, ``priority``, ``queueing_lock``, and ``retry`` as a
                boolean, a number or a strategy.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
        """
        chosen = honoured_options("Procrastinate", options, TASK_OPTIONS, TASK_REMEDIES)
        policy = policy_of(chosen.get("retry", False))

        def register(decorated: Callable[..., Any]) -> ProcrastinateTask[..., Any]:
            name = chosen.get("name") or f"{decorated.__module__}.{decorated.__name__}"
            first, *_ = [
                self.queue.task(
                    name=one, queue=chosen.get("queue"), priority=chosen.get("priority"), retry=policy
                )(decorated)
                for one in (name, *(chosen.get("aliases") or ()))
            ]
            return ProcrastinateTask(Deferrer(self.queue, first, chosen.get("queueing_lock")))

        return register if function is None else register(function)

    def configure_task(self, name: str, **options: object) -> "Deferrer":
        """As :meth:`ProcrastinateTask.configure`, for a registered task by its name."""
        return Deferrer(self.queue, self.queue.find_task(name)).configured(options)

    def periodic(self, **options: object) -> None:
        """Raise an error that names ``@queue.schedule``, with which pgqueue declares schedules.

        Raises:
            InvalidOption: always.
        """
        raise InvalidOption(
            f"periodic({', '.join(f'{name}={value!r}' for name, value in options.items())}): use "
            "@queue.schedule(...) above @queue.task, and ctx.scheduled_for in place of the parameter timestamp"
        )


class ProcrastinateTask(Generic[P, R]):
    """Replaces a Procrastinate task.

    Attributes:
        task: the pgqueue task: for ``using``, ``enqueue`` and everything that Procrastinate does not have.
        name: its name.
    """

    def __init__(self, deferrer: "Deferrer") -> None:
        """Made by :meth:`App.task`."""
        self.task = deferrer.task
        self.name = deferrer.task.name
        self._deferrer = deferrer
        self.__doc__ = deferrer.task.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function at once, in this process."""
        return self.task.function(*args, **kwargs)  # type: ignore[no-any-return]  # the function's own

    def configure(self, **options: object) -> "Deferrer":
        """Set options of the next job.

        Args:
            **options: ``queueing_lock``, ``task_kwargs``, ``schedule_at``, ``schedule_in``, ``queue``,
                ``priority``, ``connection``.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
        """
        return self._deferrer.configured(options)

    def defer(self, **task_kwargs: object) -> int:
        """Enqueue a call; the job's id.

        Raises:
            AlreadyEnqueued: a job with the task's ``queueing_lock`` waits.
        """
        return self._deferrer.defer(**task_kwargs)

    async def defer_async(self, **task_kwargs: object) -> int:
        """Enqueue a call; the job's id.

        Raises:
            AlreadyEnqueued: a job with the task's ``queueing_lock`` waits.
        """
        return await self._deferrer.defer_async(**task_kwargs)

    def batch_defer(self, *task_kwargs: Mapping[str, Any]) -> list[int]:
        """Enqueue many calls, all or none; the jobs' ids."""
        return self._deferrer.batch_defer(*task_kwargs)

    async def batch_defer_async(self, *task_kwargs: Mapping[str, Any]) -> list[int]:
        """Enqueue many calls, all or none; the jobs' ids."""
        return await self._deferrer.batch_defer_async(*task_kwargs)


@dataclass(frozen=True)
class Deferrer:
    """Enqueues jobs of a task with set options; ``configure`` returns it.

    Attributes:
        queue: where jobs go.
        task: the task, with its options.
        queueing_lock: a key that at most one waiting job has, or None.
        task_kwargs: arguments, to which ``defer`` adds its own.
        connection: the connection in whose transaction to enqueue; None: a transaction of its own.
    """

    queue: PgQueue
    task: Task[..., Any]
    queueing_lock: str | None = None
    task_kwargs: Mapping[str, Any] = field(default_factory=dict)
    connection: object = None

    def configured(self, options: Mapping[str, Any]) -> "Deferrer":
        """A copy with other options.

        Raises:
            InvalidOption: an option is not honoured, or out of its range.
        """
        chosen = honoured_options("Procrastinate", options, JOB_OPTIONS, JOB_REMEDIES)
        schedule_in = chosen.get("schedule_in")
        return replace(
            self,
            task=self.task.using(
                queue=chosen.get("queue"),
                priority=chosen.get("priority"),
                run_at=chosen.get("schedule_at"),
                delay=None if schedule_in is None else timedelta(**schedule_in),
            ),
            queueing_lock=chosen.get("queueing_lock") or self.queueing_lock,
            task_kwargs=chosen.get("task_kwargs") or {},
            connection=chosen.get("connection"),
        )

    def defer(self, **task_kwargs: object) -> int:
        """Enqueue a call; the job's id.

        Raises:
            AlreadyEnqueued: a job with the same ``queueing_lock`` waits.
        """
        return self._accepted(self._ready().enqueue(**{**self.task_kwargs, **task_kwargs}))

    async def defer_async(self, **task_kwargs: object) -> int:
        """Enqueue a call; the job's id.

        Raises:
            AlreadyEnqueued: a job with the same ``queueing_lock`` waits.
        """
        return self._accepted(await self._ready().aenqueue(**{**self.task_kwargs, **task_kwargs}))

    def batch_defer(self, *task_kwargs: Mapping[str, Any]) -> list[int]:
        """Enqueue many calls, all or none; the jobs' ids.

        Raises:
            AlreadyEnqueued: they share a ``queueing_lock``, so that no two of them could wait.
        """
        if self._is_single(task_kwargs):
            return [self.defer(**one) for one in task_kwargs]
        return [
            one.id for one in self.queue.enqueue_many(self._calls(task_kwargs), connection=self.connection)
        ]

    async def batch_defer_async(self, *task_kwargs: Mapping[str, Any]) -> list[int]:
        """Enqueue many calls, all or none; the jobs' ids.

        Raises:
            AlreadyEnqueued: they share a ``queueing_lock``, so that no two of them could wait.
        """
        if self._is_single(task_kwargs):
            return [await self.defer_async(**one) for one in task_kwargs]
        handles = await self.queue.aenqueue_many(self._calls(task_kwargs), connection=self.connection)
        return [one.id for one in handles]

    def _ready(self) -> Task[..., Any]:
        unique = None if self.queueing_lock is None else WAITING
        return self.task.using(connection=self.connection, unique_key=self.queueing_lock, unique=unique)

    def _accepted(self, handle: JobHandle[Any]) -> int:
        if not handle.accepted:
            raise AlreadyEnqueued(
                f"queueing_lock={self.queueing_lock!r}: job {handle.id} already waits with this lock"
            )
        return handle.id

    def _is_single(self, task_kwargs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether there is a lock, and so at most one call."""
        if self.queueing_lock is not None and len(task_kwargs) > 1:
            raise AlreadyEnqueued(
                f"queueing_lock={self.queueing_lock!r}: {len(task_kwargs)} jobs cannot wait with one lock"
            )
        return self.queueing_lock is not None

    def _calls(self, task_kwargs: Sequence[Mapping[str, Any]]) -> Iterator[Call[Any]]:
        return (self.task.call(**{**self.task_kwargs, **one}) for one in task_kwargs)


def policy_of(retry: object) -> Retry:
    """Procrastinate's ``retry=`` as a pgqueue policy: no retry, a number of retries, or a strategy's.

    Raises:
        InvalidOption: it is a custom strategy.
    """
    if isinstance(retry, bool):
        strategy: Any = RetryStrategy(max_attempts=None if retry else 0)
    elif isinstance(retry, int):
        strategy = RetryStrategy(max_attempts=retry)
    else:
        strategy = retry
    if not all(hasattr(strategy, one.name) for one in fields(RetryStrategy)):
        raise InvalidOption(
            f"retry={retry!r}: pgqueue cannot use a custom strategy; write it as "
            "@queue.task(retry=pgqueue.Retry(...)), or raise pgqueue.RetryLater in the task"
        )

    def wait(state: RetryCallState) -> float:
        before = state.attempt_number - 1
        return float(
            strategy.wait + strategy.linear_wait * before + strategy.exponential_wait ** (before + 1)
        )

    retries = strategy.max_attempts
    # Procrastinate reads 0 as "no limit"; for "no retry" it has no strategy.
    unlimited = retries is None or (retries == 0 and retry is strategy)
    return Retry(
        wait=wait,
        stop=stop_after_attempt(FOR_EVER if unlimited else retries + 1),
        retry=retry_if_exception_type(tuple(strategy.retry_exceptions or (BaseException,))),
    )
