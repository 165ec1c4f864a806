"""Middleware that comes with pgqueue: the job's fields on log records, the log of each attempt, warnings of slow jobs, errors to Sentry.

Each is given to the queue: ``PgQueue(middleware=[LoggingContext(), KeepLogs(), SlowJobs(after=60)])``. What middleware is, and
how it is called, is decided in :mod:`pgqueue.app.middleware`. Sentry's package is imported when a :class:`Sentry` is made.
"""

import asyncio
import logging
import math
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware
from pgqueue.errors import NO_FAILURES, Duration, InvalidOption, as_limit
from pgqueue.values.hints import extra_for

if TYPE_CHECKING:
    from pgqueue.app.attempt_logs import LogBuffer

__all__ = ["KeepLogs", "LoggingContext", "Sentry", "SlowJobs"]

log = logging.getLogger("pgqueue.slow_jobs")

LOOK_EVERY = 1.0
"""Seconds between two looks."""
OF_TIMEOUT = 0.9
"""The share of its task's timeout after which an attempt is slow."""
CAPTURES = ("dead", "failed")
_running: ContextVar[Context | None] = ContextVar("pgqueue_running", default=None)
_kept: ContextVar["tuple[LogBuffer, int] | None"] = ContextVar("pgqueue_kept", default=None)


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


class KeepLogs(Middleware):
    """Keeps the last log lines of each attempt with its job: at most 200 lines, 64 KiB, and 2,000 characters a line.

    They are on the job's page of the dashboard, in ``pgqueue jobs show ID --logs`` and in ``queue.logs(id)``, while the job runs,
    too: the worker writes them about once a second. What ``PgQueue(redact=...)`` hides is hidden before they are written. They
    are kept of the last 20 attempts of a job, as long as its record is.

    A line is kept if its logger lets its level through, whatever handlers there are and whether or not the logger propagates; the
    filters of loggers and handlers are not asked. Lines of asyncio tasks and of ``asyncio.to_thread`` belong to the attempt that
    started them; those of a ``threading.Thread`` do if it runs in a copy of the context. After the attempt has ended nothing is kept.
    """

    def __init__(self, *, level: int | str = logging.NOTSET) -> None:
        """Describe what is kept.

        Args:
            level: lines below it are not kept, such as ``"WARNING"``; all that the app's loggers let through, if not given.

        Raises:
            InvalidOption: there is no such level.
        """
        found = logging.getLevelNamesMapping().get(level) if isinstance(level, str) else level
        if not isinstance(found, int):
            raise InvalidOption(f"level={level!r:.80}: use a level of logging, such as 'INFO'")
        self._level = found

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the task's own value
        """Run a plain function."""
        with self._keeping(ctx):
            return call()

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the task's own value
        """Run an ``async def`` function."""
        with self._keeping(ctx):
            return await call()

    @contextmanager
    def _keeping(self, ctx: Context) -> Iterator[None]:
        _make_records_kept()
        buffer = ctx._host.logs.begin(ctx.jobs)  # noqa: SLF001 - of the worker, and of no interest to tasks
        token = _kept.set((buffer, self._level))
        try:
            yield
        finally:
            buffer.close()
            _kept.reset(token)


def _make_records_kept() -> None:
    """Have each new record seen, once in this process.

    Not by a handler of the root logger: with one, ``logging.basicConfig`` does nothing, warnings of a program that has configured
    no logging are not printed any more, and loggers that do not propagate are not heard.
    """
    global _makes_records_kept  # noqa: PLW0603 - logging's factory is of the process, too
    with _making:
        if _makes_records_kept:
            return
        _makes_records_kept = True
        make = logging.getLogRecordFactory()

        def make_and_keep(*args: Any, **kwargs: Any) -> logging.LogRecord:  # noqa: ANN401 - those of a record
            record = make(*args, **kwargs)
            kept = _kept.get()
            if kept is not None and record.name is not None and record.levelno >= kept[1]:
                _keep(kept[0], record)
            return record

        logging.setLogRecordFactory(make_and_keep)


def _keep(buffer: "LogBuffer", record: logging.LogRecord) -> None:
    token = _kept.set(None)  # what is logged while a line is made of its arguments is no line of its own
    try:
        buffer.add(record)
    except Exception:  # noqa: BLE001 - logging never raises in the program that logs
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()
    finally:
        _kept.reset(token)


_making = threading.Lock()
_makes_records_kept = False


class SlowJobs(Middleware):
    """Warns once of an attempt that runs longer than a time, or than 0.9 of its task's timeout, and has not ended.

    One thread looks at the running attempts once a second; it ends when none runs. A short attempt costs two changes of a dict
    and no timer. The thread looks while the event loop is blocked, too.
    """

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


class Sentry(Middleware):
    """Sends errors of attempts to Sentry, with the job's id, task, queue and attempt as tags; and their times, if asked for.

    Sentry's own settings (DSN, sampling, what is sent of variables) are those of ``sentry_sdk.init``, which the app calls.

    What raises nothing in the attempt is not captured: the timeout of a plain function, arguments that cannot be read, a
    lost worker. The hook ``dead`` is called for those as well.
    """

    def __init__(self, *, capture: Literal["dead", "failed"] = "dead", transactions: bool = False) -> None:
        """Describe what is sent.

        Args:
            capture: which errors: ``dead``, those after which the job is dead; ``failed``, those of each failed attempt.
            transactions: whether each attempt is a transaction of Sentry, too, as far as its sampling takes it.

        Raises:
            ConfigurationError: the package sentry-sdk is not installed.
            InvalidOption: there is no such ``capture``.
        """
        if capture not in CAPTURES:
            raise InvalidOption(f"capture={capture!r}: use 'dead' or 'failed'")
        with extra_for("sentry", "Sentry()", "sentry_sdk"):
            import sentry_sdk  # noqa: PLC0415 - programs without it do not load it
        self._sdk = sentry_sdk
        self._captures_all = capture == "failed"
        self._transactions = transactions

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the task's own value
        """Run a plain function."""
        with self._scope(ctx):
            return call()

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the task's own value
        """Run an ``async def`` function."""
        with self._scope(ctx):
            return await call()

    @contextmanager
    def _scope(self, ctx: Context) -> Iterator[None]:
        with ExitStack() as stack:
            scope = stack.enter_context(self._sdk.isolation_scope())
            scope.clear_breadcrumbs()
            scope.set_transaction_name(ctx.job.task)
            job = ctx.job
            for name, value in (
                ("job", job.id),
                ("task", job.task),
                ("queue", job.queue),
                ("attempt", job.attempt),
            ):
                scope.set_tag(f"pgqueue.{name}", str(value))
            if self._transactions:
                stack.enter_context(self._sdk.start_transaction(op="queue.process", name=job.task))
            try:
                yield
            except BaseException as error:
                with suppress(Exception):  # that Sentry fails is no error of the job's
                    if self._wants(ctx, error):
                        self._sdk.capture_exception(error)
                raise

    def _wants(self, ctx: Context, error: BaseException) -> bool:
        if ctx.completed or isinstance(error, NO_FAILURES):
            return False
        if ctx.cancelled and isinstance(error, asyncio.CancelledError):
            return False
        return self._captures_all or ctx.is_final(error)
