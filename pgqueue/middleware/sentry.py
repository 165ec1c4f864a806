"""Errors of attempts, and their times if asked for, to Sentry, with the job's id, task, queue and attempt as tags.

Sentry's own settings (DSN, sampling, what is sent of variables) are those of ``sentry_sdk.init``, which the app calls.
Sentry's package is imported when a :class:`Sentry` is made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware
from pgqueue.errors import ConfigurationError, InvalidOption, Snooze, Superseded, Waiting

CAPTURES = ("dead", "failed")


class Sentry(Middleware):
    """Runs each attempt in a scope of its own, and captures what it raises.

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
        try:
            import sentry_sdk  # noqa: PLC0415 - programs without it do not load it
        except ImportError as error:
            raise ConfigurationError(
                "Sentry() needs the package sentry-sdk: pip install 'pgqueue[sentry]'"
            ) from error
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
        if ctx.completed or isinstance(error, Snooze | Waiting | Superseded):
            return False
        if ctx.cancelled and isinstance(error, asyncio.CancelledError):
            return False
        return self._captures_all or ctx.is_final(error)
