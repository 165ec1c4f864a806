"""A job's end as its enqueuer waits for it: whether to look or to be told, and what to return or raise then.

How callers are told is decided in :mod:`pgqueue.store.results.ends`, and what is recorded with a job by the worker's executor.
"""

import asyncio
import math
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, cast

from pgqueue.errors import (
    JobFailed,
    JobNotDone,
    JobNotFound,
    PayloadNotDecodable,
    ResultNotKept,
    as_duration,
)
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.connections.patience import ANSWER_WITHIN, LONGEST, answered_by
from pgqueue.store.drive import adrive, drive
from pgqueue.store.insight import why as store_why
from pgqueue.store.plan import Plan
from pgqueue.store.results import job_end
from pgqueue.store.results.ends import End, EndWaiters
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
NO_JOB = 0
"""An id that no job has: the thread that serves callers learns so from the server, at once if the server answers."""
IN_MEMORY = "its queue is in memory for a test, where only pgqueue.testing.drain(queue) runs jobs"
"""Why a job in memory has not ended, besides its state."""


class EndWait(NamedTuple):
    """Wait until another thread tells the end of a job, or raise TimeoutError.

    Attributes:
        end: what it tells.
        within: seconds.
    """

    end: End
    within: float


class _Wait(NamedTuple):
    """For which job a caller waits, for how long, and until which instant of the monotonic clock."""

    job_id: int
    limit: timedelta | None
    deadline: float

    @classmethod
    def begin(cls, database: Database, job_id: int, timeout: float | timedelta | None) -> Self:
        limit = as_duration("timeout", timeout)
        if limit is not None:
            return cls(job_id, limit, time.monotonic() + limit.total_seconds())
        # In memory a job runs only when the test says so. A caller that waited without a limit would keep the test from it.
        return cls(job_id, None, time.monotonic() if database.in_memory else math.inf)

    def not_done(self, why: str) -> JobNotDone:
        within = "" if self.limit is None else f" within {duration_text(self.limit.total_seconds())}"
        return JobNotDone(f"job {self.job_id} has not ended{within}: {why}")


WaitStep: TypeAlias = Plan[Any] | EndWait
"""What a caller that waits does next: runs a plan, or waits to be told."""


class HasReturnType(Protocol):
    """A task, as far as its result is concerned."""

    @property
    def returns(self) -> ReturnType:
        """What it says that it returns."""


NO_TASKS: Mapping[str, HasReturnType] = {}


def wait_until_ended(
    database: Database, job_id: int, timeout: float | timedelta | None, *, keeps_history: bool
) -> EndLook:
    """Wait until a job has ended, and return it.

    Args:
        database: where it is; of several shards, that of the job is found.
        job_id: which.
        timeout: seconds, or a timedelta; None: as long as it takes, and in memory not at all.
        keeps_history: whether ended jobs are kept.

    Raises:
        JobNotDone: it has not ended in time; the message says why, as far as is known.
        JobNotFound: there is no record of it.
        ResultNotKept: it has ended, and left no record.
    """
    if isinstance(several := database.itself, ShardedDatabase):
        database = several.of_job(job_id)
    apart, wait = _apart(database), _Wait.begin(database, job_id, timeout)

    def answer(step: WaitStep) -> object:
        if isinstance(step, EndWait):
            return step.end.result(step.within)
        try:
            with answered_by(wait.deadline, ANSWER_WITHIN):
                return database.run(step, apart)
        except TimeoutError as error:
            raise wait.not_done(str(error)) from error

    return drive(_until_ended(database, wait, keeps_history=keeps_history), answer)


async def await_until_ended(
    database: Database,
    job_id: int,
    timeout: float | timedelta | None,  # noqa: ASYNC109 - as the blocking one
    *,
    keeps_history: bool,
) -> EndLook:
    """As :func:`wait_until_ended`, awaited."""
    if isinstance(several := database.itself, ShardedDatabase):
        database = await several.aof_number(shard_of_id(job_id))
    apart, wait = _apart(database), _Wait.begin(database, job_id, timeout)

    async def answer(step: WaitStep) -> object:
        if isinstance(step, EndWait):
            async with asyncio.timeout(step.within):
                return await asyncio.wrap_future(step.end)
        try:
            with answered_by(wait.deadline, ANSWER_WITHIN):
                return await database.arun(step, apart)
        except TimeoutError as error:
            raise wait.not_done(str(error)) from error

    return await adrive(_until_ended(database, wait, keeps_history=keeps_history), answer)


