"""Plans for people and their tools: look, cancel, retry, purge. Every door calls these."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.store.arrays import numbers
from pgqueue.store.columns import SENT, Type
from pgqueue.store.flows import flow_control
from pgqueue.store.jobs import admission
from pgqueue.store.jobs.finish import cancel_waiting
from pgqueue.store.jobs.notifications import wake
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.workers.workers import unknown_tasks
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.jobs.job import Job, JobState, NewJob, QueueCount
from pgqueue.values.payloads.storable import errors_of, object_of, value_of
from pgqueue.values.queues.standing import UnknownTaskJobs
from pgqueue.values.workers.health import BlockedLoop, WorkerProblem

NEWEST = (1 << 63) - 1


class QueueSummary(msgspec.Struct, frozen=True):
    """How the queue is, at a glance.

    Attributes:
        workers: how many are alive.
        oldest_ready: how many seconds the longest-waiting ready job has waited, paused queues left out; None: no
            job waits.
        unknown: waiting jobs of tasks that no live worker runs, those first that no worker has run for longest.
        worker_problems: live workers whose event loop is blocked, the longest first, that wait for functions to return,
            do not look for jobs, or cannot listen.
    """

    workers: int
    oldest_ready: float | None
    unknown: tuple[UnknownTaskJobs, ...] = ()
    worker_problems: tuple[WorkerProblem, ...] = ()


@plan(reads=True)
def show(job_id: int) -> Steps[Job | None]:
    """Everything recorded of one job, live or ended; None: no record."""
    if not is_id(job_id):
        return None
    rows = yield Statement("jobs/show", {"ids": numbers([job_id])})
    return job_of(rows[0]) if rows else None


@plan(reads=True)
def newest(*, limit: int = 100) -> Steps[list[Job]]:
    """The newest jobs in any state, with all that is recorded of them.

    Args:
        limit: at most how many jobs.
    """
    return [job_of(row) for row in (yield Statement("jobs/newest", {"limit": limit}))]


@plan(transaction=True)
def cancel(job_id: int, *, now: datetime | None = None) -> Steps[JobState | None]:
    """End a waiting job, or ask a running one's worker to.

    Returns:
        CANCELLED; RUNNING where its worker has been asked; None where no live job has this id.
    """
    if not is_id(job_id):
        return None
    rows = yield Statement("jobs/cancel", {"id": job_id})
    if not rows or rows[0][0] == JobState.RUNNING:
        return JobState.RUNNING if rows else None
    if rows[0][0] == JobState.BLOCKED:
        yield from admission.forget([job_id])
    return (yield from cancel_waiting([job_id], now=now))[job_id]


@plan(transaction=True)
def retry(job_id: int, *, without_key: bool = False, now: datetime | None = None) -> Steps[Retried]:
    """Make a dead job ready again, with all its attempts.

    Args:
        job_id: which.
        without_key: as for :func:`retry_dead`.
        now: the instant; the database's own by default.
    """
    return (yield from retry_dead([job_id], without_key=without_key, now=now))


@plan(transaction=True)
def run_now(job_id: int, *, now: datetime | None = None) -> Steps[bool]:
    """Make a scheduled job ready before its time; False: no scheduled job has this id.

    Args:
        job_id: which.
        now: the instant; the database's own by default.
    """
    moved = (yield Statement("jobs/run_now", {"id": job_id, "now": now})) if is_id(job_id) else []
    if moved:
        yield from wake()
    return bool(moved)


@plan(transaction=True)
def reschedule(job_id: int, at: datetime, *, now: datetime | None = None) -> Steps[bool]:
    """Give a scheduled or ready job another time; False: no such job has this id.

    Args:
        job_id: which.
        at: from when on it may run; what has passed makes it ready.
        now: the instant; the database's own by default.
    """
    moved = (yield Statement("jobs/run_at", {"id": job_id, "at": at, "now": now})) if is_id(job_id) else []
    if moved:
        yield from wake()
    return bool(moved)


@plan(transaction=True)
def retry_dead(
    job_ids: Sequence[int], *, without_key: bool = False, now: datetime | None = None
) -> Steps[Retried]:
    """Return dead jobs to their lines.

    A job stays dead while a live job has its unique key.

    Args:
        job_ids: which.
        without_key: return them without their unique keys, so that no live job is in their way.
        now: the instant; the database's own by default.
    """
    ids = list(filter(is_id, job_ids))
    revived, out_of_turn = yield from flow_control.revive(ids, without_key=without_key, now=now)
    left = [job_id for job_id in job_ids if job_id not in revived and job_id not in out_of_turn]
    done = yield from _explain(tuple(sorted(revived)), left)
    return replace(done, out_of_turn=tuple(sorted(out_of_turn)))


def _explain(revived: tuple[int, ...], left: Sequence[int]) -> Steps[Retried]:
    if not left:
        return Retried(revived)
    rows = yield Statement("jobs/held", {"ids": list(filter(is_id, left))})
    held = tuple(BlockedRetry(*row) for row in rows if row[2])
    known = {one.id for one in held}
    return Retried(revived, held, tuple(job_id for job_id in left if job_id not in known))


@plan
def purge_dead(job_ids: Collection[int]) -> Steps[int]:
    """Forget those of these jobs that are dead; how many."""
    return len((yield Statement("jobs/purge_dead", {"ids": numbers([one for one in job_ids if is_id(one)])})))


@plan
def clock() -> Steps[datetime]:
    """What time the database has."""
    rows = yield Statement("connections/clock", {"now": None})
    moment: datetime = rows[0][0]
    return moment


@plan
def worker_queues(*, now: datetime | None = None) -> Steps[set[str]]:
    """The queues that live workers serve by name.

    Args:
        now: the instant; the database's own by default.
    """
    return {row[0] for row in (yield Statement("workers/worker_queues", {"now": now}))}


@plan
def database_name() -> Steps[str]:
    """The name of the database that answers."""
    rows = yield Statement("connections/database_name", {})
    name: str = rows[0][0]
    return name


@plan
def empty() -> Steps[None]:
    """Delete all jobs and what belongs to them."""
    yield Statement("connections/empty", {}, returns=False)


@plan(reads=True)
def counts() -> Steps[tuple[list[QueueCount], list[str]]]:
    """Counts of jobs that have not succeeded or been cancelled, by queue and state; and the paused queues."""
    rows = yield Statement("insight/counts", {})
    found = [
        QueueCount(queue, JobState(state), count, unknown, tuple(tasks), since)
        for queue, state, count, _, unknown, tasks, since in rows
        if count
    ]
    return found, sorted({row[0] for row in rows if row[3]})


@plan
def pulse(*, now: datetime | None = None) -> Steps[QueueSummary]:
    """Whether workers are alive and well, and whether jobs wait for long.

    Args:
        now: the instant; the database's own by default.
    """
    ((workers, oldest_ready),) = yield Statement("insight/health", {"now": now})
    unknown = yield from unknown_tasks(now=now)
    problems = yield from worker_problems(now=now)
    return QueueSummary(workers, oldest_ready, tuple(unknown), tuple(problems))


@plan(reads=True)
def worker_problems(*, now: datetime | None = None) -> Steps[list[WorkerProblem]]:
    """The live workers with a problem: a blocked event loop, functions that go on after their timeout, no look for jobs, no notifications.

    Args:
        now: the instant; the database's own by default.
    """
    return [_problem(*row) for row in (yield Statement("workers/worker_problems", {"now": now}))]


def _problem(  # noqa: PLR0917 - the columns of the statement
    host: str,
    pid: int,
    seconds: float | None,
    task: str,
    job: int | None,
    where: str,
    not_returned: int,
    not_looked: float | None,
    not_listening: float | None,
) -> WorkerProblem:
    blocked = None if seconds is None else BlockedLoop(seconds, task, job, where)
    return WorkerProblem(host, pid, blocked, not_returned, not_looked, not_listening)


def is_id(job_id: int) -> bool:
    """Whether a job can have this id: other numbers are no bigint, and the driver would refuse them.

    Raises:
        InvalidOption: it is no whole number.
    """
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise InvalidOption(f"{job_id!r:.80}: an id is a whole number, as in handle.id")
    return 0 <= job_id <= NEWEST


def job_of(row: Row) -> Job:
    """The record in a row."""
    values = dict(zip(Job.__struct_fields__, row, strict=True))
    values["state"] = JobState(values["state"])
    for name, read in _READ.items():
        if values[name] is not None:
            values[name] = read(values[name])
    values["errors"] = values["errors"] or ()
    return Job(**values)


def read_sent(new: NewJob) -> dict[str, Any]:
    """What a record shows of the columns that only pass through with a job."""
    values = {column.name: getattr(new, column.name) for column in SENT}
    return {
        name: _READ[name](value) if value is not None and name in _READ else value
        for name, value in values.items()
    }


_READ: Mapping[str, Callable[[str], Any]] = {
    "args": object_of,
    "errors": errors_of,
    "result": value_of,
    **{column.name: object_of for column in SENT if column.type is Type.JSONB},
}
"""How the JSON of a column is read; it comes as text."""
