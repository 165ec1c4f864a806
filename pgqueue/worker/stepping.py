"""Going on with a coroutine whose first step was taken by hand.

Many short jobs never wait for anything. Their first step is their last; only the others are worth a timer,
which takes longer to set and clear than such a job.
"""

from collections.abc import Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def resumed(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """The rest of a coroutine, for the current task to await.

    Args:
        work: the coroutine; ``send(None)`` was called once.
        waits_for: what that returned.

    Returns:
        What the coroutine returns.
    """
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
