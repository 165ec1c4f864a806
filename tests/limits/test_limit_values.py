"""Limits as users write them, and the keys and lanes that they make of arguments.

The generic cell rate algorithm over random histories: no window of any length holds more than the rate allows.
Quotas of lanes over random limits: never more than is free, nothing left that could run, by weights, no lane starved.
"""

import json
import math
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgqueue import Context, Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption
from pgqueue.values.limits.gcra import HORIZON, advance_tat, count, earliest, settle_tat, starts
from pgqueue.values.limits.lanes import Lane, LaneShares, given_by_pass, given_in_turn, quotas
from pgqueue.values.limits.limit import keys_of, share_of
from pgqueue.values.limits.task_limits import encoded_lane, limits_of_task

queue = PgQueue("")


@pytest.mark.parametrize(
    ("rate", "every"),
    [
        (Rate("100/minute"), 600_000),
        (Rate("5/second"), 200_000),
        (Rate("1/30s"), 30_000_000),
        (Rate("2/15m"), 450_000_000),
        (Rate("24/day"), 3_600_000_000),
        (Rate("7/second"), 142_858),  # rounded up: never faster
        (Rate(every=0.01), 10_000),
        (Rate(every=timedelta(days=2)), 172_800_000_000),
        (Rate(" 3 / hour "), 1_200_000_000),
    ],
)
def test_a_rate_is_whole_microseconds_between_starts(rate: Rate, every: int) -> None:
    assert rate.numbers.rate == (every, 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Limit(0), "most=0"),
        (lambda: Limit(-1), "most=-1"),
        (lambda: Limit(True), "most=True"),  # noqa: FBT003 - what is refused
        (lambda: Limit(math.nan), "most=nan"),  # type: ignore[arg-type]
        (lambda: Limit(3, by=("a", "a")), "by"),
        (lambda: Limit(3, by=("",)), "by"),
        (lambda: Limit(3, by=7), "by=7"),  # type: ignore[arg-type]
        (lambda: Limit(3, name="an api"), "white space"),
        (lambda: Limit(3, name=""), "name"),
        (Rate, "one of the two"),
        (lambda: Rate("1/second", every=1), "one of the two"),
        (lambda: Rate("0/second"), "0/second"),
        (lambda: Rate("-1/second"), "-1/second"),
        (lambda: Rate("1/0s"), "1/0s"),
        (lambda: Rate("1.5/second"), "1.5/second"),
        (lambda: Rate("1/fortnight"), "fortnight"),
        (lambda: Rate("١/second"), "second"),  # noqa: RUF001 - another script's digit
        (lambda: Rate(5), "Rate(5)"),  # type: ignore[arg-type]
        (lambda: Rate("2000000/second"), "1 microsecond"),
        (lambda: Rate("1/9000d"), "365 days"),
        (lambda: Rate(every=0), "every"),
        (lambda: Rate(every=-1), "every"),
        (lambda: Rate(every=math.nan), "every=nan"),
        (lambda: Rate(every=math.inf), "every=inf"),
        (lambda: Rate(every=True), "every=True"),
        (lambda: Rate(every=2, burst=3), "burst"),
        (lambda: Rate("1/second", burst=0), "burst=0"),
        (lambda: Rate("1/second", cost=2), "could never start"),
        (lambda: Rate("1/second", burst=5, cost=0), "cost=0"),
        (lambda: Rate("1/second", burst=5, cost=""), "cost"),
    ],
)
def test_values_that_make_no_sense_are_refused_where_they_are_written(make: Any, said: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        make()
    assert said in str(refused.value)


def test_contradictions_are_refused_at_the_task() -> None:
    app = PgQueue("")

    def send(customer_id: int, size: int = 1) -> None: ...

    for options, said in (
        ({"limit": [Limit(1), Limit(2)]}, "limit the same jobs"),
        ({"limit": [Rate("1/second"), Rate("2/second")]}, "limit the same jobs"),
        ({"limit": Limit(1, by="customer")}, "did you mean 'customer_id'"),
        ({"limit": Rate("1/second", burst=5, cost="sise")}, "did you mean 'size'"),
        ({"limit": [Rate("1/second", burst=5, cost=2), Rate("9/day", burst=9)]}, "one cost"),
        ({"limit": 3}, "limit=3"),
        ({"limit": []}, "0 limits"),
        ({"limit": [Limit(n, name=f"n{n}") for n in range(1, 10)]}, "9 limits"),
        ({"limit": [Limit(n, by="size", name=f"{n}" * 190) for n in range(1, 6)]}, "short names"),
        ({"fair_by": ()}, "fair_by"),
        ({"fair_by": "tenant"}, "tenant"),
    ):
        with pytest.raises(InvalidOption) as refused:
            app.task(name="send", **options)(send)
        assert said in str(refused.value)
    assert not app.tasks
    assert not app.limits


def test_a_limit_that_two_tasks_share_says_the_same_at_both() -> None:
    app = PgQueue("")

    @app.task(name="one", limit=Limit(3, name="api", by="customer"))
    def one(customer: int = 1) -> None: ...

    @app.task(name="two", limit=Limit(3, name="api", by="customer"))
    def two(customer: int = 1) -> None: ...

    assert one.call(7).job.lane == two.call(7).job.lane == 'name:api {"customer":7}'

    def three(customer: int = 1) -> None: ...
    def four(customer: int = 2) -> None: ...

    with pytest.raises(InvalidOption, match="declared twice: '4 at once by customer' at task three"):
        app.task(name="three", limit=Limit(4, name="api", by="customer"))(three)
    with pytest.raises(InvalidOption, match="another default"):
        app.task(name="four", limit=Limit(3, name="api", by="customer"))(four)
    assert {*app.tasks} >= {"one", "two"}
    assert not {"three", "four"} & app.tasks.keys()
    assert app.limits["name:api"].most == 3


def test_a_value_makes_the_same_key_however_it_is_given() -> None:
    @queue.task(name="same", limit=Limit(3, by=("a", "b")), fair_by="b")
    def task(ctx: Context, a: int, b: str = "x", *, c: int = 0) -> None: ...

    lanes = {call.job.lane for call in (task.call(1), task.call(1, "x"), task.call(a=1, b="".join("x"), c=5))}
    assert len(lanes) == 1
    (lane,) = lanes
    assert lane is not None
    assert [key.limit for key in keys_of(lane)] == ["task:same:a,b", ""]


def test_a_task_without_limits_has_no_lane() -> None:
    @queue.task(name="without")
    def task(a: int) -> None: ...

    assert task.limiting is None
    assert (task.call(1).job.lane, task.call(1).job.cost) == (None, None)


def test_an_argument_is_the_cost() -> None:
    @queue.task(name="costly", limit=[Rate("100/minute", burst=20, cost="size"), Limit(2)])
    def task(size: int = 4) -> None: ...

    assert [task.call(*size).job.cost for size in ((), (1,), (20,))] == [4, None, 20]
    for size in (21, 0, -1):
        with pytest.raises(InvalidOption, match="cost"):
            task.call(size)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
args = st.fixed_dictionaries({"a": json_values, "b": json_values})


def lane_of(arguments: dict[str, Any], by: tuple[str, ...]) -> str:
    found = limits_of_task("task", [Limit(1, by=by), Limit(2, name="other", by="b")], "a")
    assert found is not None
    return found.lane(json.dumps(arguments).encode())


def plain(value: Any) -> Any:
    """A value such that equal JSON is equal, and other JSON is not: True is not 1, and 1 is 1.0."""
    match value:
        case bool() | None:
            return (type(value).__name__, value)
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case list():
            return [*map(plain, value)]
        case _:
            return value


@given(args, args)
def test_two_values_never_share_a_lane_and_the_same_value_always_does(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = plain(one) == plain(other)
    assert (lane_of(one, ("a", "b")) == lane_of(other, ("a", "b"))) == same
    alone = limits_of_task("task", Limit(1, by=("a", "b")), None)
    assert alone is not None
    assert (alone.lane(json.dumps(one).encode()) == alone.lane(json.dumps(other).encode())) == same


@given(args, st.text(), st.text())
def test_a_value_cannot_forge_another_key(one: dict[str, Any], begin: str, end: str) -> None:
    true = lane_of(one, ("a",))
    forged = {"a": f"{begin}{true}{end}", "b": one["b"]}
    assume(one["a"] != forged["a"])
    lane = lane_of(forged, ("a",))
    assert lane != true
    assert [key.limit for key in keys_of(lane)] == ["name:other", "task:task:a", ""]
    assert share_of(lane) != share_of(true)
    assert "\x00" not in lane
    assert len(lane.encode()) < 1_600


def test_a_codec_encodes_what_keys_tell_of_arguments() -> None:
    lane = lane_of({"a": "secret", "b": 2}, ("a",))
    assert encoded_lane(lane, lambda text: f"e{len(text)}") == "name:other e7\ntask:task:a e14\n e14"
    for forged in ("x\nname:api", "", "é", "x" * 900):
        stored = encoded_lane(lane, {'{"a":"secret"}': forged, '{"b":2}': "b"}.__getitem__)
        assert [key.limit for key in keys_of(stored)] == ["name:other", "task:task:a", ""]
        assert "secret" not in stored
        assert len(stored) < 300


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
    for place, number in given_out.items():
        assert 0 < number <= lanes[place].most
        used.update(dict.fromkeys(lanes[place].keys, number))
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
