"""How many jobs each lane may start: never more than its limits leave free, by weights, and no place stays empty. Pure rules.

A lane is where jobs with the same keys wait (:mod:`pgqueue.values.limits.task_limits`). Places are divided among the *shares* of lanes
(:mod:`pgqueue.values.queues.passes`), and the lanes of one share take turns. A lane that cannot take one more is out: its jobs are few,
or a key has no free place. Of a key of which some jobs take several places, the lane whose first job has been due for the longest time
comes first, and what it needs is kept back for it: else jobs that take one place would take each that becomes free. By this rule all
workers choose the same lane, and no memory is needed.

:class:`LaneShares` remembers the passes from claim to claim, so that weights hold for claims that are smaller than their sum, too.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pgqueue.values.queues.passes import divide, learned

NO_PASSES: Mapping[str, float] = MappingProxyType({})
NOTHING: Mapping[int, int] = MappingProxyType({})
NOTHING_KEPT: Mapping[int, Mapping[str, int]] = MappingProxyType({})


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A lane in which jobs wait.

    Attributes:
        share: whose share it is, or its own name. Lanes of one share are given as much as one lane.
        keys: those of its keys that limit.
        most: how many of its jobs wait, at most.
        weight: of its share.
        places: how many places of each key a job takes; (): one of each.
        since: when its first job became due, in seconds since 1970; None: no place is kept back for it.
    """

    share: str
    keys: tuple[str, ...]
    most: int
    weight: int = 1
    places: tuple[int, ...] = ()
    since: float | None = None


def quotas(
    lanes: Sequence[Lane],
    free: Mapping[str, int],
    room: int,
    *,
    first: int = 0,
    passes: Mapping[str, float] = NO_PASSES,
) -> dict[int, int]:
    """How many jobs each lane may start, by its place among the lanes; lanes that may start none are left out.

    Args:
        lanes: where jobs wait.
        free: how many jobs may start of each key.
        room: how many may start in all.
        first: at which lane to begin, where lanes have the same pass: each begins in turn, so none is always last.
        passes: what shares were given before, by name: see :class:`LaneShares`.
    """
    return _give_lanes(lanes, free, room, first, _begin_passes(lanes, passes)).given


class GivenPlaces(NamedTuple):
    """What a claim gives.

    Attributes:
        given: how many jobs each lane may start, by its place.
        out: the shares that could take no more.
        kept: the lanes whose job finds too few places, by their place, and how many of each key are kept back for it.
    """

    given: dict[int, int]
    out: set[str]
    kept: Mapping[int, Mapping[str, int]] = NOTHING_KEPT


class LaneShares:
    """What the shares were given in former claims.

    It remembers the shares of the last claim only: one that had no job then begins with the others, and does not claim later
    what it did not use.

    Attributes:
        kept: what the last call of :meth:`quotas` has kept back; see :class:`GivenPlaces`.
    """

    def __init__(self) -> None:
        self._passes: dict[str, float] = {}
        self._out: set[str] = set()
        self._first = 0
        self.kept: Mapping[int, Mapping[str, int]] = NOTHING_KEPT

    def quotas(self, lanes: Sequence[Lane], free: Mapping[str, int], room: int) -> dict[int, int]:
        """As :func:`quotas`; another lane begins at each call."""
        self._passes = _begin_passes(lanes, self._passes)
        given, self._out, self.kept = _give_lanes(lanes, free, room, self._first, self._passes)
        self._first += 1
        return given

    def learn(self, lanes: Sequence[Lane], claimed: Mapping[int, int]) -> None:
        """Take note of what was claimed after :meth:`quotas`, by the place of the lane; some had fewer jobs than their quota."""
        if self._are_even(lanes, claimed):
            return
        given: dict[str, float] = {}
        for place, count in claimed.items():
            lane = lanes[place]
            given[lane.share] = given.get(lane.share, 0.0) + count / lane.weight
        self._passes = learned(self._passes, given, self._out)

    def _are_even(self, lanes: Sequence[Lane], claimed: Mapping[int, int]) -> bool:
        """Whether each share was given the same, as is mostly so where there are many: then no pass changes."""
        return (
            not self._out
            and len(claimed) == len(lanes) == len(self._passes)
            and len({*claimed.values()}) == 1
            and len({lane.weight for lane in lanes}) == 1
        )


def _begin_passes(lanes: Sequence[Lane], passes: Mapping[str, float]) -> dict[str, float]:
    get = passes.get
    # A new share begins with the lowest pass, which is 0.
    return {lane.share: get(lane.share, 0.0) for lane in lanes}


