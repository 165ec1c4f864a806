"""A history by job: what each was enqueued as, its turns, and what a last look found of it; and what it is judged by.

A *turn* is an attempt as the log saw it. Events of one turn name the same job, worker, attempt and fence. A returned claim gives its
attempt back, so where the log has no fences, two turns can have equal names: then a start belongs to the last turn, and an end to the first one without an
end, since the events of one process can be written in another order than its claims were answered.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import inf
from operator import attrgetter

import msgspec

from pgqueue.chaos.history.events import (
    Claimed,
    Declared,
    Due,
    Effect,
    Ended,
    Enqueued,
    Event,
    JobName,
    Left,
    Live,
    Reclaimed,
    Recorded,
    Renewed,
    Revived,
    Started,
    Stopped,
)

_at = attrgetter("at")
ENDED = frozenset({"succeeded", "dead", "cancelled"})


class ObservedAttempt:
    """An attempt as the log saw it.

    Attributes:
        worker: which worker made it.
        attempt: its number.
        fence: of its claim; 0: not told.
        claimed: its claim, where that is in the log.
        started: when its task began.
        stopped: when its task returned or raised.
        closed: what took the claim from the worker: its recorded end, or a sweeper.
        superseded: the answer to a verdict that came too late.
    """

    __slots__ = ("attempt", "claimed", "closed", "fence", "started", "stopped", "superseded", "worker")

    def __init__(self, event: Claimed | Started | Ended) -> None:
        self.worker = event.worker
        self.attempt = event.attempt
        self.fence = event.fence
        self.claimed: Claimed | None = None
        self.started: Started | None = None
        self.stopped: Stopped | None = None
        self.closed: Ended | Reclaimed | None = None
        self.superseded: Ended | None = None

    def is_named(self, event: Claimed | Started | Stopped | Ended | Reclaimed) -> bool:
        """Whether an event is of this turn, by the names that it gives; two turns may have the same."""
        return self.attempt == event.attempt and self.fence == event.fence and self.worker == event.worker

    @property
    def since(self) -> float:
        """From when on the worker certainly held the claim, in seconds."""
        first = self.claimed or self.started
        return inf if first is None else first.at

    @property
    def heard(self) -> bool:
        """Whether its own verdict was recorded."""
        return isinstance(self.closed, Ended)

    @property
    def evidence(self) -> tuple[Event, ...]:
        """Its events, in order."""
        return tuple(
            one
            for one in (self.claimed, self.started, self.stopped, self.closed, self.superseded)
            if one is not None
        )


class ObservedJob:
    """What the log says of one job.

    Attributes:
        job: what it is called.
        enqueued: its enqueue; None: a schedule, SQL or a killed enqueuer made it.
        turns: its turns, in the order of their first events.
        excess: ends without a turn: of that worker and attempt there is none, or each of them has ended.
        revived: retries by callers, and purges.
        effects: rows that it wrote.
        records: its records at the end.
        live: its row at the end, if it has not ended.
    """

    __slots__ = ("_open", "effects", "enqueued", "excess", "job", "live", "records", "revived", "turns")

    def __init__(self, job: JobName) -> None:
        self.job = job
        self.enqueued: Enqueued | None = None
        self.turns: list[ObservedAttempt] = []
        self.excess: list[Ended | Reclaimed] = []
        self.revived: list[Revived] = []
        self.effects: list[Effect] = []
        self.records: list[Recorded] = []
        self.live: Live | None = None
        self._open: list[ObservedAttempt] = []

    @property
    def evidence(self) -> tuple[Event, ...]:
        """Its enqueue, and the events of its last turn."""
        first = () if self.enqueued is None else (self.enqueued,)
        return (*first, *self.turns[-1].evidence) if self.turns else first

    @property
    def starts(self) -> Iterator[Started]:
        """When its attempts began."""
        return (turn.started for turn in self.turns if turn.started is not None)

    @property
    def ends(self) -> Iterator[Ended | Reclaimed]:
        """Answers by which it ended for good, or until a caller retried it."""
        closed = [turn.closed for turn in self.turns if turn.closed is not None]
        return (one for one in [*closed, *self.excess] if one.state in ENDED)

    @property
    def may_exist(self) -> bool:
        """Whether its enqueue was not rolled back."""
        return self.enqueued is None or self.enqueued.commit != "rolled_back"

    @property
    def transactional(self) -> bool:
        """Whether it writes in ``ctx.transaction()``, so that it may have ended before its task stops."""
        return self.enqueued is not None and self.enqueued.transactional

    def add(self, event: Event) -> None:  # noqa: C901 - a case for each kind
        """Add an event of this job; they come in the order of time."""
        match event:
            case Claimed():
                self._new_turn(event).claimed = event
            case Started():
                turn = self._last(event)
                if turn is None or turn.started is not None:
                    turn = self._new_turn(event)
                turn.started = event
            case Stopped():
                turn = self._last(event)
                if turn is not None and turn.stopped is None:
                    turn.stopped = event
            case Ended(state=None):
                turn = self._last(event) or self._new_turn(event)
                turn.superseded = event
            case Ended() | Reclaimed():
                self._close(event)
            case Enqueued():
                self.enqueued = self.enqueued or event
            case Revived():
                self.revived.append(event)
            case Effect():
                self.effects.append(event)
            case Recorded():
                self.records.append(event)
            case Live():
                self.live = event

    def _new_turn(self, event: Claimed | Started | Ended) -> ObservedAttempt:
        turn = ObservedAttempt(event)
        self.turns.append(turn)
        self._open.append(turn)
        return turn

    def _last(self, event: Started | Stopped | Ended) -> ObservedAttempt | None:
        return next((turn for turn in reversed(self.turns) if turn.is_named(event)), None)

    def _close(self, event: Ended | Reclaimed) -> None:
        for place, turn in enumerate(self._open):
            if turn.is_named(event):
                turn.closed = event
                del self._open[place]
                return
        self.excess.append(event)


class History:
    """All events, by what they tell of.

    Attributes:
        lives: what is known of each job, by what it is called, in the order of their first events.
        limits: what each limit allows, by its name.
        due: ticks that were due.
        left: when workers were gone, by worker.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.lives: dict[JobName, ObservedJob] = {}
        self.limits: dict[str, Declared] = {}
        self.due: list[Due] = []
        self.left: dict[str, Left] = {}
        self._renewed: dict[str, list[Renewed]] = {}
        for event in sorted(events, key=_at):
            match event:
                case Declared():
                    self.limits[event.limit] = event
                case Due():
                    self.due.append(event)
                case Left():
                    self.left.setdefault(event.worker, event)
                case Renewed():
                    self._renewed.setdefault(event.worker, []).append(event)
                case _:
                    self._life(event.job).add(event)

    def until(self, turn: ObservedAttempt) -> float:
        """Until when at most the worker held the claim of a turn, in seconds; infinity: it still does.

        What is not known counts as short: a superseded attempt whose reclaim nobody wrote held its claim for no time, and a worker
        that is gone may have returned a job without a trace.
        """
        if turn.closed is not None:
            return turn.closed.at
        if turn.superseded is not None:
            return turn.since
        left = self.left.get(turn.worker)
        return inf if left is None else max(left.at, turn.since)

    def renewed(self, worker: str, at: float) -> Renewed | None:
        """The last renewal of a worker's lease before an instant; None: none is known."""
        found = self._renewed.get(worker, [])
        place = bisect_right(found, at, key=_at)
        return found[place - 1] if place else None

    def _life(self, job: JobName) -> ObservedJob:
        life = self.lives.get(job)
        if life is None:
            life = self.lives[job] = ObservedJob(job)
        return life


class Rules(msgspec.Struct, frozen=True):
    """What a history is judged by, apart from the promises.

    Attributes:
        slack: seconds by which events may be written late; what overlaps for less is no violation.
        looked: whether the log ends with a last look at all tables, in one snapshot: only then a job without a record is lost.
        drained: whether all jobs had the time to end: then a job that is live at the end is a violation, too.
        recovery: within how many seconds after a worker has left its jobs have to be reclaimed: a lease, a sweep, and how long the
            database was away; None: not judged.
    """

    slack: float = 0.05
    looked: bool = True
    drained: bool = False
    recovery: float | None = None


DEFAULT_RULES = Rules()
