"""How a program asks for the stack of a running job, and waits for the answer."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from pgqueue.app.operator import operator_name
from pgqueue.app.results import not_found
from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.store import audit
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan
from pgqueue.store.workers import stacks
from pgqueue.values.jobs.job import Job
from pgqueue.values.workers.stack import Stack

WITHIN = timedelta(seconds=15)
"""A worker whose event loop is blocked answers with its next heartbeat: every 10 seconds, where its lease is 30 seconds."""
PAUSE = 0.1
"""Seconds between two looks for the answer."""


class StacksQueue(Protocol):
    """A queue."""

    @property
    def database(self) -> Database:
        """Where its jobs are."""


def stack(queue: StacksQueue, job_id: int, timeout: Duration, by: str | None) -> Stack:
    """See :meth:`pgqueue.app.control.QueueControl.stack`."""
    database, within = queue.database, as_limit("timeout", timeout)
    found = database.run(_ask_plan(job_id, by))
    if found is None:
        raise _not_running(job_id, database.run(control.show(job_id).on_primary()))
    for pause in _looks(within):
        time.sleep(pause)
        found = database.run(stacks.look(job_id)) or found
        if found.answered_at is not None:
            break
    return found


async def astack(queue: StacksQueue, job_id: int, timeout: Duration, by: str | None) -> Stack:  # noqa: ASYNC109 - as the blocking one
    """As :func:`stack`, awaited."""
    database, within = queue.database, as_limit("timeout", timeout)
    found = await database.arun(_ask_plan(job_id, by))
    if found is None:
        raise _not_running(job_id, await database.arun(control.show(job_id).on_primary()))
    for pause in _looks(within):
        await asyncio.sleep(pause)
        found = await database.arun(stacks.look(job_id)) or found
        if found.answered_at is not None:
            break
    return found


def _ask_plan(job_id: int, by: str | None) -> Plan[Stack | None]:
    name = operator_name(by)
    return audit.audited(stacks.ask(job_id, by=name), "stack", f"job {job_id}", by=name)


def _not_running(job_id: int, job: Job | None) -> Exception:
    if job is None:
        return not_found(job_id, keeps_history=True)
    return InvalidOption(f"job {job_id} is {job.state}: only a running job has a stack")


def _looks(within: timedelta) -> Iterator[float]:
    ends = time.monotonic() + within.total_seconds()
    while (left := ends - time.monotonic()) > 0:
        yield min(PAUSE, left)