def _give_lanes(
    lanes: Sequence[Lane], free: Mapping[str, int], room: int, first: int, passes: Mapping[str, float]
) -> GivenPlaces:
    count = len(lanes)
    order = [*range(first % count, count), *range(first % count)] if count else []
    if any(lane.places for lane in lanes):
        left = dict(free)
        given, kept = give_oldest(lanes, left, room)
        return GivenPlaces(*given_by_pass(lanes, left, room - len(given), order, passes, before=given), kept)
    if len(passes) == count and len({lane.weight for lane in lanes}) < 2 and len({*passes.values()}) < 2:  # noqa: PLR2004
        return GivenPlaces(*given_in_turn(lanes, free, room, order))
    return GivenPlaces(*given_by_pass(lanes, free, room, order, passes))


def give_oldest(
    lanes: Sequence[Lane], left: dict[str, int], room: int
) -> tuple[dict[int, int], dict[int, dict[str, int]]]:
    """Of each key of which some jobs take several places, give the oldest lane its places, or keep them back for it.

    Args:
        lanes: where jobs wait.
        left: how many places are free, by key; lowered by what is given and kept back.
        room: how many may start in all.

    Returns:
        How many jobs lanes may start, by their place; and for those whose job finds too few places, how many of each key it takes.
    """
    several = {
        key
        for lane in lanes
        for key, places in zip(lane.keys, lane.places)  # noqa: B905 - no places: one of each
        if places > 1
    }
    oldest: dict[str, int] = {}
    for place, lane in enumerate(lanes):
        if lane.since is None or any(left[key] <= 0 for key in lane.keys if key not in several):
            continue
        for key in several.intersection(lane.keys):
            if key not in oldest or lane.since < (lanes[oldest[key]].since or 0.0):
                oldest[key] = place
    given: dict[int, int] = {}
    kept: dict[int, dict[str, int]] = {}
    for place in sorted({*oldest.values()}, key=lambda one: lanes[one].since or 0.0):
        lane = lanes[place]
        takes = dict(zip(lane.keys, lane.places or repeat(1)))  # noqa: B905 - repeat() has no end
        fits = all(left[key] >= places for key, places in takes.items())
        if fits and len(given) < room:
            given[place] = 1
        elif not fits:
            kept[place] = {key: places for key, places in takes.items() if key in several}
        for key, places in takes.items():
            if fits or key in several:
                left[key] = max(0, left[key] - places)
    return given, kept


def given_in_turn(
    lanes: Sequence[Lane], free: Mapping[str, int], room: int, order: Sequence[int]
) -> tuple[dict[int, int], set[str]]:
    """As :func:`given_by_pass`, where each lane has a share of its own, all have the same weight and pass, and jobs take a place each."""
    left = dict(free)
    given: dict[int, int] = {}
    out: set[str] = set()
    while room > 0 and order:
        served = []
        for place in order:  # a call for each lane would cost as much as all else here
            if room <= 0:
                break
            lane = lanes[place]
            before = given.get(place, 0)
            if before < lane.most:
                for key in lane.keys:
                    if left[key] <= 0:
                        break
                else:
                    given[place] = before + 1
                    for key in lane.keys:
                        left[key] -= 1
                    room -= 1
                    served.append(place)
                    continue
            out.add(lane.share)
        order = served
    return given, out


def given_by_pass(
    lanes: Sequence[Lane],
    free: Mapping[str, int],
    room: int,
    order: Sequence[int],
    passes: Mapping[str, float],
    *,
    before: Mapping[int, int] = NOTHING,
) -> tuple[dict[int, int], set[str]]:
    """What each lane is given by the passes of the shares, beside what it was given before; and the shares that could take no more."""
    left = dict(free)
    of: dict[str, deque[int]] = {}
    for place in order:
        of.setdefault(lanes[place].share, deque()).append(place)
    given = {**before}

    def give(share: str) -> bool:
        chosen = _next(of[share], lanes, left, given)
        if chosen is None:
            return False
        given[chosen] = given.get(chosen, 0) + 1
        lane = lanes[chosen]
        for key, places in zip(lane.keys, lane.places or repeat(1)):  # noqa: B905 - repeat() has no end
            left[key] -= places
        return True

    steps = {share: 1 / lanes[places[0]].weight for share, places in of.items()}
    out = divide({share: passes[share] for share in of}, steps, room, give)
    return given, out


def _can_take(lane: Lane, given: int, left: Mapping[str, int]) -> bool:
    if given >= lane.most:
        return False
    if lane.places:
        return all(left[key] >= places for key, places in zip(lane.keys, lane.places, strict=True))
    for key in lane.keys:  # noqa: SIM110 - a generator would cost twice as much
        if left[key] <= 0:
            return False
    return True


def _next(
    places: deque[int], lanes: Sequence[Lane], left: Mapping[str, int], given: Mapping[int, int]
) -> int | None:
    """Return the next lane of a share, and drop lanes that can take no more; None: no lane of it can."""
    while places:
        place = places.popleft()
        if _can_take(lanes[place], given.get(place, 0), left):
            places.append(place)
            return place
    return None
