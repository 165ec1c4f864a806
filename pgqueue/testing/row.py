"""One job in memory."""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from pgqueue.store.jobs.control import read_sent
from pgqueue.values.jobs.job import AttemptError, Claim, Job, JobState, NewJob
from pgqueue.values.payloads.storable import object_of, value_of
from pgqueue.values.queues.settings import MAX_ATTEMPTS, PRIORITY


@dataclass(slots=True)
class JobRow:
    """One job: what a :class:`Job` shows of it, and what a claim needs besides."""

    id: int
    new: NewJob
    state: JobState
    run_at: datetime
    created_at: datetime
    unique_key: str | None
    attempts: int = 0
    fence: int = 0
    collisions: int = 0
    cancel_requested: bool = False
    worker_id: UUID | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    errors: tuple[AttemptError, ...] = ()
    reason: str | None = None
    result: bytes | None = None
    flags: int | None = None
    expires_at: datetime | None = None
    started_fence: int | None = None

    @property
    def priority(self) -> int:
        """Higher runs sooner; said when the job was inserted."""
        return self.new.priority or PRIORITY

    @property
    def max_attempts(self) -> int:
        """After how many attempts it is dead; said when the job was inserted."""
        return self.new.max_attempts or MAX_ATTEMPTS

    @property
    def is_ready(self) -> bool:
        """Whether it may be claimed."""
        return self.state is JobState.READY

    @property
    def is_running(self) -> bool:
        """Whether an attempt holds it."""
        return self.state is JobState.RUNNING

    @property
    def shown_state(self) -> JobState:
        """As PostgreSQL has it: a job that waits in a lane is blocked."""
        return JobState.BLOCKED if self.is_ready and self.new.lane is not None else self.state

    @property
    def place(self) -> tuple[int, datetime, int]:
        """Where it stands in its line."""
        return -self.priority, self.run_at, self.id

    def shown(self) -> Job:
        """The job as it is shown."""
        return Job(
            id=self.id,
            state=self.shown_state,
            queue=self.new.queue,
            task=self.new.task,
            args=object_of(self.new.args),
            priority=self.priority,
            run_at=self.run_at,
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            unique_key=self.unique_key,
            collisions=self.collisions,
            worker_id=self.worker_id,
            errors=self.errors,
            reason=self.reason,
            result=None if self.result is None else value_of(self.result),
            **read_sent(self.new),
        )

    def claimed(self, worker: UUID, now: datetime) -> Claim:
        """Give it to a worker, an attempt spent."""
        self.state, self.worker_id, self.started_at = JobState.RUNNING, worker, now
        self.attempts += 1
        self.fence += 1
        if self.new.unique.until == "started":
            self.unique_key = None
        return self.claim(worker, now)

    def claim(self, worker: UUID, now: datetime) -> Claim:
        """The attempt that runs."""
        since = self.errors[1 - self.attempts].at if 1 < self.attempts <= len(self.errors) + 1 else None
        return Claim(
            id=self.id,
            worker_id=worker,
            fence=self.fence,
            attempt=self.attempts,
            max_attempts=self.max_attempts,
            priority=self.priority,
            queue=self.new.queue,
            task=self.new.task,
            args=self.new.args.decode(),
            run_at_epoch=self.run_at.timestamp(),
            created_at_epoch=self.created_at.timestamp(),
            failing_seconds=0.0 if since is None else (now - since).total_seconds(),
            meta=None if self.new.meta is None else self.new.meta.decode(),
            flags=self.flags,
            expires_in=None if self.expires_at is None else (self.expires_at - now).total_seconds(),
            asked_at=time.monotonic(),
        )

    def wait(self, state: JobState) -> None:
        """Stand in line, or in the calendar, with no worker."""
        self.state, self.worker_id, self.started_at = state, None, None

    def end(self, state: JobState, now: datetime, *, seconds: float | None = None) -> None:
        """Do not run again; ``seconds``: how long the last attempt took, where it counts."""
        self.state, self.ended_at = state, now
        if seconds is not None:
            self.started_at = now - timedelta(seconds=seconds)

    def revive(self, state: JobState, now: datetime) -> None:
        """Run again after its death, with all its attempts."""
        self.wait(state)
        self.attempts, self.run_at, self.ended_at, self.reason, self.expires_at = 0, now, None, None, None

    def admit(self, now: datetime) -> None:
        """Stand in line, or in the calendar, since nothing is left to wait for."""
        self.state = JobState.SCHEDULED if self.run_at > now else JobState.READY

    def note(self, error: AttemptError, now: datetime) -> None:
        """Keep how an attempt failed."""
        self.errors += (msgspec.structs.replace(error, at=now),)
