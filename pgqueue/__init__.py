"""A durable job queue on the PostgreSQL you already run.

Enqueue inside the transaction that makes the job necessary; run ``pgqueue worker``; lose nothing.
"""

import importlib as _importlib
import typing as _typing

from pgqueue import errors as errors  # for programs that write pgqueue.errors.Dead

if _typing.TYPE_CHECKING:
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
    from pgqueue.errors import Cancelled, Dead, PgQueueError, RetryLater, Snooze, Superseded, WaitTimedOut
    from pgqueue.store.connections.open_transaction import OWN_CONNECTION
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
    from pgqueue.values.flows.condition import Condition, result_of
    from pgqueue.values.insight.why import Why
    from pgqueue.values.jobs.attempt_log import AttemptLog, LogLine
    from pgqueue.values.jobs.event import Event, WorkerEvent
    from pgqueue.values.jobs.job import AttemptError, Job, JobState, Outcome
    from pgqueue.values.jobs.note import Progress
    from pgqueue.values.jobs.retry import Retry
    from pgqueue.values.jobs.unique import Debounce, Throttle, Unique
    from pgqueue.values.limits.limit import Limit, Rate
    from pgqueue.values.payloads.codec import Codec, JobPart
    from pgqueue.values.secret_names import SECRETS
    from pgqueue.values.version import __version__
    from pgqueue.values.workers.crashes import Crashes
    from pgqueue.worker.sharded import ShardedWorker
    from pgqueue.worker.worker import Worker

__all__ = [
    "OWN_CONNECTION",
    "SECRETS",
    "Alert",
    "AttemptError",
    "AttemptLog",
    "Backlog",
    "Batch",
    "BatchJob",
    "Call",
    "Cancelled",
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
    "LogLine",
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
    "result_of",
]

_MODULES = {
    "pgqueue.app.batches": ("Batch", "BatchJob"),
    "pgqueue.app.context": ("Context",),
    "pgqueue.app.flows.chains": ("Flow", "chain", "group"),
    "pgqueue.app.flows.handle": ("FlowHandle",),
    "pgqueue.app.flows.nodes": ("Node",),
    "pgqueue.app.flows.workflow": ("Workflow",),
    "pgqueue.app.handle": ("JobHandle",),
    "pgqueue.app.hooks.observer": ("Observer",),
    "pgqueue.app.middleware": ("Middleware",),
    "pgqueue.app.pgqueue": ("PgQueue",),
    "pgqueue.app.takes.take": ("TakenJob",),
    "pgqueue.app.task": ("Call", "Task"),
    "pgqueue.errors": (
        "Cancelled",
        "Dead",
        "PgQueueError",
        "RetryLater",
        "Snooze",
        "Superseded",
        "WaitTimedOut",
    ),
    "pgqueue.store.connections.open_transaction": ("OWN_CONNECTION",),
    "pgqueue.values.alerts.alert": (
        "Alert",
        "Backlog",
        "DeadJobs",
        "Failures",
        "LateSchedule",
        "OldestReady",
        "SaturatedLimit",
        "StalledWorkers",
        "UnservedTask",
    ),
    "pgqueue.values.flows.condition": ("Condition", "result_of"),
    "pgqueue.values.insight.why": ("Why",),
    "pgqueue.values.jobs.attempt_log": ("AttemptLog", "LogLine"),
    "pgqueue.values.jobs.event": ("Event", "WorkerEvent"),
    "pgqueue.values.jobs.job": ("AttemptError", "Job", "JobState", "Outcome"),
    "pgqueue.values.jobs.note": ("Progress",),
    "pgqueue.values.jobs.retry": ("Retry",),
    "pgqueue.values.jobs.unique": ("Debounce", "Throttle", "Unique"),
    "pgqueue.values.limits.limit": ("Limit", "Rate"),
    "pgqueue.values.payloads.codec": ("Codec", "JobPart"),
    "pgqueue.values.secret_names": ("SECRETS",),
    "pgqueue.values.version": ("__version__",),
    "pgqueue.values.workers.crashes": ("Crashes",),
    "pgqueue.worker.sharded": ("ShardedWorker",),
    "pgqueue.worker.worker": ("Worker",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> _typing.Any:  # noqa: ANN401 - a module's attribute
    """Load what a program asks for: a command's help needs no worker, and not even the driver."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
