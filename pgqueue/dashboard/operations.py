"""Operations on many jobs that a person began here: each runs in a thread, and its page shows how far it is.

The audit has an operation from its first portion on. If this process ends, the operation stays there, unfinished, and a person
continues it.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from pgqueue.app.bulk import OnProgress
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
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
    """

    result: BulkResult | None = None
    ended: bool = False
    error: Exception | None = None


class Operations:
    """Runs operations, each in a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[int] = set()

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
            target=self._do, args=(queue, do, state), name="pgqueue-dashboard", daemon=True
        )
        thread.start()
        with self._changed:
            self._changed.wait_for(lambda: state.ended, SOON)
            self._changed.wait_for(lambda: state.ended or state.result is not None, LONGEST_PORTION)
        if state.error is not None and state.result is None:
            raise state.error
        return state

    def runs_here(self, operation: int) -> bool:
        """Whether this process works on an operation."""
        with self._changed:
            return operation in self._running

    def _do(self, queue: PgQueue, do: Callable[[OnProgress], BulkResult], state: OperationProgress) -> None:
        def note(result: BulkResult) -> None:
            with self._changed:
                state.result = result
                self._running.add(result.operation)
                self._changed.notify_all()

        try:
            with queue._around_hook():  # noqa: SLF001 - what the framework has around code in a thread
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
                    self._running.discard(state.result.operation)
                self._changed.notify_all()
