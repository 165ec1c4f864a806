"""Jobs, workers and verdicts to test with, and the instant at which the tests take place."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from pgqueue.store.jobs import claim, control, enqueue
from pgqueue.store.plan import Steps, plan
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import AttemptError, Claim, Job, NewJob
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Verdict

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=30)


def new_job(task: str = "bill", **changes: Any) -> NewJob:
    """A job with every option at its default."""
    options: dict[str, Any] = {"args": b"{}", "queue": "default", "priority": 0, "max_attempts": 25}
    return NewJob(task=task, **options | changes)


def worker_info(*, queues: list[str] | None = None) -> leases.WorkerInfo:
    return leases.WorkerInfo(uuid4(), "host", 1, 1, "0", queues)


@plan
def adding(*jobs: NewJob, now: datetime = NOON) -> Steps[list[int]]:
    """Enqueue jobs, one after the other; their ids."""
    ids: list[int] = []
    for job in jobs:
        added = yield from enqueue.enqueue(job, now=now)
        ids.append(added.id)
    return ids


@plan
def taking(*, worker: UUID | None = None, count: int = 100, now: datetime = NOON) -> Steps[list[Claim]]:
    """Claim from the default queue, by a new worker if none is given."""
    if worker is None:
        info = worker_info()
        yield from leases.register(info, LEASE, now=now)
        worker = info.id
    return (yield from claim.claim(worker, {"default": count}, now=now))


@plan
def running(**changes: Any) -> Steps[Claim]:
    """Enqueue a job and claim it; nothing else may be ready."""
    yield from adding(new_job(**changes))
    (taken,) = yield from taking()
    return taken


@plan
def shown(job_id: int) -> Steps[Job]:
    """A job that there must be a record of."""
    job = yield from control.show(job_id)
    assert job is not None
    return job


def error_of(claimed: Claim, message: str = "no") -> AttemptError:
    return AttemptError(attempt=claimed.attempt, type="ValueError", message=message)


def verdicts_on(claimed: Claim) -> dict[str, Verdict]:
    return {
        "succeeded": Succeeded(claimed, 2.0, b'{"total": 3}'),
        "again": Again(claimed, MINUTE, error_of(claimed)),
        "dead": Died(claimed, 2.0, "asked", error_of(claimed)),
        "returned": Returned(claimed),
        "cancelled": Cancelled(claimed),
    }
