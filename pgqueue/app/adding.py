"""Adding prepared jobs: every enqueue of Python code ends here.

:mod:`pgqueue.app.task` prepares jobs, :mod:`pgqueue.store.jobs.enqueue` says what the database is asked, and the database
(:mod:`pgqueue.store.connections.database`) chooses the connection: the user's, the framework's or one of its own.
"""

import logging
from asyncio import _get_running_loop
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from pgqueue.app.handle import JobHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.store.drive import adrive, drive
from pgqueue.store.flows import flows
from pgqueue.store.flows.flows import AddedFlow
from pgqueue.store.jobs import enqueue
from pgqueue.store.plan import Plan
from pgqueue.values.flows.flow import NewFlow
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob
from pgqueue.values.payloads.argument_check import caller
from pgqueue.values.payloads.codec import encoded_job

log = logging.getLogger("pgqueue")

_told = False


def add(
    queue: JobMethods,
    jobs: Iterable[NewJob],
    connection: object = None,
    one: Callable[..., Plan[EnqueueAnswer]] = enqueue.add,
) -> list[JobHandle[Any]]:
    """Add jobs on the caller's connection; None: on the one that the database chooses. ``one`` makes the plan that adds a single job."""
    _warn_of_blocked_loop()
    jobs = _jobs_after_middleware(queue, jobs)
    run = queue.database.run
    match jobs:
        case [job]:
            done = [run(one(checked_job(queue, job), known=queue.database.known), connection)]
        case _:
            done = drive(_add_several(queue, jobs, connection), lambda plan: run(plan, connection))
    handles = _handles(queue, jobs, done)
    if queue.observers.enqueued:
        queue.hooks.flush()
    return handles


async def aadd(
    queue: JobMethods,
    jobs: Iterable[NewJob],
    connection: object = None,
    one: Callable[..., Plan[EnqueueAnswer]] = enqueue.add,
) -> list[JobHandle[Any]]:
    """As :func:`add`, awaited."""
    if queue.database.blocks and connection is None and not queue.database.in_job_transaction:
        return await queue.database.acall(partial(add, queue, one=one), jobs)
    jobs = _jobs_after_middleware(queue, jobs)
    run = queue.database.arun
    match jobs:
        case [job]:
            done = [await run(one(checked_job(queue, job), known=queue.database.known), connection)]
        case _:
            done = await adrive(_add_several(queue, jobs, connection), lambda plan: run(plan, connection))
    handles = _handles(queue, jobs, done)
    if queue.observers.enqueued:
        await queue.hooks.aflush()
    return handles


def _add_several(
    queue: JobMethods, jobs: Iterable[NewJob], connection: object
) -> Generator[Plan[Any], Any, list[EnqueueAnswer]]:
    """Add a few plain jobs by one statement; others, and more, in one transaction."""
    checked = map(partial(checked_job, queue), jobs)
    # A mistake in the first block needs no database to be found.
    first = list(islice(checked, enqueue.ROWS_PER_BLOCK))
    if first and enqueue.are_few(first):
        return (yield enqueue.enqueue_few(first))  # type: ignore[no-any-return]  # as sent
    left = chain(first, checked)
    # Making a job may use the same connection.
    return (yield enqueue.enqueue_many([*left] if queue.database.joins(connection) else left))  # type: ignore[no-any-return]  # as sent


def add_flow(queue: JobMethods, flow: NewFlow, connection: object = None) -> AddedFlow:
    """Add a flow, as :func:`add` adds jobs."""
    _warn_of_blocked_loop()
    flow = _flow_after_middleware(queue, flow)
    added = _flow_added(queue, flow, queue.database.run(flows.add(flow), connection))
    if queue.observers.enqueued:
        queue.hooks.flush()
    return added


async def aadd_flow(queue: JobMethods, flow: NewFlow, connection: object = None) -> AddedFlow:
    """As :func:`add_flow`, awaited."""
    flow = _flow_after_middleware(queue, flow)
    added = _flow_added(queue, flow, await queue.database.arun(flows.add(flow), connection))
    if queue.observers.enqueued:
        await queue.hooks.aflush()
    return added


def _flow_added(queue: JobMethods, flow: NewFlow, added: AddedFlow) -> AddedFlow:
    if queue.observers.enqueued:
        queue.observers.enqueued(flow.jobs, [EnqueueAnswer(job_id) for job_id in added.jobs])
    return added


def _flow_after_middleware(queue: JobMethods, flow: NewFlow) -> NewFlow:
    """Return the flow with its jobs as the middleware changed them."""
    for see in queue._at_enqueue:  # noqa: SLF001 - set for this file alone
        flow = flow.with_jobs(see)
    return flow


def _jobs_after_middleware(queue: JobMethods, jobs: Iterable[NewJob]) -> Iterable[NewJob]:
    """Return the jobs as the middleware changed them; as a list if an observer is told of them."""
    for see in queue._at_enqueue:  # noqa: SLF001 - set for this file alone
        jobs = [see(*jobs)] if isinstance(jobs, list) and len(jobs) == 1 else map(see, jobs)
    return list(jobs) if queue.observers.enqueued else jobs


def _handles(
    queue: JobMethods, jobs: Iterable[NewJob], results: Sequence[EnqueueAnswer]
) -> list[JobHandle[Any]]:
    if queue.observers.enqueued and isinstance(jobs, list):  # one added meanwhile is told of the next
        queue.observers.enqueued(jobs, results)
    match jobs:
        case [NewJob(unique_key=None, task=task)]:  # no other enqueue can change what this job is
            return [JobHandle(results[0], queue, task)]
    return [JobHandle(one, queue) for one in results]


def checked_job(queue: JobMethods, job: NewJob) -> NewJob:
    """A job as it is stored: its queue is declared, and its texts are encoded."""
    if queue.queues is not None:
        queue.require_queue(job.queue)
    return job if queue.codec is None else encoded_job(queue.codec, job)


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
