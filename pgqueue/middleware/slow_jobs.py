"""A warning of each attempt that runs for long, while it still runs.

One thread looks at the running attempts once a second; it ends when none runs. A short attempt costs two changes of a dict
and no timer. The thread looks while the event loop is blocked, too.
"""

import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware
from pgqueue.errors import Duration, as_limit

log = logging.getLogger("pgqueue.slow_jobs")

LOOK_EVERY = 1.0
"""Seconds between two looks."""
OF_TIMEOUT = 0.9
"""The share of its task's timeout after which an attempt is slow."""


class SlowJobs(Middleware):
    """Warns once of an attempt that runs longer than a time, or than 0.9 of its task's timeout, and has not ended."""

    def __init__(self, *, after: Duration | None = None) -> None:
        """Describe what is slow.

        Args:
            after: seconds, or a timedelta; None: only 0.9 of the task's timeout counts, where it has one.

        Raises:
            InvalidOption: it is no length of time above zero.
        """
        limit = as_limit("after", after)
        self._after = math.inf if limit is None else limit.total_seconds()
        self._running: dict[int, Context] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._pause = threading.Event()

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the task's own value
        """Run a plain function."""
        self._enter(ctx)
        try:
            return call()
        finally:
            self._running.pop(id(ctx), None)

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the task's own value
        """Run an ``async def`` function."""
        self._enter(ctx)
        try:
            return await call()
        finally:
            self._running.pop(id(ctx), None)

    def look(self) -> None:
        """Warn of each attempt that has become slow since the last look."""
        for key, ctx in list(self._running.items()):
            slow_after = self._slow_after(ctx)
            if ctx.seconds > slow_after and self._running.pop(key, None) is not None:
                fields = {
                    "job": ctx.job.id,
                    "task": ctx.job.task,
                    "queue": ctx.job.queue,
                    "attempt": ctx.attempt,
                    "seconds": round(ctx.seconds, 3),
                    "timeout": None if ctx.timeout is None else ctx.timeout.total_seconds(),
                }
                log.warning("job is slow: it still runs after %g s", slow_after, extra=fields)

    def _slow_after(self, ctx: Context) -> float:
        timeout = ctx.timeout
        return self._after if timeout is None else min(self._after, OF_TIMEOUT * timeout.total_seconds())

    def _enter(self, ctx: Context) -> None:
        self._running[id(ctx)] = ctx
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="pgqueue slow jobs", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while self._running:
            self._pause.wait(LOOK_EVERY)
            try:
                self.look()
            except Exception:
                log.exception("slow jobs could not be looked for")
        self._thread = None
        if self._running:  # an attempt that started meanwhile saw this thread
            self._start()
