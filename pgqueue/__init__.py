"""A durable job queue on the PostgreSQL you already run.

Enqueue inside the transaction that makes the job necessary; run ``pgqueue worker``; lose nothing.
"""

from pgqueue.app.context import Context
from pgqueue.app.handle import JobHandle
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.taken import TakenJob
from pgqueue.app.task import Call, Task
from pgqueue.errors import Dead, PgQueueError, RetryLater, Snooze, Superseded
from pgqueue.store.joining import OWN_CONNECTION
from pgqueue.values.job import AttemptError, Job, JobState, Outcome
from pgqueue.values.retry import Retry
from pgqueue.values.unique import Unique
from pgqueue.values.version import __version__

__all__ = [
    "OWN_CONNECTION",
    "AttemptError",
    "Call",
    "Context",
    "Dead",
    "Job",
    "JobHandle",
    "JobState",
    "Outcome",
    "PgQueue",
    "PgQueueError",
    "Retry",
    "RetryLater",
    "Snooze",
    "Superseded",
    "TakenJob",
    "Task",
    "Unique",
    "__version__",
]
