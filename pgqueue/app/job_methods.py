"""What an app asks of one job, by its id: its record, its result, why it does not run, a cancel, a retry."""

from datetime import timedelta
from functools import cached_property
from typing import Any

from pgqueue.app.flows.flows import Flows
from pgqueue.app.notes import opened_progress
from pgqueue.app.results import aplace_of, await_until_ended, not_found, place_of, result_of, wait_until_ended
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.store.connections.database import Database
from pgqueue.store.insight import why as store_why
from pgqueue.store.jobs import control, notes
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.values.bulk.operation import Retried
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.note import Progress
from pgqueue.values.payloads.codec import Codec, decode_job

IDS = range(-(1 << 63), 1 << 63)


class JobMethods:
    """What an app asks of one job, by its id: each method runs one plan of the store.

    Attributes:
        codec: decodes what is stored of jobs; None: it is stored in clear.
    """

    codec: Codec | None = None

    def __init__(self, database: Database) -> None:
        self.database = database

    @cached_property
    def flows(self) -> Flows:
        """The chains, groups and workflows: list them, look at one, cancel it, run it again."""
        return Flows(lambda: self.database)

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
        """Make a dead job ready again, with all its attempts. ``queue.control.run_now`` starts a scheduled one before its time.

        Args:
            job_id: which.
            without_key: return it without its unique key, so that no live job is in its way.

        Returns:
            True as a boolean if the job is ready; else its fields say why not, and which live job has the unique key.
        """
        return again_after_deadlock(self.database.run)(control.retry(_id(job_id), without_key=without_key))

    async def aretry(self, job_id: int, *, without_key: bool = False) -> Retried:
        """As :meth:`retry`, awaited."""
        return await aagain_after_deadlock(self.database.arun)(
            control.retry(_id(job_id), without_key=without_key)
        )

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
        look = wait_until_ended(
            place_of(self.database, _id(job_id)), _id(job_id), timeout, keeps_history=self.keeps_history
        )
        return result_of(look, self.codec)

    async def aresult(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """As :meth:`result`, awaited."""
        look = await await_until_ended(
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
        return self._found(job_id, self.database.run(control.show(job_id).on_primary())).state

    async def _astate(self, job_id: int) -> JobState:
        return self._found(job_id, await self.database.arun(control.show(job_id).on_primary())).state

    def _found(self, job_id: int, job: Job | None) -> Job:
        if job is None:
            raise not_found(job_id, keeps_history=self.keeps_history)
        return decode_job(self.codec, job)


def _id(job_id: int) -> int:
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise InvalidOption(f"job_id={job_id!r}: a job's id is a whole number, as in handle.id")
    if job_id not in IDS:
        raise JobNotFound(f"no record of job {job_id}: ids go up to {IDS[-1]}")
    return job_id
