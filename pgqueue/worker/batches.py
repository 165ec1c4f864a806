"""One call of a batch task, top to bottom: read the arguments of each job, call the function, decide on each job.

A job whose arguments cannot be read, that has expired, or that a condition of its flow keeps from running, ends before the
call, and the others are called without it. What a single attempt does in the same place is in :mod:`pgqueue.worker.executor`; what a coroutine waits
for, in :mod:`pgqueue.worker.attempt`.
"""

import asyncio
from typing import Any

from pgqueue.app.batches import Batch, BatchContext, BatchJob
from pgqueue.app.forks import end_if_forked, process
from pgqueue.app.judgement import judge_lateness
from pgqueue.errors import PayloadNotDecodable
from pgqueue.values.jobs.job import JobFlags
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.payloads.codec import args_text
from pgqueue.worker import joblog
from pgqueue.worker.attempt import (
    BatchAttempt,
    BatchMember,
    awaited_value,
    never_ran,
    plain_value,
    task_of,
)
from pgqueue.worker.before_attempt import EarlyEnd, aadmit, admit
from pgqueue.worker.executor import Executor

log = joblog.worker_log()


class BatchItems:
    """The jobs with which the function is called.

    Attributes:
        pairs: the attempt of each, and what the function sees of it.
        batch: the function's argument.
    """

    __slots__ = ("batch", "pairs")

    def __init__(self, pairs: list[tuple[BatchMember, BatchJob[Any]]], executor: Executor) -> None:
        self.pairs = pairs
        self.batch = Batch[Any]([job for _, job in pairs], executor)


async def run(executor: Executor, attempt: BatchAttempt) -> None:
    """Run a batch of an ``async def`` task; each member is told its verdict."""
    ready, forks = None, process.forks
    try:
        for one in _members_to_admit(attempt):
            try:
                _decide_early(one, await aadmit(executor, one))
            except Exception as error:  # noqa: BLE001 - the others run all the same
                one.decide(executor.raised(one, error))
        ready = _prepare_items(executor, attempt)
        if ready is not None:
            _decide_returned(executor, ready, await awaited_value(_call(attempt, ready), attempt, forks))
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit included
        end_if_forked(forks, error)
        _decide_raised(executor, attempt, ready, error)


def run_plain(executor: Executor, attempt: BatchAttempt, loop: asyncio.AbstractEventLoop) -> None:
    """Run a batch of a plain function in the current thread; what it returns to be awaited is awaited in this loop."""
    ready, forks = None, process.forks
    try:
        for one in _members_to_admit(attempt):
            try:
                _decide_early(one, admit(executor, one, loop))
            except Exception as error:  # noqa: BLE001 - the others run all the same
                one.decide(executor.raised(one, error))
        ready = _prepare_items(executor, attempt)
        if ready is not None:
            _decide_returned(executor, ready, plain_value(_call(attempt, ready), attempt, forks, loop))
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit included
        end_if_forked(forks, error)
        _decide_raised(executor, attempt, ready, error)


def _members_to_admit(attempt: BatchAttempt) -> list[BatchMember]:
    """Return the members whose job has a condition, or may have killed workers."""
    return [
        one
        for one in attempt.members
        if one.claim.flags and one.claim.flags & (JobFlags.ASKS | JobFlags.SUSPECT)
    ]


def _decide_early(one: BatchMember, early: EarlyEnd | None) -> None:
    if early is not None:
        one.decide(early.verdict)


def _prepare_items(executor: Executor, attempt: BatchAttempt) -> BatchItems | None:
    """Make an item of each job's arguments; return None if no job is left to run."""
    task, pairs = task_of(attempt), list[tuple[BatchMember, BatchJob[Any]]]()
    for one in attempt.members:
        if one.claim.expires_in is not None and (late := judge_lateness(log, one.claim)):
            one.decide(late)
        if one.decided:
            continue
        try:
            args, kwargs = task.signature.decode(_text(executor, one), None)
            pairs.append((one, BatchJob(task.item(*args, **kwargs), one.context, executor)))
        except PayloadNotDecodable as error:
            one.decide(executor.undecodable(one.claim, error))
        except BaseException as error:  # noqa: BLE001 - the item's own code may raise anything
            one.decide(executor.raised(one, error))
    if not pairs:
        return None
    ready = BatchItems(pairs, executor)
    attempt.context = BatchContext(pairs[0][0].claim, executor, ready.batch)
    return ready


def _text(executor: Executor, one: BatchMember) -> str:
    return one.claim.args if executor.codec is None else args_text(executor.codec, one.claim)


def _call(attempt: BatchAttempt, ready: BatchItems) -> Any:  # noqa: ANN401 - the task's own value
    """Call the function, or the middleware around it; a coroutine that it returns has not begun."""
    task, batch = task_of(attempt), ready.batch
    return task.function(batch) if task.around is None else task.around(attempt.context, (batch,), {})


def _decide_returned(executor: Executor, ready: BatchItems, value: object) -> None:
    if value is not None:
        _share_out(ready, value)
    for one, job in ready.pairs:
        if one.context.completed:
            _note_completed(executor, one, job)
        elif job.error is not None:
            one.decide(executor.failed(one, job.error))
        elif job.result is None:
            one.decide(Succeeded(one.claim, one.context.seconds))
        else:
            one.decide(executor.success(one.claim, one.context.seconds, job.result))


def _share_out(ready: BatchItems, value: object) -> None:
    """Give each job its result; a result that a job has already stays."""
    wrong = never_ran(value)
    if wrong is not None:
        raise wrong
    if not isinstance(value, list | tuple) or len(value) != len(ready.pairs):
        size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
        raise TypeError(
            f"the batch task returned a {type(value).__name__}{size}; it returns None, or a list with a result for each of "
            f"its {len(ready.pairs)} jobs, in their order"
        )
    for (_, job), result in zip(ready.pairs, value, strict=True):
        if job.result is None:
            job.result = result


def _decide_raised(
    executor: Executor, attempt: BatchAttempt, ready: BatchItems | None, error: BaseException
) -> None:
    jobs = {} if ready is None else {one.claim.id: job for one, job in ready.pairs}
    # The traceback is logged once.
    logged = False
    for one in attempt.members:
        if one.decided:
            continue
        job = jobs.get(one.claim.id)
        if one.context.completed:
            _note_completed(executor, one, job, None if logged else error)
            logged = True
        elif job is not None and job.error is not None:
            one.decide(executor.failed(one, job.error))
        else:
            one.decide(executor.raised(one, error, logged=logged))
            logged = True


def _note_completed(
    executor: Executor, one: BatchMember, job: BatchJob[Any] | None, error: BaseException | None = None
) -> None:
    """Log what there is to log of a job whose end the batch's transaction has recorded."""
    if job is not None and job.error is not None and executor.note(one.claim, job.error):
        joblog.log_failure(executor.codec, one.context, executor.verdict(one.context, job.error), job.error)
    if error is not None:
        executor.failed(one, error)
    one.decide(None)
