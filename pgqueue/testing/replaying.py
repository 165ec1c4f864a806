"""Running a recorded job once more in a test, from the arguments that are stored of it."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.jobs import enqueue
from pgqueue.testing.draining import run_next
from pgqueue.testing.modes import in_memory
from pgqueue.testing.standin import StandIn
from pgqueue.values.jobs.job import JobState, NewJob


def replay(
    queue: PgQueue, task: str, args: Mapping[str, Any], *, meta: Mapping[str, Any] | None = None
) -> None:
    """Run one attempt of a job, its last one, and raise what its task raises.

    The job is in memory, unless the test has given the queue a database of its own (``pgqueue_queue``, ``in_database``).
    What the task enqueues does not run.

    Args:
        queue: the app's.
        task: the task's name.
        args: the arguments as they are stored: by name, as plain JSON values, or in the envelope of the queue's codec.
        meta: what is stored beside them.

    Raises:
        UnknownTask: the app has no such task.
        AssertionError: the job is dead or cancelled, and the task has raised nothing.
        Exception: what the task raised, but for :class:`pgqueue.Snooze`.
    """
    if task not in queue.tasks:
        queue.load_task(task)
    job = NewJob(
        task,
        msgspec.json.encode(args),
        queue.find_task(task).options.queue,
        100,
        1,
        meta=None if meta is None else msgspec.json.encode(meta),
    )
    own = isinstance(queue.database, StandIn)
    with nullcontext() if own else in_memory(queue):
        queue.database.run(enqueue.add(job))
        ran = run_next(queue)
    if ran.outcome in {JobState.DEAD, JobState.CANCELLED}:
        raise ran.error or AssertionError(f"the job of {task} is {ran.outcome}")
