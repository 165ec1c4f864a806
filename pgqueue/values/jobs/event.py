"""What a hook is told: which event, of which job or worker. Which events a verdict is, is decided here; no I/O."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal, TypeAlias, assert_never, get_args
from uuid import UUID

import msgspec

from pgqueue.values.jobs.job import AttemptError, Claim, NewJob
from pgqueue.values.jobs.verdict import (
    Again,
    Cancelled,
    Died,
    Reason,
    Returned,
    Succeeded,
    Unknown,
    Verdict,
    Waits,
)

JobEventName: TypeAlias = Literal[
    "enqueued", "claimed", "started", "succeeded", "failed", "retried", "dead", "cancelled", "reclaimed"
]
WorkerEventName: TypeAlias = Literal["worker_started", "worker_stopped"]

NAMES: tuple[str, ...] = get_args(JobEventName) + get_args(WorkerEventName)

Given: TypeAlias = Claim | NewJob
Read: TypeAlias = Callable[[Given], dict[str, Any]]
"""Decodes the arguments of a job."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What has happened to one job.

    Attributes:
        name: the event, as it is given to ``queue.on``.
        job: the job's id.
        task: the task's name.
        queue: the queue's name.
        attempt: which attempt, from 1; 0: the job was enqueued, and has no attempt.
        seconds: how long the attempt ran; None: it has not ended, or did not run.
        error: how the attempt failed: ``type``, ``message``, ``traceback``; None: it did not.
        reason: why the job is dead, as ``queue.job(id).reason`` says; None: it is not.
        retry_in: after which time the job runs again; None: it does not.
    """

    name: JobEventName
    job: int
    task: str
    queue: str
    attempt: int = 0
    seconds: float | None = None
    error: AttemptError | None = None
    reason: Reason | None = None
    retry_in: timedelta | None = None
    _given: Given | None = None
    _read: Read | None = None

    def __repr__(self) -> str:
        return f"<Event {self.name} job={self.job} task={self.task!r} attempt={self.attempt}>"

    @property
    def size(self) -> int:
        """About how many bytes its arguments and its error take."""
        args = 0 if self._given is None else len(self._given.args)
        error = self.error
        return args + (0 if error is None else len(error.message) + len(error.traceback or ""))

    @property
    def args(self) -> dict[str, Any] | None:
        """The job's arguments by parameter name, as plain JSON values, decoded at each look; None: not known here.

        They are not known of a job that was reclaimed: the arguments of lost workers' jobs are not read.
        """
        return None if self._given is None or self._read is None else self._read(self._given)


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What has happened to a worker.

    Attributes:
        name: the event, as it is given to ``queue.on``.
        worker: the worker's id.
        queues: the queues that it serves; None: all.
        concurrency: how many jobs it runs at a time.
    """

    name: WorkerEventName
    worker: UUID
    queues: tuple[str, ...] | None
    concurrency: int

    @property
    def size(self) -> int:
        """It takes next to nothing."""
        return 0


def of_job(name: JobEventName, job_id: int, given: NewJob, read: Read) -> Event:
    """The event of a job that was enqueued."""
    return Event(name=name, job=job_id, task=given.task, queue=given.queue, _given=given, _read=read)


def of_claim(name: JobEventName, claim: Claim, read: Read | None, **more: Any) -> Event:  # noqa: ANN401 - Event's own
    """An event of an attempt; without ``read`` its arguments are not known."""
    return Event(
        name=name,
        job=claim.id,
        task=claim.task,
        queue=claim.queue,
        attempt=claim.attempt,
        _given=claim,
        _read=read,
        **more,
    )


def of_verdict(verdict: Verdict, read: Read | None) -> Iterator[Event]:
    """The events of a verdict that was recorded, in order; none of a job that went back with its attempt not counted."""
    claim = verdict.claim
    match verdict:
        case Succeeded(seconds=seconds):
            yield of_claim("succeeded", claim, read, seconds=seconds)
        case Again(delay=delay, error=error):
            retry_in = delay or timedelta(0)
            yield of_claim("failed", claim, read, error=error, retry_in=retry_in)
            yield of_claim("retried", claim, read, error=error, retry_in=retry_in)
        case Died(seconds=seconds, reason=reason, error=error):
            if reason != "unknown":
                yield of_claim("failed", claim, read, seconds=seconds, error=error, reason=reason)
            yield of_claim("dead", claim, read, seconds=seconds, error=error, reason=reason)
        case Cancelled(error=error):
            yield of_claim("cancelled", claim, read, error=error)
        case Returned() | Unknown() | Waits():
            pass
        case _:
            assert_never(verdict)
