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
        self._queues = queues
        self._clock = clock
        self._locks = {name: threading.Lock() for name in queues}
        self._answers: dict[str, tuple[float, Sequence[QueueStanding]]] = {}

    def of(self, name: str) -> Sequence[QueueStanding]:
        """How the queues of a database stand. Who asks while another one does waits for that answer."""
        with self._locks[name]:
            until, answer = self._answers.get(name, (0.0, ()))
            began = self._clock()
            if began < until:
                return answer
            answer = self._queues[name].insight.queues()
            now = self._clock()
            self._answers[name] = now + min(LONGEST, SHARE * (now - began)), answer
            return answer

    def forget(self) -> None:
        """Drop the answers, since a user changes something: the next look asks the database."""
        self._answers.clear()
