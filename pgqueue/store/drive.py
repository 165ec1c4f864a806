"""Generators that decide, and the two loops that do what they ask.

Each yields what is to be done and is sent the answer, or the error is raised in it where it stands: a plan yields statements,
a sweep and the route of a plan over shards yield plans, and the wait for a result yields plans and waits. It never blocks and
never awaits, so blocking and awaiting callers share each decision.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

A = TypeVar("A")
T = TypeVar("T")


def drive(steps: Generator[A, Any, T], answer: Callable[[A], Any]) -> T:
    """Do what a generator asks until it returns.

    Args:
        steps: the generator.
        answer: does what it has yielded, and returns what it is to be sent.

    Returns:
        What the generator returns.
    """
    try:
        step = next(steps)
        while True:
            try:
                found = answer(step)
            except Exception as error:  # noqa: BLE001 - the generator decides
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        steps.close()


async def adrive(steps: Generator[A, Any, T], answer: Callable[[A], Awaitable[Any]]) -> T:
    """As :func:`drive`, awaited."""
    try:
        step = next(steps)
        while True:
            try:
                found = await answer(step)
            except Exception as error:  # noqa: BLE001 - the generator decides
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        steps.close()
