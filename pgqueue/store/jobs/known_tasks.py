"""What workers say of their tasks, for programs that enqueue by name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from pgqueue.store import audit
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs import enqueue
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.queues.defaults import QueueCache

LONGEST_SCHEMA: Final = 20_000
"""Characters. A longer schema is not shown."""


class KnownTask(msgspec.Struct, frozen=True):
    """What is stored of a task.

    Attributes:
        name: the task's name.
        queue: of its jobs, where the enqueue names none; None: no worker has said anything of the task.
        priority: of its jobs; None: what the queue says.
        max_attempts: the same.
        arguments: the JSON schema of its arguments, as text; None: not said.
        result: that of its result.
    """

    name: str
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    arguments: str | None = None
    result: str | None = None


class NamedJob(msgspec.Struct, frozen=True):
    """What an enqueue by name has to know: the task, and the lane and the cost of this job; None: it has no limits."""

    task: KnownTask
    lane: str | None
    cost: int | None


@plan
def say(tasks: Sequence[KnownTask]) -> Steps[None]:
    """Store what a worker says of its tasks."""
    params: dict[str, Any] = {
        "tasks": texts(one.name for one in tasks),
        "queues": texts(one.queue or "default" for one in tasks),
        "priorities": numbers([one.priority for one in tasks]),
        "attempts": numbers([one.max_attempts for one in tasks]),
        "arguments": texts(one.arguments or "{}" for one in tasks),
        "results": texts(one.result for one in tasks),
    }
    yield Statement("workers/say_tasks", params, returns=False)


@plan
def find(name: str, args: bytes) -> Steps[NamedJob]:
    """What workers have said of a task, and the lane of a job with these arguments."""
    ((*said, lane, cost),) = yield Statement("jobs/known_task", {"task": name, "args": args.decode()})
    return NamedJob(KnownTask(name, *said), lane, cost)


@plan(reads=True)
def listed(task: str | None, limit: int) -> Steps[list[KnownTask]]:
    """What workers have said of their tasks.

    Args:
        task: only this one.
        limit: at most how many.
    """
    params = {"task": task, "limit": limit, "longest": LONGEST_SCHEMA}
    return [KnownTask(*row) for row in (yield Statement("insight/known_tasks", params))]


@plan(transaction=True, adds=True)
def enqueue_noted(
    job: NewJob, *, by: str, known: QueueCache | None = None, now: datetime | None = None
) -> Steps[EnqueueAnswer]:
    """Add one job, and write down in the audit who did; other arguments as for :func:`pgqueue.store.jobs.enqueue.enqueue`."""
    answer = yield from enqueue.enqueue(job, known=known, now=now)
    if answer.outcome is not Outcome.REJECTED:
        yield from audit.note("enqueue", str(answer.id), by=by, task=job.task)
    return answer
