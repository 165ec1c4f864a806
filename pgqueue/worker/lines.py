"""Which lines a worker looks at, in which turn, and from where on.

A worker that serves all queues knows those in which it has found jobs of late. Now and then, and whenever those
it knows are empty, it asks for others.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from pgqueue.store import claim
from pgqueue.store.plan import Plan
from pgqueue.values.job import HEAD, Claim, Mark
from pgqueue.worker.marks import Marks

LOOK_AROUND_AFTER = 1.0
"""For so many seconds at most does finding jobs in known queues keep a worker from asking for others."""
FORGET_AFTER = 600.0
"""A queue without jobs for so many seconds is looked at no more, until it is found again."""


class Lines:
    """The queues to serve.

    Attributes:
        marks: where looks start.
        serves_all: whether every queue is served, known or not.
    """

    def __init__(self, queues: Sequence[str] | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Know the queues that are given, or none yet.

        Args:
            queues: what to serve; None: every queue that has ready jobs.
            clock: seconds, from any beginning.
        """
        self.marks = Marks(clock)
        self.serves_all = queues is None
        self._clock = clock
        self._seen_at = dict.fromkeys(queues or (), clock())
        self._looked_around_at = -LOOK_AROUND_AFTER
        self._turn = 0

    def starts(self) -> Mapping[str, Mark]:
        """Every known queue, and where to start looking in it."""
        starts = self.marks.starts()
        return {queue: starts.get(queue, HEAD) for queue in self._seen_at}

    def claim(self, worker: UUID, room: int) -> Plan[list[Claim]]:
        """Take jobs from the known queues, and from others where it is time to look for those."""
        claims = yield from self._fill(worker, room)
        now = self._clock()
        if not self.serves_all or (claims and now - self._looked_around_at < LOOK_AROUND_AFTER):
            return claims
        self._looked_around_at = now
        found = yield from claim.new_queues(list(self._seen_at))
        self._seen_at = {queue: at for queue, at in self._seen_at.items() if now - at < FORGET_AFTER}
        self._seen_at |= dict.fromkeys(found, now)
        if claims or not found:
            return claims
        return (yield from self._fill(worker, room))

    def _fill(self, worker: UUID, room: int) -> Plan[list[Claim]]:
        starts, began = self.marks.starts(), self._clock()
        claims = yield from claim.fill(worker, self._next_turn(), room, marks=starts)
        ended = self._clock()
        self.marks.learn(starts, claims, ended - began)
        if self.serves_all:
            self._seen_at |= {one.queue: ended for one in claims}
        return claims

    def _next_turn(self) -> list[str]:
        """The queues, each time another one first."""
        queues = list(self._seen_at)
        self._turn += 1
        turn = self._turn % max(1, len(queues))
        return [*queues[turn:], *queues[:turn]]
