"""The claims in a worker's hands, from their arrival to their verdicts, and the slots they may take.

Only bookkeeping: who runs them is decided in :mod:`pgqueue.worker.slots`. The event loop and the threads of
plain functions both reach in, so whatever takes more than one step is done under one lock.
"""

import threading
from collections import deque
from collections.abc import Callable

from pgqueue.app.context import Context
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Verdict
from pgqueue.worker.attempt import Attempt


class Hand:
    """What waits, what runs, what has ended and is not yet passed on.

    Attributes:
        size: how many slots there are.
        waiting: claims that have not started, in order.
        running: attempts by job id. Whoever removes one has the word on how it ended.
        taken: slots that a runner has, or that a runner on its way will have.
        ended: how many attempts have ended in all.
    """

    def __init__(
        self, size: int, *, context: Callable[[Claim], Context], is_plain: Callable[[Claim], bool]
    ) -> None:
        """Begin with nothing.

        Args:
            size: how many slots there are.
            context: makes what a task sees of its attempt.
            is_plain: whether a claim is for a plain function.
        """
        self.size = size
        self.waiting: deque[Claim] = deque()
        self.running: dict[int, Attempt] = {}
        self.taken = 0
        self.ended = 0
        self._context = context
        self._is_plain = is_plain
        self._lock = threading.Lock()
        self._verdicts: list[Verdict] = []
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

    def take(self, *, plain: bool) -> Attempt | None:
        """Begin the next attempt, if it is of a runner's kind; None: nothing for it, and its slot is free."""
        with self._lock:
            if self._closed or not self.waiting or self._is_plain(self.waiting[0]) is not plain:
                self.taken -= 1
                return None
            claim = self.waiting.popleft()
            attempt = self.running[claim.id] = Attempt(claim, self._context(claim))
            return attempt

    def settle(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt; False: it has been ended by others, and nothing was changed."""
        with self._lock:
            if self.running.get(attempt.claim.id) is not attempt:
                return False
            del self.running[attempt.claim.id]
            self.ended += 1
            if verdict is not None:
                self._verdicts.append(verdict)
            return True

    def free_slot(self) -> None:
        """A runner gives up its slot."""
        with self._lock:
            self.taken -= 1

    def verdicts(self) -> list[Verdict]:
        """Hand over what has ended."""
        with self._lock:
            verdicts, self._verdicts = self._verdicts, []
            return verdicts

    def drop(self, job_ids: set[int] | None = None) -> list[Claim]:
        """Let go of these jobs, or of all, as far as they have not started; what was dropped."""
        with self._lock:
            dropped = [claim for claim in self.waiting if job_ids is None or claim.id in job_ids]
            for claim in dropped:
                self.waiting.remove(claim)
            return dropped
