"""The callers of this process that wait for the ends of jobs: one thread and one connection serve all of a database.

A caller names a job and gets a future, whose result is the job when it has ended. It is None where the thread cannot
tell: no record of the job is visible on its connection, as while the job's transaction is not committed; or the server
refuses its statements. Then the caller looks itself, on its own connection.

How the thread learns of ends is decided in :mod:`pgqueue.store.results.endwatch`.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import TypeAlias
from weakref import WeakSet

from pgqueue.store.results.endwatch import POLL, EndSource, EndWatch
from pgqueue.store.results.job_end import EndLook

End: TypeAlias = "Future[EndLook | None]"

LINGER = 3.0
"""Seconds for which the connection is kept after the last caller."""
LONGEST_JOIN = 1.0
"""Seconds for which :meth:`EndWaiters.close` waits for the thread."""


class EndWaiters:
    """Who waits in this process for which jobs of one database. Safe to use from any thread.

    Attributes:
        linger: seconds for which the connection is kept after the last caller.
        poll: seconds between two checks of a job whose end is notified.
    """

    def __init__(self, source: EndSource) -> None:
        """The connection is made when the first caller waits."""
        self.linger = LINGER
        self.poll = POLL
        self._source = source
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Start again without callers: a forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._callers: dict[int, list[End]] = {}
        self._looking = 0
        self._watch: EndWatch | None = None

    @property
    def waits(self) -> bool:
        """Whether any caller waits."""
        return bool(self._callers)

    @property
    def connected(self) -> bool:
        """Whether there is a thread with a connection."""
        return self._watch is not None

    @property
    def busy(self) -> bool:
        """Whether a caller waits for a job, or looks at one before it waits."""
        return bool(self._callers or self._looking)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """For a caller that looks at its job before it waits."""
        with self._lock:
            self._looking += 1
        try:
            yield
        finally:
            with self._lock:
                self._looking -= 1

    def of(self, job_id: int) -> End:
        """The end of a job, as a future. A caller that waits no longer cancels it."""
        end: End = Future()
        with self._lock:
            self._callers.setdefault(job_id, []).append(end)
            watch = self._watch
            if watch is None:
                watch = self._watch = EndWatch(self, self._source, poll=self.poll, linger=self.linger)
                watch.start()
            watch.add(job_id)
        end.add_done_callback(lambda done: self._leave(job_id, done))
        return end

    def close(self) -> None:
        """Close the connection: now if no caller waits, else when none does any more."""
        with self._lock:
            watch, waits = self._watch, bool(self._callers)
            if watch is not None:
                watch.stop()
        if watch is not None and not waits:
            watch.join(LONGEST_JOIN)

    def awaited(self, job_ids: Iterable[int] | None = None) -> list[int]:
        """The jobs for which a caller waits, of these or of all, in the order of their ids."""
        with self._lock:
            return sorted(self._callers if job_ids is None else self._callers.keys() & set(job_ids))

    def settle(self, job_id: int, look: EndLook | None) -> None:
        """Give the callers of a job its end."""
        with self._lock:
            callers = self._callers.pop(job_id, ())
        _give(callers, look)

    def released(self, watch: EndWatch, *, failed: bool = False) -> bool:
        """Whether a watch ends now: because no caller waits, or because it failed and its callers look themselves."""
        with self._lock:
            if self._watch is not watch:
                return True
            if self._callers and not failed:
                return False
            self._watch = None
            left, self._callers = self._callers, {}
        for callers in left.values():
            _give(callers, None)
        return True

    def _leave(self, job_id: int, end: End) -> None:
        """Remove a caller that has its answer, or waits no longer."""
        with self._lock:
            callers = self._callers.get(job_id)
            if callers is not None and end in callers:
                callers.remove(end)
                if not callers:
                    del self._callers[job_id]
                if not self._callers and self._watch is not None:
                    self._watch.ring()


def _give(callers: Iterable[End], look: EndLook | None) -> None:
    for end in callers:
        with suppress(InvalidStateError):  # the caller has just cancelled it
            end.set_result(look)


_all: WeakSet[EndWaiters] = WeakSet()


def _after_fork() -> None:
    for ends in list(_all):
        ends.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
