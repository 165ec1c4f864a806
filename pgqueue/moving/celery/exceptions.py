"""Celery's exceptions that a task raises or catches. ``Retry`` is what ``self.retry`` raises."""

from typing import NoReturn

from pgqueue.errors import JobNotDone as TimeoutError  # noqa: A004 - Celery's own name
from pgqueue.errors import RetryLater as Retry
from pgqueue.moving.strict import missing_name

__all__ = ["ChordError", "MaxRetriesExceededError", "Retry", "TimeoutError"]
_REMEDIES = {
    "Ignore": "return a value that says so",
    "Reject": "raise pgqueue.Dead(reason): the job is in the dead table at once",
    "SoftTimeLimitExceeded": "there is one limit: time_limit; a plain function may look at ctx.cancelled",
    "TaskRevokedError": "get() raises pgqueue.errors.JobFailed for a cancelled job, too",
}


class MaxRetriesExceededError(Exception):
    """Raised by ``self.retry()`` without ``exc`` when the job has no retry left."""


class ChordError(Exception):
    """What the error callback of a chord's body is told if a task of the header failed."""


def __getattr__(name: str) -> NoReturn:
    raise missing_name("celery.exceptions", name, _REMEDIES)
