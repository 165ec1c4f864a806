"""Middleware: what runs around every attempt of every task of a queue.

The chain is composed once for each task, when the task is registered; a task without middleware is called directly.
The first middleware is the outermost. A framework's queue is made with its own before those of the app.

What an attempt's error means for the job is decided by the worker: :mod:`pgqueue.values.jobs.verdict`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from pgqueue.app.context import Context
from pgqueue.app.forks import end_if_forked, process
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import NewJob

Around: TypeAlias = Callable[[Context, Sequence[Any], Mapping[str, Any]], Any]
"""Calls a task's function with its middleware around it: the attempt's context, positional and keyword arguments."""


class Middleware:
    """Runs around attempts: override :meth:`around`, :meth:`aaround`, or both. :meth:`enqueuing` sees jobs before that.

    One object serves all attempts of a process, several at a time, so it keeps nothing of an attempt in itself.
    """

    def enqueuing(self, job: NewJob) -> NewJob:
        """See a job that this program is about to add, and change its ``meta``. Batches call it job by job."""
        return job

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        """Run a plain function, in its thread.

        Args:
            ctx: the attempt.
            call: runs the function, and the middleware within this one; to be called once.

        Returns:
            What the attempt returns; usually what ``call`` returned.

        Raises:
            Exception: what is raised here ends the attempt as if the task had raised it.
        """
        return call()

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - as for around
        """Run an ``async def`` function, on the worker's event loop. As :meth:`around`, awaited."""
        return await call()


def check_middleware(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """The middleware of a queue.

    Raises:
        InvalidOption: one of them is a class or no middleware at all.
    """
    found = tuple(middleware)
    for one in found:
        if isinstance(one, type):
            raise InvalidOption(f"middleware: {one.__name__} is a class; give an object, {one.__name__}()")
        if not isinstance(one, Middleware):
            raise InvalidOption(
                f"middleware: {one!r:.80} is no pgqueue.Middleware; derive its class from that"
            )
    return found


def at_enqueue(middleware: Iterable[Middleware]) -> tuple[Callable[[NewJob], NewJob], ...]:
    """What sees each job that is added; most often nothing does."""
    return tuple(one.enqueuing for one in middleware if type(one).enqueuing is not Middleware.enqueuing)


def wrap_in_middleware(
    function: Callable[..., Any], middleware: Sequence[Middleware], *, is_async: bool
) -> Around | None:
    """A function with its middleware around it; None: there is none for functions of this kind.

    Args:
        function: the task's.
        middleware: the first is the outermost.
        is_async: whether the function is ``async def``.
    """
    name = "aaround" if is_async else "around"
    layers = [
        getattr(one, name)
        for one in reversed(middleware)
        if getattr(type(one), name) is not getattr(Middleware, name)
    ]
    if not layers:
        return None

    called = function if is_async else partial(_call_plain, function)

    def run(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the task's own value
        call: Callable[[], Any] = partial(called, *args, **kwargs)
        for layer in layers:
            call = partial(layer, ctx, call)
        return call()

    return run


def _call_plain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
    """Call the function. If the task forks, the child ends here: it must not run the rest of the worker's middleware."""
    forks = process.forks
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        end_if_forked(forks, error)
        raise
    end_if_forked(forks)
    return value
