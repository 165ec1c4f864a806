"""How what a task returned is awaited: the rest of a coroutine in the loop, within the timeout; from a thread, in the loop.

Which attempt runs where is decided in :mod:`pgqueue.worker.runners`, and what an error means in
:mod:`pgqueue.worker.executor`.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from pgqueue.errors import TimedOut
from pgqueue.worker.attempt import Attempt

T = TypeVar("T")


def timed_out(attempt: Attempt) -> TimedOut:
    """Tell an attempt that it was stopped, and return the error that says why."""
    attempt.context.cancelled = True
    by_task = attempt.task is not None and attempt.task.timeout is not None
    whose = "the task's timeout" if by_task else f"the timeout of queue {attempt.claim.queue!r},"
    return TimedOut(f"the attempt took longer than {whose} of {attempt.context.timeout}")


async def rest(attempt: Attempt, work: Coroutine[Any, Any, T], waits_for: object) -> T:
    """Await the rest of a task's coroutine, within its timeout."""
    timeout = attempt.context.timeout
    if timeout is None:
        return await _resume(work, waits_for)
    left = timeout.total_seconds() - attempt.context.seconds
    try:
        async with asyncio.timeout(left) as clock:
            return await _resume(work, waits_for)
    except TimeoutError as error:
        if clock.expired():  # else it is the task's own
            raise timed_out(attempt) from error
        raise


@coroutine
def _resume(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """Return the rest of a coroutine, for the current task to await. ``waits_for`` is what ``work.send(None)`` returned."""
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


def await_in_loop(value: Awaitable[Any], attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401 - the task's own value
    """Await, in the loop, what a plain function returned."""

    async def wait() -> Any:  # noqa: ANN401 - the task's own value
        return await value

    attempt.runner = future = asyncio.run_coroutine_threadsafe(wait(), loop)
    if attempt.stopped is not None:  # told before there was anything to cancel
        future.cancel()
    return future.result()
