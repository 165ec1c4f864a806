"""Processes that a worker keeps for tasks with ``process=True``: each runs one attempt after the other.

A process is started when an attempt finds none that is free, so there are as many as such attempts ran at once. One that was free
for a minute ends. A process whose attempt was stopped, or did not end in time, ends with it, before its verdict is recorded: what the
function has started may go on in it.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from pgqueue.app.context import AttemptHost
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.values.jobs.verdict import Returned, Verdict
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.attempt_process import (
    NOWHERE,
    AttemptProcess,
    not_started,
    note_completed,
    place_of,
)
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.process_messages import ProcessOrder

log = worker_log()

NO_PROCESS_DELAY = timedelta(seconds=5)
KEPT_FOR = 60.0
"""Seconds after which a free process ends."""


class KeptProcesses:
    """The processes of one worker. Used in its event loop."""

    def __init__(self, queue: PgQueue, app: Callable[[], str | None]) -> None:
        """``app`` returns where a process finds the queue, as ``module:attribute``; None: it is looked for in what is imported."""
        self._queue = queue
        self._app = app
        self._free: list[tuple[AttemptProcess, asyncio.TimerHandle]] = []
        self._ends: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Refuse tasks for which no process can be started.

        Raises:
            ConfigurationError: it is not known where a process finds the queue.
        """
        if any(task.process for task in self._queue.tasks.values()):
            self._place()

    async def run(self, host: AttemptHost, attempt: Attempt) -> Verdict | None:
        """Run an attempt in a process.

        Returns:
            What to record; None: nothing.

        Raises:
            ChildProcessError: the process died.
            ConfigurationError: it is not known where a process finds the queue.
            TimedOut: the attempt took too long, and was killed.
        """
        try:
            child = await self._begun(ProcessOrder.of(host, attempt))
        except OSError:
            log.exception("no process could be started; the job goes back", extra={"job": attempt.claim.id})
            return Returned(attempt.claim, NO_PROCESS_DELAY)
        if child.has_ended:
            return not_started(attempt.claim, child)
        keeps = False
        try:
            answered = await child.answer(attempt)
            keeps = answered is not None and not answered[0].ends
            if not keeps:
                child.kill()
        finally:
            if not keeps:
                await self._end(child, host, attempt)
        if answered is None:
            raise ChildProcessError(f"the process of this attempt died: {child.how()}")
        if keeps:
            self._keep(child)
        answer, verdict = answered
        note_completed(host, attempt, answer)
        return verdict

    async def _end(self, child: AttemptProcess, host: AttemptHost, attempt: Attempt) -> None:
        """End the process of an attempt; its last answer may say that the job was completed."""
        await child.end(attempt.stopped)
        if (last := child.last_answer(attempt)) is not None:
            note_completed(host, attempt, last)

    async def close(self) -> None:
        """End the processes that are free."""
        free, self._free = self._free, []
        for _, timer in free:
            timer.cancel()
        await asyncio.gather(*(child.end() for child, _ in free), *self._ends)

    async def _begun(self, order: ProcessOrder) -> AttemptProcess:
        """Return a process that has begun the attempt, or a new one that did not, and has ended."""
        while self._free:
            child, timer = self._free.pop()
            timer.cancel()
            if await self._begins(child, order):
                return child
        child = await AttemptProcess.start(self._place())
        await self._begins(child, order)
        return child

    def _place(self) -> str:
        place = self._app() or place_of(self._queue)
        if place is None:
            raise ConfigurationError(f"a task with process=True cannot run: {NOWHERE}")
        return place

    async def _begins(self, child: AttemptProcess, order: ProcessOrder) -> bool:
        begun = False
        try:
            begun = await child.begin(order)
        finally:
            if not begun:
                await child.end()
        return begun

    def _keep(self, child: AttemptProcess) -> None:
        timer = asyncio.get_running_loop().call_later(KEPT_FOR, self._end_oldest)
        self._free.append((child, timer))

    def _end_oldest(self) -> None:
        child, _ = self._free.pop(0)
        end = asyncio.create_task(child.end())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
