"""Memory in which an enqueue runs its job at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.audit import unaudited
from pgqueue.store.plan import Plan
from pgqueue.testing.clock import Clock
from pgqueue.testing.draining import adrain, drain
from pgqueue.testing.memory import Memory
from pgqueue.testing.modes import swap_database

T = TypeVar("T")

ENQUEUES = {
    "enqueue.enqueue",
    "enqueue.enqueue_many",
    "flows.add",
    "flow_control.retry",
    "signals.send",
    "signals.resolve",
}
"""The plans after which jobs are run, by name."""


class Eager(Memory):
    """Memory that is drained after each enqueue and each signal, by the caller."""

    def __init__(self, queue: PgQueue, clock: Clock | None = None, *, raises: bool = True) -> None:
        """``clock``: None: a clock that stands still at the present. ``raises``: an enqueue raises what its job raised."""
        super().__init__(queue, clock)
        self._queue = queue
        self._raises = raises

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan, and run what is due if it was an enqueue or a signal."""
        enqueued = unaudited(plan).name in ENQUEUES
        answer = super().run(plan, connection)
        if enqueued:
            drain(self._queue, raises=self._raises)
        return answer

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Answer a plan, and run what is due if it was an enqueue or a signal."""
        enqueued = unaudited(plan).name in ENQUEUES
        answer = super().run(plan, connection)
        if enqueued:
            await adrain(self._queue, raises=self._raises)
        return answer


@contextmanager
def eager(queue: PgQueue, *, clock: Clock | None = None, raises: bool = True) -> Iterator[Memory]:
    """Have every enqueue run its job at once, in the caller, for the length of a block; without a database.

    A job for later waits in memory until a ``drain`` at its time, and so does one that is to be retried.

    Args:
        queue: the app's.
        clock: what time it is for jobs; by default one that stands still at the present.
        raises: whether an enqueue raises what its job raised.

    Yields:
        The memory, empty at the beginning, with its ``clock``.
    """
    with swap_database(queue, Eager(queue, clock, raises=raises)) as memory:
        yield memory
