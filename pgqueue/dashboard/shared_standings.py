"""How queues stand, and whether all is right, asked once for all who look at about the same time: with a million jobs a look takes 0.3 s."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from pgqueue.app.pgqueue import PgQueue
from pgqueue.values.insight.health import Health
from pgqueue.values.queues.standing import QueueStanding

LONGEST = 2.0
"""Seconds for which an answer is shown, at most …"""
SHARE = 10
"""… and this many times what it took to make it: of small tables each look is new."""
RECENT = 30.0
"""Seconds. The counts in the navigation may be of an answer that is this old."""

LONGEST_FOR_WORKERS = 60.0
"""Seconds. A look is about 20 statements, and an open page may ask one a second on average."""

T = TypeVar("T")


class Look(NamedTuple):
    """Whether all is right, and how the queues stood at about that time."""

    health: Health
    standings: Sequence[QueueStanding]


LONGEST_FOR_LISTS = 15.0
SHARE_FOR_LISTS = 50


class SharedStandings:
    """The last answers, by the name of the queue's database in this dashboard. Any thread may ask."""

    def __init__(self, queues: Mapping[str, PgQueue], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of = {name: _Shared(queue.insight.queues, clock) for name, queue in queues.items()}
        self._health = {name: _Shared(self._look(name, queue), clock) for name, queue in queues.items()}

    def _look(self, name: str, queue: PgQueue) -> Callable[[], Look]:
        def look() -> Look:
            standings = self.of(name)
            return Look(queue.insight.health(standings), standings)

        return look

    def of(self, name: str) -> Sequence[QueueStanding]:
        """How the queues of a database stand. Who asks while another one does waits for that answer, or for that error."""
        return self._of[name].ask(self._clock(), LONGEST, SHARE)

    def for_list(self, name: str, *, again: bool) -> Sequence[QueueStanding]:
        """The same for a list of jobs, which only says how many there are: an older answer will do.

        Args:
            name: the database's.
            again: whether a list is refreshed that a person looks at.
        """
        return self._of[name].ask(self._clock(), LONGEST_FOR_LISTS, None if again else SHARE_FOR_LISTS)

    def look(self, name: str) -> Look:
        """Whether all is right with the queue of a database, and how its queues stood at about that time."""
        return self._health[name].ask(self._clock(), LONGEST, SHARE)

    def look_for_workers(self, name: str) -> Look:
        """The same for the page of workers, which only says which were lost: an older answer will do."""
        return self._health[name].ask(self._clock(), LONGEST_FOR_WORKERS, None)

    def counts(self, name: str) -> dict[str, str]:
        """What the navigation shows: problems, dead jobs, firing alerts; of an answer that may be up to 30 s old."""
        health, standings = self._health[name].ask(self._clock(), RECENT, None)
        about = "~" if any("dead" in one.estimated for one in standings) else ""
        numbers = {
            "overview": len(health.urgent),
            "dead": sum(one.dead for one in standings),
            "alerts": sum(one.kind == "alert firing" for one in health.problems),
        }
        return {
            page: f"{about if page == 'dead' else ''}{number:,}" if number else ""
            for page, number in numbers.items()
        }

    def forget(self) -> None:
        """Drop the answers, since a user has changed something: the next look asks the database."""
        for name in self._of:
            self._of[name].changes += 1
            self._health[name].changes += 1


class _Shared(Generic[T]):
    """The last answer to one question, and its last error."""

    def __init__(self, look: Callable[[], T], clock: Callable[[], float]) -> None:
        self.changes = 0
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: T | None = None
        self._answered_after = -1  # changes
        self._answered_at = self._took = 0.0
        self._error: Exception | None = None
        self._failed_at = 0.0

    def ask(self, asked_at: float, longest: float, share: float | None) -> T:
        """The last answer, if it is new enough, or a new one.

        Args:
            asked_at: when the caller began to ask.
            longest: how many seconds old the answer may be, at most …
            share: … and this many times what it took to make it; None: whatever that was.
        """
        with self._lock:
            if self._error is not None and self._failed_at > asked_at:
                raise self._error
            most = longest if share is None else min(longest, share * self._took)
            fresh = self._answered_after == self.changes and self._clock() - self._answered_at < most
            if self._answer is not None and fresh:
                return self._answer
            changes, began = self.changes, self._clock()
            try:
                self._answer = self._look()
            except Exception as error:
                self._error, self._failed_at = error, self._clock()
                raise
            self._answered_at = self._clock()
            self._answered_after, self._took = changes, self._answered_at - began
            return self._answer
