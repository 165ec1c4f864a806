"""Limits as users write them, and the keys and lanes that they make of arguments."""

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgqueue import Context, Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption
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
