"""Operations on many jobs that a person began here: each runs in a thread, and its page shows how far it is.

The audit has an operation from its first portion on. If this process ends, the operation stays there, unfinished, and a person
continues it.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from pgqueue.app.bulk import OnProgress
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.store.audit import because, reason
from pgqueue.values.bulk.operation import BulkResult

log = logging.getLogger("pgqueue.dashboard")

SOON: Final = 1.0
"""Seconds. An operation that ends within this time is answered with its result."""
LONGEST_PORTION: Final = 30.0
"""Seconds. After this time without a first portion the person is sent to the audit."""


class OperationProgress(msgspec.Struct):
    """How far an operation is.

    Attributes:
        result: what it has done; None: the first portion is not done.
        ended: whether it has ended.
        error: why it stopped before its end.
        began: when it began, in seconds of this process's monotonic clock.
    """

    result: BulkResult | None = None
    ended: bool = False
    error: Exception | None = None
    began: float = msgspec.field(default_factory=time.monotonic)

    def left(self, passed: int, count: int) -> float | None:
        """About how many seconds it takes from now on, at its speed so far; None: it has done nothing yet.

        Args:
            passed: how many jobs are behind it.
            count: of how many.
        """
        if not passed:
            return None
        return (time.monotonic() - self.began) / passed * max(0, count - passed)


class Operations:
    """Runs operations, each in a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[int, OperationProgress] = {}

    def run(self, queue: PgQueue, do: Callable[[OnProgress], BulkResult]) -> OperationProgress:
        """Begin an operation; wait until it has ended, or goes on and has a number.

        Args:
            queue: whose jobs.
            do: does it, and calls what it is given after each portion.

        Raises:
            Exception: what it raised before its first portion.
        """
        state = OperationProgress()
        thread = threading.Thread(
            target=self._do, args=(queue, do, state, reason()), name="pgqueue-dashboard", daemon=True
        )
        thread.start()
        with self._changed:
            self._changed.wait_for(lambda: state.ended, SOON)
            self._changed.wait_for(lambda: state.ended or state.result is not None, LONGEST_PORTION)
        if state.error is not None and state.result is None:
            raise state.error
        return state

    def running(self, operation: int) -> OperationProgress | None:
        """How far an operation is that this process works on; None: it does not."""
        with self._changed:
            return self._running.get(operation)

    def _do(
        self,
        queue: PgQueue,
        do: Callable[[OnProgress], BulkResult],
        state: OperationProgress,
        why: str | None,
    ) -> None:
        def note(result: BulkResult) -> None:
            with self._changed:
                state.result = result
                self._running[result.operation] = state
                self._changed.notify_all()

        try:
            with because(why), queue._around_hook():  # noqa: SLF001 - what the framework has around code in a thread
                note(do(note))
        except ConfigurationError as refusal:  # nothing has begun; the page shows the person what is wrong
            state.error = refusal
        except Exception as error:
            state.error = error
            log.exception("operation stopped; the page of the audit continues it")
        finally:
            with self._changed:
                state.ended = True
                if state.result is not None:
                    self._running.pop(state.result.operation, None)
                self._changed.notify_all()
