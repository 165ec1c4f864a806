"""Adding prepared jobs: every enqueue of Python code ends here.

:mod:`pgqueue.app.task` prepares jobs, :mod:`pgqueue.store.jobs.enqueue` says what the database is asked, and the database
(:mod:`pgqueue.store.connections.database`) chooses the connection: the user's, the framework's or one of its own.
"""

import logging
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, ClassVar

from pgqueue.app.handle import JobHandle
from pgqueue.app.hooks.hooks import Hooks
from pgqueue.app.hooks.observer import Observers
from pgqueue.app.signals.signal_methods import SignalMethods
from pgqueue.errors import UnknownQueue
from pgqueue.store.flows import flows
from pgqueue.store.flows.flows import AddedFlow
from pgqueue.store.jobs import enqueue
from pgqueue.values.flows.flow import NewFlow
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob
from pgqueue.values.payloads.argument_check import caller
from pgqueue.values.payloads.codec import encoded_job

log = logging.getLogger("pgqueue")

_told = False


class EnqueueMethods(SignalMethods):
    """Adds jobs that tasks have prepared.

    Attributes:
        queues: the queues there are; None: any.
        max_payload: the most bytes a job's arguments may take as JSON.
        observers: told of the jobs that were added.
        hooks: the app's functions that are called with events.
    """

    _queues_setting: ClassVar[str] = "PgQueue(queues=...)"
    """How a message names the place where ``queues`` is declared. A framework's queue overrides it."""
    queues: frozenset[str] | None
    max_payload: int
    observers: Observers
    hooks: Hooks
    _at_enqueue: tuple[Callable[[NewJob], NewJob], ...] = ()

    def require_queue(self, queue: str) -> None:
        """Refuse a queue that was not declared, where queues are declared.

        Raises:
            UnknownQueue: it is not one of them; the message lists them.
        """
        if self.queues is not None and queue not in self.queues:
            raise UnknownQueue(
                f"queue {queue!r} is not one of those declared in {self._queues_setting}: "
                f"{', '.join(sorted(self.queues))}{did_you_mean(queue, self.queues)}"
            )

    def _add(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        """Add jobs on the caller's connection; None: on the one that the database chooses."""
        _warn_of_blocked_loop()
        jobs = self._jobs_after_middleware(jobs)
        match jobs:
            case [job]:
                added = enqueue.add(self._check_job(job), known=self.database.known)
                done = [self.database.run(added, connection)]
            case _:
                plan = enqueue.enqueue_many(self._materialise(jobs, connection))
                done = self.database.run(plan, connection)
        handles = self._handles(jobs, done)
        if self.observers.enqueued:
            self.hooks.flush()
        return handles

    async def _aadd(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        if self.database.blocks and connection is None and not self.database.in_job_transaction:
            return await self.database.acall(self._add, jobs)
        jobs = self._jobs_after_middleware(jobs)
        match jobs:
            case [job]:
                added = enqueue.add(self._check_job(job), known=self.database.known)
                done = [await self.database.arun(added, connection)]
            case _:
                plan = enqueue.enqueue_many(self._materialise(jobs, connection))
                done = await self.database.arun(plan, connection)
        handles = self._handles(jobs, done)
        if self.observers.enqueued:
            await self.hooks.aflush()
        return handles

    def _add_flow(self, flow: NewFlow, connection: object = None) -> AddedFlow:
        _warn_of_blocked_loop()
        flow = self._flow_after_middleware(flow)
        added = self._flow_added(flow, self.database.run(flows.add(flow), connection))
        if self.observers.enqueued:
            self.hooks.flush()
        return added

    async def _aadd_flow(self, flow: NewFlow, connection: object = None) -> AddedFlow:
        flow = self._flow_after_middleware(flow)
        added = self._flow_added(flow, await self.database.arun(flows.add(flow), connection))
        if self.observers.enqueued:
            await self.hooks.aflush()
        return added

    def _flow_added(self, flow: NewFlow, added: AddedFlow) -> AddedFlow:
        if self.observers.enqueued:
            self.observers.enqueued(flow.jobs, [EnqueueAnswer(job_id) for job_id in added.jobs])
        return added

    def _flow_after_middleware(self, flow: NewFlow) -> NewFlow:
        """Return the flow with its jobs as the middleware changed them."""
        for see in self._at_enqueue:
            flow = flow.with_jobs(see)
        return flow

    def _jobs_after_middleware(self, jobs: Iterable[NewJob]) -> Iterable[NewJob]:
        """Return the jobs as the middleware changed them; as a list if an observer is told of them."""
        for see in self._at_enqueue:
            jobs = [see(*jobs)] if isinstance(jobs, list) and len(jobs) == 1 else map(see, jobs)
        return list(jobs) if self.observers.enqueued else jobs

    def _handles(self, jobs: Iterable[NewJob], results: Sequence[EnqueueAnswer]) -> list[JobHandle[Any]]:
        if self.observers.enqueued and isinstance(jobs, list):  # one added meanwhile is told of the next
            self.observers.enqueued(jobs, results)
        match jobs:
            case [NewJob(unique_key=None, task=task)]:  # no other enqueue can change what this job is
                return [JobHandle(results[0], self, task)]
        return [JobHandle(one, self) for one in results]

    def _materialise(self, jobs: Iterable[NewJob], connection: object) -> Iterable[NewJob]:
        checked = map(self._check_job, jobs)
        if self.database.joins(connection):
            return list(checked)  # making a job may use the same connection
        # A mistake in the first block needs no database to be found.
        return chain(list(islice(checked, enqueue.ROWS_PER_BLOCK)), checked)

    def _check_job(self, job: NewJob) -> NewJob:
        if self.queues is not None:
            self.require_queue(job.queue)
        return job if self.codec is None else encoded_job(self.codec, job)


def _warn_of_blocked_loop() -> None:
    """Log a blocking enqueue within a running event loop, once per process, with the place in the user's code.

    It works, but it stops the loop until the database answers. Where there is no loop the check costs 0.05 µs.
    """
    global _told  # noqa: PLW0603 - once per process
    if _told or _get_running_loop() is None:
        return
    _told = True
    log.warning(
        "a blocking enqueue stops the event loop until the database answers: write `await task.aenqueue(...)` at %s; "
        "this is said once",
        f"{(frame := caller()).f_code.co_filename}:{frame.f_lineno}",
    )
