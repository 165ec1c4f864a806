"""Looking at jobs and steering them: what handles, the command line and dashboards ask for."""

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pgqueue.errors import InvalidOption, JobFailed, JobNotDone, JobNotFound, as_duration
from pgqueue.store import control
from pgqueue.store.database import Database
from pgqueue.store.joining import OWN_CONNECTION
from pgqueue.values.job import Job, JobState, QueueCount

FIRST_LOOK, LONGEST_LOOK = 0.01, 1.0
LONGEST_PAGE = 10_000
IDS = range(-(1 << 63), 1 << 63)


class Desk:
    """Everything about jobs that needs no task: each method runs one plan of :mod:`pgqueue.store.control`."""

    def __init__(self, database: Database) -> None:
        """Ask this database.

        Args:
            database: where the jobs are.
        """
        self.database = database

    def job(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: never committed, or its history was dropped.
        """
        return _found(job_id, self.database.run(control.show(_id(job_id))))

    async def ajob(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: never committed, or its history was dropped.
        """
        return _found(job_id, await self.database.arun(control.show(_id(job_id))))

    def jobs(
        self,
        *,
        state: JobState | str | Collection[JobState | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        unique_key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs that match every filter given, newest first.

        Args:
            state: a state or several: ``ready``, ``running``, ``dead``, ….
            queue: in this queue.
            task: of this task.
            unique_key: with this key.
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most so many, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        return self.database.run(
            control.jobs(
                states=_states(state),
                queue=queue,
                task=task,
                unique_key=unique_key,
                before=before,
                limit=_page(limit),
            )
        )

    async def ajobs(
        self,
        *,
        state: JobState | str | Collection[JobState | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        unique_key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs that match every filter given, newest first.

        Args:
            state: a state or several: ``ready``, ``running``, ``dead``, ….
            queue: in this queue.
            task: of this task.
            unique_key: with this key.
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most so many, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        return await self.database.arun(
            control.jobs(
                states=_states(state),
                queue=queue,
                task=task,
                unique_key=unique_key,
                before=before,
                limit=_page(limit),
            )
        )

    def cancel(self, job_id: int) -> JobState | None:
        """Cancel a job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return self.database.run(control.cancel(_id(job_id)))

    async def acancel(self, job_id: int) -> JobState | None:
        """Cancel a job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return await self.database.arun(control.cancel(_id(job_id)))

    def retry(self, job_id: int) -> bool:
        """Make a job ready at once: a scheduled one before its time, a dead one with all its attempts.

        Returns:
            False if the job is neither scheduled nor dead, or a live job has taken its unique key.
        """
        return self.database.run_whole(control.retry(_id(job_id)))

    async def aretry(self, job_id: int) -> bool:
        """Make a job ready at once: a scheduled one before its time, a dead one with all its attempts.

        Returns:
            False if the job is neither scheduled nor dead, or a live job has taken its unique key.
        """
        return await self.database.arun_whole(control.retry(_id(job_id)))

    def retry_dead(
        self, *, task: str | None = None, queue: str | None = None, before: datetime | None = None
    ) -> list[int]:
        """Return to their lines the dead jobs that match every filter given.

        Args:
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            The ids that went; those whose unique key is taken stay dead.
        """
        return self.database.run_whole(control.retry_dead_matching(task=task, queue=queue, before=before))

    async def aretry_dead(
        self, *, task: str | None = None, queue: str | None = None, before: datetime | None = None
    ) -> list[int]:
        """Return to their lines the dead jobs that match every filter given.

        Args:
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            The ids that went; those whose unique key is taken stay dead.
        """
        return await self.database.arun_whole(
            control.retry_dead_matching(task=task, queue=queue, before=before)
        )

    def purge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        everything: bool = False,
    ) -> int:
        """Delete the dead jobs that match every filter given, with their arguments and errors.

        Args:
            job_ids: among these.
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.
            everything: must be true where no filter is given: then all dead jobs are deleted.

        Returns:
            How many were deleted.

        Raises:
            InvalidOption: there is no filter, and ``everything`` is not true.
        """
        _require_filter(job_ids, task, queue, before, everything=everything)
        return self.database.run(control.purge_dead(job_ids=job_ids, task=task, queue=queue, before=before))

    async def apurge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        everything: bool = False,
    ) -> int:
        """Delete the dead jobs that match every filter given, with their arguments and errors.

        Args:
            job_ids: among these.
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.
            everything: must be true where no filter is given: then all dead jobs are deleted.

        Returns:
            How many were deleted.

        Raises:
            InvalidOption: there is no filter, and ``everything`` is not true.
        """
        _require_filter(job_ids, task, queue, before, everything=everything)
        return await self.database.arun(
            control.purge_dead(job_ids=job_ids, task=task, queue=queue, before=before)
        )

    def pause(self, queue: str) -> None:
        """Stop a queue from being claimed from, by every worker; what runs goes on."""
        self.database.run(control.pause(queue))

    async def apause(self, queue: str) -> None:
        """Stop a queue from being claimed from, by every worker; what runs goes on."""
        await self.database.arun(control.pause(queue))

    def resume(self, queue: str) -> bool:
        """Let a paused queue be claimed from again; False: it was not paused."""
        return self.database.run(control.resume(queue))

    async def aresume(self, queue: str) -> bool:
        """Let a paused queue be claimed from again; False: it was not paused."""
        return await self.database.arun(control.resume(queue))

    def counts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, the ended ones left out; and which queues are paused."""
        return self.database.run(control.counts())

    async def acounts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, the ended ones left out; and which queues are paused."""
        return await self.database.arun(control.counts())

    def result(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401 - any JSON
        """Wait until a job has ended, and return what its task returned.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
        """
        apart = self._apart()
        for pause in _looks(timeout):
            job = _found(job_id, self.database.run(control.show(_id(job_id)), apart))
            if job.state.ended:
                return _result(job)
            time.sleep(pause)
        raise _not_done(job_id, timeout)

    async def aresult(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """Wait until a job has ended, and return what its task returned.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
        """
        apart = self._apart()
        for pause in _looks(timeout):
            job = _found(job_id, await self.database.arun(control.show(_id(job_id)), apart))
            if job.state.ended:
                return _result(job)
            await asyncio.sleep(pause)
        raise _not_done(job_id, timeout)

    def _apart(self) -> object:
        """On which connection to wait for a job: inside a job's transaction never on that.

        A job that was enqueued in it cannot end before it is committed, and the wait would be for ever.
        """
        return OWN_CONNECTION if self.database.joins(None) else None


def _found(job_id: int, job: Job | None) -> Job:
    if job is None:
        raise JobNotFound(
            f"no record of job {job_id}: it was never committed, or its history has been dropped"
        )
    return job


def _id(job_id: int) -> int:
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise InvalidOption(f"job_id={job_id!r}: a job's id is a whole number, as in handle.id")
    if job_id not in IDS:
        raise JobNotFound(f"no record of job {job_id}: ids go up to {IDS[-1]}")
    return job_id


def _require_filter(*filters: object, everything: bool) -> None:
    if not everything and all(one is None for one in filters):
        raise InvalidOption(
            "purge_dead() without a filter would delete every dead job; name job_ids, task, queue or before, "
            "or say purge_dead(everything=True)"
        )


def _states(state: JobState | str | Collection[JobState | str] | None) -> list[JobState] | None:
    if state is None:
        return None
    given = [state] if isinstance(state, str) else list(state)
    try:
        return [JobState(one) for one in given]
    except ValueError as error:
        raise InvalidOption(f"{error}; the states are {', '.join(JobState)}") from error


def _page(limit: int) -> int:
    if not 1 <= limit <= LONGEST_PAGE:
        raise InvalidOption(f"limit={limit!r}: use a number from 1 to {LONGEST_PAGE:,}")
    return limit


def _looks(timeout: float | timedelta | None) -> Iterator[float]:
    """How long to pause after each look at a job, ever longer, until the time is over."""
    limit = as_duration("timeout", timeout)
    deadline = None if limit is None else time.monotonic() + limit.total_seconds()
    pause = FIRST_LOOK
    while deadline is None or time.monotonic() < deadline:
        left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
        yield max(0.0, min(pause, left))
        pause = min(pause * 1.5, LONGEST_LOOK)
    yield 0.0


def _not_done(job_id: int, timeout: float | timedelta | None) -> JobNotDone:
    return JobNotDone(f"job {job_id} has not ended within {timeout!r}; it may still")


def _result(job: Job) -> Any:  # noqa: ANN401 - any JSON
    if job.state is JobState.SUCCEEDED:
        return job.result
    last = f": {job.errors[-1].type}: {job.errors[-1].message}" if job.errors else ""
    raise JobFailed(f"job {job.id} of {job.task} is {job.state}{last}")
