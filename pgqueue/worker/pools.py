"""Threads: those for tasks that are plain functions, and how any thread reaches the worker's event loop.

Threads for tasks are daemons, so that a function that never returns cannot keep the process from ending. How many may
run is decided by the caller. A thread that was given up comes back for more work whenever its function returns.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]


class Home:
    """The event loop in which a worker runs users' coroutines, and its thread.

    Attributes:
        loop: the loop; None before the worker runs.
        thread: the thread's identity; None before the worker runs.
    """

    def __init__(self) -> None:
        """Not known yet."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: int | None = None

    def here(self) -> None:
        """The running loop is the one."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()

    def call(self, what: Work) -> None:
        """Call something in the loop: at once where this is the loop's thread, else soon."""
        if self.thread in (None, threading.get_ident()):
            what()
        else:
            self.call_soon(what)

    def call_soon(self, what: Work) -> None:
        """Call something in the loop, at its next turn."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                self.loop.call_soon_threadsafe(what)


class Threads:
    """Runs work in threads, and keeps them for more. Safe to use from any thread.

    Attributes:
        idle: how many wait for work.
    """

    def __init__(self) -> None:
        """Start no thread yet."""
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
        """Let idle threads end now, and the others when their work is done."""
        with self._lock:
            self._closed = True
            for _ in range(self.idle):
                self._work.put(None)

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            work()
            del work  # else its last job would be kept alive for as long as the thread waits
            with self._lock:
                if self._closed:
                    return
                self.idle += 1
            work = self._work.get()
