"""The worker's claims in memory, from their arrival to their verdicts, and the slots in which they run.

This is bookkeeping only: :mod:`pgqueue.worker.runners` decides what runs them, :mod:`pgqueue.worker.completer` takes the
verdicts and records them. The event loop, the threads of plain functions and the heartbeat's thread call it, so every
change of more than one step is made under one lock.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Protocol
from uuid import UUID

from pgqueue.app.context import Context, Host
from pgqueue.app.task import Task
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Verdict


class Stop(Enum):
    """Why an attempt was stopped by the worker."""

    SHUTDOWN = auto()
    """The worker stops and its grace is over: the job is requeued."""
    CANCEL = auto()
    """A caller cancelled the job."""
    LOST = auto()
    """The job is no longer this attempt's: the worker lost its lease, or claimed the job again."""


class Interruptible(Protocol):
    """What an attempt waits in: an asyncio task, or the future of a coroutine that a plain function returned."""

    def cancel(self) -> object:
        """Have it end soon."""


class Attempt:
    """A claim that is being run.

    Attributes:
        claim: which.
        task: the task to call; None: it is not registered here.
        context: what the task sees.
        stopped: why it was told to stop, if it was.
        runner: what to cancel so that the task itself ends; None while a plain function runs in a thread, and
            once the attempt has ended.
        deadline: when to give up a plain function, in seconds of the monotonic clock.
        plain: whether it runs a plain function, in a thread.
        detached: whether the plain function was given up: it has no slot, and its thread ends when it returns.
    """

    __slots__ = ("claim", "context", "deadline", "detached", "plain", "runner", "stopped", "task")

    def __init__(
        self, claim: Claim, task: Task[..., Any] | None, context: Context, *, plain: bool = False
    ) -> None:
        """An attempt that starts now."""
        self.claim = claim
        self.task = task
        self.context = context
        self.plain = plain
        self.stopped: Stop | None = None
        self.runner: Interruptible | None = None
        self.deadline = math.inf
        self.detached = False

    def stop(self, why: Stop) -> None:
        """Tell it to stop. A plain function is only told: it ends when it looks, or by itself.

        Called in the event loop; for a plain function in any thread.
        """
        if self.stopped is why:
            return  # a second interruption would disturb its clean-up
        self.stopped = why
        self.context.cancelled = True
        if self.runner is not None:
            self.runner.cancel()


