"""Which lanes a worker claims limited jobs from, in which order, and when it looks again.

A worker looks at lanes if it knows a limited task, or if a poll has told it that jobs wait in lanes or that a queue is limited
as a whole. It goes around: it asks for the next lanes in which jobs wait, in the order of their names, claims from them what
their limits let start, and goes on behind the last one at the next look.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from uuid import UUID

from pgqueue.store import limits
from pgqueue.store.limits import NOTHING, Taken, Waiting
from pgqueue.store.plan import Steps, plan
from pgqueue.values.gcra import HORIZON
from pgqueue.values.lanes import Turns
from pgqueue.values.limit import Numbers
from pgqueue.values.limiting import Limiting
from pgqueue.values.serving import ALL, Serving

AT_ONCE = 500
"""How many lanes one look asks for."""
START = ("", "")


class Lanes:
    """The lanes that one worker serves.

    Attributes:
        limited: the queues that are limited as a whole, as the last poll said.
        seen: whether jobs waited in lanes at the last poll.
        weights: of shares, as the last poll said, by their keys.
        unfinished: the round goes on: there are lanes behind the last ones that were looked at.
    """

    def __init__(
        self,
        declared: Callable[[], Mapping[str, Numbers]],
        tasks: Callable[[], Mapping[str, Limiting | None]],
        served: Serving = ALL,
    ) -> None:
        """Start at the first lane.

        Args:
            declared: returns the limits of the tasks that this program knows, by name.
            tasks: returns which limits each of these tasks has; None: it has none.
            served: which queues to serve.
        """
        self.limited: Collection[str] = ()
        self.seen = False
        self.weights: Mapping[str, int] = {}
        self.unfinished = False
        self._declared = declared
        self._tasks = tasks
        self._served = served
        self._after = START
        self._turns = Turns()
        self._told: Mapping[str, Numbers] | None = None

    @property
    def are_served(self) -> bool:
        """Whether to look at lanes at all."""
        return self._told is None or self.seen or bool(self.limited) or bool(self._declared())

    def learn(self, *, limited: Collection[str], weights: Mapping[str, int], seen: bool) -> None:
        """Take note of what a poll said; as the attributes."""
        self.limited, self.weights, self.seen = limited, weights, seen

    @plan(transaction=True)
    def claim(
        self, worker: UUID, room: int, *, horizon: int = HORIZON, now: datetime | None = None
    ) -> Steps[Taken]:
        """Claim from the next lanes; after the last lane, from the first ones. Arguments as for :func:`pgqueue.store.limits.take`."""
        declared = self._declared()
        if declared != self._told:
            yield from limits.declare(declared)
            yield from limits.declare_tasks(self._tasks())
            self._told = dict(declared)
        waiting = yield from self._next()
        lanes = [one for one in waiting if self._served.weight(one.queue)]
        lanes += [Waiting(queue, "", inside=False) for queue in self._served.filtered(sorted(self.limited))]
        if not lanes:
            return NOTHING
        return (
            yield from limits.take(
                worker,
                lanes,
                room,
                declared=declared,
                limited=self.limited,
                weights=self.weights,
                turns=self._turns,
                horizon=horizon,
                now=now,
            )
        )

    def _next(self) -> Steps[list[Waiting]]:
        """The next lanes in which jobs wait. A round that ends goes on with the first lanes."""
        queues = None if self._served.is_open else self._served.names
        found = yield from limits.find(queues, self._after, AT_ONCE)
        self.unfinished = (
            found.last is not None
        )  # at the end of a round the worker rests, though the next one has begun
        if found.last is not None or self._after == START:
            self._after = found.last or START
            return [*found.lanes]
        again = yield from limits.find(queues, START, AT_ONCE - len(found.lanes))
        self._after = again.last or START
        return [*dict.fromkeys([*found.lanes, *again.lanes])]
