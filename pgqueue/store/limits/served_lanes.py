"""Which lanes a worker claims limited jobs from, in which order, and when it looks again.

A worker looks at lanes if it knows a limited task, or if a poll has told it that jobs wait in lanes or that a queue is limited
as a whole. It goes around: it asks for the next lanes in which jobs wait, in the order of their names, claims from them what
their limits let start, and goes on behind the last one at the next look.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

from msgspec.structs import replace

from pgqueue.store.jobs.marks import ENOUGH, Marks, not_before
from pgqueue.store.jobs.refusals import PassedOver
from pgqueue.store.limits import limits
from pgqueue.store.limits.lanes import LaneScan, declare, declare_tasks, find, read_on
from pgqueue.store.limits.limits import LANE, NOTHING, LaneClaims
from pgqueue.store.plan import Steps, plan
from pgqueue.values.jobs.job import Claim
from pgqueue.values.limits.gcra import HORIZON
from pgqueue.values.limits.lanes import LaneShares
from pgqueue.values.limits.limit import LimitNumbers, lane_keys
from pgqueue.values.limits.state import CountedClaims, KeptPlaces, WaitingLane
from pgqueue.values.limits.task_limits import TaskLimits, task_of
from pgqueue.values.queues.served_queues import ALL, ServedQueues

AT_ONCE = 500
"""How many lanes one look asks for."""
START = ("", "")
ALONE = 20
"""After a refused claim, how many claims are of one job of one lane."""
SKIPS = 20
"""How many times the worker skips from lane to lane, after it has read on and found few lanes."""
REMEMBERED_FOR = 0.05
"""Seconds. If there are few lanes, and each look claims as many jobs as there is room for, other lanes are found this late."""
BARREN_FOR = 1.0
"""Seconds for which a lane is not claimed from that had only jobs which are left to other workers."""
REST, LONGEST_REST = 50, 60.0
"""After a round in which no job might start, polls begin no other one for this many times as long as it took, and at most this long."""


class ServedLanes:
    """The lanes that one worker serves.

    Attributes:
        limited: the queues that are limited as a whole, as the last poll said.
        seen: whether jobs waited in lanes at the last poll.
        weighted: whether shares have weights, as the last poll said.
        unfinished: the round goes on: there are lanes behind the last ones that were looked at.
        searched: whether the last claim searched for lanes in which jobs wait; else it took those that a claim before had found.
    """

    def __init__(
        self,
        declared: Callable[[], Mapping[str, LimitNumbers]],
        tasks: Callable[[], Mapping[str, TaskLimits | None]],
        served: ServedQueues = ALL,
        clock: Callable[[], float] = time.monotonic,
        *,
        left_out: Callable[[], Sequence[str]] = tuple,
        is_unknown: Callable[[str], bool] = limits.never,
        kept: KeptPlaces | None = None,
    ) -> None:
        """``declared`` returns the limits of the tasks that this program knows, by name.

        ``tasks`` returns which limits each of these tasks has; None: it has none. ``left_out`` returns the tasks whose jobs are
        left to other workers; ``is_unknown`` whether a task is one of those, where they are not known beforehand. ``kept`` is what
        the worker keeps back.
        """
        self._kept = kept or KeptPlaces(clock)
        self._is_unknown = is_unknown
        self.limited: Collection[str] = ()
        self.seen = False
        self.weighted = False
        self.unfinished = False
        self.searched = False
        self._declared = declared
        self._tasks = tasks
        self._served = served
        self._left_out = left_out
        self._queues = None if served.is_open else served.names
        self._after = START
        self._skips = 0
        self._clock = clock
        self._known: list[WaitingLane] = []
        self._known_until = -math.inf
        self._find_at = -math.inf
        self._marks = Marks(self._line_of, clock, enough=ENOUGH // 10)
        self._barren: dict[WaitingLane, float] = {}
        self._counted = CountedClaims()
        self._round = _Round()
        self._rests_until = -math.inf
        self._turns = LaneShares()
        self._told: Mapping[str, LimitNumbers] | None = None
        self._telling: Mapping[str, LimitNumbers] | None = None
        self._of: dict[str, ServedLanes] = {}
        self._alone = 0  # how many claims are still to be of one job
        self._tried: WaitingLane | None = None
        self._turn = 0
        self._passed = PassedOver[int, None](clock)

    @plan
    def refused(self) -> Steps[tuple[int, str] | None]:
        """The last claim was refused for what a row holds. Claim one job at a time, and pass over the one that was to be claimed alone.

        Returns:
            That job, and its task; None: several were to be claimed, or it is there no more.
        """
        self._alone = ALONE
        if self._tried is None:
            return None
        found = yield from limits.head(self._tried, self._passed.now(), self._left_out())
        if found is not None:
            self._passed.add(found[0], None)
        return found

    def of(self, queue: str) -> "ServedLanes":
        """The lanes of one queue alone, with a round of their own."""
        if queue not in self._of:
            self._of[queue] = ServedLanes(
                self._declared,
                self._tasks,
                ServedQueues({queue: 1}),
                self._clock,
                left_out=self._left_out,
                is_unknown=self._is_unknown,
                kept=self._kept,
            )
        found = self._of[queue]
        found.learn(limited=self.limited, weighted=self.weighted, seen=self.seen)
        return found

    @property
    def rests(self) -> bool:
        """Whether jobs that wait in lanes are no reason to look: none might start at the last round, which took long."""
        return self._clock() < self._rests_until

    @property
    def are_served(self) -> bool:
        """Whether to look at lanes at all."""
        return self._told is None or self.seen or bool(self.limited) or bool(self._declared())

    def learn(self, *, limited: Collection[str], weighted: bool, seen: bool) -> None:
        """Take note of what a poll said; as the attributes."""
        self.limited, self.weighted, self.seen = limited, weighted, seen

    @plan(transaction=True)
    def claim(
        self, worker: UUID, room: int, *, horizon: int = HORIZON, now: datetime | None = None
    ) -> Steps[LaneClaims]:
        """Claim from the next lanes; after the last lane, from the first ones. Arguments as for :func:`pgqueue.store.limits.limits.take`."""
        declared = self._declared()
        if declared != self._told:
            yield from declare(declared)
            yield from declare_tasks(self._tasks())
            self._telling = dict(declared)  # the transaction may be rolled back yet
        began = self._clock()
        taken = yield from self._claim_next(worker, room, horizon, now)
        self._round.learn(self._clock() - began, bool(taken.claims))
        if not self.unfinished:
            self._rests_until = self._clock() + self._round.rest()
        return taken

    def _claim_next(self, worker: UUID, room: int, horizon: int, now: datetime | None) -> Steps[LaneClaims]:
        """Claim from the lanes that are known, or from the next ones."""
        self.searched = False
        if self._clock() >= self._known_until:
            return (yield from self._take(worker, (yield from self._next()), room, horizon, now))
        taken = yield from self._take(worker, self._known, room, horizon, now)
        if len(taken.claims) == room:
            return taken
        # These have no more jobs that may start; others may have.
        self._known_until = self._find_at
        left = self._find_at - self._clock()
        if left > 0:
            again_in = left if taken.again_in is None else min(left, taken.again_in)
            return LaneClaims(taken.claims, taken.waits, taken.since, again_in, taken.unknown, taken.barren)
        if not taken.claims:
            return (yield from self._take(worker, (yield from self._next()), room, horizon, now))
        self.unfinished = True
        return taken

    def claimed(self) -> None:
        """Take note that the last claim was committed: what it has stored of limits need not be stored again."""
        self._told = self._telling

    def _take(
        self, worker: UUID, waiting: Sequence[WaitingLane], room: int, horizon: int, now: datetime | None
    ) -> Steps[LaneClaims]:
        """Claim from those of these lanes, and from those queues with a limit of their own, that are served."""
        served = {queue for queue in {one.queue for one in waiting} if self._served.weight(queue)}
        left_out = self._left_out()
        runs = self._runs_under(left_out)
        self._barren = {lane: until for lane, until in self._barren.items() if until > self._clock()}
        barren = self._barren
        lanes = [
            one
            for one in waiting
            if one.queue in served and not (barren and one in barren) and runs(one.lane)
        ]
        if any(lane_keys(one.lane).places for one in lanes):
            lanes = [self._without_age(one, left_out) for one in lanes]
        lanes += [
            WaitingLane(queue, "", inside=False, limited=True)
            for queue in self._served.filtered(sorted(self.limited))
        ]
        if not lanes:
            return NOTHING
        alone = self._alone > 0
        if alone:
            self._alone -= 1
            self._turn += 1
            lanes, room = [lanes[self._turn % len(lanes)]], 1
        self._tried = lanes[0] if len(lanes) == room == 1 else None
        taken = yield from limits.take(
            worker,
            lanes,
            room,
            declared=self._declared(),
            weighted=self.weighted,
            turns=self._turns,
            marks=None if alone else self._marks,
            counted=self._counted,
            passed=self._passed.now(),
            left_out=left_out,
            is_unknown=self._is_unknown,
            kept=self._kept,
            horizon=horizon,
            now=now,
        )
        # Else each look reads the other workers' jobs to the end of the lane, with its limit locked.
        if left_out and not taken.claims:
            self._barren |= dict.fromkeys(taken.barren, self._clock() + BARREN_FOR)
        return taken

    def _without_age(self, lane: WaitingLane, left_out: Collection[str]) -> WaitingLane:
        """A lane whose first job is left to other workers has no places kept back here."""
        left = lane.task in left_out or self._is_unknown(lane.task)
        return replace(lane, since=None) if left else lane

    def _line_of(self, claim: Claim) -> tuple[str, str] | None:
        """The lane that a claim came from, if it may be claimed behind a mark: in an ordered one a retry comes before it."""
        of_task = self._tasks().get(claim.task)
        return None if of_task is not None and of_task.ordered else LANE(claim)

    def _runs_under(self, left_out: Collection[str]) -> Callable[[str], bool]:
        """Tells of the name of a lane whether it may have jobs that this worker runs. Lanes of a task that it leaves out have none."""
        if not left_out:
            return lambda _lane: True
        others = set(left_out)
        may_run = cache(lambda limit: task_of(limit) not in others)
        return lambda lane: all(may_run(key.limit) for key in lane_keys(lane).limiting)

    def _next(self) -> Steps[list[WaitingLane]]:
        """Return the next lanes in which jobs wait. A round that ends goes on with the first lanes."""
        self.searched = True
        after, began = self._after, self._clock()
        read = yield from self._read_on()
        lanes, left = [*read.lanes], AT_ONCE - read.looked_at
        self._after, self.unfinished = read.last, True
        if not left:
            return lanes
        found = yield from find(self._queues, read.last, left)
        lanes += found.lanes
        if read.looked_at and found.looked_at > read.looked_at:
            self._skips = SKIPS
        self._after, self.unfinished = found.last, found.looked_at == left
        if self.unfinished:
            return lanes
        self._after = START  # at the end of a round the worker rests, though the next one has begun
        if after == START:
            self._remember(lanes, self._clock() - began)
            return lanes
        again = yield from find(self._queues, START, left - found.looked_at)
        self._after = again.last if again.looked_at == left - found.looked_at else START
        return [*dict.fromkeys([*lanes, *again.lanes])]

    def _read_on(self) -> Steps[LaneScan]:
        """The next lanes of the queue that is looked at, where lanes have few jobs each; it is tried again now and then."""
        after = self._after
        if after == START or self._skips > 0 or not self._served.weight(after[0]):
            self._skips -= 1
            return LaneScan((), after, 0)
        return (yield from read_on(after, AT_ONCE))

    def _remember(self, lanes: list[WaitingLane], seconds: float) -> None:
        """Take note of all lanes in which jobs wait. It took so long to find them that they are not looked for again at once."""
        # Else the costs, and the age, of the next jobs are to be read.
        if all(one.cost == 1 and not lane_keys(one.lane).places for one in lanes):
            self._known = lanes
            self._find_at = self._clock() + not_before(seconds)
            self._known_until = max(self._find_at, self._clock() + REMEMBERED_FOR) if lanes else self._find_at


class _Round:
    """What the looks of one round took, and whether they found jobs that may start."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._claimed = False

    def learn(self, seconds: float, claimed: bool) -> None:  # noqa: FBT001
        """Take note of a look."""
        self._seconds += seconds
        self._claimed |= claimed

    def rest(self) -> float:
        """End the round; return for how many seconds a poll begins no other one."""
        seconds = 0.0 if self._claimed else min(REST * self._seconds, LONGEST_REST)
        self._seconds, self._claimed = 0.0, False
        return seconds
