"""How queues stand, asked once for all who look at about the same time: with a million jobs one look takes 0.3 s."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pgqueue.app.pgqueue import PgQueue
from pgqueue.values.queues.standing import QueueStanding

LONGEST = 2.0
"""Seconds for which an answer is shown, at most …"""
SHARE = 10
"""… and this many times what it took to make it: of small tables each look is new."""


class SharedStandings:
    """The last answers, by the name of the queue's database in this dashboard. Any thread may ask."""

    def __init__(self, queues: Mapping[str, PgQueue], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of = {name: _Shared(queue, clock) for name, queue in queues.items()}

    def of(self, name: str) -> Sequence[QueueStanding]:
        """How the queues of a database stand. Who asks while another one does waits for that answer, or for that error."""
        return self._of[name].ask(self._clock())

    def forget(self) -> None:
        """Drop the answers, since a user has changed something: the next look asks the database."""
        for shared in self._of.values():
            shared.changes += 1


class _Shared:
    """The last answer of one database, and its last error."""

    def __init__(self, queue: PgQueue, clock: Callable[[], float]) -> None:
        self.changes = 0
        self._queue = queue
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Sequence[QueueStanding] = ()
        self._answered_after = -1  # changes
        self._until = 0.0
        self._error: Exception | None = None
        self._failed_at = 0.0

    def ask(self, asked_at: float) -> Sequence[QueueStanding]:
        with self._lock:
            if self._error is not None and self._failed_at > asked_at:
                raise self._error
            if self._answered_after == self.changes and self._clock() < self._until:
                return self._answer
            changes, began = self.changes, self._clock()
            try:
                self._answer = self._queue.insight.queues()
            except Exception as error:
                self._error, self._failed_at = error, self._clock()
                raise
            now = self._clock()
            self._answered_after, self._until = changes, now + min(LONGEST, SHARE * (now - began))
            return self._answer
