"""Plans by which a worker is known, keeps its lease, and leaves.

A worker is a row in ``workers`` with a fresh uuid and a lease that it renews each beat; its claims are the ``running`` jobs that
name the uuid. A sweeper that finds the lease in the past deletes the row (:mod:`pgqueue.store.workers.upkeep`), and with it every claim:
running jobs that name no known worker are reclaimed. ``renew`` and that deletion contend for one row, so exactly one of them
wins: a worker that is told its lease is lost has lost every claim, and one that is not has kept them all.
"""

import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import msgspec

from pgqueue.store.arrays import numbers
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.workers.workers import asked_of
from pgqueue.values.jobs.job import Claim
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.values.workers.health import WorkerHealth
from pgqueue.values.workers.worker import WorkerReport, WorkerRequest

NOT_SAID = WorkerHealth()


class WorkerInfo(msgspec.Struct, frozen=True):
    """How a worker introduces itself.

    Attributes:
        id: fresh for every process and every lost lease.
        host: where it runs, for people to read.
        pid: its process id there.
        concurrency: how many jobs it runs at a time.
        version: of pgqueue.
        queues: what it serves; None: all queues.
        tasks: the tasks that it runs; None: not said, it may run any.
        chosen_tasks: what it was told of tasks; None: nothing.
        doing: what it does; None: it does not do what it is asked to do from outside, as a take.
        idle: whether it wants to be notified of new jobs.
    """

    id: UUID
    host: str
    pid: int
    concurrency: int
    version: str
    queues: Sequence[str] | None
    tasks: Sequence[str] | None = None
    chosen_tasks: Sequence[str] | None = None
    doing: WorkerReport | None = None
    idle: bool = True

    @classmethod
    def here(
        cls,
        concurrency: int,
        queues: Sequence[str] | None,
        *,
        id: UUID | None = None,  # noqa: A002 - the field's name
        tasks: Sequence[str] | None = None,
        chosen_tasks: Sequence[str] | None = None,
        doing: WorkerReport | None = None,
        idle: bool = True,
    ) -> "WorkerInfo":
        """A worker of this process, under this id or a new one."""
        from pgqueue.values.version import __version__  # noqa: PLC0415 - reads a file, which enqueuers do without

        host, pid = socket.gethostname(), os.getpid()
        return cls(
            id or uuid4(), host, pid, concurrency, __version__, queues, tasks, chosen_tasks, doing, idle
        )


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """What a worker hears with a heartbeat.

    Attributes:
        ask: what it is asked to do.
        stacks: of which of its jobs a program asks for the stack.
    """

    ask: WorkerRequest
    stacks: Sequence[int] = ()


@plan
def register(worker: WorkerInfo, lease: timedelta, *, now: datetime | None = None) -> Steps[None]:
    """Make a worker known."""
    yield Statement(
        "workers/register",
        {
            "worker": worker.id,
            "lease": lease,
            "host": worker.host,
            "pid": worker.pid,
            "concurrency": worker.concurrency,
            "version": worker.version,
            "queues": None if worker.queues is None else list(worker.queues),
            "tasks": None if worker.tasks is None else list(worker.tasks),
            "chosen_tasks": None if worker.chosen_tasks is None else list(worker.chosen_tasks),
            "idle": worker.idle,
            **_state_parameters(worker.doing),
            "now": now,
        },
        returns=False,
    )


@plan
def renew(
    worker: UUID,
    lease: timedelta,
    *,
    health: WorkerHealth = NOT_SAID,
    doing: WorkerReport | None = None,
    now: datetime | None = None,
) -> Steps[WorkerRequest | None]:
    """Extend a worker's lease, store how it is and what it does, and hear what it is asked to do.

    None: the lease is lost, and every claim with it.
    """
    row = yield from _renew(worker, lease, health, doing, now)
    return None if row is None else asked_of(row[:-1])


