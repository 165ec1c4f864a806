"""Threads for tasks that are plain functions, and when the time of such a function is over.

The threads are daemons, so a function that never returns cannot keep the process from ending. The caller decides how many run.
"""

import asyncio
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from pgqueue.errors import ConfigurationError
from pgqueue.worker.attempt import Attempt

Work: TypeAlias = Callable[[], object]


class Threads:
    """Runs work in threads, and keeps the threads for more work. Safe to use from any thread.

    Attributes:
        idle: how many threads wait for work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.idle = 0
        self._closed = False
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()

    def start(self, work: Work) -> None:
        """Run it at once, in an idle thread if there is one.

        Raises:
            RuntimeError: the system starts no more threads for this process.
        """
        with self._lock:
            reused = self.idle > 0
            self.idle -= reused
        if reused:
            self._work.put(work)
        else:
            threading.Thread(target=self._serve, args=(work,), name="pgqueue-task", daemon=True).start()

    def close(self) -> None:
        """End idle threads now, and the others when their work is done."""
        with self._lock:
            self._closed = True
            for _ in range(self.idle):
                self._work.put(None)

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            work()
            del work  # else the last job would stay in memory while the thread waits
            with self._lock:
                if self._closed:
                    return
                self.idle += 1
            work = self._work.get()


class Deadlines:
    """Finds attempts in threads that take too long. One timer is set, for the earliest deadline.

    A short attempt costs one comparison and no timer.
    """

    def __init__(self, running: Mapping[int, Attempt], on_passed: Callable[[Attempt], object]) -> None:
        """``running``: an attempt that is not in it is no longer watched. ``on_passed`` is called in the loop."""
        self._running = running
        self._on_passed = on_passed
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: Attempt, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Give an attempt this many seconds from now. Called in the attempt's own thread."""
        attempt.deadline = time.monotonic() + seconds
        if attempt.deadline < self._due:
            self._due = attempt.deadline
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                loop.call_soon_threadsafe(self._set, loop)

    def overdue(self) -> list[Attempt]:
        """The attempts whose deadline has passed. Each is returned once."""
        now = time.monotonic()
        running = [attempt.whole for attempt in list(self._running.values())]
        passed = [attempt for attempt in dict.fromkeys(running) if attempt.deadline <= now]
        for attempt in passed:
            attempt.deadline = math.inf
        return passed

    def close(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        deadlines = (attempt.whole.deadline for attempt in list(self._running.values()))
        self._due = min(deadlines, default=math.inf)
        if self._due < math.inf:
            self._timer = loop.call_later(max(0.0, self._due - time.monotonic()), self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        for attempt in self.overdue():
            self._on_passed(attempt)
        self._set(loop)


def require_threads() -> None:
    """Refuse to run where gevent has replaced Python's threads.

    Raises:
        ConfigurationError: it has.
    """
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise ConfigurationError(
            "gevent has replaced Python's threads in this process, and a worker needs real ones: "
            "start it from an app that does not call gevent.monkey.patch_all()"
        )
