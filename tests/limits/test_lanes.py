"""Quotas of lanes over random limits: never more than is free, nothing left that could run, by weights, no lane starved."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pgqueue.values.limits.lanes import Lane, LaneShares, given_by_pass, given_in_turn, quotas

KEYS = ("a", "b", "c", "d")
SHARES = ("", "", "x", "y")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Lane], dict[str, int], int, int]:
    """Lanes, free places, room, and the lane to begin at."""
    weight = {share: draw(st.integers(1, 9)) for share in SHARES if share}
    lanes = []
    for place in range(draw(st.integers(0, 12))):
        keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4))
        share = draw(st.sampled_from(SHARES))
        lanes.append(
            Lane(
                share or f"lane {place}",
                tuple(keys),
                draw(st.integers(0, 30)),
                weight.get(share) or draw(st.integers(1, 9)),
            )
        )
    free = {key: draw(st.integers(0, 20)) for key in KEYS}
    return lanes, free, draw(st.integers(0, 60)), draw(st.integers(0, 30))


@given(situations())
def test_no_key_and_no_room_is_exceeded_and_no_lane_could_have_one_more(
    given_: tuple[list[Lane], dict[str, int], int, int],
) -> None:
    lanes, free, room, first = given_
    given_out = quotas(lanes, free, room, first=first)
    used: Counter[str] = Counter()
    for place, count in given_out.items():
        assert 0 < count <= lanes[place].most
        used.update(dict.fromkeys(lanes[place].keys, count))
    total = sum(given_out.values())
    assert total <= room
    assert all(used[key] <= free[key] for key in KEYS)
    for place, lane in enumerate(lanes):
        could = given_out.get(place, 0) < lane.most and all(used[key] < free[key] for key in lane.keys)
        assert not could or total == room
    assert quotas(lanes, free, room, first=first) == given_out


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.integers(1, 40))
def test_shares_that_always_have_jobs_are_served_by_their_weights(weights: list[int], room: int) -> None:
    lanes = [Lane(f"lane {place}", (), 10_000, weight) for place, weight in enumerate(weights)]
    turns, total = LaneShares(), Counter[int]()
    while total.total() < 500:
        given_out = turns.quotas(lanes, {}, room)
        turns.learn(lanes, given_out)
        total.update(given_out)
    for place, weight in enumerate(weights):
        assert abs(total[place] - total.total() * weight / sum(weights)) <= len(weights) + 1


@given(situations())
def test_shares_of_equal_weight_are_given_in_turn_what_they_would_be_given_by_pass(
    given_: tuple[list[Lane], dict[str, int], int, int],
) -> None:
    lanes, free, room, first = given_
    even = [Lane(f"lane {place}", lane.keys, lane.most) for place, lane in enumerate(lanes)]
    order = [(first + turn) % len(even) for turn in range(len(even))]
    passes = dict.fromkeys((lane.share for lane in even), 0.0)
    by_pass = given_by_pass(even, free, room, order, passes)
    assert given_in_turn(even, free, room, order) == by_pass
    assert quotas(even, free, room, first=first) == by_pass[0]


def test_a_share_of_many_lanes_gets_as_much_as_a_share_of_one() -> None:
    lanes = [Lane("many", (), 100) for _ in range(99)] + [Lane("one", (), 100)]
    given_out = quotas(lanes, {}, 100)
    assert given_out[99] == 50
    assert len(given_out) == 51  # and each of the many lanes gets at most one of the others


@given(st.integers(1, 120), st.integers(1, 50))
def test_no_lane_waits_for_more_rounds_than_there_are_lanes_for_the_room(lanes: int, room: int) -> None:
    waiting = [Lane(f"lane {place}", (), 10_000) for place in range(lanes)]
    turns = LaneShares()
    served: set[int] = set()
    for _ in range(-(-lanes // room)):
        given_out = turns.quotas(waiting, {}, room)
        turns.learn(waiting, given_out)
        served |= given_out.keys()
    assert len(served) == lanes


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 10))
def test_ten_jobs_of_a_tenant_are_done_after_their_share_of_rounds_however_many_another_has(
    tenants: int, room: int, jobs: int
) -> None:
    """The stated bound: with T tenants that have jobs, k jobs of one have started after ceil(k * T / room) claims, and one."""
    turns, left = LaneShares(), jobs
    for _ in range(7):  # the others have been at it for a while
        busy = [Lane(f"tenant {place}", (), 1_000_000) for place in range(tenants)]
        turns.learn(busy, turns.quotas(busy, {}, room))
    claims = 0
    while left:
        lanes = [Lane(f"tenant {place}", (), 1_000_000) for place in range(tenants)] + [
            Lane("late", (), left)
        ]
        given_out = turns.quotas(lanes, {}, room)
        turns.learn(lanes, given_out)
        left -= given_out.get(tenants, 0)
        claims += 1
    assert claims <= -(-jobs * (tenants + 1) // room) + 1


def test_a_share_that_could_not_use_its_places_does_not_claim_them_later() -> None:
    turns = LaneShares()
    lanes = [Lane("full", ("a",), 100), Lane("open", (), 100)]
    for _ in range(50):
        turns.learn(lanes, turns.quotas(lanes, {"a": 0}, 10))
    assert turns.quotas(lanes, {"a": 100}, 10) == {0: 5, 1: 5}


def test_what_a_lane_did_not_have_is_not_counted() -> None:
    turns = LaneShares()
    lanes = [Lane("short", (), 100), Lane("long", (), 100)]
    for _ in range(10):
        assert turns.quotas(lanes, {}, 10) == {0: 5, 1: 5}
        turns.learn(lanes, {0: 5, 1: 5})
