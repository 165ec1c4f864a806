"""One attempt in progress, and how it is told to stop."""

import math
from enum import Enum, auto
from typing import Protocol

from pgqueue.app.context import Context
from pgqueue.values.job import Claim


class Stop(Enum):
    """Why an attempt was stopped from outside."""

    SHUTDOWN = auto()
    """The worker stops and its grace is over: the job goes back."""
    CANCEL = auto()
    """Somebody asked for the job to be cancelled."""
    LOST = auto()
    """The worker lost its lease, so the job is somebody else's."""


class Interruptible(Protocol):
    """What an attempt waits in: an asyncio task, or the future of a coroutine that a plain function handed out."""

    def cancel(self) -> object:
        """Have it end soon."""


class Attempt:
    """A claim that is being run.

    Attributes:
        claim: which.
        context: what its task sees.
        stopped: why it was told to stop, if it was.
        runner: what to cancel so that the task itself ends; None while a plain function runs in a thread.
        deadline: when to give up a plain function, in seconds of the monotonic clock.
    """

    __slots__ = ("claim", "context", "deadline", "runner", "stopped")

    def __init__(self, claim: Claim, context: Context) -> None:
        """Not told anything yet."""
        self.claim = claim
        self.context = context
        self.stopped: Stop | None = None
        self.runner: Interruptible | None = None
        self.deadline = math.inf

    def stop(self, why: Stop) -> None:
        """Tell it to stop. A plain function is only told; it ends when it looks, or by itself."""
        if self.stopped is why:
            return  # told already; do not interrupt its clearing up
        self.stopped = why
        self.context.cancelled = True
        if self.runner is not None:
            self.runner.cancel()
