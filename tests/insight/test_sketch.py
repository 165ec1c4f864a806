"""Sketches tell quantiles within their error, however the times come and whatever the order of merging."""

import random
from bisect import bisect_left
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pgqueue.values.insight.sketch import (
    BORDERS,
    ERROR,
    SMALLEST,
    count_times,
    count_waits,
    merge,
    quantiles,
)

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC).timestamp()
SHARES = (0.0, 0.5, 0.95, 0.99, 1.0)
TIMES = st.lists(st.floats(min_value=SMALLEST, max_value=6e8), min_size=1, max_size=200)


def sketch_of(times: list[float]) -> dict[int, int]:
    counts: dict[int, int] = {}
    count_times(counts, sorted(times))
    return counts


def exact(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


@given(parts=st.lists(TIMES, min_size=1, max_size=5), order=st.randoms())
def test_merged_sketches_are_within_the_error_whatever_the_order(
    parts: list[list[float]], order: random.Random
) -> None:
    sketches = [sketch_of(times) for times in parts]
    order.shuffle(sketches)
    merged: dict[int, int] = {}
    for one in sketches:
        merge(merged, one, one.values())
    times = [time for part in parts for time in part]

    assert sum(merged.values()) == len(times)
    assert merged == sketch_of(times)
    for share, found in zip(SHARES, quantiles(merged, SHARES), strict=True):
        assert abs(found - exact(times, share)) <= ERROR * exact(times, share)


@given(seconds=st.lists(st.integers(min_value=100, max_value=10**13), min_size=1, max_size=200))
def test_waits_until_the_present_are_within_the_error(seconds: list[int]) -> None:
    times = [one / 1e6 for one in seconds]
    counts: dict[int, int] = {}
    count_waits(counts, sorted(NOON - one for one in times), NOON)

    assert sum(counts.values()) == len(times)
    for share, found in zip(SHARES, quantiles(counts, SHARES), strict=True):
        assert abs(found - exact(times, share)) <= ERROR * exact(times, share)


@given(times=st.lists(st.floats(allow_nan=False), max_size=50))
def test_no_time_is_left_out_however_odd(times: list[float]) -> None:
    counts = sketch_of(times)

    assert sum(counts.values()) == len(times)
    assert all(0 <= bin_ < len(BORDERS) for bin_ in counts)


def test_an_instant_in_the_future_is_no_wait() -> None:
    counts: dict[int, int] = {}
    count_waits(counts, [NOON - 1, NOON + 3 * 86_400], NOON)

    assert counts == {0: 1, bisect_left(BORDERS, 1.0): 1}
