"""Looking at jobs and steering them: what handles, the command line and dashboards ask for."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from pgqueue.app.flow_steering import FlowSteering
from pgqueue.app.operator import me, signed
from pgqueue.app.progress import opened_progress
from pgqueue.app.results import aended, aplace_of, ended, not_found, place_of, result_of
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.store import bulk, control, notes, queues, standings
from pgqueue.store import why as store_why
from pgqueue.store.database import Database
from pgqueue.store.sweep import aagain_after_deadlock, again_after_deadlock, arun_sweep, run_sweep
from pgqueue.values.codec import Codec, encoded_key, opened
from pgqueue.values.job import Job, JobState, QueueCount, states_of
from pgqueue.values.job_filter import JobFilter
from pgqueue.values.note import Progress
from pgqueue.values.options import check_page
from pgqueue.values.retried import Retried
from pgqueue.values.standing import QueueStanding
from pgqueue.values.why import Why

IDS = range(-(1 << 63), 1 << 63)


class Jobs(FlowSteering):
    """Everything about jobs that needs no task: each method runs one plan of the store.

    Attributes:
        codec: decodes what is stored of jobs; None: it is stored in clear.
    """

    codec: Codec | None = None

    def __init__(self, database: Database) -> None:
        """Ask this database.

        Args:
            database: where the jobs are.
        """
        self.database = database

    @property
    def keeps_history(self) -> bool:
        """Whether ended jobs are kept at all."""
        return True

    def job(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: not committed (yet), rolled back, or its history was dropped.
        """
        return self._found(job_id, self.database.run(control.show(_id(job_id))))

    async def ajob(self, job_id: int) -> Job:
        """As :meth:`job`, awaited."""
        return self._found(job_id, await self.database.arun(control.show(_id(job_id))))

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
            limit: at most how many jobs, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        found = self.database.run(
            control.jobs(
                states=states_of(state),
                queue=queue,
                task=task,
                unique_key=encoded_key(self.codec, unique_key),
                before=before,
                limit=check_page(limit),
            )
        )
        return [opened(self.codec, job) for job in found]

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
        """As :meth:`jobs`, awaited."""
        found = await self.database.arun(
            control.jobs(
                states=states_of(state),
                queue=queue,
                task=task,
                unique_key=encoded_key(self.codec, unique_key),
                before=before,
                limit=check_page(limit),
            )
        )
        return [opened(self.codec, job) for job in found]

    def cancel(self, job_id: int) -> JobState | None:
        """Cancel a job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return again_after_deadlock(self.database.run)(control.cancel(_id(job_id)))

    async def acancel(self, job_id: int) -> JobState | None:
        """As :meth:`cancel`, awaited."""
        return await aagain_after_deadlock(self.database.arun)(control.cancel(_id(job_id)))

    def retry(self, job_id: int, *, without_key: bool = False) -> Retried:
        """Make a job ready at once: a scheduled one before its time, a dead one with all its attempts.

        Args:
            job_id: which.
            without_key: return a dead job without its unique key, so that no live job is in its way.

        Returns:
            True as a boolean if the job is ready; else its fields say why not, and which live job has the unique key.
        """
        return again_after_deadlock(self.database.run)(control.retry(_id(job_id), without_key=without_key))

    async def aretry(self, job_id: int, *, without_key: bool = False) -> Retried:
        """As :meth:`retry`, awaited."""
        return await aagain_after_deadlock(self.database.arun)(
            control.retry(_id(job_id), without_key=without_key)
        )

    def retry_dead(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        error: str | None = None,
        without_key: bool = False,
    ) -> Retried:
        """Return to their lines the dead jobs that match every filter given, up to 1,000 in each transaction.

        Args:
            task: of this task; a pattern such as ``shop.*`` is allowed.
            queue: in this queue; a pattern is allowed.
            before: dead since before this instant.
            error: whose last error is of this type, such as ``ConnectionError``; with the module or without.
            without_key: return them without their unique keys, so that no live job is in their way.

        Returns:
            The ids that went, and those that stay dead with the reason: a live job has their unique key.
        """
        steps = bulk.retrying(_filter(task, queue, before, error), without_key=without_key, by=me())
        return run_sweep(steps, again_after_deadlock(self.database.run))

    async def aretry_dead(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        error: str | None = None,
        without_key: bool = False,
    ) -> Retried:
        """As :meth:`retry_dead`, awaited."""
        steps = bulk.retrying(_filter(task, queue, before, error), without_key=without_key, by=me())
        return await arun_sweep(steps, aagain_after_deadlock(self.database.arun))

    def purge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        error: str | None = None,
        everything: bool = False,
    ) -> int:
        """Delete the dead jobs that match every filter given, with their arguments and errors.

        Args:
            job_ids: among these.
            task: of this task; a pattern such as ``shop.*`` is allowed.
            queue: in this queue; a pattern is allowed.
            before: dead since before this instant.
            error: whose last error is of this type, as for :meth:`retry_dead`.
            everything: must be true where no filter is given: then all dead jobs are deleted.

        Returns:
            How many were deleted.

        Raises:
            InvalidOption: there is no filter, and ``everything`` is not true.
        """
        _require_filter(job_ids, task, queue, before, error, everything=everything)
        if job_ids is not None and _none(task, queue, before, error):
            return self.database.run(control.purge_dead(job_ids))
        steps = bulk.purging(_filter(task, queue, before, error, ids=job_ids), by=me())
        return run_sweep(steps, again_after_deadlock(self.database.run))

    async def apurge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
        error: str | None = None,
        everything: bool = False,
    ) -> int:
        """As :meth:`purge_dead`, awaited."""
        _require_filter(job_ids, task, queue, before, error, everything=everything)
        if job_ids is not None and _none(task, queue, before, error):
            return await self.database.arun(control.purge_dead(job_ids))
        steps = bulk.purging(_filter(task, queue, before, error, ids=job_ids), by=me())
        return await arun_sweep(steps, aagain_after_deadlock(self.database.arun))

    def pause(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """Stop queues from being claimed from, by every worker, until they are resumed; what runs goes on.

        Args:
            queue: a name, or a pattern such as ``mail-*``: then the queues that there are now, not later ones.
            why: why, for people to read.
            by: who; by default the user and the host of this process.

        Returns:
            False: it was paused, or no queue matches.
        """
        return bool(self.database.run(queues.pause(queue, why=why, by=signed(by))))

    async def apause(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """As :meth:`pause`, awaited."""
        return bool(await self.database.arun(queues.pause(queue, why=why, by=signed(by))))

    def resume(self, queue: str, *, by: str | None = None) -> bool:
        """Let queues be claimed from again, and take jobs again where they were drained.

        Args:
            queue: a name, or a pattern.
            by: who; by default the user and the host of this process.

        Returns:
            False: none was paused or drained.
        """
        return bool(self.database.run(queues.resume(queue, by=signed(by))))

    async def aresume(self, queue: str, *, by: str | None = None) -> bool:
        """As :meth:`resume`, awaited."""
        return bool(await self.database.arun(queues.resume(queue, by=signed(by))))

    def standings(self) -> list[QueueStanding]:
        """How every queue stands: how many jobs in which state, the oldest ready one, the rate; in milliseconds.

        Returns:
            A standing for each queue with jobs, that ended jobs in the last minute, or that was paused once; in the
            order of names. Where the tables are large, numbers are estimates from a sample, and say so;
            :meth:`counts` is exact and reads all live and dead jobs.
        """
        return self.database.run(standings.queue_standings())

    async def astandings(self) -> list[QueueStanding]:
        """How every queue stands: how many jobs in which state, the oldest ready one, the rate; in milliseconds.

        Returns:
            A standing for each queue with jobs, that ended jobs in the last minute, or that was paused once; in the
            order of names. Where the tables are large, numbers are estimates from a sample, and say so;
            :meth:`counts` is exact and reads all live and dead jobs.
        """
        return await self.database.arun(standings.queue_standings())

    def counts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, the ended ones left out; and which queues are paused."""
        return self.database.run(control.counts())

    async def acounts(self) -> tuple[list[QueueCount], list[str]]:
        """As :meth:`counts`, awaited."""
        return await self.database.arun(control.counts())

    def why(self, job_id: int) -> Why:
        """Why a job does not run, in a sentence, with the facts that it was made of: not due, paused, no worker, a full limit.

        Args:
            job_id: which.
        """
        return self.database.run(store_why.why(_id(job_id)))

    async def awhy(self, job_id: int) -> Why:
        """As :meth:`why`, awaited."""
        return await self.database.arun(store_why.why(_id(job_id)))

    def result(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401 - any JSON
        """Wait until a job has ended, and return what its task returned, as plain JSON values.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time; the message says why, as far as is known.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
            ResultNotKept: it has succeeded, and its result was not kept; the message says why.
            PayloadNotDecodable: the queue's codec cannot decode the result.
        """
        look = ended(
            place_of(self.database, _id(job_id)), _id(job_id), timeout, keeps_history=self.keeps_history
        )
        return result_of(look, self.codec)

    async def aresult(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """As :meth:`result`, awaited."""
        look = await aended(
            await aplace_of(self.database, _id(job_id)),
            _id(job_id),
            timeout,
            keeps_history=self.keeps_history,
        )
        return result_of(look, self.codec)

    def progress(self, job_id: int) -> Progress | None:
        """How far a job is, as its task last reported with ``ctx.progress``; None: it has not.

        Args:
            job_id: which.
        """
        return opened_progress(self.codec, self.database.run(notes.progress(_id(job_id))))

    async def aprogress(self, job_id: int) -> Progress | None:
        """As :meth:`progress`, awaited."""
        return opened_progress(self.codec, await self.database.arun(notes.progress(_id(job_id))))

    def _state(self, job_id: int) -> JobState:
        """Where a job stands now, by the primary."""
        return self._found(job_id, self.database.run(control.show(job_id).on_primary())).state

    async def _astate(self, job_id: int) -> JobState:
        """As :meth:`_state`, awaited."""
        return self._found(job_id, await self.database.arun(control.show(job_id).on_primary())).state

    def _found(self, job_id: int, job: Job | None) -> Job:
        if job is None:
            raise not_found(job_id, keeps_history=self.keeps_history)
        return opened(self.codec, job)


def _id(job_id: int) -> int:
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise InvalidOption(f"job_id={job_id!r}: a job's id is a whole number, as in handle.id")
    if job_id not in IDS:
        raise JobNotFound(f"no record of job {job_id}: ids go up to {IDS[-1]}")
    return job_id


def _require_filter(*filters: object, everything: bool) -> None:
    if not everything and _none(*filters):
        raise InvalidOption(
            "purge_dead() without a filter would delete every dead job; name job_ids, task, queue, before or error, "
            "or say purge_dead(everything=True)"
        )


def _none(*filters: object) -> bool:
    return all(one is None for one in filters)


def _filter(
    task: str | None,
    queue: str | None,
    before: datetime | None,
    error: str | None,
    ids: Sequence[int] | None = None,
) -> JobFilter:
    """The dead jobs that match; all, where nothing is given."""
    given = {"task": task, "queue": queue, "died_before": before, "error": error, "ids": ids}
    return JobFilter.checked(given | {"everything": _none(*given.values())})
