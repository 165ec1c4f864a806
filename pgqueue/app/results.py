"""A job's end as its enqueuer waits for it: how often to look, and what to return or raise then.

What is recorded with a job is decided by the worker's executor.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Protocol

from pgqueue.errors import (
    JobFailed,
    JobNotDone,
    JobNotFound,
    PayloadNotDecodable,
    PgQueueError,
    ResultNotKept,
    as_duration,
)
from pgqueue.store import waiting
from pgqueue.store.database import Database
from pgqueue.store.joining import OWN_CONNECTION
from pgqueue.store.waiting import Look
from pgqueue.values.codec import Codec, opened, result_text, value_of
from pgqueue.values.job import Job, JobState
from pgqueue.values.lease import spoken
from pgqueue.values.result import NOT_RETURNED, ReturnType
from pgqueue.values.verdict import why_not_kept
from pgqueue.values.why import NO_RECORD, Why

FIRST_LOOK, LONGEST_LOOK = 0.01, 1.0


class Returns(Protocol):
    """A task, as far as its result is concerned."""

    @property
    def returns(self) -> ReturnType:
        """What it says that it returns."""


def ended(database: Database, job_id: int, timeout: float | timedelta | None, *, keeps_history: bool) -> Look:
    """Wait until a job has ended, and return it.

    Args:
        database: where it is.
        job_id: which.
        timeout: seconds, or a timedelta; None: as long as it takes.
        keeps_history: whether ended jobs are kept.

    Raises:
        JobNotDone: it has not ended in time; the message says why, as far as is known.
        JobNotFound: there is no record of it.
        ResultNotKept: it has ended, and left no record.
    """
    apart, before = _apart(database), None
    for pause in _looks(timeout):
        found = database.run(waiting.look(job_id), apart)
        if found is None:
            raise _gone(job_id, before, keeps_history=keeps_history)
        if found.job.state.ended:
            return found
        before = found
        time.sleep(pause)
    raise _not_done(database.run(waiting.why(job_id), apart), timeout)


async def aended(
    database: Database,
    job_id: int,
    timeout: float | timedelta | None,  # noqa: ASYNC109 - as the blocking one
    *,
    keeps_history: bool,
) -> Look:
    """As :func:`ended`, awaited."""
    apart, before = _apart(database), None
    for pause in _looks(timeout):
        found = await database.arun(waiting.look(job_id), apart)
        if found is None:
            raise _gone(job_id, before, keeps_history=keeps_history)
        if found.job.state.ended:
            return found
        before = found
        await asyncio.sleep(pause)
    raise _not_done(await database.arun(waiting.why(job_id), apart), timeout)


def result_of(look: Look, codec: Codec | None) -> Any:  # noqa: ANN401 - any JSON
    """What the task of an ended job returned, as plain JSON values.

    Args:
        look: the job.
        codec: the queue's.

    Raises:
        JobFailed: the job is dead or was cancelled.
        ResultNotKept: it has succeeded, and its result was not kept.
        PayloadNotDecodable: the result is encoded, and the codec cannot decode it.
    """
    text = _returned(look, codec)
    return None if text is None else value_of(text)


def typed_result_of(look: Look, tasks: Mapping[str, Returns], codec: Codec | None) -> Any:  # noqa: ANN401 - as annotated
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
    text, task = _returned(look, codec), tasks.get(look.job.task)
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


def _returned(look: Look, codec: Codec | None) -> str | None:
    """What the task of an ended job returned, as JSON; None: it returned None."""
    job = opened(codec, look.job)
    last = job.errors[-1] if job.errors else None
    if job.state is not JobState.SUCCEEDED:
        said = f": {last.type}: {last.message}" if last else ""
        raise JobFailed(f"job {job.id} of {job.task} is {job.state}{said}")
    if (note := why_not_kept(job)) is not None:
        raise _not_kept(job, note.message)
    if look.result == NOT_RETURNED.decode():
        raise _not_kept(job, "ctx.transaction() completed the job before its task returned")
    return None if look.result is None else result_text(codec, job, look.result)


def not_found(job_id: int, *, keeps_history: bool) -> JobNotFound:
    """What to raise where there is no record of a job."""
    ended = "" if keeps_history else "; this queue keeps no history (history=0), so it may have succeeded"
    return JobNotFound(f"no record of job {job_id}: {NO_RECORD}{ended}")


def _apart(database: Database) -> object:
    """On which connection to wait for a job: inside a job's transaction never on that.

    A job that was enqueued in it cannot end before it is committed, and the wait would be for ever.
    """
    return OWN_CONNECTION if database.joins(None) else None


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


def _gone(job_id: int, before: Look | None, *, keeps_history: bool) -> PgQueueError:
    """What to raise where there is no record of a job any more, or yet.

    Args:
        job_id: which.
        before: the job at an earlier look; None: there was no record of it then either.
        keeps_history: whether ended jobs are kept.
    """
    if before is None or keeps_history:
        return not_found(job_id, keeps_history=keeps_history)
    return _not_kept(
        before.job, "its queue keeps no history (history=0), so nothing is left of ended jobs", "ended"
    )


def _not_done(why: Why, timeout: float | timedelta | None) -> JobNotDone:
    """What to raise when the time is over: with all that is known of why."""
    limit = as_duration("timeout", timeout) or timedelta(0)
    return JobNotDone(
        f"job {why.job_id} has not ended within {spoken(limit.total_seconds())}: {why.sentence}"
    )


def _not_kept(job: Job, reason: str, how: str = "succeeded") -> ResultNotKept:
    return ResultNotKept(f"job {job.id} of {job.task} has {how}, and its result was not kept: {reason}")
