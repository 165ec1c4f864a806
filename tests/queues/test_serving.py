"""What ``queues=`` says: names, weights, patterns, exclusions, order.

Weights become numbers of claims: the shares hold over any stretch, also if queues are empty in between.
"""

import re
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue.errors import InvalidOption, UnknownQueue
from pgqueue.values.jobs.options import stands_for
from pgqueue.values.queues.served_queues import ALL, is_served, parse_served
from pgqueue.values.queues.shares import MOST_ASKED, Shares, StrictOrder, in_turn, split_of

NAMES = ("mail", "mail-a", "mail-bulk", "reports", "default")


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        (None, (1, 1, 1, 1, 1)),
        (["mail", "reports"], (1, 0, 0, 1, 0)),
        (["mail:5", "reports:1"], (5, 0, 0, 1, 0)),
        ({"mail": 5, "reports": 1}, (5, 0, 0, 1, 0)),
        (["mail-*"], (0, 1, 1, 0, 0)),
        (["mail-*:3", "!mail-bulk"], (0, 3, 0, 0, 0)),
        (["mail*:3", "mail-a:7"], (3, 7, 3, 0, 0)),
        (["!mail-*"], (1, 0, 0, 1, 1)),
        (["*:2", "!mail", "!reports"], (0, 2, 2, 0, 2)),
        ({"*": 2, "mail": 9}, (9, 2, 2, 2, 2)),
        (["mail-*:3", "*:2"], (2, 3, 3, 2, 2)),
        (["*:2", "mail-*:3"], (2, 2, 2, 2, 2)),
    ],
)
def test_each_queue_has_the_weight_of_its_entry(given: Any, weights: tuple[int, ...]) -> None:
    found = parse_served(given)
    assert tuple(found.weight(name) for name in NAMES) == weights
    assert [is_served(found.entries, name) for name in NAMES] == [weight > 0 for weight in weights]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["mail:0"], "to serve no job of it, write !mail"),
        ({"mail": 0}, "from 1 to 1000"),
        ({"mail": -1}, "from 1 to 1000"),
        ({"mail": 1.5}, "from 1 to 1000"),
        ({"mail": True}, "from 1 to 1000"),
        (["mail:many"], "behind the colon stands a weight"),
        (["mail:"], "behind the colon stands a weight"),
        (["mail", "!mail"], "contradict each other"),
        (["mail:2", "mail:3"], "two weights, 2 and 3"),
        (["!mail:3"], "has no weight"),
        (["!"], "a name has 1 to 200"),
        ([], "name at least one"),
        ({}, "name at least one"),
        ("mail", "give a list of names"),
        (["two words"], "white space"),
        ([7], "a name has"),
    ],
)
def test_what_makes_no_sense_is_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_served(given)


def test_a_strict_order_has_no_weights_and_needs_names() -> None:
    with pytest.raises(InvalidOption, match="contradict each other: a strict order has no shares"):
        parse_served(["mail:5", "reports"], order="strict")
    with pytest.raises(InvalidOption, match="name the queues in their order"):
        parse_served(None, order="strict")
    with pytest.raises(InvalidOption, match="use one of 'shares', 'strict'"):
        parse_served(["mail"], order="stricter")
    served = parse_served(["mail-*", "mail", "*"], order="strict")
    assert sorted(NAMES, key=served.place) == ["mail-a", "mail-bulk", "mail", "default", "reports"]


def test_in_a_strict_order_a_name_has_its_own_place_and_the_first_pattern_that_of_the_others() -> None:
    found = parse_served(["mail-*", "*", "mail-a"], order="strict")
    assert sorted(NAMES, key=found.place) == ["mail-bulk", "default", "mail", "reports", "mail-a"]


def test_declared_queues_are_those_that_a_pattern_stands_for() -> None:
    assert parse_served(["mail*:2", "!mail-bulk"], declared=NAMES).weights == {"mail": 2, "mail-a": 2}
    assert parse_served(None, declared=["b", "a"]).entries == ["a", "b"]
    for wrong in (["nail"], ["x-*"], ["!x"]):
        with pytest.raises(UnknownQueue, match="stands for none of the declared queues: default, mail"):
            parse_served(wrong, declared=NAMES)
    with pytest.raises(InvalidOption, match="nothing is left"):
        parse_served(["!*"], declared=NAMES)


