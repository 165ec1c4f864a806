"""Celery's options: those that are honoured, with its own defaults and meaning; and what to do about the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tenacity.retry import retry_if_exception_type
from tenacity.stop import stop_after_attempt
from tenacity.wait import WaitBaseT, wait_exponential, wait_fixed, wait_random_exponential

from pgqueue.moving.strict import FOR_EVER, honoured
from pgqueue.values.retry import Retry

RESULTS = (
    "results are kept with the job's history; leave it out, or keep none with PgQueue(history=timedelta(0))"
)
JSON = "arguments and results travel as JSON; leave it out"
ROUTING = "there is no broker to route through; use queue="
TASK_REMEDIES = {
    "base": "there are no task classes; wrap the function, or give PgQueue(middleware=[...])",
    "dont_autoretry_for": "name in autoretry_for what is to be retried, and nothing wider",
    "expires": "jobs do not expire; look at the time in the task, and return",
    "ignore_result": RESULTS,
    "rate_limit": "not yet in pgqueue; run the tasks that need it in a queue and worker of their own",
    "reject_on_worker_lost": "a job whose worker died runs again while it has attempts; use acks_late and max_retries",
    "serializer": JSON,
    "soft_time_limit": "there is one limit; use time_limit",
    "throws": "every failed attempt is logged and kept; leave it out",
    "track_started": "whether a job has started is always known; leave it out",
}
CALL_OPTIONS = ("countdown", "eta", "priority", "queue")
CALL_REMEDIES = {
    "chain": "chains are not yet in pgqueue; enqueue the next task at the end of this one",
    "chord": "chords are not yet in pgqueue",
    "compression": JSON,
    "connection": "to enqueue in your transaction, write task.task.using(connection=...).enqueue(...)",
    "exchange": ROUTING,
    "expires": TASK_REMEDIES["expires"],
    "group_id": "groups are not yet in pgqueue",
    "headers": "a job carries its arguments and nothing else; pass it as one",
    "ignore_result": RESULTS,
    "link": "callbacks are not yet in pgqueue; enqueue the next task at the end of this one",
    "link_error": "callbacks are not yet in pgqueue; look at the dead jobs, or catch the error in the task",
    "retry": "an enqueue is a row in your database: it is there or it raises; leave it out",
    "retry_policy": "an enqueue is a row in your database: it is there or it raises; leave it out",
    "routing_key": ROUTING,
    "serializer": JSON,
    "shadow": "a job goes by its task's name; leave it out",
    "soft_time_limit": "the limit belongs to the task: @app.task(time_limit=...)",
    "task_id": "the database gives out ids; for at most one live job use task.task.using(unique_key=...)",
    "time_limit": "the limit belongs to the task: @app.task(time_limit=...)",
}
RETRY_REMEDIES = {
    "args": "a job keeps its arguments; enqueue another one, and return",
    "eta": "use countdown=",
    "kwargs": "a job keeps its arguments; enqueue another one, and return",
    "max_retries": "set it on the task: @app.task(bind=True, max_retries=...)",
    "priority": "a job keeps its priority; leave it out",
    "queue": "a job keeps its queue; leave it out",
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
        """Refuse what ``retry_kwargs`` cannot honour."""
        honoured("Celery", self.retry_kwargs, ("max_retries", "countdown"), RETRY_REMEDIES)

    @property
    def attempts(self) -> int:
        """How often a job may begin: once, unless the task retries or wants to be run again after a crash."""
        if not (self.bind or self.autoretry_for or self.acks_late):
            return 1
        retries = self.retry_kwargs.get("max_retries", self.max_retries)
        return FOR_EVER if retries is None else int(retries) + 1

    def policy(self) -> Retry:
        """The same as a policy of pgqueue's; ``self.retry`` decides for itself."""
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
