"""Which of the jobs that wait under limits may start now, for tests without a database.

The rules are those of workers: :mod:`pgqueue.values.limits.gcra` and :mod:`pgqueue.values.limits.lanes`. A drain runs one job at a time, so a
limit of concurrency binds where an attempt is left running, and a rate binds until a later instant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pgqueue.testing.row import JobRow
from pgqueue.values.limits import gcra
from pgqueue.values.limits.lanes import Lane, LaneShares
from pgqueue.values.limits.limit import LimitKey, LimitNumbers, keys_of, share_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LaneBook:
    """The limits of a queue's tasks, and the states of its rates.

    Attributes:
        tats: the states of rates, by key.
    """

    def __init__(self, limits: Callable[[], Mapping[str, LimitNumbers]]) -> None:
        """``limits`` returns them by name, each time anew: tasks may be registered later."""
        self.tats: dict[str, int] = {}
        self._limits = limits
        self._turns: dict[str, LaneShares] = {}

    def running(self, rows: Iterable[JobRow]) -> Counter[str]:
        """How many jobs run under each key, or keep a place there."""
        held = (row for row in rows if row.is_running or row.keeps_place)
        found = Counter[str]()
        for row in held:
            found.update({key.text: key.places for key in keys_of(row.new.lane or "")})
        return found

    def heads(
        self, rows: Iterable[JobRow], running: Mapping[str, int], now: datetime
    ) -> dict[str, list[JobRow]]:
        """The first job of each lane whose limits let it start now, by queue."""
        first: dict[tuple[str, str], JobRow] = {}
        for row in rows:
            if row.new.lane is not None and row.is_ready:
                lane = (row.new.queue, row.new.lane)
                first[lane] = min(first.get(lane, row), row, key=lambda one: one.place)
        found: dict[str, list[JobRow]] = {}
        for (queue, _), row in sorted(first.items(), key=lambda one: one[0]):
            if self.let(row, running, now):
                found.setdefault(queue, []).append(row)
        return found

    def choose(self, queue: str, heads: list[JobRow], now: datetime) -> JobRow:
        """The one of these whose turn it is; the rates take note of its start."""
        lanes = [self._lane(row.new.lane or "") for row in heads]
        turns = self._turns.setdefault(queue, LaneShares())
        given = turns.quotas(lanes, {}, 1)
        turns.learn(lanes, given)
        row = heads[next(iter(given))]
        self.started(row, now)
        return row

    def started(self, row: JobRow, now: datetime) -> None:
        """Have the rates take note of a start."""
        for key, numbers in self.of(row):
            if numbers is not None and numbers.most is None:
                tat = self._tat(key, now, numbers)
                self.tats[key.text] = gcra.advance_tat(tat, micros_of(now), numbers.rate, _cost(row))

    def let(self, row: JobRow, running: Mapping[str, int], now: datetime) -> bool:
        """Whether the limits of a job let it start now."""
        for key, numbers in self.of(row):
            if numbers is None:  # this program does not know the limit, so no worker of it runs the job
                return False
            if numbers.most is not None:
                if running.get(key.text, 0) + max(1, min(key.places, numbers.most)) > numbers.most:
                    return False
            elif gcra.earliest(
                self._tat(key, now, numbers), micros_of(now), numbers.rate, _cost(row)
            ) > micros_of(now):
                return False
        return True

    def _lane(self, name: str) -> Lane:
        return Lane(share_of(name) or name, (), 1, 1)

    def of(self, row: JobRow) -> list[tuple[LimitKey, LimitNumbers | None]]:
        """The keys that limit a job, each with what its limit says; None: this program does not know the limit."""
        limits = self._limits()
        return [(key, limits.get(key.limit)) for key in keys_of(row.new.lane or "") if key.limit]

    def _tat(self, key: LimitKey, now: datetime, numbers: LimitNumbers) -> int:
        tat = gcra.settle_tat(self.tats.get(key.text, 0), micros_of(now), numbers.rate)
        if key.text in self.tats:
            self.tats[key.text] = tat
        return tat


def micros_of(now: datetime) -> int:
    """Microseconds since 1970."""
    return (now - _EPOCH) // timedelta(microseconds=1)


def _cost(row: JobRow) -> int:
    return row.new.cost or 1
