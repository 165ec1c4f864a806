"""Who runs now and who waits: claims in hand, up to ``size`` of them running."""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pgqueue.app.context import Context
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Cancelled, Returned
from pgqueue.worker.attempt import Attempt, Stop
from pgqueue.worker.completer import Completer
from pgqueue.worker.executor import Executor


class Slots:
    """Starts waiting claims as slots become free, and passes verdicts to the completer.

    Attributes:
        waiting: claims that have not started, in order.
        running: attempts by job id.
        ended: how many attempts have ended in all.
    """

    def __init__(
        self,
        size: int,
        executor: Executor,
        completer: Completer,
        *,
        context: Callable[[Claim], Context],
        on_room: Callable[[], object],
    ) -> None:
        """Begin with empty slots.

        Args:
            size: how many attempts may run at a time.
            executor: runs them.
            completer: records their verdicts.
            context: makes what a task sees of its attempt.
            on_room: called when an attempt has ended and there are few claims left to start.
        """
        self.size = size
        self.waiting: deque[Claim] = deque()
        self.running: dict[int, Attempt] = {}
        self.ended = 0
        self.low = 0
        self._executor = executor
        self._completer = completer
        self._context = context
        self._on_room = on_room
        self._waiting_since = 0.0
        self._closed = False
        self._surroundings = contextvars.copy_context()  # else a job would see what the last one left behind

    def known(self) -> list[int]:
        """The jobs in hand."""
        return [*self.running, *(claim.id for claim in self.waiting)]

    def add(self, claims: Iterable[Claim]) -> None:
        """Take claims, and start what can be started."""
        self.waiting.extend(claims)
        self._waiting_since = time.monotonic()
        self._fill()

    def close(self) -> None:
        """Start nothing more."""
        self._closed = True

    def return_waiting(self, *, older_than: float = 0.0) -> int:
        """Give back, unspent, the claims that have not started.

        Args:
            older_than: only if no claim was taken for so many seconds.

        Returns:
            How many went back.
        """
        if time.monotonic() - self._waiting_since < older_than:
            return 0
        count = len(self.waiting)
        for claim in self.waiting:
            self._completer.add(Returned(claim))
        self.waiting.clear()
        return count

    def stop(self, why: Stop, job_ids: Iterable[int] | None = None) -> None:
        """Tell running attempts to stop: those of these jobs, or all."""
        for job_id in list(self.running) if job_ids is None else job_ids:
            if job_id in self.running:
                self.running[job_id].stop(why)

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Somebody asked to cancel these jobs: stop those that run, and end those that have not started."""
        asked = set(job_ids)
        for claim in [claim for claim in self.waiting if claim.id in asked]:
            self.waiting.remove(claim)
            self._completer.add(Cancelled(claim))
        self.stop(Stop.CANCEL, asked)

    def abandon(self) -> None:
        """Let go of everything: it is no longer this worker's."""
        self.waiting.clear()
        self.stop(Stop.LOST)
        self.running.clear()

    async def emptied(self) -> None:
        """Wait until nothing runs."""
        while self.running:
            await asyncio.wait(self._runners())

    def _runners(self) -> Sequence[asyncio.Task[None]]:
        return [attempt.runner for attempt in self.running.values() if attempt.runner is not None]

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting and len(self.running) < self.size and not self._closed:
            claim = self.waiting.popleft()
            attempt = Attempt(claim, self._context(claim))
            self.running[claim.id] = attempt
            attempt.runner = loop.create_task(self._run(attempt), context=self._surroundings.copy())

    async def _run(self, attempt: Attempt) -> None:
        verdict = await self._executor.execute(attempt)
        self.ended += 1
        if self.running.get(attempt.claim.id) is attempt:
            del self.running[attempt.claim.id]
            if verdict is not None:
                self._completer.add(verdict)
        self._fill()
        if len(self.waiting) <= self.low:
            self._on_room()
