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
    """The job is not this attempt's any more: the worker lost its lease, or claimed the job anew."""


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
        runner: what to cancel so that the task itself ends; None while a plain function runs in a thread, and
            once it has ended.
        deadline: when to give up a plain function, in seconds of the monotonic clock.
        plain: whether it is one of a plain function, in a thread.
        detached: whether its runner has lost its slot: the function is left to itself, and its thread goes when it
            returns.
    """

    __slots__ = ("claim", "context", "deadline", "detached", "plain", "runner", "stopped")

    def __init__(self, claim: Claim, context: Context, *, plain: bool = False) -> None:
        """Not told anything yet."""
        self.claim = claim
        self.context = context
        self.plain = plain
        self.stopped: Stop | None = None
        self.runner: Interruptible | None = None
        self.deadline = math.inf
        self.detached = False

    def stop(self, why: Stop) -> None:
        """Tell it to stop. A plain function is only told; it ends when it looks, or by itself.

        Called in the event loop; for a plain function in any thread.
        """
        if self.stopped is why:
            return  # told already; do not interrupt its clearing up
        self.stopped = why
        self.context.cancelled = True
        if self.runner is not None:
            self.runner.cancel()
