"""One attempt, top to bottom: read the arguments, call the task, judge what came of it.

What becomes of the job is decided by the pure rules of :mod:`pgqueue.values.jobs.verdict`; the completer records it. What is
different for a job in a flow is in :mod:`pgqueue.worker.before_attempt`, and how a coroutine is awaited in
:mod:`pgqueue.worker.attempt`.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from pgqueue.app.attempt_logs import WaitingLogs
from pgqueue.app.context import Context
from pgqueue.app.forks import end_if_forked, process
from pgqueue.app.hooks.observer import Observers
from pgqueue.app.judgement import judge_error, judge_lateness, judge_undecodable
from pgqueue.app.notes import Board
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import (
    JobControl,
    PayloadError,
    PayloadNotDecodable,
    PayloadTooLarge,
    Superseded,
    TimedOut,
    UnknownTask,
    Waiting,
)
from pgqueue.values.hints import nearest
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import (
    NOT_RETURNED,
    Cancelled,
    Died,
    Returned,
    Stop,
    Succeeded,
    Unknown,
    Verdict,
    as_stopped,
    failed_verdict,
    without_result,
)
from pgqueue.values.payloads.codec import (
    args_text,
    encoded_result,
    logged_error,
    node_result_text,
)
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.worker import attempt_process, joblog
from pgqueue.worker.attempt import (
    Attempt,
    awaited_value,
    never_ran,
    plain_value,
    timed_out,
)
from pgqueue.worker.before_attempt import EarlyEnd, aadmit, acomplete, admit, complete
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.kept_processes import KeptProcesses
from pgqueue.worker.served_tasks import ServedTasks

log = worker_log()

NO_DELAY = timedelta()
UNKNOWN_TASK_DELAY = timedelta(seconds=15)
"""Where more tasks are unknown than claims can leave out, or the task's module broke off its import."""
UNKNOWN_AFTER = timedelta(days=3)

_DECISIONS = (JobControl, Waiting, TimedOut)
"""Errors by which a task decides, and timeouts: while the worker stops they are judged as at any time."""


class _UndecodableArguments(Exception):
    """The arguments cannot be read. The task raises errors of the same class, but not this one."""

    def __init__(self, why: PayloadNotDecodable) -> None:
        self.why = why