class Claims:
    """Claims that wait, attempts that run, and verdicts that are not being written yet.

    Attributes:
        lock: to be held for every change of more than one step.
        size: how many slots there are; after :meth:`resize` more may be taken for a while.
        waiting: claims that have not started, in order.
        running: attempts by job id. The caller that removes an attempt from this map decides its verdict.
        verdicts: what the completer has to write, in order.
        taken: slots of runners, including a runner that is on its way.
        coming: whether a runner is on its way. Only one is at a time.
        ended: how many attempts have ended, in all.
        not_returned: how many plain functions were given up and have not returned. Each has a thread and no slot.
        replaced: attempts whose job this worker claimed again; the caller of :meth:`take` stops them.
    """

    def __init__(self, size: int, *, tasks: Mapping[str, Task[..., Any]], host: Host) -> None:
        """Start with no claim.

        Args:
            size: how many slots there are.
            tasks: by name; looked up under the lock, so this must not block.
            host: what runs the attempts.
        """
        self.lock = threading.Lock()
        self.size = size
        self.waiting: deque[Claim] = deque()
        self.running: dict[int, Attempt] = {}
        self.verdicts: list[Verdict] = []
        self.replaced: list[Attempt] = []
        self.taken = 0
        self.coming = False
        self.ended = 0
        self.not_returned = 0
        self._tasks = tasks
        self._host = host
        self._former: set[UUID] = set()
        self._open = size  # slots in which attempts may start

    def room(self, ahead: int) -> int:
        """How many claims to add until every slot is full and ``ahead`` claims wait."""
        return self.size + ahead - len(self.running) - len(self.waiting)

    def resize(self, size: int) -> None:
        """Have this many slots. Attempts in slots beyond that go on, and the runner of such a slot leaves at their end."""
        with self.lock:
            if self._open:
                self._open = size
            self.size = size

    def close(self) -> None:
        """Start nothing more."""
        with self.lock:
            self._open = 0

    def add(self, claims: Sequence[Claim]) -> bool:
        """Take claims of one worker id; False: its lease was lost, and they are no longer this worker's."""
        with self.lock:
            if claims and claims[0].worker_id in self._former:
                return False
            self.waiting.extend(claims)
            return True

    def reserve(self) -> bool | None:
        """Take a slot for a runner that is to come.

        Returns:
            Whether it is to run plain functions; None: no runner is needed, or one is on its way.
        """
        with self.lock:
            if self.coming or not self.waiting or self.taken >= self._open:
                return None
            self.coming = True
            self.taken += 1
            return self._is_plain(self.waiting[0])

    def unreserve(self) -> None:
        """No runner will come: its slot is free."""
        with self.lock:
            self.coming = False
            self.taken -= 1

    def take(self, *, plain: bool) -> Attempt | None:
        """Start the next attempt, if it is of the runner's kind; None: it is not, and the runner's slot is free."""
        with self.lock:
            if self.taken > self._open or not self.waiting:
                self.taken -= 1
                return None
            claim = self.waiting[0]
            task = self._tasks.get(claim.task)
            if (task is None or task.is_async) is plain:
                self.taken -= 1
                return None
            del self.waiting[0]
            if claim.id in self.running:
                self._replace(self.running[claim.id])
            attempt = self.running[claim.id] = Attempt(claim, task, Context(claim, self._host), plain=plain)
            return attempt

    def settle(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt; False: another caller has ended it, and nothing was changed."""
        with self.lock:
            if self.running.get(attempt.claim.id) is not attempt:
                return False
            del self.running[attempt.claim.id]  # not _end: that is one more call for every job
            self.ended += 1
            if verdict is not None:
                self.verdicts.append(verdict)
            return True

    def give_up(self, attempt: Attempt, verdict: Verdict | None) -> bool:
        """End an attempt of a plain function that goes on: its slot is free. False: it has ended already."""
        with self.lock:
            if self.running.get(attempt.claim.id) is not attempt:
                return False
            self._end(attempt, verdict)
            self._detach(attempt)
            return True

    def returned(self) -> None:
        """A plain function that was given up has returned."""
        with self.lock:
            self.not_returned -= 1

    def free_slot(self) -> None:
        """A runner gives up its slot."""
        with self.lock:
            self.taken -= 1

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
            plain: only those of plain functions, or of other tasks.

        Returns:
            How many.
        """
        with self.lock:
            dropped = [
                claim
                for claim in self.waiting
                if (job_ids is None or claim.id in job_ids)
                and (plain is None or self._is_plain(claim) is plain)
            ]
            for claim in dropped:
                self.waiting.remove(claim)
            self.verdicts += map(judge, dropped)
            return len(dropped)

    def abandon(self, former: UUID) -> tuple[list[Attempt], list[Claim]]:
        """Drop everything: the lease of this worker id is lost. The attempts that ran, and all claims."""
        with self.lock:
            self._former.add(former)
            attempts = list(self.running.values())
            ended = [verdict.claim for verdict in self.verdicts]
            lost = [*(attempt.claim for attempt in attempts), *self.waiting, *ended]
            self.waiting.clear()
            self.verdicts.clear()
            for attempt in attempts:
                self._end(attempt, None)
                if attempt.plain:
                    self._detach(attempt)
            return attempts, lost

    def _is_plain(self, claim: Claim) -> bool:
        task = self._tasks.get(claim.task)
        return task is not None and not task.is_async

    def _end(self, attempt: Attempt, verdict: Verdict | None) -> None:
        del self.running[attempt.claim.id]
        self.ended += 1
        if verdict is not None:
            self.verdicts.append(verdict)

    def _replace(self, attempt: Attempt) -> None:
        """The job of a running attempt was claimed again: a server that crashed had forgotten the first claim."""
        self._end(attempt, None)
        if attempt.plain:
            self._detach(attempt)
        self.replaced.append(attempt)

    def _detach(self, attempt: Attempt) -> None:
        attempt.detached = True
        self.taken -= 1
        self.not_returned += 1
