"""Which of the jobs that wait in lanes may start now, for tests without a database: their limits and shares.

The rules are those of workers: :mod:`pgqueue.values.gcra` and :mod:`pgqueue.values.lanes`. A drain runs one job at a time, so a
limit of concurrency binds where an attempt is left running, and a rate binds until a later instant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pgqueue.testing.row import Row
from pgqueue.values import gcra
from pgqueue.values.lanes import Lane, Turns
from pgqueue.values.limit import Key, Numbers, keys_of, share_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Lanes:
    """The limits of a queue's tasks, and the states of its rates."""

    def __init__(self, limits: Callable[[], Mapping[str, Numbers]]) -> None:
        """Begin with no start.

        Args:
            limits: returns them by name; tasks may be registered later.
        """
        self._limits = limits
        self._tats: dict[str, int] = {}
        self._turns: dict[str, Turns] = {}

    def heads(self, rows: Iterable[Row], now: datetime) -> dict[str, list[Row]]:
        """The first job of each lane whose limits let it start now, by queue."""
        running: Counter[str] = Counter()
        first: dict[tuple[str, str], Row] = {}
        for row in rows:
            if row.new.lane is None:
                continue
            if row.is_running:
                running.update(key.text for key in keys_of(row.new.lane))
            elif row.is_ready:
                lane = (row.new.queue, row.new.lane)
                first[lane] = min(first.get(lane, row), row, key=lambda one: one.place)
        found: dict[str, list[Row]] = {}
        for (queue, _), row in sorted(first.items(), key=lambda one: one[0]):
            if self._may_start(row, running, now):
                found.setdefault(queue, []).append(row)
        return found

    def choose(self, queue: str, heads: list[Row], now: datetime) -> Row:
        """The one of these whose turn it is; the rates take note of its start."""
        lanes = [Lane(row.new.lane or "", (), 1, share=share_of(row.new.lane or "")) for row in heads]
        turns = self._turns.setdefault(queue, Turns())
        given = turns.quotas(lanes, {}, 1)
        turns.learn(lanes, given)
        row = heads[next(iter(given))]
        for key, numbers in self._of(row):
            if numbers is not None and numbers.most is None:
                tat = self._tat(key, now, numbers)
                self._tats[key.text] = gcra.advanced(tat, _micros(now), numbers.rate, _cost(row))
        return row

    def _may_start(self, row: Row, running: Mapping[str, int], now: datetime) -> bool:
        for key, numbers in self._of(row):
            if numbers is None:  # this program does not know the limit, so no worker of it runs the job
                return False
            if numbers.most is not None:
                if running.get(key.text, 0) >= numbers.most:
                    return False
            elif gcra.earliest(
                self._tat(key, now, numbers), _micros(now), numbers.rate, _cost(row)
            ) > _micros(now):
                return False
        return True

    def _of(self, row: Row) -> list[tuple[Key, Numbers | None]]:
        limits = self._limits()
        return [(key, limits.get(key.limit)) for key in keys_of(row.new.lane or "") if key.limit]

    def _tat(self, key: Key, now: datetime, numbers: Numbers) -> int:
        return gcra.settled(self._tats.get(key.text, 0), _micros(now), numbers.rate)


def _micros(now: datetime) -> int:
    return (now - _EPOCH) // timedelta(microseconds=1)


def _cost(row: Row) -> int:
    return row.new.cost or 1
