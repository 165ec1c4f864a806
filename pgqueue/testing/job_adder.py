"""Jobs that are added in memory: answers the plans of :mod:`pgqueue.store.jobs.enqueue`, and says who holds a unique key."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import count

import msgspec

from pgqueue.errors import LimitReached, as_duration
from pgqueue.store.jobs.copying import due_at
from pgqueue.store.jobs.known_tasks import KnownTask, NamedJob
from pgqueue.store.queues.queues import count_bounded
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.row import JobRow
from pgqueue.values.jobs.job import EnqueueAnswer, JobState, NewJob, Outcome
from pgqueue.values.limits.limit import WhenFull, keys_of
from pgqueue.values.limits.task_limits import limit_reached
from pgqueue.values.queues.defaults import QueueCache, full

log = logging.getLogger("pgqueue")


class JobAdder:
    """Adds jobs to those of a queue; a unique key, a full limit or a full queue may refuse them."""

    def __init__(
        self,
        rows: dict[int, JobRow],
        queues: KnownQueues,
        cancel: Callable[[int, datetime], object],
    ) -> None:
        self._rows = rows
        self._queues = queues
        self._cancel = cancel
        self._ids = count(1)
        self._holds: dict[str, tuple[int, datetime]] = {}

    def enqueue(self, job: NewJob, *, now: datetime, known: QueueCache | None = None) -> EnqueueAnswer:  # noqa: ARG002 - all is known
        """Add a job, or deal with the job that holds its unique key."""
        self._queues.defaults().of(job)  # refuses a drained queue
        return self._enqueued(job, now)

    def enqueue_noted(
        self, job: NewJob, *, by: str, now: datetime, known: QueueCache | None = None
    ) -> EnqueueAnswer:
        """As :meth:`enqueue`: memory has no audit."""
        del by
        return self.enqueue(job, now=now, known=known)

    def find(self, name: str, args: bytes) -> NamedJob:  # noqa: ARG002 - no worker has said anything of it
        """What workers have said of a task."""
        return NamedJob(KnownTask(name), None, None)

    def enqueue_few(self, jobs: Iterable[NewJob], *, now: datetime) -> list[EnqueueAnswer]:
        """Add jobs, as :meth:`enqueue_many` does."""
        return self.enqueue_many(jobs, now=now)

    def enqueue_many(self, jobs: Iterable[NewJob], *, now: datetime) -> list[EnqueueAnswer]:
        """Add jobs, all or none."""
        jobs = list(jobs)
        self.require_rooms(jobs)
        for job in jobs:
            self._queues.defaults().of(job)  # refuses a drained queue
        before = self._rows.keys() | set[int]()
        try:
            return [self._enqueued(job, now) if job.when_full else self._add_keyed(job, now) for job in jobs]
        except LimitReached:
            self.forget(self._rows.keys() - before)
            raise

    def insert(self, job: NewJob, now: datetime) -> JobRow:
        """Add a job that is blocked until it is admitted; its unique key is free."""
        priority, max_attempts = self._queues.defaults(refuses=False).of(job)
        job = msgspec.structs.replace(job, priority=priority, max_attempts=max_attempts)
        row = JobRow(next(self._ids), job, JobState.BLOCKED, due_at(job, now), now, job.unique_key)
        row.expires_at = _expiry(job, row.run_at)
        self._rows[row.id] = row
        return row

    def forget(self, job_ids: Iterable[int]) -> None:
        """Drop jobs that were not added after all."""
        for job_id in job_ids:
            del self._rows[job_id]

    def require_rooms(self, jobs: Iterable[NewJob]) -> None:
        """Refuse jobs of which some are for a full queue."""
        for queue, number in sorted(count_bounded(jobs, self._queues.defaults()).items()):
            settings = self._queues.of(queue).settings
            ready = sum(row.state is JobState.READY and row.new.queue == queue for row in self._rows.values())
            if settings.backlog is not None and ready + number > settings.backlog:
                error = full(queue, settings.backlog, number)
                if settings.when_full == "refuse":
                    raise error
                log.warning("queue is full: %s", error)

    def holder(self, key: str | None) -> JobRow | None:
        """The live job that has a unique key."""
        if key is None:
            return None
        live = (row for row in self._rows.values() if not row.state.ended)
        return next((row for row in live if row.unique_key == key), None)

    def _enqueued(self, job: NewJob, now: datetime) -> EnqueueAnswer:
        if job.when_full is not None and (answer := self._require_place(job, job.when_full, now)):
            return answer
        if job.unique_key is not None and (answer := self._collision(job, job.unique_key, now)):
            return answer
        self.require_rooms([job])
        return self._add(job, now)

    def _add_keyed(self, job: NewJob, now: datetime) -> EnqueueAnswer:
        return (job.unique_key and self._collision(job, job.unique_key, now)) or self._add(job, now)

    def _add(self, job: NewJob, now: datetime) -> EnqueueAnswer:
        row = self.insert(job, now)
        if job.unique_key is not None and job.unique.period is not None:
            if job.unique.trailing:
                row.run_at = max(now, self._holds.get(job.unique_key, (0, now))[1])
                row.expires_at = _expiry(job, row.run_at)
            self._holds[job.unique_key] = row.id, row.run_at + as_duration("period", job.unique.period)
        row.admit(now)
        return EnqueueAnswer(row.id)

    def _require_place(
        self, job: NewJob, when_full: tuple[WhenFull, int], now: datetime
    ) -> EnqueueAnswer | None:
        """Answer for a full limit, as :func:`pgqueue.store.limits.lanes.require_place` does; None: it has room."""
        policy, most = when_full
        limit = keys_of(job.lane or "")[0].limit
        same = [row for row in self._rows.values() if row.new.lane == job.lane]
        running = sum(row.is_running for row in same)
        waiting = [row for row in same if row.is_ready and row.new.queue == job.queue]
        if running + len(waiting) < most:
            return None
        if policy == "refuse":
            raise limit_reached(limit, most)
        if policy == "oldest":
            return EnqueueAnswer(waiting[0].id, Outcome.REJECTED) if waiting else None
        for row in waiting:
            self._cancel(row.id, now)
        return None

    def _collision(self, job: NewJob, key: str, now: datetime) -> EnqueueAnswer | None:
        """Return the answer to an enqueue whose unique key is taken; None: it is free."""
        row = self.holder(key)
        if row is None:
            job_id, until = self._holds.get(key, (0, now))
            holds = job.unique.period and not job.unique.trailing and until > now
            return EnqueueAnswer(job_id, Outcome.REJECTED) if holds else None
        row.collisions += 1
        if row.state is JobState.RUNNING or job.unique.collision == "reject":
            return EnqueueAnswer(row.id, Outcome.REJECTED)
        if not job.unique.trailing:
            before, row.run_at = row.run_at, due_at(job, now)
            if job.unique.most is not None:
                row.run_at = min(max(before, row.run_at), row.created_at + job.unique.most)
        if row.state is not JobState.BLOCKED:
            row.admit(now)
        if job.unique.collision == "reschedule":
            return EnqueueAnswer(row.id, Outcome.RESCHEDULED)
        row.new, row.expires_at = job, _expiry(job, row.run_at)
        return EnqueueAnswer(row.id, Outcome.REPLACED)


def _expiry(job: NewJob, run_at: datetime) -> datetime | None:
    return job.expires_at if job.expires_in is None else run_at + job.expires_in
