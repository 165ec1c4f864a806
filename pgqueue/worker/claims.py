"""The claims of a worker, from their arrival to their verdicts, and the slots they may take.

Only bookkeeping: what runs them is decided in :mod:`pgqueue.worker.runners`. The event loop, the threads of plain
functions and the heartbeat's thread call it, so whatever takes more than one step is done under one lock.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from enum import Enum, auto
from typing import Protocol
from uuid import UUID

from pgqueue.app.context import Context
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Verdict


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


class Claims:
    """What waits, what runs, what has ended and is not yet passed on.

    Attributes:
        size: how many slots there are.
        waiting: claims that have not started, in order.
        running: attempts by job id. The caller that removes one records its outcome.
        taken: slots that a runner has, or that a runner on its way will have.
        ended: how many attempts have ended in all.
        left_behind: how many plain functions were given up and have not returned: each has a thread, and no slot.
        replaced: attempts whose job was claimed anew by this worker, for the caller of :meth:`take` to stop.
    """

    def __init__(
        self, size: int, *, context: Callable[[Claim], Context], is_plain: Callable[[Claim], bool]
    ) -> None:
        """Begin with nothing.

        Args:
            size: how many slots there are.
            context: makes what a task sees of its attempt.
            is_plain: whether a claim is for a plain function; called under the lock, so it must not wait.
        """
        self.size = size
        self.waiting: deque[Claim] = deque()
        self.running: dict[int, Attempt] = {}
        self.replaced: list[Attempt] = []
        self.taken = 0
        self.ended = 0
        self.left_behind = 0
        self._context = context
        self._is_plain = is_plain
        self._lock = threading.Lock()
        self._verdicts: list[Verdict] = []
        self._former: set[UUID] = set()
        self._coming = False
        self._closed = False

    def known(self) -> list[int]:
        """Every job in hand."""
        with self._lock:
            ended = [verdict.claim.id for verdict in self._verdicts]
            return [*self.running, *(claim.id for claim in self.waiting), *ended]

    def close(self) -> None:
        """Start nothing more."""
        self._closed = True

    def add(self, claims: Sequence[Claim]) -> bool:
        """Take claims of one worker id; False: its lease was lost, and they are not this worker's any more."""
        with self._lock:
            if claims and claims[0].worker_id in self._former:
                return False
            self.waiting.extend(claims)
            return True

    def reserve(self) -> bool | None:
        """Take a slot for a runner that is to come.

        Returns:
            Whether it is to run plain functions; None: no runner is needed, or one is on its way already.
        """
        if self._coming or not self.waiting:  # most often so, and worth no lock
            return None
        with self._lock:
            if self._coming or self._closed or not self.waiting or self.taken >= self.size:
                return None
            self._coming = True
            self.taken += 1
            return self._is_plain(self.waiting[0])

    def arrived(self) -> None:
        """The runner on its way is here."""
        self._coming = False

    def unreserve(self) -> None:
        """No runner will come: its slot is free."""
        with self._lock:
            self._coming = False
            self.taken -= 1

    def take(self, *, plain: bool) -> Attempt | None:
        """Begin the next attempt, if it is of a runner's kind; None: nothing for it, and its slot is free."""
        with self._lock:
            if self._closed or not self.waiting or self._is_plain(self.waiting[0]) is not plain:
                self.taken -= 1
                return None
            claim = self.waiting.popleft()
            if claim.id in self.running:
                self._replace(self.running[claim.id])
            attempt = self.running[claim.id] = Attempt(claim, self._context(claim), plain=plain)
            return attempt

    def settle(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt; False: it has been ended by others, and nothing was changed."""
        with self._lock:
            if self.running.get(attempt.claim.id) is not attempt:
                return False
            del self.running[attempt.claim.id]  # not _end: a call more for every job
            self.ended += 1
            if verdict is not None:
                self._verdicts.append(verdict)
            return True

    def give_up(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt of a plain function and leave that to itself: its slot is free. False: it has ended."""
        with self._lock:
            if self.running.get(attempt.claim.id) is not attempt:
                return False
            self._end(attempt, verdict)
            self._detach(attempt)
            return True

    def came_back(self) -> None:
        """A plain function that was left to itself has returned."""
        with self._lock:
            self.left_behind -= 1

    def free_slot(self) -> None:
        """A runner gives up its slot."""
        with self._lock:
            self.taken -= 1

    def verdicts(self) -> list[Verdict]:
        """Claims over what has ended."""
        with self._lock:
            verdicts, self._verdicts = self._verdicts, []
            return verdicts

    def drop(
        self,
        judge: Callable[[Claim], Verdict],
        job_ids: Container[int] | None = None,
        *,
        plain: bool | None = None,
    ) -> int:
        """End claims that have not started, with these verdicts.

        Args:
            judge: makes the verdict.
            job_ids: only these jobs.
            plain: only those of plain functions, or of others.

        Returns:
            How many.
        """
        with self._lock:
            dropped = [
                claim
                for claim in self.waiting
                if (job_ids is None or claim.id in job_ids)
                and (plain is None or self._is_plain(claim) is plain)
            ]
            for claim in dropped:
                self.waiting.remove(claim)
            self._verdicts += map(judge, dropped)
            return len(dropped)

    def abandon(self, former: UUID) -> list[Attempt]:
        """Let go of everything: the lease of this worker id is lost. The attempts that were running."""
        with self._lock:
            self._former.add(former)
            self.waiting.clear()
            self._verdicts.clear()
            attempts = list(self.running.values())
            for attempt in attempts:
                self._end(attempt, None)
                if attempt.plain:
                    self._detach(attempt)
            return attempts

    def _end(self, attempt: Attempt, verdict: Verdict | None) -> None:
        del self.running[attempt.claim.id]
        self.ended += 1
        if verdict is not None:
            self._verdicts.append(verdict)

    def _replace(self, attempt: Attempt) -> None:
        """The job of a running attempt was claimed anew: a server that crashed had forgotten the first claim."""
        self._end(attempt, None)
        if attempt.plain:
            self._detach(attempt)
        self.replaced.append(attempt)

    def _detach(self, attempt: Attempt) -> None:
        attempt.detached = True
        self.taken -= 1
        self.left_behind += 1
