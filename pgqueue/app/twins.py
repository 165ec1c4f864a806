"""Methods of a context that exist twice: one blocks, for plain tasks; its twin is awaited, for ``async def`` tasks.

The wrong one would do nothing (a coroutine that no task awaits), or stop the worker's event loop: it is refused, and the message
names the right one. A thread that an ``async def`` task starts may block, and a coroutine that a plain task returns may await.
"""

from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import Claim

P = ParamSpec("P")
R = TypeVar("R")


class KindHost(Protocol):
    """Says whether a task is plain or ``async def``."""

    def is_async(self, claim: Claim) -> bool:
        """Whether a claim's task is an ``async def`` function."""


class HasTwins(Protocol):
    """A context."""

    job: Claim

    @property
    def _host(self) -> KindHost: ...


S = TypeVar("S", bound=HasTwins)


def blocks(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Refuse this method in an ``async def`` task; its twin has an ``a`` before the name."""

    @wraps(method)
    def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        require_blocking(self, _call_of(method.__name__, args), f"await ctx.a{method.__name__}(...)")
        return method(self, *args, **kwargs)

    return checked


def require_blocking(ctx: HasTwins, call: str, instead: str) -> None:
    """Refuse what blocks, in the event loop of an ``async def`` task.

    Raises:
        InvalidOption: it runs there.
    """
    if _get_running_loop() is not None and ctx._host.is_async(ctx.job):  # noqa: SLF001 - of this same floor
        raise InvalidOption(f"{call} blocks, and an async def task runs in an event loop; write {instead}")


def awaits(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Refuse this method where no event loop runs; its twin has no ``a`` before the name."""

    @wraps(method)
    def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        if _get_running_loop() is None:
            raise InvalidOption(
                f"{_call_of(method.__name__, args)} must be awaited, and a plain task cannot await; "
                f"write ctx.{method.__name__[1:]}(...)"
            )
        return method(self, *args, **kwargs)

    return checked


def _call_of(name: str, args: tuple[Any, ...]) -> str:
    return f"ctx.{name}({args[0]!r:.80})" if args and isinstance(args[0], str) else f"ctx.{name}(...)"
