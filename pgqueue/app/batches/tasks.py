"""What can be a batch task, and how a type checker sees the decorator of :meth:`pgqueue.PgQueue.batch_task`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from pgqueue.app.batches.batch import Batch
from pgqueue.app.naming import place_of
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption

P = ParamSpec("P")
R = TypeVar("R")
I_co = TypeVar("I_co", covariant=True)


class BatchTaskDecorator(Protocol[P, I_co]):
    """The decorator: the signature of the item becomes the task's; a list that the function returns has a result for each job."""

    @overload
    def __call__(self, function: Callable[[Batch[I_co]], Awaitable[list[R]]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[[Batch[I_co]], list[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[[Batch[I_co]], Awaitable[None]], /) -> Task[P, Any]: ...
    @overload
    def __call__(self, function: Callable[[Batch[I_co]], None], /) -> Task[P, Any]: ...


def require_item(item: object) -> None:
    """Refuse what cannot make an item of a job's arguments.

    Raises:
        InvalidOption: it cannot; the message says what to write.
    """
    form = "write @queue.batch_task(Item, size=100), with a dataclass of one job's arguments"
    if not callable(item) or isinstance(item, Task):
        raise InvalidOption(f"@queue.batch_task({item!r:.80}): {form}")
    try:
        known = inspect.signature(item).parameters
    except (TypeError, ValueError):
        raise InvalidOption(
            f"@queue.batch_task({item!r:.80}): its parameters are not known; {form}"
        ) from None
    if any("Batch" in str(parameter.annotation) for parameter in known.values()):
        raise InvalidOption(f"@queue.batch_task on {item!r:.80}: {form}")
    if inspect.iscoroutinefunction(item) or inspect.isgeneratorfunction(item):
        raise InvalidOption(f"@queue.batch_task({item!r:.80}): an item is made by a plain call; {form}")


def require_one_parameter(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with a batch alone.

    Raises:
        InvalidOption: it cannot.
    """
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise InvalidOption(
            f"@queue.batch_task on {function!r:.80} ({place_of(function)}): {error}; it is called with one argument, the "
            "Batch: its transaction() takes the place of a Context"
        ) from None