def _renew(
    worker: UUID, lease: timedelta, health: WorkerHealth, doing: WorkerReport | None, now: datetime | None
) -> Steps[Row | None]:
    blocked = health.blocked
    rows = yield Statement(
        "workers/renew",
        {
            "worker": worker,
            "lease": lease,
            "blocked_for": None if blocked is None else _ago(blocked.seconds),
            "blocked_job": None if blocked is None else blocked.job,
            "blocked_task": None if blocked is None else blocked.task,
            "blocked_where": None if blocked is None else blocked.where,
            "not_returned": health.not_returned,
            "memory": health.memory,
            "running": None if health.running is None else numbers(health.running),
            "taken": health.taken,
            "overrunning": None if health.overrunning is None else numbers(health.overrunning),
            "looked": _ago(health.looked),
            "look_within": health.look_within,
            "not_listening": _ago(health.not_listening),
            **_state_parameters(doing),
            "maximum": doing and doing.bounds.maximum,
            "answer": doing and doing.answer,
            "now": now,
        },
    )
    return rows[0] if rows else None


@plan
def know_tasks(worker: UUID, tasks: Sequence[str], queues: Sequence[str] | None) -> Steps[None]:
    """Say which tasks a worker runs, after it has loaded more.

    Args:
        worker: which.
        tasks: all of them.
        queues: what it serves; None: all queues.
    """
    params = {"worker": worker, "tasks": [*tasks], "queues": None if queues is None else [*queues]}
    yield Statement("workers/know_tasks", params, returns=False)


@plan
def set_idle(worker: UUID, *, idle: bool, taken: int | None = None) -> Steps[None]:
    """Say whether the worker wants to be notified of new jobs, and how many of its slots are taken; None: a take has none."""
    yield Statement("workers/set_idle", {"worker": worker, "idle": idle, "taken": taken}, returns=False)


@plan
def earlier_takes(worker: UUID, *, now: datetime | None = None) -> Steps[int]:
    """How many takes of the same queues have waited for longer than this one."""
    ((count,),) = yield Statement("workers/earlier_takes", {"worker": worker, "now": now})
    return int(count)


@plan
def leave(worker: UUID) -> Steps[None]:
    """Take a worker off the list; what it still holds is reclaimed by the next sweep."""
    yield Statement("workers/leave", {"worker": worker}, returns=False)


@plan
def leave_without_jobs(worker: UUID) -> Steps[None]:
    """Take a worker off the list that holds nothing, so that no sweeper looks for its jobs."""
    yield from leave(worker)
    yield Statement("workers/leave_without_jobs", {"worker": worker}, returns=False)


@plan
def beat(
    worker: UUID,
    lease: timedelta,
    *,
    health: Callable[[], WorkerHealth] = WorkerHealth,
    doing: WorkerReport | None = None,
    now: datetime | None = None,
) -> Steps[HeartbeatAnswer | None]:
    """Renew the lease, and hear what there is to hear; None: the lease is lost, and every claim with it.

    It reads no job, so no lock on the jobs keeps a worker from its lease.

    Args:
        worker: whose.
        lease: for how long from now.
        health: returns how the worker is; asked at each try, since it says how long ago things were.
        doing: what it does.
        now: the instant of the beat; the database's own by default.
    """
    row = yield from _renew(worker, lease, health(), doing, now)
    if row is None:
        return None
    *asked, stacks = row
    return HeartbeatAnswer(asked_of(asked), tuple(stacks))


@plan
def cancel_requests(worker: UUID, known: Sequence[int]) -> Steps[list[int]]:
    """Which of the worker's jobs a caller asked to cancel."""
    rows = yield Statement("jobs/cancel_requests", {"worker": worker, "known": numbers([*known])})
    return [row[0] for row in rows]


def _ago(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _state_parameters(doing: WorkerReport | None) -> dict[str, object]:
    return {
        "minimum": doing and doing.bounds.minimum,
        "slots": doing and doing.slots,
        "quiet": doing and doing.quiet,
        "supervised": doing and doing.supervised,
    }


@plan
def start(claim: Claim, *, now: datetime | None = None) -> Steps[CrashCount | None]:
    """Note that an attempt starts; None: it no longer holds its job.

    Args:
        claim: the attempt.
        now: the instant; the database's own by default.
    """
    params = {"id": claim.id, "worker": claim.worker_id, "fence": claim.fence, "now": now}
    rows = yield Statement("crashes/start", params)
    return CrashCount(*rows[0]) if rows else None
