"""How many jobs to claim from each queue: so that over time each has its share, or in a strict order. Pure rules, with a memory.

Shares are divided by passes: :mod:`pgqueue.values.queues.passes`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from pgqueue.values.queues.passes import divide, learned
from pgqueue.values.queues.served_queues import ServedQueues

T = TypeVar("T")
MOST_ASKED: Final = 100
"""One statement asks this many queues that are not due, or that come late in a strict order."""


class Shares:
    """Claims of queues with weights."""

    def __init__(self, weight: Callable[[str], int], first: Callable[[int], float] = lambda _: 0.0) -> None:
        """``weight`` returns that of a queue; ``first`` returns the pass with which a queue of this weight begins."""
        self._weight = weight
        self._first = first
        self._passes: dict[str, float] = {}
        self._empty: set[str] = set()

    def quotas(self, queues: Sequence[str], room: int) -> dict[str, int]:
        """How many to claim from each queue, in the order in which to ask.

        Args:
            queues: those that may have jobs.
            room: how many in all.

        Returns:
            The fair numbers first; they add up to ``room``. Behind them one of each other queue, for the case that those
            before it have fewer.
        """
        weights = {queue: self._weight(queue) for queue in queues}
        # Of queues with the same pass, one that had no jobs is first: where there is room for one job, it would not be asked again.
        passes = {
            queue: self._passes.setdefault(queue, self._first(weights[queue]))
            for queue in sorted(weights, key=lambda queue: queue not in self._empty)
        }
        fair = dict.fromkeys(queues, 0)

        def give(queue: str) -> bool:
            fair[queue] += 1
            return True

        divide(passes, {queue: 1 / weight for queue, weight in weights.items()}, room, give)
        order = sorted(passes, key=passes.__getitem__)
        asked = {queue: fair[queue] for queue in order if fair[queue]}
        return asked | {queue: 1 for queue in order[:MOST_ASKED] if not fair[queue]}

    def learn(self, quotas: Mapping[str, int], served: Mapping[str, int], room: int) -> None:
        """Take note of what was claimed.

        Args:
            quotas: what was asked for, as :meth:`quotas` returned it.
            served: what was claimed of each queue.
            room: as given to :meth:`quotas`.
        """
        short = self._short(quotas, served, room)
        self._empty = (self._empty | short) - (served.keys() - short)
        given = {queue: count / self._weight(queue) for queue, count in served.items()}
        self._passes = learned(self._passes, given, self._empty)

    @staticmethod
    def _short(quotas: Mapping[str, int], served: Mapping[str, int], room: int) -> set[str]:
        """The queues that had fewer jobs than their fair number."""
        short, left = set(), room
        for queue, quota in quotas.items():
            if left <= 0:
                break
            left -= quota
            if served.get(queue, 0) < quota:
                short.add(queue)
        return short

    def turn(self, queue: str, number: int) -> float:
        """When the first, second … of the claims of a queue starts, among those of one look: the lowest is first."""
        return number / self._weight(queue)

    def forget(self, known: Sequence[str]) -> None:
        """Keep only what is known of these queues."""
        if len(self._passes) > len(known):
            self._passes = {queue: self._passes[queue] for queue in known if queue in self._passes}
            self._empty &= self._passes.keys()


class StrictOrder:
    """A queue gives only what those before it leave."""

    def __init__(self, place: Callable[[str], tuple[int, str]]) -> None:
        self._place = place

    def quotas(self, queues: Sequence[str], room: int) -> dict[str, int]:
        """All that there is room for, from each, in order."""
        return dict.fromkeys(self.sorted(queues)[:MOST_ASKED], room)

    def sorted(self, queues: Iterable[str]) -> list[str]:
        """The queues in their order."""
        return sorted(queues, key=self._place)

    def learn(self, quotas: Mapping[str, int], served: Mapping[str, int], room: int) -> None:
        """Nothing: the order stays."""

    def turn(self, queue: str, number: int) -> tuple[int, str]:  # noqa: ARG002 - as of Shares
        """As :meth:`Shares.turn`: in the order of the queues."""
        return self._place(queue)

    def forget(self, known: Sequence[str]) -> None:
        """Nothing is remembered."""


Split: TypeAlias = Shares | StrictOrder


def in_turn(split: Split, claims: Iterable[T], queue_of: Callable[[T], str]) -> list[T]:
    """The claims of one look in the order in which they are to start; those of one queue keep their order."""
    numbers: Counter[str] = Counter()
    turns: list[tuple[Any, int, T]] = []
    for one in claims:
        queue = queue_of(one)
        numbers[queue] += 1
        turns.append((split.turn(queue, numbers[queue]), len(turns), one))
    turns.sort(key=lambda turn: turn[:2])
    return [one for _, _, one in turns]


def split_of(served: ServedQueues, first: Callable[[int], float] = lambda _: 0.0) -> Split | None:
    """How a worker divides its room among its queues; None: equally.

    Args:
        served: what it serves.
        first: as for :class:`Shares`.
    """
    if served.is_plain:
        return None
    return StrictOrder(served.place) if served.strict else Shares(served.weight, first)
