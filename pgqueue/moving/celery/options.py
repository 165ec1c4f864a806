"""Celery's options: those that are honoured, with Celery's defaults and meaning; and what to do about the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from tenacity.retry import retry_if_exception_type, retry_if_not_exception_type
from tenacity.stop import stop_after_attempt
from tenacity.wait import WaitBaseT, wait_exponential, wait_fixed, wait_random_exponential

from pgqueue.moving.strict import FOR_EVER, honoured_options
from pgqueue.values.jobs.retry import Retry

JSON = "arguments and results are stored as JSON; omit it"
INTERNAL = "Celery sets it itself; use chain, group and chord"
ROUTING = "there is no broker to route through; use queue="
LIMIT = "the limit belongs to the task: @app.task(time_limit=...)"
TASK_REMEDIES = {
    "rate_limit": "use @queue.task(limit=Rate(...)), or limit the queue: pgqueue limits set queue:NAME --rate ...",
    "reject_on_worker_lost": "a job whose worker died runs again while it has attempts; use acks_late and max_retries",
    "serializer": JSON,
    "soft_time_limit": "there is one limit; use time_limit",
}
TASK_SAME = ("ignore_result", "send_events", "shared", "store_errors_even_if_ignored", "throws", "track_started", "trail")  # fmt: skip
"""Options of a task that need no action: results, errors and starts are recorded in any case."""
CALL_OPTIONS = ("countdown", "eta", "expires", "link", "link_error", "priority", "queue")
CALL_REMEDIES = {
    "chain": INTERNAL,
    "chord": INTERNAL,
    "connection": "to enqueue in your transaction, write task.task.using(connection=...).enqueue(...)",
    "exchange": ROUTING,
    "group_id": INTERNAL,
    "headers": "pass the value as an argument, or use task.task.using(meta=...)",
    "routing_key": ROUTING,
    "serializer": JSON,
    "soft_time_limit": LIMIT,
    "task_id": "the database makes the ids; for at most one live job use task.task.using(unique_key=...)",
    "time_limit": LIMIT,
}
CALL_SAME = ("add_to_parent", "compression", "ignore_result", "retry", "retry_policy", "shadow")
"""Options of a call that need no action: an enqueue inserts a row in your database, or raises."""
RETRY_REMEDIES = {
    "args": "a job keeps its arguments; enqueue another one, and return",
    "eta": "use countdown=",
    "kwargs": "a job keeps its arguments; enqueue another one, and return",
    "priority": "a job keeps its priority; omit it",
    "queue": "a job keeps its queue; omit it",
}


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The decorator's options that are honoured, with Celery's defaults and Celery's meaning."""

    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    bind: bool = False
    base: type[Any] | None = None
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_backoff: bool | int = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    retry_kwargs: Mapping[str, Any] = field(default_factory=dict)
    acks_late: bool | None = None
    time_limit: float | None = None
    expires: float | datetime | None = None

    def __post_init__(self) -> None:
        honoured_options("Celery", self.retry_kwargs, ("max_retries", "countdown"), RETRY_REMEDIES)

    @property
    def retries(self) -> int:
        """How often a job of the task may be retried."""
        given = self.retry_kwargs.get("max_retries", self.max_retries)
        return FOR_EVER - 1 if given is None else int(given)

    def policy(self, *, acks_late: bool) -> Retry:
        """The same as a pgqueue policy; ``self.retry`` does not use it.

        A job has one attempt, unless the task retries or is ``acks_late``.
        """
        again = self.bind or self.autoretry_for or acks_late
        return Retry(
            wait=self._wait(),
            stop=stop_after_attempt(self.retries + 1 if again else 1),
            retry=retry_if_exception_type(tuple(self.autoretry_for))
            & retry_if_not_exception_type(tuple(self.dont_autoretry_for)),
        )

    def _wait(self) -> WaitBaseT:
        if not self.retry_backoff:
            return wait_fixed(self.retry_kwargs.get("countdown", self.default_retry_delay))
        growing = wait_random_exponential if self.retry_jitter else wait_exponential
        return growing(multiplier=int(self.retry_backoff), max=self.retry_backoff_max)


TASK_OPTIONS = tuple(one.name for one in fields(TaskOptions))


def task_options(base: type[Any], given: Mapping[str, Any]) -> TaskOptions:
    """The options of a task: those that its base class and the classes above say, and those of its decorator.

    Raises:
        InvalidOption: an option is not honoured; the message says what to do instead.
    """
    known = {*TASK_OPTIONS, *TASK_REMEDIES, *TASK_SAME}
    said = {
        name: value
        for one in reversed(base.__mro__)
        if not one.__module__.startswith("pgqueue.")
        for name, value in vars(one).items()
        if name in known
    }
    chosen = honoured_options("Celery", _plain(said | dict(given)), TASK_OPTIONS, TASK_REMEDIES, TASK_SAME)
    return TaskOptions(**chosen)


def call_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that are honoured.

    Raises:
        InvalidOption: an option is not honoured; the message says what to do instead.
    """
    return honoured_options("Celery", _plain(given), CALL_OPTIONS, CALL_REMEDIES, CALL_SAME)


def times_of(options: Mapping[str, Any], timezone: Any) -> dict[str, Any]:
    """``countdown``, ``eta`` and ``expires`` as options of ``using``; ``timezone`` is that of instants without one."""
    countdown, eta, expires = (options.get(name) for name in ("countdown", "eta", "expires"))
    if (
        isinstance(expires, int | float) and eta is not None
    ):  # Celery counts from the call, pgqueue from the eta
        expires = datetime.now(UTC) + timedelta(seconds=expires)
    elif isinstance(expires, int | float):
        expires -= countdown or 0
    key = "expires_at" if isinstance(expires, datetime) else "expires_in"
    found = {"delay": countdown, "run_at": eta, key: expires}
    return {
        name: value.replace(tzinfo=timezone)
        if isinstance(value, datetime) and value.tzinfo is None
        else value
        for name, value in found.items()
    }


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if (name, value) != ("serializer", "json")}
