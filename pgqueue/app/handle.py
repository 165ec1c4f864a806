"""A job as its enqueuer sees it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Generic, TypeVar

from pgqueue.app.job_methods import JobMethods
from pgqueue.app.results import HasReturnType, await_until_ended, result_of, wait_until_ended
from pgqueue.errors import JobNotFound
from pgqueue.store.results.job_end import EndLook
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.job import EnqueueAnswer, JobState, Outcome
from pgqueue.values.jobs.note import Progress
from pgqueue.values.signals import job_target

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - the name users see in ``JobHandle[R]``


class JobHandle(Generic[R]):
    """An enqueued job.

    Attributes:
        id: the job's id; where the enqueue was rejected, that of the job which holds the unique key.
        outcome: whether the job was added, and if not, what was done instead.
    """

    __slots__ = ("_queue", "_task", "id", "outcome")

    def __init__(self, enqueued: EnqueueAnswer, queue: JobMethods, task: str | None = None) -> None:
        """Made by an enqueue; ``task``: what the job is of, where that is certain."""
        self.id = enqueued.id
        self._task = task
        self.outcome = enqueued.outcome
        self._queue = queue

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self.outcome}>"

    @property
    def _signal_target(self) -> str:
        return job_target(self.id)

    @property
    def accepted(self) -> bool:
        """Whether this enqueue changed anything: False if it was rejected."""
        return self.outcome is not Outcome.REJECTED

    def status(self) -> JobState:
        """Where the job stands.

        Raises:
            JobNotFound: there is no record of it: not committed, rolled back, or its history was dropped.
        """
        return self._queue._state(self.id)  # noqa: SLF001 - the queue's own side of it

    async def astatus(self) -> JobState:
        """As :meth:`status`, awaited."""
        return await self._queue._astate(self.id)  # noqa: SLF001 - the queue's own side of it

    def progress(self) -> Progress | None:
        """How far the job is, as its task last reported with ``ctx.progress``; None: it has not."""
        return self._queue.progress(self.id)

    async def aprogress(self) -> Progress | None:
        """As :meth:`progress`, awaited."""
        return await self._queue.aprogress(self.id)

    def why(self) -> Why:
        """Why the job does not run, in a sentence, with its evidence."""
        return self._queue.why(self.id)

    async def awhy(self) -> Why:
        """As :meth:`why`, awaited."""
        return await self._queue.awhy(self.id)

    def cancel(self) -> JobState | None:
        """Cancel the job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return self._queue.cancel(self.id)

    async def acancel(self) -> JobState | None:
        """As :meth:`cancel`, awaited."""
        return await self._queue.acancel(self.id)

    def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait until the job has ended, and return what its task returned, as its annotation says.

        Without an annotation, and where the task is not registered here, it is plain JSON values.

        Args:
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time; the message says why, as far as is known.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it, or a failover lost it and its id went to a job of another task.
            ResultNotKept: it has succeeded, and its result was not kept; the message says why.
            PayloadNotDecodable: the result does not fit the annotation, or the queue's codec cannot decode it.
        """
        queue = self._queue
        look = wait_until_ended(queue.database, self.id, timeout, keeps_history=queue.keeps_history)
        return result_of(self._own(look), queue.codec, self._tasks)  # type: ignore[no-any-return]  # as annotated

    async def aresult(self, timeout: float | timedelta | None = None) -> R:  # noqa: ASYNC109 - as the blocking one
        """As :meth:`result`, awaited."""
        queue = self._queue
        look = await await_until_ended(queue.database, self.id, timeout, keeps_history=queue.keeps_history)
        return result_of(self._own(look), queue.codec, self._tasks)  # type: ignore[no-any-return]  # as annotated

    def _own(self, look: EndLook) -> EndLook:
        """The same, unless the database lost the job in a failover, and gave its id to a job of another task."""
        if self._task in {None, look.job.task}:
            return look
        raise JobNotFound(
            f"job {self.id} of {self._task} is lost: its id is now that of a job of {look.job.task}, as after a failover to a "
            "standby that lacked the last commits"
        )

    @property
    def _tasks(self) -> Mapping[str, HasReturnType]:
        return getattr(self._queue, "tasks", {})
