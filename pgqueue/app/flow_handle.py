"""A flow as its enqueuer sees it."""

from collections.abc import Sequence
from typing import Any

from pgqueue.app.handle import JobHandle
from pgqueue.app.jobs import Jobs
from pgqueue.values.flow_retry import What
from pgqueue.values.job import Enqueued


class FlowHandle:
    """An enqueued chain, group or workflow.

    Attributes:
        id: the flow's id.
    """

    __slots__ = ("_job_ids", "_queue", "id")

    def __init__(self, flow_id: int, queue: Jobs, job_ids: Sequence[int]) -> None:
        """Made by an enqueue.

        Args:
            flow_id: the flow's id.
            queue: where to ask about it.
            job_ids: the ids of its jobs.
        """
        self.id = flow_id
        self._queue = queue
        self._job_ids = job_ids

    def __repr__(self) -> str:
        """Like ``<FlowHandle 7 of 3 jobs>``."""
        return f"<FlowHandle {self.id} of {len(self._job_ids)} jobs>"

    @property
    def jobs(self) -> list[JobHandle[Any]]:
        """Handles of its jobs, in the order in which they were given."""
        return [JobHandle(Enqueued(job_id), self._queue) for job_id in self._job_ids]

    def cancel(self) -> bool:
        """Cancel all of the flow that has not ended: :meth:`pgqueue.PgQueue.cancel_flow`; False: it had ended."""
        return self._queue.cancel_flow(self.id)

    async def acancel(self) -> bool:
        """As :meth:`cancel`, awaited."""
        return await self._queue.acancel_flow(self.id)

    def retry(self, *, what: What = "downstream") -> int:
        """Run its failed parts again, and what was cancelled because of them: :meth:`pgqueue.PgQueue.retry_flow`.

        Args:
            what: ``failed``, ``downstream`` or ``all``.
        """
        return self._queue.retry_flow(self.id, what=what)

    async def aretry(self, *, what: What = "downstream") -> int:
        """As :meth:`retry`, awaited."""
        return await self._queue.aretry_flow(self.id, what=what)
