"""The generic cell rate algorithm over random histories: no window of any length holds more than the rate allows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pgqueue.values.limits.gcra import HORIZON, advance_tat, count, earliest, settle_tat, starts

rates = st.tuples(st.integers(1, 500_000), st.integers(1, 8))
pauses = st.one_of(st.integers(0, 10), st.integers(0, 300_000), st.integers(0, 10_000_000))


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[int, int], list[tuple[int, list[int]]]]:
    """A rate; and claims, each with the pause before it and the costs of the jobs that wait."""
    rate = draw(rates)
    costs = st.lists(st.integers(1, rate[1]), max_size=12)
    return rate, draw(st.lists(st.tuples(pauses, costs), min_size=1, max_size=20))


def run(rate: tuple[int, int], history: list[tuple[int, list[int]]]) -> list[tuple[int, int]]:
    """The starts and their costs."""
    now, tat, begun = 1_000_000_000, 0, []
    for pause, costs in history:
        now += pause
        at, tat = starts(tat, now, rate, costs)
        assert all(now <= one <= now + HORIZON for one in at)
        begun += [*zip(at, costs, strict=False)]
    return begun


@given(histories())
def test_no_window_has_more_than_the_burst_and_what_the_rate_gives_in_it(
    given_: tuple[tuple[int, int], list[tuple[int, list[int]]]],
) -> None:
    (every, burst), history = given_
    begun = run((every, burst), history)
    for first, (began, _) in enumerate(begun):
        total = 0
        for at, cost in begun[first:]:
            total += cost
            assert total * every <= burst * every + (at - began)


@given(st.integers(1, 500_000), st.lists(pauses, min_size=1, max_size=30))
def test_with_a_burst_of_one_starts_are_never_closer_and_exactly_apart_while_jobs_wait(
    every: int, pauses: list[int]
) -> None:
    begun = [at for at, _ in run((every, 1), [(pause, [1] * 20) for pause in pauses])]
    assert all(after - before >= every for before, after in pairwise(begun))
    steady = [at for at, _ in run((every, 1), [(HORIZON // 2, [1] * 200_000)] * 3)] if every > 1_000 else []
    assert all(after - before == every for before, after in pairwise(steady))


@given(rates, st.integers(0, 10**9), st.integers(1, 8))
def test_after_a_pause_no_start_is_made_up_for(rate: tuple[int, int], pause: int, late: int) -> None:
    every, burst = rate
    _, tat = starts(0, 1_000_000, rate, [1] * 30)
    now = tat + pause + burst * every
    at, _ = starts(tat, now, rate, [1] * (burst + late))
    assert at[:burst] == [now] * burst
    assert all(after - before == every for before, after in pairwise(at[burst - 1 :]))


@given(rates, st.integers(0, 10**7), st.integers(-(10**7), 10**7), st.integers(1, 8))
def test_the_count_is_how_many_may_start(rate: tuple[int, int], now: int, ahead: int, cost: int) -> None:
    cost = min(cost, rate[1])
    at, _ = starts(now + ahead, now, rate, [cost] * 3_000)
    tat = settle_tat(now + ahead, now, rate)
    assert len(at) == min(3_000, count(tat, now, rate, cost=cost))


@given(rates, st.integers(1, 10**12))
def test_a_clock_that_is_set_back_stops_starts_no_longer_than_the_burst_and_the_horizon_last(
    rate: tuple[int, int], back: int
) -> None:
    every, burst = rate
    now = 10**13
    _, tat = starts(0, now, rate, [1] * 200)
    kept = settle_tat(tat, now - back, rate)
    assert earliest(kept, now - back, rate) <= now - back + HORIZON + burst * every
    assert settle_tat(tat, now, rate) == tat  # at the right time nothing is lost


@given(rates, st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_start_moves_the_state_by_its_cost(rate: tuple[int, int], tat: int, now: int) -> None:
    at = earliest(tat, now, rate)
    assert at >= now
    assert advance_tat(tat, at, rate, 1) >= max(tat, now) + rate[0]


@given(rates, st.integers(0, 10**12), st.integers(-(2**31), 2**31 - 1))
def test_a_cost_that_no_start_may_have_counts_as_the_nearest_that_one_may(
    rate: tuple[int, int], tat: int, cost: int
) -> None:
    nearest = max(1, min(cost, rate[1]))
    assert earliest(tat, 5, rate, cost) == earliest(tat, 5, rate, nearest)
    assert advance_tat(tat, 5, rate, cost) == advance_tat(tat, 5, rate, nearest)
    assert count(tat, 5, rate, cost=cost) == count(tat, 5, rate, cost=nearest)
    assert starts(0, 0, rate, [cost])[0] == [0]  # it does start


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_the_state_is_a_number_that_postgresql_stores(tat: int, every: int, burst: int) -> None:
    assert advance_tat(tat, 0, (every, burst), burst) < 2**63
