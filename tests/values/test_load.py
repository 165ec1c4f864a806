"""How many slots a worker chooses: within its bounds, by what it measures, and without swinging."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue.errors import InvalidOption
from pgqueue.values.workers.load import (
    GROW_AGAIN_AFTER,
    LATE,
    MOST_SLOTS,
    SHORT_OF_MEMORY,
    Bounds,
    WorkerLoad,
    checked_bounds,
    next_size,
    read_bounds,
)

LOADS = st.builds(
    WorkerLoad,
    busy=st.integers(0, 300),
    more=st.booleans(),
    latency=st.floats(0, 10),
    memory=st.none() | st.floats(0, 1.5),
    cpu=st.floats(0, 2),
    since_strained=st.floats(0, 1e6),
)
BOUNDS = st.tuples(st.integers(1, 300), st.integers(0, 300)).map(lambda pair: Bounds(pair[0], sum(pair)))
LOOKS = 400
"""Enough for every load of these tests to settle."""


def settled(bounds: Bounds, load_at: Callable[[int], WorkerLoad], start: int) -> list[int]:
    """The sizes that follow one another under a load that depends on nothing but the size."""
    sizes, since = [bounds.nearest(start)], GROW_AGAIN_AFTER
    for _ in range(LOOKS):
        load = load_at(sizes[-1])
        since = 0.0 if load.strained else since + 1
        fields = {name: getattr(load, name) for name in ("busy", "more", "latency", "memory", "cpu")}
        sizes.append(next_size(WorkerLoad(**fields, since_strained=since), sizes[-1], bounds))
    return sizes


def turns(sizes: list[int]) -> int:
    """How often growing became shrinking, or shrinking growing."""
    steps = [after - before for before, after in pairwise(sizes) if after != before]
    return sum((one > 0) is not (other > 0) for one, other in pairwise(steps))


def working(jobs: int) -> Callable[[int], WorkerLoad]:
    """The load of a worker that has always this many jobs to run at a time."""
    return lambda size: WorkerLoad(busy=min(size, jobs), more=jobs > size)


@given(BOUNDS, st.lists(LOADS, max_size=50), st.integers(-10, 1_000))
def test_it_never_leaves_its_bounds(bounds: Bounds, loads: list[WorkerLoad], size: int) -> None:
    for load in loads:
        size = next_size(load, size, bounds)
        assert bounds.minimum <= size <= bounds.maximum


@given(BOUNDS, st.integers(0, 700), st.integers(1, 600))
def test_a_constant_number_of_jobs_is_given_enough_slots_and_not_twice_as_many(
    bounds: Bounds, jobs: int, start: int
) -> None:
    sizes = settled(bounds, working(jobs), start)
    assert sizes[-1] == sizes[-2]
    assert sizes[-1] >= bounds.nearest(jobs)
    assert sizes[-1] <= max(bounds.minimum, 2 * jobs + 1)
    assert turns(sizes) == 0


@given(BOUNDS, st.floats(0.0001, 1), st.integers(1, 600))
def test_a_loop_that_is_later_the_more_slots_there_are_settles_where_it_is_not_late(
    bounds: Bounds, each: float, start: int
) -> None:
    sizes = settled(bounds, lambda size: WorkerLoad(busy=size, more=True, latency=each * size), start)
    assert sizes[-1] == sizes[-2]
    assert sizes[-1] * each <= LATE or sizes[-1] == bounds.minimum
    assert (
        turns(sizes) <= 1
    )  # where it began above the limit it shrinks, and a minute later it may grow a little


@given(
    st.integers(8, 300), st.integers(0, 300), st.floats(0, 0.8), st.floats(0.0001, 0.1), st.integers(1, 600)
)
def test_memory_that_grows_with_the_slots_settles_where_it_is_not_short(
    minimum: int, more: int, base: float, each: float, start: int
) -> None:
    bounds = Bounds(minimum, minimum + more)
    sizes = settled(bounds, lambda size: WorkerLoad(busy=size, more=True, memory=base + each * size), start)
    assert sizes[-1] == sizes[-2]
    assert base + each * sizes[-1] <= SHORT_OF_MEMORY or sizes[-1] == bounds.minimum
    assert turns(sizes) <= 2


@given(BOUNDS, LOADS, st.integers(1, 600))
def test_under_strain_it_shrinks_and_nothing_else_makes_it_grow(
    bounds: Bounds, load: WorkerLoad, start: int
) -> None:
    size = bounds.nearest(start)
    then = next_size(load, size, bounds)
    if load.strained:
        assert then < size or size == bounds.minimum
    if then > size:
        assert load.busy >= size
        assert load.more
        assert load.can_do_more


def test_with_a_backlog_it_grows_from_5_to_50_in_a_dozen_seconds() -> None:
    sizes = settled(Bounds(5, 50), working(1_000), 5)
    assert sizes[:12] == [5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 41]
    assert sizes[12] == 50


@pytest.mark.parametrize(
    "load",
    [
        WorkerLoad(busy=10, more=True, cpu=0.95),
        WorkerLoad(busy=10, more=True, latency=0.06),
        WorkerLoad(busy=10, more=True, memory=0.8),
        WorkerLoad(busy=10, more=True, since_strained=59.0),
        WorkerLoad(busy=10),
        WorkerLoad(busy=9, more=True),
        WorkerLoad(busy=5),
    ],
)
def test_it_stays_where_growing_would_not_help_and_nothing_speaks_for_shrinking(load: WorkerLoad) -> None:
    assert next_size(load, 10, Bounds(2, 20)) == 10


@pytest.mark.parametrize(
    "load",
    [
        WorkerLoad(busy=10, more=True, latency=0.11),
        WorkerLoad(busy=10, more=True, memory=0.91),
        WorkerLoad(busy=4),
    ],
)
def test_it_shrinks_when_the_loop_is_late_memory_is_short_or_half_of_the_slots_are_unused(
    load: WorkerLoad,
) -> None:
    assert next_size(load, 10, Bounds(2, 20)) == 9


def test_it_does_not_shrink_below_what_runs_because_slots_are_unused() -> None:
    assert next_size(WorkerLoad(busy=49), 100, Bounds(1, 100)) == 88
    assert next_size(WorkerLoad(busy=0), 1, Bounds(1, 100)) == 1


@pytest.mark.parametrize(
    ("said", "read"), [("20", Bounds(20, 20)), (" 5-50 ", Bounds(5, 50)), ("1-1", Bounds(1, 1))]
)
def test_bounds_are_read_as_they_are_written(said: str, read: Bounds) -> None:
    assert read_bounds(said) == read
    assert read_bounds(str(read)) == read


@pytest.mark.parametrize("said", ["0", "-1", "50-5", "0-5", "many", "", "5-", "1.5", "5-5000000", "٣", "1e3"])
def test_other_texts_are_refused_with_what_to_write(said: str) -> None:
    with pytest.raises(InvalidOption, match="5-50"):
        read_bounds(said)


@pytest.mark.parametrize("given_", [20, (5, 50), [5, 50], Bounds(5, 50), MOST_SLOTS])
def test_bounds_are_a_number_or_two(given_: object) -> None:
    assert isinstance(checked_bounds(given_), Bounds)


@pytest.mark.parametrize(
    "given_",
    [0, -1, True, (True, 5), (5, True), 1.5, "5", None, (5,), (5, 4), (0, 5), (1, 2, 3), 10_001, Bounds(2, 1), Bounds(0, 1)],
)  # fmt: skip
def test_what_is_no_number_of_slots_is_refused_with_what_to_write(given_: object) -> None:
    with pytest.raises(InvalidOption, match="like \\(5, 50\\)"):
        checked_bounds(given_)
