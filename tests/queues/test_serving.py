"""What ``queues=`` says: names, weights, patterns, exclusions, order."""

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue.errors import InvalidOption, UnknownQueue
from pgqueue.values.pattern import stands_for
from pgqueue.values.queues.served_queues import ALL, is_served, parse_served

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
    code = "from pgqueue.values.pattern import stands_for; print(stands_for('*a' * 20 + '*b', 'a' * 200))"
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"
