"""Celery's options: those that are honoured, with Celery's defaults and meaning; and what to do about the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tenacity.retry import retry_if_exception_type
from tenacity.stop import stop_after_attempt
from tenacity.wait import WaitBaseT, wait_exponential, wait_fixed, wait_random_exponential

from pgqueue.moving.strict import FOR_EVER, honoured_options
from pgqueue.values.jobs.retry import Retry

RESULTS = "results are kept with the job's history; omit it, or keep none with PgQueue(history=timedelta(0))"
JSON = "arguments and results are stored as JSON; omit it"
CHAIN = "use pgqueue.chain(first.task.call(...), second.task.call(...)).enqueue()"
ROUTING = "there is no broker to route through; use queue="
TASK_REMEDIES = {
    "base": "there are no task classes; wrap the function, or give PgQueue(middleware=[...])",
    "dont_autoretry_for": "name in autoretry_for only the errors to retry",
    "expires": "use task.task.using(expires_in=...) or using(expires_at=...), or @queue.task(expires_in=...)",
    "ignore_result": RESULTS,
    "rate_limit": "use @queue.task(limit=Rate(...)), or limit the queue: pgqueue limits set queue:NAME --rate ...",
    "reject_on_worker_lost": "a job whose worker died runs again while it has attempts; use acks_late and max_retries",
    "serializer": JSON,
    "soft_time_limit": "there is one limit; use time_limit",
    "throws": "every failed attempt is logged and kept; omit it",
    "track_started": "pgqueue always records that a job has started; omit it",
}
CALL_OPTIONS = ("countdown", "eta", "priority", "queue")
CALL_REMEDIES = {
    "chain": CHAIN,
    "chord": "use pgqueue.group([...], on_success=second.task.call(...)).enqueue()",
    "compression": JSON,
    "connection": "to enqueue in your transaction, write task.task.using(connection=...).enqueue(...)",
    "exchange": ROUTING,
    "expires": TASK_REMEDIES["expires"],
    "group_id": "use pgqueue.group([task.task.call(...), ...]).enqueue()",
    "headers": "pass the value as an argument, or use task.task.using(meta=...)",
    "ignore_result": RESULTS,
    "link": CHAIN,
    "link_error": "use pgqueue.group([task.task.call(...)], on_failure=other.task.call(...)), or @queue.on('dead')",
    "retry": "an enqueue inserts a row in your database, or raises; omit it",
    "retry_policy": "an enqueue inserts a row in your database, or raises; omit it",
    "routing_key": ROUTING,
    "serializer": JSON,
    "shadow": "a job has its task's name; omit it",
    "soft_time_limit": "the limit belongs to the task: @app.task(time_limit=...)",
    "task_id": "the database makes the ids; for at most one live job use task.task.using(unique_key=...)",
    "time_limit": "the limit belongs to the task: @app.task(time_limit=...)",
}
RETRY_REMEDIES = {
    "args": "a job keeps its arguments; enqueue another one, and return",
    "eta": "use countdown=",
    "kwargs": "a job keeps its arguments; enqueue another one, and return",
    "max_retries": "set it on the task: @app.task(bind=True, max_retries=...)",
    "priority": "a job keeps its priority; omit it",
    "queue": "a job keeps its queue; omit it",
}
CANVAS = ("s", "si", "signature", "subtask", "chunks", "map", "starmap")


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The decorator's options that are honoured, with Celery's defaults and Celery's meaning."""

    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    bind: bool = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    retry_backoff: bool | int = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    retry_kwargs: Mapping[str, Any] = field(default_factory=dict)
    acks_late: bool = False
    time_limit: float | None = None

    def __post_init__(self) -> None:
        honoured_options("Celery", self.retry_kwargs, ("max_retries", "countdown"), RETRY_REMEDIES)

    @property
    def attempts(self) -> int:
        """How many attempts a job has: one, unless the task retries or is ``acks_late``."""
        if not (self.bind or self.autoretry_for or self.acks_late):
            return 1
        retries = self.retry_kwargs.get("max_retries", self.max_retries)
        return FOR_EVER if retries is None else int(retries) + 1

    def policy(self) -> Retry:
        """The same as a pgqueue policy; ``self.retry`` does not use it."""
        return Retry(
            wait=self._wait(),
            stop=stop_after_attempt(self.attempts),
            retry=retry_if_exception_type(tuple(self.autoretry_for)),
        )

    def _wait(self) -> WaitBaseT:
        if not self.retry_backoff:
            return wait_fixed(self.retry_kwargs.get("countdown", self.default_retry_delay))
        growing = wait_random_exponential if self.retry_jitter else wait_exponential
        return growing(multiplier=int(self.retry_backoff), max=self.retry_backoff_max)


TASK_OPTIONS = tuple(one.name for one in fields(TaskOptions))
