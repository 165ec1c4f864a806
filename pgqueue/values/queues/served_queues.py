"""Which queues a worker, a take or a drain serves, in which shares or order: what ``queues=`` and ``--queues`` say.

An entry is a name, or a pattern in which ``*`` stands for any characters; with ``!`` before it, those queues are not served; with
``:5`` behind it, each of them has the weight 5 (else 1). Where only excluding entries are given, all other queues are served.
Patterns and exclusions apply to queues that appear later, too. ``pgqueue.serves`` is the same rule in SQL.

How shares become numbers of claims is decided in :mod:`pgqueue.values.queues.shares`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from pgqueue.errors import InvalidOption, UnknownQueue
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.options import EXCLUDES, check_name, is_pattern, one_of, stands_for

Order = Literal["shares", "strict"]
ORDERS: tuple[Order, ...] = ("shares", "strict")
WEIGHTS: Final = range(1, 1_001)


class ServedQueues(msgspec.Struct, frozen=True):
    """Which queues are served, and how.

    Attributes:
        weights: the weight of each name or pattern, in the order given; empty: all queues, each with the weight 1.
        excluded: the names and patterns that are not served.
        strict: a queue is served only while those before it have no ready job.
    """

    weights: Mapping[str, int] = msgspec.field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    strict: bool = False

    @property
    def names(self) -> list[str]:
        """The names among the entries, in their order."""
        return [entry for entry in self.weights if not is_pattern(entry)]

    @property
    def is_open(self) -> bool:
        """Whether it may serve queues that no entry names."""
        return not self.weights or any(map(is_pattern, self.weights))

    @property
    def is_plain(self) -> bool:
        """Whether every queue has the same share."""
        return not self.strict and set(self.weights.values()) <= {1}

    @property
    def entries(self) -> list[str] | None:
        """The entries without their weights, as a worker's row shows them; None: all queues."""
        return [*self.weights, *(f"!{entry}" for entry in self.excluded)] or None

    def weight(self, queue: str) -> int:
        """The weight of a queue, by the first entry that stands for it, a name before any pattern; 0: it is not served."""
        if any(stands_for(entry, queue) for entry in self.excluded):
            return 0
        if not self.weights:
            return 1
        exact = self.weights.get(queue)
        if exact is not None:
            return exact
        return next((weight for entry, weight in self.weights.items() if stands_for(entry, queue)), 0)

    def place(self, queue: str) -> tuple[int, str]:
        """Where it comes in a strict order: as its entry; the queues of one pattern by their names."""
        entries = [*self.weights]
        if queue in self.weights:
            return entries.index(queue), queue
        return next((at for at, entry in enumerate(entries) if stands_for(entry, queue)), len(entries)), queue

    def filtered(self, queues: Iterable[str]) -> list[str]:
        """Those of these queues that are served, in their order."""
        return [queue for queue in queues if self.weight(queue)]


ALL = ServedQueues()


def parse_served(
    given: Iterable[str] | Mapping[str, int] | None,
    *,
    order: str = "shares",
    declared: Iterable[str] | None = None,
) -> ServedQueues:
    """What ``queues=`` says.

    Args:
        given: entries, or their weights by entry; None: all queues.
        order: ``shares`` or ``strict``.
        declared: the queues there are, where the app declares them: a pattern stands for some of these.

    Raises:
        InvalidOption: an entry, a weight or the order makes no sense.
        UnknownQueue: an entry stands for no declared queue.
    """
    strict = one_of("order", order, ORDERS, listed=repr) == "strict"
    weights, excluded = _read(given)
    if declared is not None:
        weights = _among(weights, excluded, sorted(declared))
        excluded = ()
    if strict and len(weights) + len(excluded) == 0:
        raise InvalidOption("order='strict': name the queues in their order, the first one first")
    if strict and (heavy := {entry: weight for entry, weight in weights.items() if weight != 1}):
        raise InvalidOption(
            f"order='strict' and weights ({', '.join(f'{entry}:{weight}' for entry, weight in heavy.items())}) contradict each "
            "other: a strict order has no shares; give one of the two"
        )
    return ServedQueues(weights, excluded, strict)


def is_served(entries: Iterable[str] | None, queue: str) -> bool:
    """Whether a worker serves a queue whose row has these entries: see :attr:`ServedQueues.entries`."""
    found = list(entries or ())
    excluded = tuple(entry[1:] for entry in found if entry.startswith(EXCLUDES))
    return bool(
        ServedQueues({entry: 1 for entry in found if not entry.startswith(EXCLUDES)}, excluded).weight(queue)
    )


def _read(given: Iterable[str] | Mapping[str, int] | None) -> tuple[dict[str, int], tuple[str, ...]]:
    if given is None:
        return {}, ()
    if isinstance(given, str):
        raise InvalidOption(f"queues={given!r}: give a list of names, [{given!r}]")
    pairs = [*given.items()] if isinstance(given, Mapping) else [_split(entry) for entry in given]
    weights: dict[str, int] = {}
    excluded = []
    for entry, weight in pairs:
        excludes = isinstance(entry, str) and entry.startswith(EXCLUDES)
        name = check_name("queue", entry[1:] if excludes else entry)
        if excludes:
            if weight is not None:
                raise InvalidOption(f"queues: {entry}:{weight}: a queue that is not served has no weight")
            excluded.append(name)
            continue
        chosen = _weight(name, 1 if weight is None else weight)
        if weights.setdefault(name, chosen) != chosen:
            raise InvalidOption(f"queues: {name} has two weights, {weights[name]} and {chosen}; give one")
    if both := [name for name in weights if name in excluded]:
        raise InvalidOption(f"queues: {both[0]} and !{both[0]} contradict each other; give one of them")
    if not weights and not excluded:
        raise InvalidOption("queues=[]: name at least one queue, or None for all")
    return weights, tuple(dict.fromkeys(excluded))


def _split(entry: str) -> tuple[str, int | None]:
    if not isinstance(entry, str) or ":" not in entry:
        return entry, None
    name, _, weight = entry.rpartition(":")
    try:
        return name, int(weight)
    except ValueError:
        raise InvalidOption(
            f"queues: {entry}: behind the colon stands a weight, a whole number from {WEIGHTS[0]} to {WEIGHTS[-1]}"
        ) from None


def _weight(name: str, weight: int) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int) or weight not in WEIGHTS:
        raise InvalidOption(
            f"queues: {name}:{weight!r}: a weight is a whole number from {WEIGHTS[0]} to {WEIGHTS[-1]}; "
            f"to serve no job of it, write !{name}"
        )
    return weight


def _among(weights: Mapping[str, int], excluded: tuple[str, ...], declared: list[str]) -> dict[str, int]:
    for entry in [*weights, *excluded]:
        if not any(stands_for(entry, name) for name in declared):
            raise UnknownQueue(
                f"queues: {entry!r} stands for none of the declared queues: {', '.join(declared)}{did_you_mean(entry, declared)}"
            )
    by_entry = ServedQueues(dict(weights), excluded)
    found = {
        name: by_entry.weight(name) for name in sorted(declared, key=by_entry.place) if by_entry.weight(name)
    }
    if not found:
        raise InvalidOption("queues: the excluded queues are all that are declared; nothing is left to serve")
    return found
