"""A job's end as its enqueuer waits for it: whether to look or to be told, and what to return or raise then.

How callers are told is decided in :mod:`pgqueue.store.results.ends`, and what is recorded with a job by the worker's executor.
"""

import asyncio
import math
import time
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from pgqueue.errors import (
    JobFailed,
    JobNotDone,
    JobNotFound,
    PayloadNotDecodable,
    PgQueueError,
    ResultNotKept,
    as_duration,
)
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.drive import adrive, drive
from pgqueue.store.insight import why as store_why
from pgqueue.store.plan import Plan
from pgqueue.store.results import job_end
from pgqueue.store.results.ends import End
from pgqueue.store.results.job_end import EndLook
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.insight.why import NO_RECORD
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.verdict import NOT_RETURNED, why_not_kept
from pgqueue.values.payloads.codec import Codec, decode_job, result_text
from pgqueue.values.payloads.result import ReturnType
from pgqueue.values.payloads.storable import value_of
from pgqueue.values.shards import shard_of_id
from pgqueue.values.workers.lease import duration_text

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
"""Seconds between two looks of a caller that has to look itself, growing by half each time."""
IN_MEMORY = "its queue is in memory for a test, where only pgqueue.testing.drain(queue) runs jobs"
"""Why a job in memory has not ended, besides its state."""
LONGEST_WAIT = 1e6
"""Seconds. What waits for longer is told to look again, since locks have no longer timeouts."""


class EndWait(NamedTuple):
    """Wait until another thread tells that the job has ended.

    Attributes:
        end: what it tells.
        within: seconds; then the answer is None.
    """

    end: End
    within: float


WaitStep: TypeAlias = Plan[Any] | EndWait | timedelta
"""What a caller that waits does next: runs a plan, waits to be told, or pauses."""


class HasReturnType(Protocol):
    """A task, as far as its result is concerned."""

    @property
    def returns(self) -> ReturnType:
        """What it says that it returns."""


def place_of(database: Database, job_id: int) -> Database:
    """The database in which a job's end is waited for: of several shards, the job's."""
    several = database.itself
    return several.of_job(job_id) if isinstance(several, ShardedDatabase) else database


async def aplace_of(database: Database, job_id: int) -> Database:
    """As :func:`place_of`, awaited."""
    several = database.itself
    return await several.aof_number(shard_of_id(job_id)) if isinstance(several, ShardedDatabase) else database


def wait_until_ended(
    database: Database, job_id: int, timeout: float | timedelta | None, *, keeps_history: bool
) -> EndLook:
    """Wait until a job has ended, and return it.

    Args:
        database: where it is.
        job_id: which.
        timeout: seconds, or a timedelta; None: as long as it takes, and in memory not at all.
        keeps_history: whether ended jobs are kept.

    Raises:
        JobNotDone: it has not ended in time; the message says why, as far as is known.
        JobNotFound: there is no record of it.
        ResultNotKept: it has ended, and left no record.
    """
    apart = _apart(database)

    def answer(step: WaitStep) -> object:
        match step:
            case Plan():
                return database.run(step, apart)
            case EndWait():
                return _wait_for_end(step)
            case timedelta():
                time.sleep(step.total_seconds())
                return None

    return drive(_until_ended(database, job_id, timeout, keeps_history=keeps_history), answer)


async def await_until_ended(
    database: Database,
    job_id: int,
    timeout: float | timedelta | None,  # noqa: ASYNC109 - as the blocking one
    *,
    keeps_history: bool,
) -> EndLook:
    """As :func:`wait_until_ended`, awaited."""
    apart = _apart(database)

    async def answer(step: WaitStep) -> object:
        match step:
            case Plan():
                return await database.arun(step, apart)
            case EndWait():
                return await _await_end(step)
            case timedelta():
                await asyncio.sleep(step.total_seconds())
                return None

    return await adrive(_until_ended(database, job_id, timeout, keeps_history=keeps_history), answer)


def result_of(look: EndLook, codec: Codec | None) -> Any:  # noqa: ANN401 - any JSON
    """What the task of an ended job returned, as plain JSON values.

    Args:
        look: the job.
        codec: the queue's.

    Raises:
        JobFailed: the job is dead or was cancelled.
        ResultNotKept: it has succeeded, and its result was not kept.
        PayloadNotDecodable: the result is encoded, and the codec cannot decode it.
    """
    text = _result_text(look, codec)
    return None if text is None else value_of(text)


def typed_result_of(look: EndLook, tasks: Mapping[str, HasReturnType], codec: Codec | None) -> Any:  # noqa: ANN401 - as annotated
    """What the task of an ended job returned, as its annotation says; plain JSON values where it says nothing.

    Args:
        look: the job.
        tasks: those that are known here, by name; a result of another one stays plain.
        codec: the queue's.

    Raises:
        JobFailed: the job is dead or was cancelled.
        ResultNotKept: it has succeeded, and its result was not kept.
        PayloadNotDecodable: the result does not fit the annotation, or the codec cannot decode it.
    """
    text, task = _result_text(look, codec), tasks.get(look.job.task)
    if text is None or task is None:
        return None if text is None else value_of(text)
    try:
        return task.returns.decode(text)
    except PayloadNotDecodable as error:
        job = look.job
        raise PayloadNotDecodable(
            f"the result of job {job.id} of {job.task} does not fit its annotation: {error}; "
            f"queue.result({job.id}) gives it as plain JSON values"
        ) from error


