"""An attempt that a worker runs: which claim, what the task sees, how it is awaited, and how it is told to stop.

An ordinary attempt stands for one job. The attempt of a batch (:class:`BatchAttempt`) has one slot and a *member* for each of
its jobs. Members are what :class:`pgqueue.worker.claims.Claims` knows by job id, and each gets a verdict of its own.
"""

import asyncio
import contextvars
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, coroutine
from typing import Any, Protocol, TypeVar

from pgqueue.app.context import AttemptHost, Context
from pgqueue.app.forks import end_if_forked, process
from pgqueue.app.task import Task
from pgqueue.errors import TimedOut
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Stop, Verdict
from pgqueue.worker.joblog import worker_log

log = worker_log()

CLEAN_UP = 5.0
"""Seconds that a coroutine has to end after its timeout has cancelled it. Then it overruns, as a plain function does at once."""


def _tell(context: Context, why: Stop) -> None:
    context._stopped, context.cancelled = why, True  # noqa: SLF001 - told by the worker alone


class Interruptible(Protocol):
    """What an attempt waits in: an asyncio task, or the future of a coroutine that a plain function returned."""

    def cancel(self) -> object:
        """Have it end soon."""


class Attempt:
    """A claim that is being run.

    Attributes:
        claim: which.
        task: the task to call; None: it is not registered here.
        context: what the task sees.
        stopped: why it was told to stop, if it was.
        runner: what to cancel so that the task itself ends; None while a plain function runs in a thread, and
            once the attempt has ended.
        deadline: when the time of a plain function is over, in seconds of the monotonic clock.
        overrun: called in the loop when a coroutine has not ended ``CLEAN_UP`` seconds after its timeout; None: it is awaited.
        plain: whether it runs a plain function, in a thread.
        extra: how many slots it takes beside the one of its runner.
        overdue: what becomes of the job when its function returns, since its time is over; None: it is not, or the job has ended.
    """

    __slots__ = (
        "claim",
        "context",
        "deadline",
        "extra",
        "overdue",
        "overrun",
        "plain",
        "runner",
        "stopped",
        "task",
    )

    def __init__(
        self, claim: Claim, task: Task[..., Any] | None, context: Context, *, plain: bool = False
    ) -> None:
        self.claim = claim
        self.task = task
        self.context = context
        self.plain = plain
        self.stopped: Stop | None = None
        self.runner: Interruptible | None = None
        self.overrun: Callable[[Attempt], object] | None = None
        self.deadline = math.inf
        self.extra = 0
        self.overdue: Verdict | None = None

    def stop(self, why: Stop) -> None:
        """Tell it to stop. A plain function is only told: it ends when it looks, or by itself.

        Called in the event loop; for a plain function in any thread.
        """
        if self.stopped is why:
            return  # a second interruption would disturb its clean-up
        self.stopped = why
        _tell(self.context, why)
        if self.runner is not None:
            self.runner.cancel()

    @property
    def whole(self) -> "Attempt":
        """What has the slot: this attempt, or that of its batch."""
        return self

    @property
    def members(self) -> Sequence["BatchMember"]:
        """The attempts of a batch, one for each job; none: this is no batch."""
        return ()


class BatchAttempt(Attempt):
    """One call of a batch task, in one slot. :class:`pgqueue.worker.claims.Claims` knows its members, not this.

    Attributes:
        left: how many members have not ended.
    """

    __slots__ = ("_members", "_unstopped", "left")

    def __init__(self, claims: Sequence[Claim], task: Task[..., Any], host: AttemptHost) -> None:
        super().__init__(claims[0], task, Context(claims[0], host), plain=not task.is_async)
        self._members = [BatchMember(claim, task, Context(claim, host), self) for claim in claims]
        self._unstopped = self.left = len(claims)

    @property
    def members(self) -> Sequence["BatchMember"]:
        """The attempts of its jobs."""
        return self._members

    def note_stopped(self, why: Stop) -> None:
        """A member was told to stop; the call is when all were: it works for the others."""
        self._unstopped -= 1
        if not self._unstopped:
            self.stop(why)


class BatchMember(Attempt):
    """One job of a batch that is being run.

    Attributes:
        decided: whether ``verdict`` says what to record; None: nothing.
        verdict: what becomes of the job.
    """

    __slots__ = ("_whole", "decided", "verdict")

    def __init__(self, claim: Claim, task: Task[..., Any], context: Context, whole: BatchAttempt) -> None:
        super().__init__(claim, task, context, plain=whole.plain)
        self._whole = whole
        self.decided = False
        self.verdict: Verdict | None = None

    @property
    def whole(self) -> BatchAttempt:
        """The call."""
        return self._whole

    def decide(self, verdict: Verdict | None) -> None:
        """Say what becomes of the job; the first word counts."""
        if not self.decided:
            self.decided, self.verdict = True, verdict

    def stop(self, why: Stop) -> None:
        """Tell the job's part of the call to stop; a call whose jobs were all told is stopped as a whole."""
        first, self.stopped = self.stopped is None, why
        _tell(self.context, why)
        if first:
            self._whole.note_stopped(why)


T = TypeVar("T")


def limit(attempt: Attempt) -> float:
    """How many seconds an attempt may take."""
    timeout = attempt.context.timeout
    return math.inf if timeout is None else timeout.total_seconds()


def differs(now: contextvars.Context, before: contextvars.Context) -> bool:
    """Whether context variables were changed."""
    try:
        return now != before
    except Exception:  # noqa: BLE001 - comparing the user's values may raise anything
        return True