def result_of(look: EndLook, codec: Codec | None, tasks: Mapping[str, HasReturnType] = NO_TASKS) -> Any:  # noqa: ANN401 - as annotated
    """What the task of an ended job returned, as its annotation says; plain JSON values where it says nothing.

    Args:
        look: the job.
        codec: the queue's.
        tasks: those that are known here, by name; a result of another one stays plain.

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
    database: Database, wait: _Wait, *, keeps_history: bool
) -> Generator[WaitStep, Any, EndLook]:
    """What a caller does until its job has ended: it waits to be told, and looks again and again if it was not told."""
    job_id, look, pause = wait.job_id, None, FIRST_PAUSE
    if not database.in_memory and time.monotonic() < wait.deadline:
        look = yield from _told(database.ends, wait, keeps_history=keeps_history)
        if look is not None and look.job.state.ended:
            return look
    while True:
        last = time.monotonic() >= wait.deadline
        look = yield from _look(job_id, look, keeps_history=keeps_history)
        if look.job.state.ended:
            return look
        if last and database.in_memory:
            raise wait.not_done(f"it is {look.job.state}, and {IN_MEMORY}")
        if last:
            raise wait.not_done((yield store_why.why(job_id)).sentence)
        with suppress(TimeoutError):
            yield EndWait(Future(), min(pause, wait.deadline - time.monotonic()))  # no thread ends this wait
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _told(ends: EndWaiters, wait: _Wait, *, keeps_history: bool) -> Generator[WaitStep, Any, EndLook | None]:
    """What a caller learns until the deadline from the thread that serves all callers; else what it saw itself before.

    The caller does not look itself while others wait: the thread looks at many jobs at once. Without a history it does: the
    look tells a job that was there from one that was not.
    """
    job_id, looks, seen = wait.job_id, not (keeps_history and ends.waits), None
    end = ends.enter(job_id)
    try:
        if looks:
            seen = yield from _look(job_id, None, keeps_history=keeps_history)
            if seen.job.state.ended:
                return seen
        ends.ask(job_id)
        try:
            told = yield EndWait(end, min(wait.deadline - time.monotonic(), LONGEST))
        except TimeoutError:
            yield from _require_answer(ends, wait)
            return seen
        return cast("EndLook | None", told) or seen
    finally:
        ends.leave(job_id, end)


def _require_answer(ends: EndWaiters, wait: _Wait) -> Generator[WaitStep, Any, None]:
    """Raise JobNotDone if the server does not answer the thread: it would not answer the caller's last look, either."""
    answer = ends.enter(NO_JOB)
    ends.ask(NO_JOB)
    try:
        yield EndWait(answer, ANSWER_WITHIN)
    except TimeoutError:
        raise wait.not_done(f"the database has not answered for {ANSWER_WITHIN:g} s") from None
    finally:
        ends.leave(NO_JOB, answer)


def _look(job_id: int, before: EndLook | None, *, keeps_history: bool) -> Generator[WaitStep, Any, EndLook]:
    """The job now; ``before``: at an earlier look.

    Raises:
        JobNotFound: it has no record.
        ResultNotKept: it has none any more.
    """
    look = yield job_end.look(job_id)
    if look is not None:
        return cast("EndLook", look)
    if before is None or keeps_history:
        raise not_found(job_id, keeps_history=keeps_history)
    raise _not_kept(
        before.job, "its queue keeps no history (history=0), so nothing is left of ended jobs", "ended"
    )


def _not_kept(job: Job, reason: str, how: str = "succeeded") -> ResultNotKept:
    return ResultNotKept(f"job {job.id} of {job.task} has {how}, and its result was not kept: {reason}")
