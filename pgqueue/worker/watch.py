"""Whether the worker's event loop runs, and which task blocks it.

Several times a second the heartbeat's thread asks the loop to answer. A loop that has not answered for ``after``
seconds is blocked: this is logged with the task, the job and the line, and again when it ends. Time in which the process
did not run at all (it was stopped, or code held the GIL) does not count: it is logged as such.
"""

import asyncio
import statistics
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

from pgqueue.values.workers.health import BlockedLoop, storable
from pgqueue.worker import batches
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals

log = worker_log()

LOOKS = 4
"""The loop is asked this many times within the seconds after which it counts as blocked."""
SAID_WITHIN = 0.1
"""Seconds for which the watch waits for the log."""
DEEPEST = 12
"""At most this many lines of the stack are logged."""
RUNS = (Executor.run.__code__, batches.run.__code__)
"""The functions whose local ``attempt`` is what the loop runs."""
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True, slots=True)
class LoopBlocker:
    """What blocks the event loop.

    Attributes:
        since: when it began, in seconds of the monotonic clock.
        where: the user's line, as ``file:line in function``.
        job: the job's id, or None if no job of ours stands in the stack.
        task: the job's task, or the asyncio task's name.
        stack: where the loop's thread is, the innermost line last.
    """

    since: float
    where: str
    job: int | None
    task: str
    stack: tuple[str, ...]


class LoopWatch:
    """Watches one event loop from another thread's.

    Attributes:
        blocked: what blocks it now; None: it runs.
        blocks: how many times it was blocked.
    """

    def __init__(
        self, signals: Signals, runners: Runners, connection: WorkerConnection, *, after: timedelta
    ) -> None:
        """``after``: without an answer for this long, the loop is blocked.

        ``runners`` do what cannot wait, again and again while the loop is blocked, on ``connection``.
        """
        self.blocked: LoopBlocker | None = None
        self.blocks = 0
        self._signals = signals
        self._runners = runners
        self._connection = connection
        self._after = after.total_seconds()
        self._answered_at = 0.0
        self._answers: deque[float] = deque(maxlen=LOOKS * 4)
        self._latency = 0.0

    def latency(self) -> float:
        """How many seconds the loop took to answer, on average since the last call; without an answer as before."""
        if answers := [self._answers.popleft() for _ in range(len(self._answers))]:
            self._latency = statistics.fmean(answers)
        return self._latency

    def reported(self) -> BlockedLoop | None:
        """What blocks the loop, as the worker says it to others now; None: it runs."""
        if (now := self.blocked) is None:
            return None
        task = now.task if now.job is not None else storable(now.task)
        return BlockedLoop(time.monotonic() - now.since, task, now.job, storable(now.where, end=True))

    async def run(self) -> None:
        """Watch for ever. A failure is logged, and the next look comes a moment later."""
        while True:
            try:
                await self.run_once()
            except Exception:
                log.exception("the event loop could not be watched")
                await asyncio.sleep(self._after)

    async def run_once(self) -> None:
        """Ask the loop once, and wait for its answer."""
        asked_at, unanswered = time.monotonic(), 0
        self._signals.call_soon(self._answer)
        await self._rest()
        while self._answered_at < asked_at:
            unanswered += 1
            if unanswered >= LOOKS:
                await self._report_while_blocked(asked_at)
            if not await self._rest():
                unanswered = 0
        self._answers.append(self._answered_at - asked_at)
        if self.blocked is not None:
            self._end(self._answered_at - asked_at)

    def _answer(self) -> None:
        self._answered_at = time.monotonic()

    async def _rest(self) -> bool:
        """Sleep until the next look; return whether this process ran meanwhile."""
        pause = self._after / LOOKS
        due = time.monotonic() + pause
        await asyncio.sleep(pause)
        late = time.monotonic() - due
        if late < self._after:
            return True
        _say(
            "this process did not run for a while: it was stopped, or code held the GIL",
            seconds=round(late, 1),
        )
        return False

    async def _report_while_blocked(self, since: float) -> None:
        if self.blocked is None:
            self.blocks += 1
            self.blocked = look(self._signals.thread, self._signals.loop, since)
            _say(
                "the event loop is blocked: use await, a plain function or asyncio.to_thread for what waits or computes",
                job=self.blocked.job,
                task=self.blocked.task,
                where=self.blocked.where,
                seconds=round(time.monotonic() - since, 1),
                stack=" < ".join(reversed(self.blocked.stack)),
            )
        try:
            await self._runners.while_blocked(self._connection)
        except Exception:
            log.exception("what ended while the event loop is blocked could not be recorded")

    def _end(self, seconds: float) -> None:
        assert self.blocked is not None  # noqa: S101 - for the type checker
        _say(
            "the event loop turns again",
            job=self.blocked.job,
            task=self.blocked.task,
            where=self.blocked.where,
            seconds=round(seconds, 1),
        )
        self.blocked = None


def _say(message: str, **fields: object) -> None:
    """Log a warning, in a thread of its own: where the log is what blocks the loop, it would block the heartbeat, too."""
    said = threading.Thread(
        target=log.warning, args=(message,), kwargs={"extra": fields}, name="pgqueue-watch-log", daemon=True
    )
    said.start()
    said.join(SAID_WITHIN)


def look(thread: int | None, loop: asyncio.AbstractEventLoop | None, since: float) -> LoopBlocker:
    """See what a thread does, and for which job: that of the innermost attempt on its stack."""
    stack: list[FrameType] = []
    attempt: Attempt | None = None
    for frame in _frames(thread):
        if frame.f_code in RUNS:
            found = frame.f_locals.get("attempt")
            attempt = found if isinstance(found, Attempt) else None
            break
        stack.append(frame)
    lines = tuple(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}" for frame in stack)
    theirs = (place for place, frame in enumerate(stack) if _is_theirs(frame))
    where = lines[next(theirs, 0)] if lines else "unknown"
    if attempt is not None:
        return LoopBlocker(since, where, attempt.claim.id, attempt.claim.task, lines[DEEPEST - 1 :: -1])
    current = None if loop is None else asyncio.current_task(loop)
    name = "unknown" if current is None else current.get_name()
    return LoopBlocker(since, where, None, name, lines[DEEPEST - 1 :: -1])


def _frames(thread: int | None) -> Iterator[FrameType]:
    """A thread's stack, from the innermost frame outwards."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - there is no other way, and it is documented
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_theirs(frame: FrameType) -> bool:
    """Whether a line is the user's: neither Python's own nor an installed library's."""
    return not frame.f_code.co_filename.startswith((*LIBRARIES, "<"))
