"""Which queues a worker asks for jobs, in which order, and from which position on.

A worker that serves all queues remembers those in which it found jobs lately, while they are few: it asks them in turn,
each from its mark (:mod:`pgqueue.store.jobs.marks`). It searches for other queues once a second, and when those that it knows are empty.

Where there are many queues (one for each tenant), most of those in which it found a job are empty at the next look, so
it remembers none and goes around: it asks the database for the next queues that have ready jobs, in the order of names,
claims a share from each, and goes on behind the last one at the next look. Each queue has its turn once a round.

A look ends after ``LONGEST_LOOK``, and the next look goes on where it ended.

Which queues are served, and which weights they have, is in :mod:`pgqueue.values.queues.served_queues`; how weights become numbers of claims,
in :mod:`pgqueue.values.queues.shares`. A worker with patterns searches for queues as one that serves all does, and leaves those out that
it does not serve.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from uuid import UUID

from pgqueue.store.jobs import claim
from pgqueue.store.jobs.marks import Marks
from pgqueue.store.jobs.refusals import PassedOver
from pgqueue.store.plan import Steps, plan
from pgqueue.values.jobs.job import HEAD, Claim, Mark
from pgqueue.values.jobs.options import is_pattern
from pgqueue.values.queues.served_queues import ALL, ServedQueues
from pgqueue.values.queues.shares import MOST_ASKED, Shares, Split, StrictOrder, in_turn, split_of

LOOK_AROUND_AFTER = 1.0
"""Seconds. While jobs are found in known queues, the worker looks for other queues this often."""
FORGET_AFTER = 600.0
"""Seconds. A queue in which no job was found for this long is asked no more, until it is found again."""
MOST_KNOWN = 500
"""With more queues than this, the worker goes around instead of remembering them."""
LONGEST_LOOK = 0.25
"""Seconds after which a look ends, and the next look goes on where it ended."""
OTHERS = ""
"""Stands for the queues that no entry names. No entry is empty."""


class Queues:
    """The queues that one worker serves.

    Attributes:
        marks: where looks start.
        searches: whether queues are served that no entry names, so that it has to search for them.
        unfinished: the last look ended before it had asked every queue.
    """

    def __init__(
        self,
        served: ServedQueues = ALL,
        clock: Callable[[], float] = time.monotonic,
        *,
        left_out: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``left_out`` returns the tasks whose jobs are left to other workers."""
        self._left_out = left_out
        self.marks = Marks(_queue_of, clock)
        self.searches = served.is_open
        self.unfinished = False
        self._served = served
        self._split = split_of(served)
        self._named = _asked_at_each_look(served)
        self._clock = clock
        self._seen_at = dict.fromkeys(served.filtered(served.names), clock())
        self._not_served: dict[str, float] = {}
        self._looked_around_at = -LOOK_AROUND_AFTER
        self._first = 0
        self._round: _Round | None = None
        self._order: Callable[[], Iterable[str]] = tuple
        self._passed = PassedOver[str, Mark](clock)

    def starts(self) -> Mapping[str, Mark]:
        """Every known queue, and where to start looking in it."""
        starts = self._behind(self.marks.starts())
        return {queue: starts.get(queue, HEAD) for queue in self._seen_at}

    @plan
    def refused(self) -> Steps[claim.ReadyHead | None]:
        """The job that the last claim, which was of one job, would have taken; None: there is none any more."""
        starts = self._behind(self.marks.starts())
        return (yield from claim.head([*self._order()], starts, left_out=self._left_out()))

    def pass_over(self, head: claim.ReadyHead) -> None:
        """For a minute, look behind a job. Those before it wait as long: jobs of a higher priority that are new."""
        self._passed.add(head.queue, head.mark)

    def _behind(self, starts: Mapping[str, Mark]) -> Mapping[str, Mark]:
        """Where to start, behind the jobs that are passed over."""
        passed = self._passed.now()
        if not passed:
            return starts
        return {**starts, **{queue: max(mark, starts.get(queue, HEAD)) for queue, mark in passed.items()}}

    @property
    def split(self) -> Split | None:
        """How room is divided among the known queues; None: equally, or it goes around."""
        return self._split if self._round is None else None

    @property
    def is_to_search(self) -> bool:
        """Whether it is time to search for other queues than the known ones, though jobs are found in these."""
        return self.searches and self._clock() - self._looked_around_at >= LOOK_AROUND_AFTER

    @plan
    def claim_up_to(self, worker: UUID, quotas: Mapping[str, int], room: int) -> Steps[list[Claim]]:
        """Claim from these queues, of each at most its quota, as another division says: :mod:`pgqueue.worker.ready_and_lanes`."""
        starts, began = self.marks.starts(), self._clock()
        self._order = lambda: quotas
        claims = yield from claim.claim(
            worker, quotas, limit=room, marks=self._behind(starts), left_out=self._left_out()
        )
        self.marks.learn(starts, claims, self._clock() - began, lines=len(quotas))
        if self.searches:
            self._seen_at |= dict.fromkeys((one.queue for one in claims), self._clock())
        return claims if self._split is None else in_turn(self._split, claims, _queue_of)

    @plan
    def claim(self, worker: UUID, room: int) -> Steps[list[Claim]]:
        """Claim from the known queues, and from other queues if it is time to search for them."""
        self.unfinished = False
        if self._round is not None:
            return (yield from self._go_around(worker, room, self._round))
        claims = yield from self._ask_known(worker, room)
        now = self._clock()
        if not self.searches or (claims and now - self._looked_around_at < LOOK_AROUND_AFTER):
            return claims
        self._looked_around_at = now
        found = yield from claim.new_queues([*self._seen_at, *self._not_served], limit=MOST_KNOWN + 1)
        self._seen_at = {queue: at for queue, at in self._seen_at.items() if now - at < FORGET_AFTER}
        found = self._learn_names(found, now)
        if len(self._seen_at) + len(self._not_served) > MOST_KNOWN:
            self._round, self._seen_at, self._not_served = _Round(), {}, {}
        if claims or not found:
            return claims
        if self._round is not None:
            return (yield from self._go_around(worker, room, self._round))
        return (yield from self._ask_known(worker, room))

    def _learn_names(self, found: Sequence[str], now: float) -> list[str]:
        """Remember names: those that are served, which are returned, and those to jump over."""
        self._not_served = {queue: at for queue, at in self._not_served.items() if now - at < FORGET_AFTER}
        served = self._served.filtered(found)
        self._seen_at |= dict.fromkeys(served, now)
        self._not_served |= dict.fromkeys(set(found).difference(served), now)
        return served

    def _ask_known(self, worker: UUID, room: int) -> Steps[list[Claim]]:
        queues = [*self._seen_at]
        turn = [*queues[self._first :], *queues[: self._first]]
        claims = yield from self._fill(worker, turn, room)
        if queues and self._split is None:
            self._first = (self._first + _count_served(turn, claims, room)) % len(queues)
        if self.searches:
            self._seen_at |= dict.fromkeys((one.queue for one in claims), self._clock())
        return claims

    def _go_around(self, worker: UUID, room: int, around: "_Round") -> Steps[list[Claim]]:
        """Claim from the queues that entries name, at each look; and from the next other ones that have ready jobs."""
        if not (named := self._named):
            return (yield from self._ask_next(worker, room, around, ()))
        shares = around.shares(self._served)
        quotas = shares.quotas([*named, OTHERS], room)
        of_named = {queue: quota for queue, quota in quotas.items() if queue != OTHERS}
        claims = (yield from self.claim_up_to(worker, of_named, room)) if of_named else []
        claims += yield from self._ask_next(worker, room - len(claims), around, named)
        served = Counter(one.queue if one.queue in of_named else OTHERS for one in claims)
        shares.learn(quotas, served, room)
        return claims

    def _ask_next(
        self, worker: UUID, room: int, around: "_Round", named: Collection[str]
    ) -> Steps[list[Claim]]:
        """Claim from the next queues that have ready jobs, until there is no room or the round is over."""
        claims: list[Claim] = []
        began, rounds = self._clock(), around.count
        while (
            len(claims) < room and around.count < rounds + 2
        ):  # to the end of names, and once through all of them
            if self._clock() - began > LONGEST_LOOK:
                self.unfinished = True
                break
            left = room - len(claims)
            names = yield from claim.next_queues(around.after, left)
            others = [name for name in self._served.filtered(names) if name not in named]
            claims += yield from self._fill(worker, others, left)
            around.advance(names, whole=len(names) == left)
        if around.few is not None:
            self._learn_names(around.few, self._clock())
            self._round = None
        return claims

    def _fill(self, worker: UUID, queues: Sequence[str], room: int) -> Steps[list[Claim]]:
        starts, began = self.marks.starts(), self._clock()
        split = self._split
        if split is not None:
            split.forget(queues)
        self._order = lambda: queues if split is None else split.quotas(queues, room)
        claims = yield from claim.fill(
            worker, queues, room, split=self._split, marks=self._behind(starts), left_out=self._left_out()
        )
        self.marks.learn(starts, claims, self._clock() - began, lines=len(queues))
        return claims if self._split is None else in_turn(self._split, claims, _queue_of)