def never_ran(value: object) -> TypeError | None:
    """Why a call that returned this fails: a generator or a coroutine. Registration does not see it if a decorator hides it."""
    if isinstance(value, CoroutineType):
        value.close()  # else Python warns of it, too
        return TypeError("the task returned a coroutine, whose body never runs; let the task itself await it")
    if not isinstance(value, GeneratorType | AsyncGeneratorType):
        return None
    return TypeError(
        f"the task returned a {type(value).__name__}, whose body never runs; let the task itself loop over it"
    )


def keeps_job(attempt: Attempt) -> bool:
    """Whether a job stays running while its function goes on after the timeout. A limit counts running jobs."""
    choice = task_of(attempt).after_timeout
    return attempt.claim.lane is not None if choice is None else choice == "wait"


def task_of(attempt: Attempt) -> Task[..., Any]:
    """The task of an attempt that runs it."""
    assert attempt.task is not None  # noqa: S101 - only an attempt that runs its task comes here
    return attempt.task


def timed_out(attempt: Attempt, *, goes_on: bool = False) -> TimedOut:
    """Tell an attempt that it was stopped, and return the error that says why; ``goes_on``: its function still runs."""
    attempt.context.cancelled = True
    by_task = attempt.task is not None and attempt.task.timeout is not None
    whose = "the task's timeout" if by_task else f"the timeout of queue {attempt.claim.queue!r},"
    more = "; its function goes on" if goes_on else ""
    return TimedOut(f"the attempt took longer than {whose} of {attempt.context.timeout}{more}")


async def awaited_value(work: Coroutine[Any, Any, T], attempt: Attempt, forks: int) -> T:
    """Run the coroutine of an ``async def`` task; a child that it forks ends here.

    Args:
        work: the coroutine, which has not begun.
        attempt: whose.
        forks: ``process.forks`` when the task was called.
    """
    try:
        waits_for = work.send(None)  # many jobs never wait: they need no task and no timer
    except StopIteration as end:
        value: T = end.value
    else:
        if process.forks != forks:
            end_if_forked(forks)
        return await _rest(attempt, work, waits_for)
    if process.forks != forks:  # else a call more for every job
        end_if_forked(forks)
    return value


def plain_value(value: Any, attempt: Attempt, forks: int, loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401 - the task's own value
    """The value of a plain function, in its thread: where it returned an awaitable, what that gives; a child that it forked ends.

    Args:
        value: what the function returned.
        attempt: whose.
        forks: as for :func:`awaited_value`.
        loop: where to await.
    """
    end_if_forked(forks)
    return await_in_loop(value, attempt, loop) if inspect.isawaitable(value) else value


async def _rest(attempt: Attempt, work: Coroutine[Any, Any, T], waits_for: object) -> T:
    """Await the rest of a task's coroutine, within its timeout. The attempt that does not end then is told to its runner."""
    timeout = attempt.context.timeout
    if timeout is None:
        return await _resume(work, waits_for)
    left = timeout.total_seconds() - attempt.context.seconds
    overrun = None
    if attempt.overrun is not None:
        loop = asyncio.get_running_loop()
        overrun = loop.call_later(max(0.0, left) + CLEAN_UP, attempt.overrun, attempt)
    try:
        async with asyncio.timeout(left) as clock:
            return await _resume(work, waits_for)
    except TimeoutError as error:
        if clock.expired():  # else it is the task's own
            raise timed_out(attempt) from error
        raise
    finally:
        if overrun is not None:
            overrun.cancel()


@coroutine
def _resume(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """Return the rest of a coroutine, for the current task to await. ``waits_for`` is what ``work.send(None)`` returned."""
    forks = process.forks
    while True:
        try:
            answer = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, most likely; it is the coroutine's
            step = partial(work.throw, error)
        else:
            step = partial(work.send, answer)
        try:
            waits_for = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # StopIteration types a return value as Any
        end_if_forked(forks)


def await_in_loop(value: Awaitable[Any], attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401 - the task's own value
    """Await, in the loop, what a plain function returned."""
    exits: list[BaseException] = []

    async def wait() -> Any:  # noqa: ANN401 - the task's own value
        try:
            return await value
        except (SystemExit, KeyboardInterrupt) as error:  # raised by an asyncio task, it would end the loop
            exits.append(error)

    attempt.runner = future = asyncio.run_coroutine_threadsafe(wait(), loop)
    if attempt.stopped is not None:  # told before there was anything to cancel
        future.cancel()
    result = future.result()
    if exits:
        raise exits[0]
    return result


def run_to_the_end(main: Coroutine[Any, Any, T]) -> T:
    """Run a program as ``asyncio.run`` does, until it ends: a job does not end the loop.

    If an asyncio task or a callback raises ``SystemExit`` or ``KeyboardInterrupt``, asyncio and uvloop note it as the outcome of
    the task, and then end the loop. Here the loop goes on: what awaits the task gets the exception, as it gets any other. It also
    goes on after ``loop.stop()``.

    Raises:
        BaseException: what ``main`` itself raises.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        program = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(program)
            except (SystemExit, KeyboardInterrupt) as error:
                if program.done():
                    raise
                log.error(  # noqa: TRY400 - the attempt that it was raised in logs the traceback
                    "an asyncio task or a callback raised an exit; the event loop goes on",
                    extra={"error": repr(error)},
                )
            except RuntimeError:
                if program.done():
                    raise
                log.error("a job's code stopped the event loop; it goes on")  # noqa: TRY400 - it has no traceback
