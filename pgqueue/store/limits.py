"""Plans that claim limited jobs from the lanes in which they wait.

A job of a limited task has a *lane*: the keys of its limits (:mod:`pgqueue.values.limit`). It is never ready: where others are
made ready, a trigger leaves it blocked and *in its lane*. Ordinary claims do not see it, and its place in the lane is that
which it would have among ready jobs: priority, time, id.

A claim from lanes is one transaction:

1. It locks the limits of the lanes that it looks at. Those that another worker has locked are passed over, not waited for.
2. It counts the running jobs of each lane. They are counted from the jobs themselves: however a job stops running, its place
   is free, and no crash can lose one. It is a statement after the lock, so that it sees what the last holder claimed.
3. Pure rules say how many jobs each lane may start (:mod:`pgqueue.values.lanes`), and when (:mod:`pgqueue.values.gcra`).
4. It claims those, and stores the new states of rates.

A limit on a queue as a whole holds in the same way: :mod:`pgqueue.store.claim` passes such a queue over, and its ready jobs are
claimed here.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import msgspec

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.claim import next_fence
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values import gcra
from pgqueue.values.gcra import HORIZON
from pgqueue.values.job import Claim
from pgqueue.values.lanes import Lane, Turns
from pgqueue.values.limit import Key, Numbers, key_of_queue, keys_of, share_of
from pgqueue.values.limit_status import keys_under
from pgqueue.values.limiting import Limiting

NO_WEIGHTS: Mapping[str, int] = MappingProxyType({})
AGAIN = 0.005
"""Seconds after which to look again for limits that another worker had locked."""


class Waiting(NamedTuple):
    """A lane in which jobs wait.

    Attributes:
        queue: of these jobs.
        lane: its name; "" for the ready jobs of a limited queue.
        cost: what the start of its first job costs.
        inside: whether its jobs are in the lane; False: they are the ready jobs of a limited queue.
    """

    queue: str
    lane: str
    cost: int = 1
    inside: bool = True


Lanes = Mapping[Waiting, tuple[Key, ...]]


class Found(NamedTuple):
    """Lanes in which jobs wait.

    Attributes:
        lanes: those that may be claimed from.
        last: the position of the last one that was looked at; None: these were the last.
    """

    lanes: Sequence[Waiting]
    last: tuple[str, str] | None


class Taken(msgspec.Struct, frozen=True):
    """What was claimed from lanes.

    Attributes:
        claims: in the order in which they are to start.
        waits: in how many seconds some of them start, by job.
        again_in: in how many seconds more may be claimed; None: not before jobs end or are added.
    """

    claims: Sequence[Claim]
    waits: Mapping[int, float]
    again_in: float | None


NOTHING = Taken((), {}, None)


@plan
def find(queues: Sequence[str] | None, after: tuple[str, str], limit: int) -> Steps[Found]:
    """The next lanes in which jobs wait, in the order of queues and names.

    Args:
        queues: of which queues; None: all.
        after: the queue and the lane after which to look.
        limit: at most how many.
    """
    params = {
        "queues": None if queues is None else texts(queues),
        "after_queue": after[0],
        "after_lane": after[1],
        "limit": limit,
    }
    rows = yield Statement("limits/find", params)
    lanes = [Waiting(queue, lane, cost or 1) for queue, lane, cost, is_open in rows if is_open]
    return Found(lanes, (rows[-1][0], rows[-1][1]) if len(rows) == limit else None)


@plan
def declare(limits: Mapping[str, Numbers]) -> Steps[None]:
    """Store what the code says of limits; what an operator has set stays."""
    names = sorted(limits)
    params = {
        "names": texts(names),
        "mosts": numbers([limits[name].most for name in names]),
        "everies": numbers([limits[name].every for name in names]),
        "bursts": numbers([limits[name].burst for name in names]),
        "declared": texts(limits[name].declared for name in names),
    }
    yield Statement("limits/declare", params, returns=False)


@plan
def declare_tasks(tasks: Mapping[str, Limiting | None]) -> Steps[None]:
    """Store which limits and shares these tasks have, for jobs that SQL enqueues; None: a task has neither."""
    found = {name: one for name, one in sorted(tasks.items()) if one is not None}
    params = {
        "known": texts(tasks),
        "names": texts(found),
        "keys": texts(msgspec.json.encode(one.keys).decode() for one in found.values()),
        "costs": texts(msgspec.json.encode(one.cost).decode() for one in found.values()),
    }
    yield Statement("limits/declare_tasks", params, returns=False)


@plan(transaction=True)
def take(
    worker: UUID,
    waiting: Sequence[Waiting],
    room: int,
    *,
    declared: Mapping[str, Numbers],
    limited: Collection[str] = (),
    weights: Mapping[str, int] = NO_WEIGHTS,
    turns: Turns | None = None,
    horizon: int = HORIZON,
    now: datetime | None = None,
) -> Steps[Taken]:
    """Claim from lanes what their limits let start.

    Args:
        worker: who claims; must be registered.
        waiting: where from.
        room: at most how many.
        declared: limits that this program knows, by name, for those that the database does not know yet.
        limited: queues that are limited as a whole.
        weights: of shares, by their keys; 1 where none is given.
        turns: what the shares were given in former claims of this worker.
        horizon: how many microseconds before their start jobs of rates are claimed.
        now: the instant; the database's own by default.
    """
    lanes = {one: keys_of(one.lane) + _keys_of_queue(one.queue, limited) for one in waiting}
    said = yield from _locked({key.limit for keys in lanes.values() for key in keys if key.limit}, declared)
    again_in = AGAIN if None in said.values() else None
    lanes = {
        one: keys for one, keys in lanes.items() if all(said.get(key.limit) for key in keys if key.limit)
    }
    if not lanes:
        return Taken((), {}, again_in)
    state = yield from _state(lanes, {name: one for name, one in said.items() if name and one}, horizon, now)
    claims, starts = yield from _fill(
        worker, lanes, room, state=state, weights=weights, turns=turns or Turns(), now=now
    )
    if any(one.cost > 1 and one in lanes for one in waiting) and claims:
        again_in = AGAIN  # what the next jobs of these lanes cost is known then
    waits = yield from _appoint(state, starts, now)
    return Taken(claims, waits, min(filter(None, (again_in, state.next_in(lanes))), default=None))


def _fill(
    worker: UUID,
    lanes: Lanes,
    room: int,
    *,
    state: "_State",
    weights: Mapping[str, int],
    turns: Turns,
    now: datetime | None,
) -> Steps[tuple[list[Claim], dict[int, int]]]:
    """Claim until there is no room, or no lane has jobs that may start; and the instants at which some of them start."""
    claims: list[Claim] = []
    starts: dict[int, int] = {}
    hungry = list(lanes)
    of = {(one.queue, one.lane): keys for one, keys in lanes.items()}
    while hungry and len(claims) < room:
        left = room - len(claims)
        asked_of = [_lane(one, lanes[one], left, weights) for one in hungry]
        shares = turns.quotas(asked_of, state.free(lanes), left)
        asked = {hungry[place]: share for place, share in shares.items()}
        if not asked:
            break
        found = yield from _claim(worker, asked, now)
        early: dict[tuple[str, str | None], list[int]] = {}
        for claim, cost in found:
            lane = (claim.queue, claim.lane)
            at = None if lane in early else state.start(of[claim.queue, claim.lane or ""], cost)
            if at is not None:
                starts[claim.id] = at
                claims.append(claim)
            else:  # it costs more than the first job of its lane; and no job of a lane goes past another
                early.setdefault(lane, []).append(claim.id)
        if early:
            yield Statement("limits/put_back", {"ids": numbers([*chain(*early.values())])}, returns=False)
        served = Counter((claim.queue, claim.lane) for claim, _ in found if claim.id in starts)
        turns.learn(asked_of, {place: served[hungry[place][:2]] for place in shares})
        hungry = [one for one, share in asked.items() if served[one[:2]] >= share]
    return claims, {job: at for job, at in starts.items() if at > state.now}


def _claim(
    worker: UUID, quotas: Mapping[Waiting, int], now: datetime | None
) -> Steps[list[tuple[Claim, int]]]:
    """Claim up to its quota from each lane; and what the start of each job costs."""
    params = {
        "worker": worker,
        "queues": texts(one.queue for one in quotas),
        "lanes": texts(one.lane for one in quotas),
        "insides": [one.inside for one in quotas],
        "quotas": numbers([*quotas.values()]),
        "fence": next_fence(),
        "now": now,
    }
    asked_at = time.monotonic()
    rows = yield Statement("limits/claim", params)
    return [
        (Claim(row[0], worker, *row[1:-2], asked_at, row[-2]), row[-1] or 1)  # type: ignore[call-arg]  # mypy has row fill all
        for row in rows
    ]


def _lane(one: Waiting, keys: Sequence[Key], most: int, weights: Mapping[str, int]) -> Lane:
    share = share_of(one.lane)
    limits = tuple(key.text for key in keys if key.limit)
    return Lane(f"{one.queue} {one.lane}", limits, most, weights.get(share, 1), share)


@dataclass(slots=True)
class _State:
    """What a claim from lanes counts and decides on.

    Attributes:
        now: the database's time, in microseconds since 1970.
        horizon: how many microseconds before their start jobs are claimed.
        said: the limits, by name.
        running: how many jobs run, by key.
        tats: the states of rates, by key.
        advanced: the keys of rates under which a job was claimed.
    """

    now: int
    horizon: int
    said: Mapping[str, Numbers]
    running: Counter[str]
    tats: dict[str, int]
    advanced: set[str] = field(default_factory=set)

    def free(self, lanes: Lanes) -> dict[str, int]:
        """How many jobs of each key may start."""
        costs: dict[tuple[str, str], int] = {}
        for one, keys in lanes.items():
            for text, name in ((key.text, key.limit) for key in keys):
                if name:
                    costs[text, name] = max(costs.get((text, name), 1), one.cost)
        return {text: self._free(text, self.said[name], cost) for (text, name), cost in costs.items()}

    def start(self, keys: Sequence[Key], cost: int) -> int | None:
        """When the next job of these keys starts, in microseconds since 1970; None: not soon. If so, it is counted from now on."""
        at = self._start(keys, cost)
        if at > self.now + self.horizon:
            return None
        for text, one in self._limits(keys):
            if one.every is None:
                self.running[text] += 1
            else:
                self.tats[text] = gcra.advanced(self._tat(text, one), at, one.rate, cost)
                self.advanced.add(text)
        return at

    def next_in(self, lanes: Lanes) -> float | None:
        """In how many seconds a job of these lanes may be claimed that waits for a rate; None: there is none."""
        if all(one.every is None for one in self.said.values()):
            return None
        found = (self._start(keys, one.cost) - self.horizon - self.now for one, keys in lanes.items())
        return min((pause / 1_000_000 for pause in found if pause > 0), default=None)

    def _free(self, text: str, said: Numbers, cost: int) -> int:
        if said.every is None:
            return max(0, (said.most or 0) - self.running[text])
        return gcra.count(self._tat(text, said), self.now, said.rate, cost=cost, horizon=self.horizon)

    def _tat(self, text: str, said: Numbers) -> int:
        return gcra.settled(self.tats.get(text, 0), self.now, said.rate)

    def _start(self, keys: Sequence[Key], cost: int) -> int:
        of = ((self._tat(text, one), one.rate) for text, one in self._limits(keys) if one.every is not None)
        return max((gcra.earliest(tat, self.now, rate, cost) for tat, rate in of), default=self.now)

    def _limits(self, keys: Sequence[Key]) -> list[tuple[str, Numbers]]:
        return [(key.text, self.said[key.limit]) for key in keys if key.limit]


def _state(lanes: Lanes, said: Mapping[str, Numbers], horizon: int, now: datetime | None) -> Steps[_State]:
    """What runs now, and the states of rates; asked after the limits are locked."""
    limits = {(key.text, said[key.limit]) for keys in lanes.values() for key in keys if key.limit}
    running: Counter[str] = Counter()
    if any(one.most is not None for _, one in limits):
        for queue, lane, count in (yield Statement("limits/running", {})):
            running.update({key.text: count for key in keys_under(queue, lane)})
    rates = sorted(text for text, one in limits if one.every is not None)
    if not rates:
        return _State(0, horizon, said, running, {})
    rows = yield Statement("limits/arrivals", {"keys": texts(rates), "now": now})
    return _State(rows[0][0], horizon, said, running, {key: tat for _, key, tat in rows if key is not None})


def _keys_of_queue(queue: str, limited: Collection[str]) -> tuple[Key, ...]:
    return (key_of_queue(queue),) if queue in limited else ()


def _locked(
    names: Collection[str], declared: Mapping[str, Numbers]
) -> Steps[dict[str | None, Numbers | None]]:
    """Lock limits; what they say, None where another worker has locked one. A limit that is not known is missing."""
    if not names:
        return {}
    said = yield from _lock(names)
    if new := {name: declared[name] for name in names if name not in said and name in declared}:
        yield from declare(new)
        said |= yield from _lock(new)
    return said


def _lock(names: Collection[str]) -> Steps[dict[str | None, Numbers | None]]:
    rows = yield Statement("limits/lock", {"names": texts(sorted(names))})
    return {
        name: Numbers(most=most, every=every, burst=burst) if locked else None
        for name, most, every, burst, locked in rows
    }


def _appoint(state: _State, starts: Mapping[int, int], now: datetime | None) -> Steps[dict[int, float]]:
    """Store the new states of rates; in how many seconds jobs start."""
    if not state.advanced:
        return {}
    tats = {key: state.tats[key] for key in sorted(state.advanced)}
    params = {"keys": texts(tats), "tats": numbers([*tats.values()]), "now": now}
    ((at,),) = yield Statement("limits/advance", params)
    return {job: max(0, start - at) / 1_000_000 for job, start in starts.items()}
