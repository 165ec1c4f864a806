"""Threads for tasks that are plain functions.

They are daemons, so that a function that never returns cannot keep the process from ending, and there is no
limit to them here: whoever starts work counts what may run at a time. A thread that was given up on comes back
for more work whenever its function returns.
"""

import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]


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
        """Run it at once, in an idle thread if there is one."""
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
