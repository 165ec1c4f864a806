"""Which job a log record belongs to: fields on every record that is written while an attempt runs, by any logger."""

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware

_running: ContextVar[Context | None] = ContextVar("pgqueue_running", default=None)


class LoggingContext(Middleware):
    """Gives log records the fields ``job``, ``task``, ``queue`` and ``attempt`` of the attempt that writes them.

    As middleware of the queue it notes which attempt runs; as a filter of a handler it puts the fields on the records:
    ``handler.addFilter(LoggingContext())``. Outside of an attempt they are None. A record that has a field of that name
    keeps its own. The log of ``pgqueue worker`` has the filter.
    """

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the task's own value
        """Run a plain function."""
        token = _running.set(ctx)
        try:
            return call()
        finally:
            _running.reset(token)

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the task's own value
        """Run an ``async def`` function."""
        token = _running.set(ctx)
        try:
            return await call()
        finally:
            _running.reset(token)

    def filter(self, record: logging.LogRecord) -> bool:
        """Put the fields on a record; it is logged in any case."""
        add_fields(record)
        for name in ("job", "task", "queue", "attempt"):
            vars(record).setdefault(name, None)
        return True


def add_fields(record: logging.LogRecord) -> bool:
    """Put the fields on a record that an attempt writes, and leave any other alone."""
    ctx = _running.get()
    if ctx is not None:
        fields = vars(record)
        fields.setdefault("job", ctx.job.id)
        fields.setdefault("task", ctx.job.task)
        fields.setdefault("queue", ctx.job.queue)
        fields.setdefault("attempt", ctx.attempt)
    return True