def _result_text(look: EndLook, codec: Codec | None) -> str | None:
    """Return what the task of an ended job returned, as JSON; None: it returned None."""
    job = decode_job(codec, look.job)
    last = job.errors[-1] if job.errors else None
    if job.state is not JobState.SUCCEEDED:
        said = f": {last.type}: {last.message}" if last else ""
        raise JobFailed(f"job {job.id} of {job.task} is {job.state}{said}", job=job, error=last)
    if (note := why_not_kept(job)) is not None:
        raise _not_kept(job, note.message)
    if look.result == NOT_RETURNED.decode():
        raise _not_kept(
            job,
            "ctx.transaction() completed the job before its task returned, or the database refused to store it",
        )
    return None if look.result is None else result_text(codec, job, look.result)


def not_found(job_id: int, *, keeps_history: bool) -> JobNotFound:
    """What to raise where there is no record of a job."""
    ended = "" if keeps_history else "; this queue keeps no history (history=0), so it may have succeeded"
    return JobNotFound(f"no record of job {job_id}: {NO_RECORD}{ended}")


def _apart(database: Database) -> object:
    """On which connection to wait for a job: inside a job's transaction never on that.

    A job that was enqueued in it cannot end before it is committed, and the wait would be for ever.
    """
    return OWN_CONNECTION if database.in_job_transaction else None


def _until_ended(
    database: Database, job_id: int, timeout: float | timedelta | None, *, keeps_history: bool
) -> Generator[WaitStep, Any, EndLook]:
    """What a caller does until its job has ended: it looks, then waits to be told, then looks again if it was not told.

    The first look is left out while other callers wait: the thread that tells them looks at many jobs at once. Without a
    history it is not: it tells a job that was there from one that was not.
    """
    deadline = _deadline(database, as_duration("timeout", timeout))
    ends, before, pause = database.ends, None, FIRST_PAUSE
    asks = not database.in_memory
    looks = database.in_memory or not keeps_history or not ends.busy
    while True:
        last = time.monotonic() >= deadline
        if looks or last:
            with ends.looking():
                look = yield job_end.look(job_id)
            if look is None:
                raise _no_record_error(job_id, before, keeps_history=keeps_history)
            if look.job.state.ended:
                return cast("EndLook", look)
            before = look
            if last:
                if database.in_memory:
                    why = f"it is {look.job.state}, and {IN_MEMORY}"
                else:
                    why = (yield store_why.why(job_id)).sentence
                raise _not_done(job_id, why, timeout)
        if asks:
            end = ends.of(job_id)
            try:
                told = yield EndWait(end, min(deadline - time.monotonic(), LONGEST_WAIT))
            finally:
                end.cancel()
            if told is not None:
                return cast("EndLook", told)
        else:
            yield timedelta(seconds=max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.5, LONGEST_PAUSE)
        asks, looks = False, True


def _deadline(database: Database, limit: timedelta | None) -> float:
    """Return the time of the last look, by the monotonic clock."""
    if limit is not None:
        return time.monotonic() + limit.total_seconds()
    # In memory a job runs only when the test says so. A caller that waited without a limit would keep the test from it.
    return time.monotonic() if database.in_memory else math.inf


def _wait_for_end(step: EndWait) -> EndLook | None:
    try:
        return step.end.result(step.within)
    except TimeoutError:
        return None


async def _await_end(step: EndWait) -> EndLook | None:
    try:
        async with asyncio.timeout(step.within):
            return await asyncio.wrap_future(step.end)
    except TimeoutError:
        return None


def _no_record_error(job_id: int, before: EndLook | None, *, keeps_history: bool) -> PgQueueError:
    """Return the error for a job without a record any more, or yet.

    ``before``: the job at an earlier look; None: it had no record.
    """
    if before is None or keeps_history:
        return not_found(job_id, keeps_history=keeps_history)
    return _not_kept(
        before.job, "its queue keeps no history (history=0), so nothing is left of ended jobs", "ended"
    )


def _not_done(job_id: int, why: str, timeout: float | timedelta | None) -> JobNotDone:
    limit = as_duration("timeout", timeout)
    within = "" if limit is None else f" within {duration_text(limit.total_seconds())}"
    return JobNotDone(f"job {job_id} has not ended{within}: {why}")


def _not_kept(job: Job, reason: str, how: str = "succeeded") -> ResultNotKept:
    return ResultNotKept(f"job {job.id} of {job.task} has {how}, and its result was not kept: {reason}")
