"""What a claim from lanes counts, and which of the lanes' jobs may start by it, and when. Pure rules.

How much a rate lets start is decided in :mod:`pgqueue.values.limits.gcra`; which lane is next, in :mod:`pgqueue.values.limits.lanes`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

import msgspec
from msgspec.structs import replace

from pgqueue.values.limits import gcra
from pgqueue.values.limits.lanes import Lane
from pgqueue.values.limits.limit import LimitKey, LimitNumbers, key_of_queue, lane_keys

COUNT_ALL_AFTER = 5.0
"""Seconds after which all running jobs are counted again: a claim may have been made just before a limit was stored."""

KEPT_FOR = 5.0
"""Seconds for which places are kept back for a lane that was not seen again."""


class WaitingLane(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A lane in which jobs wait. It is equal to itself at another time, when another job is the first.

    Attributes:
        queue: of these jobs.
        lane: its name; "" for the ready jobs of a limited queue.
        cost: what the start of its first job costs.
        inside: whether its jobs are in the lane; False: they are the ready jobs of a limited queue.
        limited: whether its queue is limited as a whole.
        since: when its first job became due, in seconds since 1970; None: not asked.
        task: the task of its first job.
    """

    queue: str
    lane: str
    cost: int = 1
    inside: bool = True
    limited: bool = False
    since: float | None = None
    task: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WaitingLane) and (self.queue, self.lane, self.inside) == (
            other.queue,
            other.lane,
            other.inside,
        )

    def __hash__(self) -> int:
        return hash((self.queue, self.lane, self.inside))


class KeptPlaces:
    """Places that a worker keeps back for jobs that wait for several, while it looks at other lanes.

    A worker that has many lanes looks at some at a time, and one with weights at those of one queue.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` tells seconds of any clock that is not set back."""
        self._clock = clock
        self._of: dict[WaitingLane, tuple[float, Mapping[str, int]]] = {}

    def learn(self, seen: Iterable[WaitingLane], kept: Mapping[WaitingLane, Mapping[str, int]]) -> None:
        """Take note of a look.

        Args:
            seen: the lanes that it saw.
            kept: those for whose first job places are kept back, and how many of which keys.
        """
        if self._of:
            for one in seen:
                self._of.pop(one, None)
        if kept:
            until = self._clock() + KEPT_FOR
            self._of |= {one: (until, places) for one, places in kept.items()}

    def lower(self, free: dict[str, int], seen: Collection[WaitingLane]) -> None:
        """Take what is kept back for lanes that a look does not see from what is free."""
        if not self._of:
            return
        now, looked_at = self._clock(), set(seen)
        self._of = {one: kept for one, kept in self._of.items() if kept[0] > now}
        for one, (_, kept) in self._of.items():
            if one not in looked_at:
                for key in kept.keys() & free.keys():
                    free[key] = max(0, free[key] - kept[key])


