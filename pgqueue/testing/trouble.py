"""Trouble on demand: attempts that fail, and workers that die."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware
from pgqueue.testing.apps import AnyTask, app_of, task_of

INJECTED = "raised by pgqueue.testing.failing"


class WorkerDied(BaseException):
    """Ends an attempt of which nothing is recorded: its worker is dead."""


@dataclass(slots=True)
class Trouble:
    """What was asked for, and how much of it there has been.

    Attributes:
        times: how many attempts are to be met.
        met: how many have been.
    """

    times: int
    met: int = 0

    def is_due(self) -> bool:
        """Whether this attempt is to be met; then it counts."""
        due = self.met < self.times
        self.met += due
        return due


@contextmanager
def failing(
    task: AnyTask, *, times: int = 1, error: BaseException | type[BaseException] = RuntimeError
) -> Iterator[Trouble]:
    """Have the next attempts of a task fail before its function is called.

    Retries and dead jobs are as after any failure, but ``drain`` and eager mode do not raise
    the error, for it is expected.

    Args:
        task: whose attempts, in this process.
        times: how many; those after them succeed or fail by themselves.
        error: what they raise, an exception or its class.

    Yields:
        How many attempts have been met, as ``met``.
    """
    trouble = Trouble(times)

    with _around(task, _Failing(trouble, error)):
        yield trouble


@contextmanager
def dying(task: AnyTask, *, times: int = 1) -> Iterator[Trouble]:
    """Have the worker die after a task's function has returned, before that is recorded.

    The attempt is spent, and the job stays in the name of the dead worker until its lease has passed: a
    ``drain`` more than 30 seconds later takes it back and runs it again. It works where ``drain`` or eager mode
    runs the job. What a task does within ``ctx.transaction()`` is committed with its completion, and so stays.

    Args:
        task: whose attempts.
        times: how many.

    Yields:
        How many attempts have been met, as ``met``.
    """
    trouble = Trouble(times)

    with _around(task, _Dying(trouble)):
        yield trouble


class _Failing(Middleware):
    def __init__(self, trouble: Trouble, error: BaseException | type[BaseException]) -> None:
        self._trouble = trouble
        self._error = error

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        self._fail()
        return call()

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        self._fail()
        return await call()

    def _fail(self) -> None:
        if self._trouble.is_due():
            raise _with_note(self._error)


class _Dying(Middleware):
    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        value = call()
        self._die()
        return value

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        value = await call()
        self._die()
        return value

    def _die(self) -> None:
        if self._trouble.is_due():
            raise WorkerDied("the worker died before the attempt was recorded")


@contextmanager
def _around(task: AnyTask, middleware: Middleware) -> Iterator[None]:
    """Have middleware around a task's attempts, outside of all others."""
    named = task_of(task)
    app = app_of(named)
    app.find_task(named.name)  # or the error of a name that is not registered
    registered = app.tasks[named.name]  # a copy, as ``using`` makes one, is not what workers call
    before = registered.middleware
    registered.compose([middleware, *before])
    try:
        yield
    finally:
        registered.compose(before)


def _with_note(error: BaseException | type[BaseException]) -> BaseException:
    made = error() if isinstance(error, type) else error.with_traceback(None)
    if INJECTED not in getattr(made, "__notes__", ()):
        made.add_note(INJECTED)
    return made
