"""What a worker publishes of its tasks when it starts, for programs that have not their code: queues, and types."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from pgqueue.app.named import contracts_of, known_tasks_of
from pgqueue.app.task import Task
from pgqueue.errors import PgQueueError
from pgqueue.store.jobs import known_tasks
from pgqueue.store.pipeline import contracts
from pgqueue.values.payloads.contract import TaskContract
from pgqueue.worker.connection import LONG_READ, WorkerConnection
from pgqueue.worker.joblog import worker_log

log = worker_log()

AT_ONCE: Final = 20
"""Tasks whose types are read before the event loop goes on: about 10 ms."""
NAMED: Final = 20


async def store_tasks(tasks: Mapping[str, Task[..., Any]], own: WorkerConnection) -> None:
    """Store what the tasks take and return. A failure is logged, and the worker runs jobs all the same."""
    found = await _contracts(dict(tasks))
    left_out = [name for name, one in found.items() if one is None]
    if left_out:
        log.warning(
            "the types of some tasks are not stored: their JSON schemas have more than 64 KiB, or have no place in the "
            "database; enqueues of them by name are not checked, and the pipeline has no columns for their arguments",
            extra={"count": len(left_out), "tasks": left_out[:NAMED]},
        )
    try:
        await own.run(known_tasks.say(known_tasks_of(tasks, found)), bound=LONG_READ)
        await own.run(contracts.say([one for one in found.values() if one is not None]), bound=LONG_READ)
    except (psycopg.Error, PgQueueError):
        log.exception(
            "what the tasks of this app take could not be stored for programs that enqueue by name, and for readers of jobs"
        )


async def _contracts(tasks: Mapping[str, Task[..., Any]]) -> dict[str, TaskContract | None]:
    found: dict[str, TaskContract | None] = {}
    names = list(tasks)
    for start in range(0, len(names), AT_ONCE):
        found |= contracts_of({name: tasks[name] for name in names[start : start + AT_ONCE]})
        await asyncio.sleep(0)
    return dict(sorted(found.items()))
