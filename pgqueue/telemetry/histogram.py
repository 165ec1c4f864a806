"""Counts of numbers by size, many at a time: what an observer adds to for each batch. No library."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
    3_600.0,
)
JOBS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0)


class Histogram:
    """How many numbers are at most each bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` are in rising order."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, numbers: Sequence[float]) -> None:
        """Count numbers, which are in ascending order."""
        self._sum += sum(numbers)
        counts, bounds, below, many = self._counts, self._bounds, 0, len(numbers)
        place = 0
        while below < many:  # only the bounds between which there is a number
            place = _place(bounds, numbers[below], place)
            upto = bisect_right(numbers, bounds[place], below) if place < len(bounds) else many
            counts[place] += upto - below
            below = upto

    def add_waits(self, since: Sequence[float], now: float) -> None:
        """Count the seconds from instants to the present; an instant in the future counts as 0.

        Args:
            since: in seconds, in ascending order.
            now: the present, by the same clock.
        """
        if since[-1] > now:
            since = [min(one, now) for one in since]
        self._sum += len(since) * now - sum(since)  # of 500 instants of this century exact to 0.1 ms
        end, place = len(since), 0
        while end:
            place = _place(self._bounds, now - since[end - 1], place)
            start = 0
            if place < len(self._bounds):
                start = min(bisect_left(since, now - self._bounds[place], 0, end), end - 1)
            self._counts[place] += end - start
            end = start

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Each bound as text, with how many numbers are at most that; and the sum of all."""
        found, total = [], 0
        counts, summed = list(self._counts), self._sum
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found, summed


def _place(bounds: Sequence[float], number: float, first: int) -> int:
    """Return the place of the first bound that a number does not exceed."""
    place = bisect_right(bounds, number, first)
    return place - 1 if place > first and bounds[place - 1] == number else place