_queue_of: Callable[[Claim], str] = attrgetter("queue")


def _asked_at_each_look(served: ServedQueues) -> Sequence[str]:
    """The queues that are asked at each look, also where the others are gone around: those that have a weight or a place of their own.

    In a strict order these are the ones before the first pattern.
    """
    if served.is_plain:
        return ()
    entries: Iterable[str] = served.names
    if served.strict:
        entries = takewhile(lambda entry: not is_pattern(entry), served.weights)
    return served.filtered(entries)[: MOST_ASKED - 1]


class _Round:
    """Which queue is next, among more queues than the worker remembers.

    Attributes:
        after: the name after which to go on; None: the first name.
        count: how many rounds have ended.
        few: the queues of the last round, if they are few enough to be remembered again; None: they are not.
    """

    def __init__(self) -> None:
        self.after: str | None = None
        self.count = 0
        self.few: Sequence[str] | None = None
        self._met: list[str] = []
        self._size, self._last_size = 0, MOST_KNOWN
        self._shares: Split | None = None

    def shares(self, served: ServedQueues) -> Split:
        """Return how room is divided between the queues that entries name and all others.

        The others weigh as many as the last round had.
        """
        if self._shares is None:
            place = (len(served.weights), "")
            self._shares = (
                StrictOrder(lambda queue: place if queue == OTHERS else served.place(queue))
                if served.strict
                else Shares(lambda queue: self._last_size if queue == OTHERS else served.weight(queue))
            )
        return self._shares

    def advance(self, names: Sequence[str], *, whole: bool) -> None:
        """Go on behind the queues that were found.

        ``whole``: they are as many as were asked for; else no queue comes after them.
        """
        self._size += len(names)
        if len(self._met) <= MOST_KNOWN:
            self._met += names
        self.after = names[-1] if whole else None
        if not whole:
            self.few = self._met if len(self._met) <= MOST_KNOWN // 2 else None
            self._met = []
            self._last_size, self._size = max(1, self._size), 0
            self.count += 1


def _count_served(turn: Sequence[str], claims: Sequence[Claim], room: int) -> int:
    """Return how many queues have had their turn: all up to the last served if there was no room for more, else one."""
    if len(claims) < room or len(turn) <= room:
        return 1
    served = {one.queue for one in claims}
    return max(place for place, queue in enumerate(turn, start=1) if queue in served)
