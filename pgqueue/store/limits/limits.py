"""Plans that claim limited jobs from the lanes in which they wait.

A job of a limited task has a *lane*: the keys of its limits (:mod:`pgqueue.values.limits.limit`). It is never ready: where others are
made ready, a trigger leaves it blocked and *in its lane*. Ordinary claims do not see it, and its place in the lane is that
which it would have among ready jobs: priority, time, id.

A claim from lanes is one transaction:

1. It locks the limits of the lanes that it looks at. Those that another worker has locked are passed over, not waited for.
2. It counts the running jobs of each lane. They are counted from the jobs themselves: however a job stops running, its place
   is free, and no crash can lose one. It is a statement after the lock, so that it sees what the last holder claimed. It starts
   at the first claim that may still run (:class:`pgqueue.values.limits.state.CountedClaims`).
3. Pure rules say how many jobs each lane may start (:mod:`pgqueue.values.limits.lanes`), and when (:mod:`pgqueue.values.limits.gcra`).
4. It claims those, and stores the new states of rates.

A limit on a queue as a whole holds in the same way: :mod:`pgqueue.store.jobs.claim` passes such a queue over, and its ready jobs are
claimed here.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from pgqueue.store.arrays import columns, numbers, texts, truths
from pgqueue.store.jobs.claim import next_fence
from pgqueue.store.jobs.marks import Marks
from pgqueue.store.limits.lanes import declare
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import HEAD, Claim
from pgqueue.values.limits.gcra import HORIZON
from pgqueue.values.limits.lanes import LaneShares
from pgqueue.values.limits.limit import QUEUE, LimitNumbers, lane_keys, share_of
from pgqueue.values.limits.state import (
    CountedClaims,
    KeptPlaces,
    LaneLine,
    LimitState,
    WaitingLane,
    clamped,
    later,
    line_of,
)

LANE: Callable[[Claim], tuple[str, str]] = attrgetter("queue", "lane")
NO_WEIGHTS: Mapping[str, int] = MappingProxyType({})
AGAIN = 0.005
"""Seconds after which to look again for limits that another worker had locked."""


class LaneClaims(msgspec.Struct, frozen=True):
    """What was claimed from lanes.

    Attributes:
        claims: in the order in which they are to start.
        waits: in how many seconds some of them start, by job, from ``since`` on.
        since: the database's instant to which the waits belong, in seconds of this program's monotonic clock.
        again_in: in how many seconds more may be claimed; None: not before jobs end or are added.
        unknown: those that were put back, since the worker does not run their tasks.
        barren: lanes that had room for jobs, and no job that this worker may claim.
    """

    claims: Sequence[Claim]
    waits: Mapping[int, float]
    since: float
    again_in: float | None
    unknown: Sequence[Claim] = ()
    barren: Sequence[WaitingLane] = ()


NOTHING = LaneClaims((), {}, 0.0, None)


def never(_task: str) -> bool:
    """No task is unknown: a take gives jobs of any task."""
    return False


@plan(transaction=True)
def take(
    worker: UUID,
    waiting: Sequence[WaitingLane],
    room: int,
    *,
    declared: Mapping[str, LimitNumbers],
    weighted: bool = False,
    turns: LaneShares | None = None,
    marks: Marks[tuple[str, str]] | None = None,
    counted: CountedClaims | None = None,
    passed: Collection[int] = (),
    left_out: Sequence[str] = (),
    is_unknown: Callable[[str], bool] = never,
    kept: KeptPlaces | None = None,
    horizon: int = HORIZON,
    now: datetime | None = None,
) -> Steps[LaneClaims]:
    """Claim from lanes what their limits let start.

    Args:
        worker: who claims; must be registered.
        waiting: where from.
        room: at most how many.
        declared: limits that this program knows, by name, for those that the database does not know yet.
        weighted: whether shares may have weights.
        turns: what the shares were given in former claims of this worker.
        marks: where its former claims ended in each lane; None: each lane is claimed from its head.
        counted: from which claim on it counts running jobs; None: all are counted.
        passed: jobs to pass over.
        left_out: tasks whose jobs are left to other workers.
        is_unknown: tells whether jobs of a task are to be put back, where a claim would use up a start of a rate.
        kept: what this worker keeps back for lanes that it looks at at other times.
        horizon: how many microseconds before their start jobs of rates are claimed.
        now: the instant; the database's own by default.
    """
    weights = (yield from _weights(waiting)) if weighted else NO_WEIGHTS
    lines = [line_of(one, room, weights=weights) for one in waiting]
    names = {key.limit for line in lines for key in line.keys}
    server, said = yield from _lock_limits(names, declared)
    again_in = AGAIN if None in said.values() else None
    known = {name: one for name, one in said.items() if one is not None}
    if len(known) < len(names):
        lines = [line for line in lines if all(key.limit in known for key in line.keys)]
    if not lines:
        return LaneClaims((), {}, 0.0, again_in)
    lines = [clamped(line, known) for line in lines]
    state = LimitState(known, horizon)
    since = 0 if counted is None else counted.since(state.counted, server, time.monotonic())
    yield from _count(state, lines, since, now)
    but = {"passed": numbers([*passed]), "left_out": texts(left_out), "now": now}
    claim = _LaneClaim(worker, but, marks, is_unknown)
    kept = kept or KeptPlaces(time.monotonic)
    begun = yield from _fill(claim, lines, room, state=state, turns=turns or LaneShares(), kept=kept)
    claims = begun.claims
    if counted is not None and state.first_claim is not None:
        counted.learn(state.counted, server, state.first_claim)
    if claims and any(line.waiting.cost > 1 for line in lines):
        again_in = AGAIN  # what the next jobs of these lanes cost is known then
    if marks is not None and len(claims) < room and math.isfinite(head_in := marks.head_in()):
        again_in = min(head_in, again_in or head_in)
    waits, appointed_at = yield from _appoint(state, begun.starts, now)
    if begun.tolerances:
        latest = {
            job: appointed_at + waits.get(job, 0.0) + span / 1_000_000
            for job, span in begun.tolerances.items()
        }
        claims = [msgspec.structs.replace(one, latest=latest.get(one.id)) for one in claims]
    again_in = min(filter(None, (again_in, state.next_in(lines))), default=None)
    return LaneClaims(claims, waits, appointed_at, again_in, begun.unknown, begun.barren)


@plan
def head(
    lane: WaitingLane, passed: Collection[int], left_out: Sequence[str]
) -> Steps[tuple[int, str] | None]:
    """The job that a claim of one job would take from a lane, and its task; None: there is none.

    Args:
        lane: where from.
        passed: jobs to pass over.
        left_out: tasks whose jobs are left to other workers.
    """
    params = {
        "queue": lane.queue,
        "lane": lane.lane,
        "inside": lane.inside,
        "passed": numbers([*passed]),
        "left_out": texts(left_out),
    }
    for job_id, task in (yield Statement("limits/head", params)):
        return job_id, task
    return None


def _weights(waiting: Sequence[WaitingLane]) -> Steps[Mapping[str, int]]:
    """The weights of the shares of these lanes, where they are not 1."""
    shares = {share_of(one.lane) for one in waiting} - {""}
    if not shares:
        return NO_WEIGHTS
    return dict((yield Statement("limits/weights", {"shares": texts(sorted(shares))})))


def _fill(
    claim: "_LaneClaim",
    lines: Sequence[LaneLine],
    room: int,
    *,
    state: LimitState,
    turns: LaneShares,
    kept: KeptPlaces,
) -> "Steps[_LaneStarts]":
    """Claim until there is no room, or no lane has jobs that may start."""
    claims: list[Claim] = []
    starts: dict[int, int] = {}
    unknown: list[Claim] = []
    tolerances: dict[int, int] = {}
    barren: list[WaitingLane] = []
    seen = [line.waiting for line in lines]
    waits: dict[WaitingLane, Mapping[str, int]] = {}
    while lines and len(claims) < room:
        lanes = [line.lane for line in lines]
        free = state.free(lines)
        kept.lower(free, seen)
        shares = turns.quotas(lanes, free, room - len(claims))
        waits |= {lines[place].waiting: places for place, places in turns.kept.items()}
        if not shares:
            break
        quotas = [(lines[place].waiting, share) for place, share in shares.items()]
        number, found = yield from claim.run(quotas)
        state.note_claim(number)
        begun = _count_starts(found, lines, state, claim.is_unknown)
        if back := [*begun.early, *(one.id for one in begun.unknown)]:
            yield Statement("limits/put_back", {"ids": numbers(back)}, returns=False)
        claims += begun.claims
        starts |= begun.starts
        unknown += begun.unknown
        tolerances |= begun.tolerances
        counts = {place: begun.served.get(place, 0) for place in shares}
        barren += [lines[place].waiting for place, count in counts.items() if not count]
        turns.learn(lanes, counts)
        short = {place for place, count in counts.items() if count < shares[place]}
        # What a lane had no jobs for goes to lanes that were given none; and what is kept back stays so.
        left = range(len(lines)) if short or waits else shares
        lines = [
            later(lines[place]) if place in shares else lines[place] for place in left if place not in short
        ]
    kept.learn(seen, waits)
    return _LaneStarts(claims, starts, unknown, tolerances, barren)


class _LaneStarts(NamedTuple):
    """What becomes of jobs that were claimed.

    Attributes:
        claims: those that start.
        starts: when, in microseconds since 1970, where that is not at once.
        unknown: those of tasks that the worker does not run; they are put back.
        tolerances: how many microseconds late some of them may start.
        barren: the lanes that gave nothing, though they were to.
        served: how many start of each line, by its place.
        early: the jobs that are put back since their start costs more than their rates have.
    """

    claims: Sequence[Claim]
    starts: Mapping[int, int]
    unknown: Sequence[Claim] = ()
    tolerances: Mapping[int, int] = MappingProxyType({})
    barren: Sequence[WaitingLane] = ()
    served: Mapping[int, int] = MappingProxyType({})
    early: Sequence[int] = ()


def _count_starts(
    found: Sequence[tuple[Claim, int]],
    lines: Sequence[LaneLine],
    state: LimitState,
    is_unknown: Callable[[str], bool],
) -> _LaneStarts:
    """Count the starts of jobs that were claimed from these lines."""
    places = {(line.waiting.queue, line.waiting.lane): place for place, line in enumerate(lines)}
    claims = [claim for claim, _ in found]
    if not state.has_rates:  # all start at once: this takes a third of the time
        served = Counter(map(places.__getitem__, map(LANE, claims)))
        for place, count in served.items():
            state.take(lines[place], count)
        return _LaneStarts(claims, {}, served=served)
    starting: list[Claim] = []
    starts: dict[int, int] = {}
    early: dict[int, list[int]] = {}
    unknown: list[Claim] = []
    tolerances: dict[int, int] = {}
    for claim, cost in found:
        if is_unknown(claim.task):
            unknown.append(claim)
            continue
        place = places[LANE(claim)]
        at = None if place in early else state.start(lines[place], cost)
        if at is not None:
            starting.append(claim)
            if at > state.now:
                starts[claim.id] = at
            if (span := state.tolerance(lines[place])) is not None:
                tolerances[claim.id] = span
        else:  # it costs more than the first job of its lane; and no job of a lane goes past another
            early.setdefault(place, []).append(claim.id)
    served = Counter(map(places.__getitem__, map(LANE, starting)))
    return _LaneStarts(starting, starts, unknown, tolerances, (), served, [*chain(*early.values())])


class _LaneClaim(NamedTuple):
    """What is the same in each statement of one claim."""

    worker: UUID
    but: Mapping[str, Any]
    marks: Marks[tuple[str, str]] | None
    is_unknown: Callable[[str], bool]

    def run(
        self, quotas: Sequence[tuple[WaitingLane, int]]
    ) -> Steps[tuple[int | None, list[tuple[Claim, int]]]]:
        """Claim up to its quota from each lane; return the number of the claims, and each claim with what its start costs."""
        marks = self.marks
        starts, began = ({}, 0.0) if marks is None else (marks.starts(), marks.clock())
        behind = (starts.get((one.queue, one.lane), HEAD) for one, _ in quotas) if starts else ()
        params = {
            "worker": self.worker,
            "queues": texts(one.queue for one, _ in quotas),
            "lanes": texts(one.lane for one, _ in quotas),
            "insides": truths(one.inside for one, _ in quotas),
            "quotas": numbers([quota for _, quota in quotas]),
            **columns(behind),
            **self.but,
            "fence": next_fence(),
        }
        asked_at = time.monotonic()
        rows = yield Statement("limits/claim", params)
        claims = [
            (Claim(row[0], self.worker, *row[1:-3], asked_at, row[-3]), row[-2] or 1)  # type: ignore[call-arg]  # mypy has row fill all
            for row in rows
        ]
        if marks is not None:
            marks.learn(starts, [one for one, _ in claims], marks.clock() - began, lines=len(quotas))
        return rows[0][-1] if rows else None, claims


def _count(state: LimitState, lines: Sequence[LaneLine], since: int, now: datetime | None) -> Steps[None]:
    """Count what runs now, from a number of claims on, and read the states of rates. The limits must be locked before."""
    if state.counted:
        keys = {key.text for line in lines for key in line.keys if state.said[key.limit].most is not None}
        params = {"keys": texts(sorted(keys)), "since": since}
        for queue, lane, count, first in (yield Statement("limits/running", params)):
            said = lane_keys(lane)
            for text, places in zip(said.texts, said.places or repeat(1)):  # noqa: B905 - repeat() has no end
                state.count(text, count * places)
            if queue is not None:
                state.count(QUEUE + queue, count)
            state.note_claim(first)
    if state.has_rates:
        rates = {key.text: key for line in lines for key in line.keys if key.limit not in state.counted}
        rows = yield Statement("limits/arrivals", {"keys": texts(sorted(rates)), "now": now})
        state.now = rows[0][0]
        for _, key, tat in rows:
            if key is not None:
                state.learn(rates[key], tat)


def _lock_limits(
    names: Collection[str], declared: Mapping[str, LimitNumbers]
) -> Steps[tuple[int, dict[str, LimitNumbers | None]]]:
    """Lock limits; return the server's process, and what they say, None where another worker has locked one.

    A limit that is not known is missing.
    """
    if not names:
        return 0, {}
    server, said = yield from _lock(names)
    if new := {name: declared[name] for name in names if name not in said and name in declared}:
        yield from declare(new)
        server, locked = yield from _lock(new)
        said |= locked
    return server, said


def _lock(names: Collection[str]) -> Steps[tuple[int, dict[str, LimitNumbers | None]]]:
    rows = yield Statement("limits/lock", {"names": texts(sorted(names))})
    said = {
        name: LimitNumbers(most=most, every=every, burst=burst) if locked else None
        for name, most, every, burst, locked, _ in rows
    }
    return rows[0][-1] if rows else 0, said


def _appoint(
    state: LimitState, starts: Mapping[int, int], now: datetime | None
) -> Steps[tuple[dict[int, float], float]]:
    """Store the new states of rates; in how many seconds jobs start, and since when, by the monotonic clock.

    The database read its clock while it was asked: the middle of that is at most half of it off, however long the commit takes.
    """
    if not state.advanced:
        return {}, 0.0
    tats = {key: state.tats[key] for key in sorted(state.advanced)}
    params = {"keys": texts(tats), "tats": numbers([*tats.values()]), "now": now}
    asked_at = time.monotonic()
    ((at,),) = yield Statement("limits/advance", params)
    since = (asked_at + time.monotonic()) / 2
    return {job: max(0, start - at) / 1_000_000 for job, start in starts.items()}, since