def test_it_is_shown_as_it_was_given_without_weights() -> None:
    assert ALL.entries is None
    assert parse_served(["mail-*:3", "!mail-bulk"]).entries == ["mail-*", "!mail-bulk"]
    assert parse_served(["a", "b"]).is_plain
    assert not parse_served(["a:2", "b"]).is_plain
    assert parse_served(["!a"]).is_open
    assert not parse_served(["a"]).is_open


def test_a_star_alone_is_special() -> None:
    assert stands_for("a.c*", "a.c\n1")
    assert not stands_for("a.c", "abc")
    assert stands_for("[x]?*", "[x]?")
    assert not stands_for("[x]*", "x")


@given(st.text("ab*", max_size=8), st.text("ab\n", max_size=10))
def test_a_pattern_stands_for_the_names_that_the_regular_expression_matches(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert stands_for(pattern, name) == (re.fullmatch(expression, name, re.DOTALL) is not None)


def test_a_pattern_of_many_stars_does_not_stop_a_worker() -> None:
    """Compared in another process, since a regular expression takes longer than a test may, and cannot be interrupted."""
    code = (
        "from pgqueue.values.jobs.options import stands_for; print(stands_for('*a' * 20 + '*b', 'a' * 200))"
    )
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"


QUEUES = ("a", "b", "c")


def look(split: Shares | StrictOrder, ready: dict[str, int], room: int) -> Counter[str]:
    """Claim as :func:`pgqueue.store.jobs.claim.fill` does, from this many ready jobs of each queue."""
    claimed: Counter[str] = Counter()
    hungry = sorted(ready)
    while hungry and claimed.total() < room:
        left = room - claimed.total()
        quotas = split.quotas(hungry, left)
        found: Counter[str] = Counter()
        for queue, quota in quotas.items():
            count = min(quota, ready[queue], left - found.total())
            if count:
                found[queue] = count
                ready[queue] -= count
        split.learn(quotas, found, left)
        claimed += found
        hungry = [one for one in hungry if one not in quotas] + [
            queue for queue, quota in quotas.items() if found[queue] == quota
        ]
    return claimed


weights = st.fixed_dictionaries(dict.fromkeys(QUEUES, st.integers(1, 10)))
looks = st.lists(
    st.tuples(st.integers(1, 40), st.fixed_dictionaries(dict.fromkeys(QUEUES, st.integers(0, 60)))),
    min_size=1,
    max_size=60,
)


@given(weights, st.sampled_from([1, 2, 7, 20, 500]))
def test_queues_that_always_have_jobs_are_served_by_their_weights(weight: dict[str, int], room: int) -> None:
    shares = Shares(weight.__getitem__)
    total: Counter[str] = Counter()
    while total.total() < 1_000:
        total += look(shares, dict.fromkeys(QUEUES, 10_000), room)
    for queue in QUEUES:
        assert abs(total[queue] - total.total() * weight[queue] / sum(weight.values())) <= len(QUEUES)


@given(weights, looks, st.sampled_from([1, 2, 25]))
def test_no_room_is_left_while_a_queue_has_jobs_and_no_queue_saves_up_what_it_did_not_use(
    weight: dict[str, int], history: list[tuple[int, dict[str, int]]], room_after: int
) -> None:
    shares = Shares(weight.__getitem__)
    ready: Counter[str] = Counter()
    for room, arrived in history:
        ready.update(arrived)
        there = ready.total()
        claimed = look(shares, {queue: ready[queue] for queue in QUEUES}, room)
        assert claimed.total() == min(room, there)
        ready -= claimed
    after: Counter[str] = Counter()
    while after.total() < 1_000:
        after += look(shares, dict.fromkeys(QUEUES, 10_000), room_after)
    for queue in QUEUES:  # after any history the next 1,000 jobs are shared as the weights say
        assert abs(after[queue] - after.total() * weight[queue] / sum(weight.values())) <= 3 * len(QUEUES)


@given(weights, looks, st.sampled_from(QUEUES))
def test_two_queues_share_by_their_weights_while_a_third_comes_and_goes(
    weight: dict[str, int], history: list[tuple[int, dict[str, int]]], third: str
) -> None:
    shares = Shares(weight.__getitem__)
    one, other = (queue for queue in QUEUES if queue != third)
    served: Counter[str] = Counter()
    for room, arrived in history:
        served += look(shares, {one: 10_000, other: 10_000, third: arrived[third]}, room)
        apart = abs(served[one] / weight[one] - served[other] / weight[other])
        assert apart <= 2 / min(weight[one], weight[other])


@given(looks)
def test_a_strict_order_serves_a_queue_only_while_those_before_it_are_empty(
    history: list[tuple[int, dict[str, int]]],
) -> None:
    strict = split_of(parse_served(["b", "c", "a"], order="strict"))
    assert isinstance(strict, StrictOrder)
    ready: Counter[str] = Counter()
    for room, arrived in history:
        ready.update(arrived)
        left = room
        expected = {}
        for queue in ("b", "c", "a"):
            expected[queue] = min(left, ready[queue])
            left -= expected[queue]
        claimed = look(strict, {queue: ready[queue] for queue in QUEUES}, room)
        assert claimed == +Counter(expected)
        ready -= claimed


def test_equal_shares_need_no_memory() -> None:
    assert split_of(parse_served(["a", "b"])) is None
    assert split_of(parse_served(None)) is None
    assert isinstance(split_of(parse_served(["a:2", "b"])), Shares)


def test_looks_of_one_job_without_a_memory_are_shared_by_the_weights_on_average() -> None:
    """As of takes, each of which is new: what is first is drawn."""
    served = parse_served({"a": 5, "b": 1, "c": 4})
    draw = Random(16).expovariate  # noqa: S311 - no secret
    total: Counter[str] = Counter()
    for _ in range(5_000):
        split = split_of(served, draw)
        assert split is not None
        total += look(split, dict.fromkeys(QUEUES, 9), 1)
    shares = {queue: total[queue] / 5_000 for queue in QUEUES}
    assert all(abs(shares[queue] - share) < 0.03 for queue, share in (("a", 0.5), ("b", 0.1), ("c", 0.4)))


def test_a_queue_that_comes_late_claims_no_more_than_its_share() -> None:
    shares = Shares({"a": 1, "b": 1, "c": 1}.__getitem__)
    look(shares, {"a": 500, "b": 500}, 600)
    assert look(shares, dict.fromkeys(QUEUES, 100), 30) == {"a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize("before", [1, 4])
def test_looks_of_one_job_are_shared_by_the_weights_after_a_look_that_found_nothing(before: int) -> None:
    """A worker with one slot that was idle: each look finds a job of the first queue that it asks."""
    shares = Shares({"a": 1, "b": 3, "c": 1}.__getitem__)
    look(shares, dict.fromkeys(QUEUES, 0), before)
    total: Counter[str] = Counter()
    for _ in range(50):
        total += look(shares, dict.fromkeys(QUEUES, 100), 1)
    assert all(abs(total[queue] - share) <= 1 for queue, share in (("a", 10), ("b", 30), ("c", 10)))


def test_a_queue_that_is_not_known_any_more_begins_anew() -> None:
    shares = Shares({"a": 1, "b": 1}.__getitem__)
    shares.learn({"a": 1, "b": 50}, {"a": 1, "b": 50}, 51)
    assert shares.quotas(["a", "b"], 10) == {"a": 10, "b": 1}
    shares.forget(["a"])
    assert shares.quotas(["a", "b"], 10) == {"a": 5, "b": 5}


def test_one_statement_asks_the_queues_that_are_not_due_for_one_job_each() -> None:
    shares = Shares(lambda _: 1)
    assert shares.quotas(["a", "b", "c"], 1) == {"a": 1, "b": 1, "c": 1}
    assert len(shares.quotas([str(number) for number in range(500)], 1)) == MOST_ASKED


def test_the_claims_of_one_look_start_in_turn_by_their_weights() -> None:
    shares = Shares({"a": 2, "b": 1}.__getitem__)
    claims = ["a1", "a2", "a3", "a4", "b1", "b2"]
    assert in_turn(shares, claims, lambda claim: claim[0]) == ["a1", "a2", "b1", "a3", "a4", "b2"]
