"""A durable job queue on the PostgreSQL you already run.

Enqueue inside the transaction that makes the job necessary; run ``pgqueue worker``; lose nothing.
"""

import typing as _typing

from pgqueue.app.batches import Batch, BatchJob
from pgqueue.app.context import Context
from pgqueue.app.flows.chains import Flow, chain, group
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.flows.nodes import Node
from pgqueue.app.flows.workflow import Workflow
from pgqueue.app.handle import JobHandle
from pgqueue.app.hooks.observer import Observer
from pgqueue.app.middleware import Middleware
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.takes.take import TakenJob
from pgqueue.app.task import Call, Task
from pgqueue.errors import Dead, PgQueueError, RetryLater, Snooze, Superseded, WaitTimedOut
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.values.flows.condition import Condition, result
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.event import Event, WorkerEvent
from pgqueue.values.jobs.job import AttemptError, Job, JobState, Outcome
from pgqueue.values.jobs.note import Progress
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.unique import Debounce, Throttle, Unique
from pgqueue.values.limits.limit import Limit, Rate
from pgqueue.values.payloads.codec import Codec, JobPart
from pgqueue.values.workers.crashes import Crashes

if _typing.TYPE_CHECKING:
    from pgqueue.values.alerts.alert import (
        Alert,
        Backlog,
        DeadJobs,
        Failures,
        LateSchedule,
        OldestReady,
        SaturatedLimit,
        StalledWorkers,
        UnservedTask,
    )
    from pgqueue.values.version import __version__
    from pgqueue.worker.sharded import ShardedWorker
    from pgqueue.worker.worker import Worker

__all__ = [
    "OWN_CONNECTION",
    "Alert",
    "AttemptError",
    "Backlog",
    "Batch",
    "BatchJob",
    "Call",
    "Codec",
    "Condition",
    "Context",
    "Crashes",
    "Dead",
    "DeadJobs",
    "Debounce",
    "Event",
    "Failures",
    "Flow",
    "FlowHandle",
    "Job",
    "JobHandle",
    "JobPart",
    "JobState",
    "LateSchedule",
    "Limit",
    "Middleware",
    "Node",
    "Observer",
    "OldestReady",
    "Outcome",
    "PgQueue",
    "PgQueueError",
    "Progress",
    "Rate",
    "Retry",
    "RetryLater",
    "SaturatedLimit",
    "ShardedWorker",
    "Snooze",
    "StalledWorkers",
    "Superseded",
    "TakenJob",
    "Task",
    "Throttle",
    "Unique",
    "UnservedTask",
    "WaitTimedOut",
    "Why",
    "Worker",
    "WorkerEvent",
    "Workflow",
    "__version__",
    "chain",
    "group",
    "result",
]


_OF_ALERTS = frozenset(
    {
        "Alert",
        "Backlog",
        "DeadJobs",
        "Failures",
        "LateSchedule",
        "OldestReady",
        "SaturatedLimit",
        "StalledWorkers",
        "UnservedTask",
    }
)


def __getattr__(name: str) -> _typing.Any:  # noqa: ANN401 - a module's attribute
    """Load the worker, the version and the conditions of alerts when a program first asks for them: most do not need them."""
    if name in _OF_ALERTS:
        from pgqueue.values.alerts import alert  # noqa: PLC0415 - this is the point

        return getattr(alert, name)
    if name == "Worker":
        from pgqueue.worker.worker import Worker  # noqa: PLC0415 - this is the point

        return Worker
    if name == "ShardedWorker":
        from pgqueue.worker.sharded import ShardedWorker  # noqa: PLC0415 - this is the point

        return ShardedWorker
    if name == "__version__":
        from pgqueue.values.version import __version__  # noqa: PLC0415 - it reads a file

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