class CountedClaims:
    """From which claim on a worker counts the running jobs of limits.

    Each claim of limited jobs has a number, taken from a sequence while the rows of its limits are locked. So a worker that has
    counted under these locks knows the lowest number of a job that runs under these limits: all later claims have higher ones.
    A count from there on does not read the index entries of jobs that have ended, which stay under a snapshot held open elsewhere.

    A server that lost the end of its log gives out lower numbers again. It has cut all connections then, so what is known holds for
    one process of the server. Behind a pooler there are several.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[int, str], int] = {}
        self._until = 0.0

    def since(self, limits: Collection[str], server: int, now: float) -> int:
        """The number from which on to count the jobs of these limits; 0: all are counted.

        Args:
            limits: their names. Their rows are locked.
            server: the process of the server that has locked them.
            now: in seconds of the program's monotonic clock.
        """
        if now >= self._until:
            self._first, self._until = {}, now + COUNT_ALL_AFTER
        return min((self._first.get((server, one), 0) for one in limits), default=0)

    def learn(self, limits: Collection[str], server: int, first: int) -> None:
        """Take note of the lowest number of a job that runs under these limits. Arguments as for :meth:`since`."""
        self._first |= dict.fromkeys([(server, one) for one in limits], first)


class LaneLine(msgspec.Struct, frozen=True, gc=False):
    """A lane as a claim looks at it.

    Attributes:
        waiting: the lane.
        keys: those that limit its jobs.
        lane: the same for the rules of turns.
    """

    waiting: WaitingLane
    keys: tuple[LimitKey, ...]
    lane: Lane


def line_of(one: WaitingLane, room: int, *, weights: Mapping[str, int]) -> LaneLine:
    """The line of a lane.

    Args:
        one: the lane.
        room: at most how many of its jobs are to be claimed.
        weights: of shares, by their keys; 1 where none is given.
    """
    said = lane_keys(one.lane)
    keys, texts, places = said.limiting, said.texts, said.places
    if one.limited:
        key = key_of_queue(one.queue)
        keys, texts = (*keys, key), (*texts, key.text)
        places = (*places, 1) if places else ()
    share = said.share or f"{one.queue} {one.lane}"
    return LaneLine(one, keys, Lane(share, texts, room, weights.get(said.share, 1), places, one.since))


def later(line: LaneLine) -> LaneLine:
    """The line of a lane of which a job was claimed: how old its first one is now is not known."""
    return line if line.lane.since is None else replace(line, lane=replace(line.lane, since=None))


def clamped(line: LaneLine, said: Mapping[str, LimitNumbers]) -> LaneLine:
    """The line of a lane whose jobs take no more places than there are: an operator may have lowered the limit since.

    Args:
        line: the lane.
        said: its limits, by name.
    """
    if not line.lane.places:
        return line
    most = (said[key.limit].most for key in line.keys)
    places = [
        1 if limit is None else max(1, min(places, limit))
        for places, limit in zip(line.lane.places, most, strict=True)
    ]
    return replace(line, lane=replace(line.lane, places=tuple(places)))


@dataclass(slots=True)
class LimitState:
    """What a claim from lanes counts and decides on.

    Attributes:
        said: the limits, by name.
        horizon: how many microseconds before their start jobs are claimed.
        now: the database's time, in microseconds since 1970.
        running: how many places are taken, by key.
        tats: the states of rates, by key.
        advanced: the keys of rates whose state is to be stored: a job was claimed under them, or what was stored counts no more.
        has_rates: whether one of the limits is a rate.
        counted: the names of the limits whose running jobs are counted.
        first_claim: the lowest number of a claim of a running job; None: none is known.
    """

    said: Mapping[str, LimitNumbers]
    horizon: int
    now: int = 0
    running: dict[str, int] = field(default_factory=dict)
    tats: dict[str, int] = field(default_factory=dict)
    advanced: set[str] = field(default_factory=set)
    first_claim: int | None = None
    has_rates: bool = field(init=False)
    counted: Collection[str] = field(init=False)

    def __post_init__(self) -> None:
        # Looked up once: most limits are no rates, and a start then has no instant to look for.
        self.has_rates = any(one.every is not None for one in self.said.values())
        self.counted = [name for name, one in self.said.items() if one.most is not None]

    def learn(self, key: LimitKey, tat: int) -> None:
        """Keep the stored state of a rate. One that is too far ahead is lowered, and the claim stores the lower value."""
        kept = gcra.settle_tat(tat, self.now, self.said[key.limit].rate)
        self.tats[key.text] = kept
        if kept != tat:
            self.advanced.add(key.text)

    def count(self, key: str, running: int) -> None:
        """Take note of places that are taken under a key."""
        self.running[key] = self.running.get(key, 0) + running

    def note_claim(self, number: int | None) -> None:
        """Take note of a number of claims of jobs that run."""
        if number is not None:
            self.first_claim = min(number, self.first_claim or number)

    def free(self, lines: Iterable[LaneLine]) -> dict[str, int]:
        """How many jobs of each key may start; of the costs of a key's first jobs, the highest counts."""
        free: dict[str, int] = {}
        for line in lines:
            for key in line.keys:
                said = self.said[key.limit]
                if said.every is not None:
                    count = self._free_of_rate(key.text, said, line.waiting.cost)
                    free[key.text] = min(free.get(key.text, count), count)
                elif (text := key.text) not in free:
                    free[text] = max(0, (said.most or 0) - self.running.get(text, 0))
        return free

    def take(self, line: LaneLine, jobs: int) -> None:
        """Take note of jobs that start at once, where no limit is a rate."""
        running = self.running
        for text, places in zip(line.lane.keys, line.lane.places or repeat(1)):  # noqa: B905 - repeat() has no end
            running[text] = running.get(text, 0) + jobs * places

    def start(self, line: LaneLine, cost: int) -> int | None:
        """When the next job of this lane starts, in microseconds since 1970; None: not soon. If so, it is counted from now on."""
        at = self._start(line, cost)
        if at > self.now + self.horizon:
            return None
        for key in line.keys:
            one = self.said[key.limit]
            if one.every is None:
                self.count(key.text, key.places)
            else:
                self.tats[key.text] = gcra.advance_tat(self.tats.get(key.text, 0), at, one.rate, cost)
                self.advanced.add(key.text)
        return at

    def tolerance(self, line: LaneLine) -> int | None:
        """How many microseconds late a job of this lane may start; None: none of its limits is an exact interval."""
        rates = [self.said[key.limit] for key in line.keys]
        exact = [one.every for one in rates if one.every is not None and one.burst == 1]
        return gcra.tolerance(min(exact)) if exact else None

    def next_in(self, lines: Iterable[LaneLine]) -> float | None:
        """In how many seconds a job of these lanes may be claimed that waits for a rate; None: there is none."""
        if not self.has_rates:
            return None
        found = (self._start(line, line.waiting.cost) - self.horizon - self.now for line in lines)
        return min((pause / 1_000_000 for pause in found if pause > 0), default=None)

    def _free_of_rate(self, text: str, said: LimitNumbers, cost: int) -> int:
        return gcra.count(self.tats.get(text, 0), self.now, said.rate, cost=cost, horizon=self.horizon)

    def _start(self, line: LaneLine, cost: int) -> int:
        at = self.now
        for key in line.keys:
            one = self.said[key.limit]
            if one.every is not None:
                at = max(at, gcra.earliest(self.tats.get(key.text, 0), self.now, one.rate, cost))
        return at