class Executor:
    """Runs attempts, and returns what becomes of their jobs, whatever they raise."""

    def __init__(
        self,
        queue: PgQueue,
        *,
        unknown_after: timedelta = UNKNOWN_AFTER,
        tasks: ServedTasks | None = None,
        observers: Observers | None = None,
        app: Callable[[], str | None] = lambda: None,
    ) -> None:
        """A return value that takes more bytes as JSON than the queue's ``max_payload`` is not kept.

        ``unknown_after``: a job whose task no worker has known for this long is dead. ``tasks``: None: it runs all. ``app`` returns where a process of its own
        finds the queue, as ``module:attribute``; None: it is not known.
        """
        # An app's queue may have another database in another context: a worker keeps to the one of here and now.
        self.database = queue.database
        self.keeps_history = queue.keeps_history
        self.served = tasks or ServedTasks(queue.tasks)
        self._tasks = self.served.known
        self._load = queue.load_task
        self.max_payload = queue.max_payload
        self.codec = queue.codec
        self.board = Board(queue.codec)
        self.logs = WaitingLogs(queue.codec, lambda: queue.redaction)
        self.unknown_after = unknown_after
        self._queue = queue
        self._app = app
        self.processes = KeptProcesses(queue, app)
        self.observers = observers or Observers()
        # Of queues, as the last poll found them. Threads read it, so it is replaced and never changed.
        self.timeouts: Mapping[str, timedelta] = {}

    def returns_value(self, claim: Claim) -> bool:
        """Whether a claim's task says that it returns something."""
        return self._tasks[claim.task].returns.is_value

    def is_async(self, claim: Claim) -> bool:
        """Whether a claim's task is an ``async def`` function."""
        return self._tasks[claim.task].is_async

    def clear_result(self, task: str, stored: str, meta: str | None) -> str:
        """The stored result of a job of this task, and with this ``meta``, as JSON in clear."""
        return node_result_text(self.codec, task, stored, meta)

    def timeout(self, claim: Claim) -> timedelta | None:
        """How long an attempt of a claim may take: as its task says, or else its queue; None: as long as it likes."""
        task = self._tasks.get(claim.task)
        own = None if task is None else task.timeout
        return self.timeouts.get(claim.queue) if own is None else own

    def verdict(self, ctx: Context, error: BaseException) -> Verdict:
        """What an error makes of an attempt. It is judged once: retry policies may draw random delays."""
        judged = ctx._judged  # noqa: SLF001 - kept there for this method alone
        if judged is None or judged[0] is not error:
            retry = self._tasks[ctx.job.task].retry
            made = judge_error(log, self.codec, ctx.job, error, retry=retry, seconds=ctx.seconds)
            judged = ctx._judged = (error, made)  # noqa: SLF001 - kept there for this method alone
        return as_stopped(judged[1], ctx._stopped)  # noqa: SLF001 - told by the worker alone

    def note(self, claim: Claim, error: BaseException) -> bool:  # noqa: ARG002 - for subclasses
        """Told of each error that ends an attempt; whether there is anything to record. Tests override this."""
        return True

    async def run_alone(self, attempt: Attempt, begun: CrashCount) -> EarlyEnd | None:
        """Run an attempt in a process of its own, since the job may have killed workers. Tests override this."""
        return await attempt_process.run_alone(self, self._queue, self._app(), attempt, begun)

    async def run(self, attempt: Attempt) -> Verdict | None:
        """Run an attempt of an ``async def`` task, or of a plain function in a process.

        Returns:
            What to record; None if there is nothing to record: the task's own transaction has completed the job, or
            the job is no longer this attempt's.

        Raises:
            GeneratorExit: the function has raised it. The caller, if it is an asyncio task's own coroutine, catches it, and
                asks :meth:`broken_off`.
        """
        claim = attempt.claim
        if (claim.expires_in is not None or claim.latest is not None) and (late := _judge_start(claim)):
            return late
        if attempt.task is None:
            return await self._requeue_unregistered(attempt)
        forks = process.forks
        try:
            if attempt.claim.flags and (early := await aadmit(self, attempt)):
                return early.verdict
            if attempt.task.process:
                verdict = await self.processes.run(self, attempt)
            else:
                value = await awaited_value(self._call(attempt), attempt, forks)
                verdict = self._judge_value(attempt, value)
            if attempt.context._additions and isinstance(verdict, Succeeded):  # noqa: SLF001 - for the worker alone
                await acomplete(self, attempt, verdict)
                return None
        except GeneratorExit as error:
            end_if_forked(forks, error)
            raise  # Python closes this coroutine, and only the outermost one can return a verdict
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit included
            end_if_forked(forks, error)
            return self.raised(attempt, error)
        return verdict

    def run_plain(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Verdict | None:
        """Run an attempt of a plain function, in the current thread.

        Args:
            attempt: which.
            loop: where to await what the function returns, if that is a coroutine.

        Returns:
            As for :meth:`run`.
        """
        claim = attempt.claim
        if (claim.expires_in is not None or claim.latest is not None) and (late := _judge_start(claim)):
            return late
        forks = process.forks
        try:
            if attempt.claim.flags and (early := admit(self, attempt, loop)):
                return early.verdict
            value = plain_value(self._call(attempt), attempt, forks, loop)
            verdict = self._judge_value(attempt, value)
            if attempt.context._additions and isinstance(verdict, Succeeded):  # noqa: SLF001 - for the worker alone
                complete(self, attempt, verdict)
                return None
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit included
            end_if_forked(forks, error)
            return self.raised(attempt, error)
        return verdict

    def timed_out(self, attempt: Attempt) -> Verdict | None:
        """The verdict on an attempt that has taken too long, and whose function goes on; it is cancelled if that is possible."""
        if attempt.runner is not None:
            attempt.runner.cancel()
        if attempt.stopped is Stop.LOST:
            return None
        return self.failed(attempt, timed_out(attempt, goes_on=True))

    def stopped(self, attempt: Attempt) -> Verdict | None:
        """The verdict on an attempt that was told to stop, and has stopped."""
        return self._judge_stop(attempt, asyncio.CancelledError())

    def _call(self, attempt: Attempt) -> Any:  # noqa: ANN401 - the task's own value
        """Decode the arguments, and call the function, or the middleware around it; a coroutine that it returns has not begun."""
        claim, task = attempt.claim, attempt.task
        assert task is not None  # noqa: S101 - only an attempt that runs its task comes here
        try:
            data = claim.args if self.codec is None else args_text(self.codec, claim)
            args, kwargs = task.signature.decode(data, attempt.context)
        except PayloadNotDecodable as error:
            raise _UndecodableArguments(error) from error
        if task.around is None:
            return task.function(*args, **kwargs)
        return task.around(attempt.context, args, kwargs)

    def _judge_value(self, attempt: Attempt, value: object) -> Verdict | None:
        """The verdict on an attempt whose function has returned."""
        if attempt.context.completed:
            return None
        if value is None:
            return Succeeded(attempt.claim, attempt.context.seconds)
        wrong = never_ran(value)
        if wrong is not None:
            return self.failed(attempt, wrong)
        return self.success(attempt.claim, attempt.context.seconds, value)

    def raised(self, attempt: Attempt, error: BaseException, *, logged: bool = False) -> Verdict | None:
        """The verdict on an attempt that ended with an error; ``logged``: its traceback has been logged."""
        kind = type(error)  # isinstance would ask the error itself, which may raise
        if issubclass(kind, _UndecodableArguments):
            return self.undecodable(attempt.claim, cast("_UndecodableArguments", error).why)
        if issubclass(kind, asyncio.CancelledError | concurrent.futures.CancelledError):
            return self._judge_stop(attempt, error)
        if (
            attempt.stopped is Stop.SHUTDOWN
            and not attempt.context.completed
            and not issubclass(kind, _DECISIONS)
        ):
            shown = None if logged else logged_error(self.codec, error)
            log.warning(
                "task raised as the worker stopped it; the job goes back",
                extra=_fields(attempt.claim),
                exc_info=shown,
            )
            return self._judge_stop(attempt, error)
        return self.failed(attempt, error, logged=logged)

    def broken_off(self, attempt: Attempt, error: BaseException) -> Verdict | None:
        """The verdict on an attempt whose error has ended its runner. For coroutines that is ``GeneratorExit``."""
        if attempt.task is None:
            return Returned(attempt.claim, UNKNOWN_TASK_DELAY)
        try:
            return self.raised(attempt, error)
        except BaseException as broken:  # noqa: BLE001 - the worker's own fault: the job must not run for ever
            return _undescribed(attempt.claim, error, broken)

    async def _requeue_unregistered(self, attempt: Attempt) -> Verdict | None:
        """Have the task loaded; then the job is requeued, to start as one of its task's kind."""
        claim = attempt.claim
        if not self.served.may_run(claim.task) or self.served.is_left_out(claim.task):
            return self._unknown(claim)
        try:
            loaded = await self.load(claim.task)
        except asyncio.CancelledError:
            if attempt.stopped is Stop.LOST:
                return None
            return Cancelled(claim) if attempt.stopped is Stop.CANCEL else Returned(claim)
        return Returned(claim) if loaded else self._unknown(claim)

    async def load(self, task: str) -> bool:
        """Look further for a task that is not registered; whether it is registered now."""
        try:
            return await asyncio.to_thread(self._load, task)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # the module of the task may raise anything
            log.exception("task could not be loaded", extra={"task": task})
            return False

    def _unknown(self, claim: Claim) -> Verdict:
        """Leave the job, and those of its task, to workers that run the task; it goes back at once."""
        error = UnknownTask(f"no task {claim.task!r} is registered on this queue; import its module")
        self.note(claim, error)
        return Unknown(claim, NO_DELAY if self.leave_out(claim) else UNKNOWN_TASK_DELAY, self.unknown_after)

    def leave_out(self, claim: Claim) -> bool:
        """Leave the task of a claim out of claims, and log that once; False: too many are left out."""
        if not self.served.is_left_out(claim.task) and self.served.may_run(claim.task):
            fields = {
                "task": claim.task,
                "nearest": nearest(claim.task, self._tasks) or "none",
                "job": claim.id,
                "dead_after": str(self.unknown_after),
            }
            log.warning("task is not registered here; its jobs are left to other workers", extra=fields)
        return self.served.leave_out(claim.task)

    def undecodable(self, claim: Claim, error: PayloadNotDecodable) -> Died:
        """The verdict on a job whose arguments cannot be read."""
        self.note(claim, error)
        return judge_undecodable(log, self.codec, claim, error)

    def _judge_stop(self, attempt: Attempt, error: BaseException) -> Verdict | None:
        if attempt.context.completed or attempt.stopped is Stop.LOST:
            return None
        match attempt.stopped:
            case Stop.SHUTDOWN:
                return Returned(attempt.claim)
            case Stop.CANCEL:
                return Cancelled(attempt.claim)
            case _:  # the task cancelled itself
                return self.failed(attempt, error)

    def failed(self, attempt: Attempt, error: BaseException, *, logged: bool = False) -> Verdict | None:
        """As :meth:`raised`, of an error that does not mean that the attempt was stopped."""
        claim = attempt.claim
        if not self.note(claim, error):
            return None
        if attempt.context.completed:
            shown = logged_error(self.codec, error)
            log.error(
                "task raised after its transaction had completed the job",
                extra=_fields(claim),
                exc_info=shown,
            )
            return None
        own = attempt.context._superseded  # noqa: SLF001 - told to the worker alone; a take inside may raise it, too
        if own and issubclass(type(error), Superseded):
            log.warning("attempt superseded: nothing more is recorded of it", extra=_fields(claim))
            return None
        verdict: Verdict | None = None
        try:
            verdict = self.verdict(attempt.context, error)
            joblog.log_failure(self.codec, attempt.context, verdict, error, logged=logged)
        except BaseException as broken:  # noqa: BLE001 - an error may be of any class; the attempt has ended all the same
            return verdict or _undescribed(claim, error, broken)
        return verdict

    def success(self, claim: Claim, seconds: float, value: object) -> Succeeded:
        """The job succeeded even if its return value cannot be kept: then the verdict says why not."""
        try:
            data = self._tasks[claim.task].returns.encode(value)
            if data is not None and len(data) > self.max_payload:
                raise PayloadTooLarge(
                    f"it takes {len(data):,} bytes as JSON, over the limit of {self.max_payload:,}; store it "
                    "elsewhere and return a reference, or raise PgQueue(max_payload=...)"
                )
            if data is not None and self.codec is not None:
                data = encoded_result(self.codec, claim, data)
        except PayloadError as error:
            words = logged_error(self.codec, error)
            log.warning("result not kept: %s", words, extra={"job": claim.id, "task": claim.task})
            return without_result(claim, seconds, str(error))
        return Succeeded(claim, seconds, None if data == NOT_RETURNED else data)


def _undescribed(claim: Claim, error: BaseException, why: BaseException) -> Verdict:
    """The verdict on an attempt whose error can be neither judged nor described."""
    said = f"a {type(error).__name__}, which could not be described: {type(why).__name__}"
    log.error("attempt failed with %s", said, extra=_fields(claim))
    return failed_verdict(claim, AttemptError(claim.attempt, "NotDescribed", said))


def _fields(claim: Claim) -> dict[str, object]:
    return {"job": claim.id, "task": claim.task, "attempt": claim.attempt}


def _judge_start(claim: Claim) -> Verdict | None:
    """The verdict on a job that is too late to start: it is dead, or gets the next place of its rate; None: it starts."""
    if claim.latest is not None and time.monotonic() > claim.latest:
        return Returned(claim)
    return judge_lateness(log, claim)
