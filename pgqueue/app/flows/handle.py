"""A flow as its enqueuer sees it."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from math import inf
from typing import Any

from pgqueue.app.handle import JobHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.errors import FlowNotDone, as_duration
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.connections.patience import answered_by
from pgqueue.store.flows import flow_queries
from pgqueue.store.flows.flow_queries import StoredResult
from pgqueue.values.flows.record import FlowRecord, FlowState
from pgqueue.values.flows.retry import What
from pgqueue.values.jobs.job import EnqueueAnswer
from pgqueue.values.jobs.verdict import NOT_RETURNED
from pgqueue.values.payloads.codec import JobPart, opened_value
from pgqueue.values.payloads.storable import value_of
from pgqueue.values.signals import flow_target

FIRST_LOOK, LONGEST_LOOK = 0.01, 1.0
"""Seconds between two looks at a flow whose end is waited for."""


class FlowHandle:
    """An enqueued chain, group or workflow.

    Attributes:
        id: the flow's id.
    """

    __slots__ = ("_job_ids", "_queue", "id")

    def __init__(self, flow_id: int, queue: JobMethods, job_ids: Sequence[int]) -> None:
        """Made by an enqueue."""
        self.id = flow_id
        self._queue = queue
        self._job_ids = job_ids

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id} of {len(self._job_ids)} jobs>"

    @property
    def _signal_target(self) -> str:
        return flow_target(self.id)

    @property
    def jobs(self) -> list[JobHandle[Any]]:
        """Handles of its jobs, in the order in which they were given."""
        return [JobHandle(EnqueueAnswer(job_id), self._queue) for job_id in self._job_ids]

    def status(self) -> FlowState:
        """Where the flow stands.

        Raises:
            FlowNotFound: there is no record of it: not committed, rolled back, or deleted.
        """
        return self._queue.database.run(flow_queries.state(self.id))[0]

    async def astatus(self) -> FlowState:
        """As :meth:`status`, awaited."""
        return (await self._queue.database.arun(flow_queries.state(self.id)))[0]

    def show(self) -> FlowRecord:
        """The flow, its nodes, and why each of them waits: :meth:`pgqueue.PgQueue.flows.get`."""
        return self._queue.flows.get(self.id)

    async def ashow(self) -> FlowRecord:
        """As :meth:`show`, awaited."""
        return await self._queue.flows.aget(self.id)

    def join(self, timeout: float | timedelta | None = None) -> FlowState:
        """Wait until the flow has ended; how.

        Args:
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            FlowNotDone: it has not ended in time.
            FlowNotFound: there is no record of it.
        """
        end = _end(timeout)
        for pause in _looks(end):
            try:
                with answered_by(end):
                    state, ended = self._queue.database.run(flow_queries.state(self.id), self._apart)
            except TimeoutError as error:
                raise self._not_done(str(error)) from error
            if ended:
                return state
            time.sleep(pause)
        raise self._not_done(f"it is {state}")

    async def ajoin(self, timeout: float | timedelta | None = None) -> FlowState:  # noqa: ASYNC109 - as the blocking one
        """As :meth:`join`, awaited."""
        end = _end(timeout)
        for pause in _looks(end):
            try:
                with answered_by(end):
                    state, ended = await self._queue.database.arun(flow_queries.state(self.id), self._apart)
            except TimeoutError as error:
                raise self._not_done(str(error)) from error
            if ended:
                return state
            await asyncio.sleep(pause)
        raise self._not_done(f"it is {state}")

    def results(self) -> dict[str, Any]:
        """What its named jobs returned that have succeeded, by the nodes' names, as plain JSON values.

        Members of a chain, group or workflow that is a part of it are left out, and so are results that were not kept.
        """
        return self._decode(self._queue.database.run(flow_queries.results(self.id)))

    async def aresults(self) -> dict[str, Any]:
        """As :meth:`results`, awaited."""
        return self._decode(await self._queue.database.arun(flow_queries.results(self.id)))

    def cancel(self) -> bool:
        """Cancel all of the flow that has not ended: :meth:`pgqueue.PgQueue.flows.cancel`; False: it had ended."""
        return self._queue.flows.cancel(self.id)

    async def acancel(self) -> bool:
        """As :meth:`cancel`, awaited."""
        return await self._queue.flows.acancel(self.id)

    def retry(self, *, what: What = "downstream") -> int:
        """Run its failed parts again, and what was cancelled because of them: :meth:`pgqueue.PgQueue.flows.retry`.

        Args:
            what: ``failed``, ``downstream`` or ``all``.
        """
        return self._queue.flows.retry(self.id, what=what)

    async def aretry(self, *, what: What = "downstream") -> int:
        """As :meth:`retry`, awaited."""
        return await self._queue.flows.aretry(self.id, what=what)

    @property
    def _apart(self) -> object:
        # A flow that was enqueued in a job's transaction cannot end before that commits.
        return OWN_CONNECTION if self._queue.database.in_job_transaction else None

    def _not_done(self, why: str) -> FlowNotDone:
        return FlowNotDone(
            f"flow {self.id} has not ended in time: {why}; `pgqueue workflows show {self.id}` tells more"
        )

    def _decode(self, found: Iterable[StoredResult]) -> dict[str, Any]:
        codec = self._queue.codec
        return {
            one.name: opened_value(codec, value_of(one.text), JobPart("result", one.task, one.meta))
            for one in found
            if one.text is not None and one.text != NOT_RETURNED.decode()
        } | {one.name: None for one in found if one.text is None}


def _end(timeout: float | timedelta | None) -> float:
    limit = as_duration("timeout", timeout)
    return inf if limit is None else time.monotonic() + limit.total_seconds()


def _looks(end: float) -> Iterator[float]:
    """Yield how many seconds to pause after each look, ever longer, until the time is over."""
    pause = FIRST_LOOK
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, LONGEST_LOOK)
    yield 0.0
