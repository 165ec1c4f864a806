"""One attempt in progress, and who may stop it."""

from enum import Enum, auto
from typing import TYPE_CHECKING

from pgqueue.app.context import Context
from pgqueue.values.job import Claim

if TYPE_CHECKING:
    import asyncio


class Stop(Enum):
    """Why an attempt was stopped from outside."""

    SHUTDOWN = auto()
    """The worker stops and its grace is over: the job goes back."""
    CANCEL = auto()
    """Somebody asked for the job to be cancelled."""
    LOST = auto()
    """The worker lost its lease, so the job is somebody else's."""


class Attempt:
    """A claim that is being run.

    Attributes:
        claim: which.
        context: what its task sees.
        stopped: why it was told to stop, if it was.
        runner: the asyncio task that runs it.
        begun: whether that task has got to its first step. Cancelled before, it would never run at all.
        interruptible: whether cancelling the runner stops the task itself: not so for one in a thread.
    """

    __slots__ = ("begun", "claim", "context", "interruptible", "runner", "stopped")

    def __init__(self, claim: Claim, context: Context) -> None:
        """Not started yet."""
        self.claim = claim
        self.context = context
        self.begun = False
        self.interruptible = True
        self.stopped: Stop | None = None
        self.runner: asyncio.Task[None] | None = None

    def stop(self, why: Stop) -> None:
        """Tell it to stop. A plain task asked to cancel is only told; it ends when it looks, or by itself."""
        if self.stopped is why:
            return  # told already; do not interrupt its clearing up
        self.stopped = why
        self.context.cancelled = True
        if self.runner is not None and self.begun and (self.interruptible or why is not Stop.CANCEL):
            self.runner.cancel()
