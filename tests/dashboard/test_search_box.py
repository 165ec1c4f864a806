"""What is typed into the box of a list stands for parameters of the address, and is shown again."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgqueue.dashboard.search_box import box_text, read_arguments, read_box
from pgqueue.errors import InvalidOption


@pytest.mark.parametrize(
    ("typed", "parameters"),
    [
        ("42", {"id": ["42"]}),
        (" #42 ", {"id": ["42"]}),
        ("id:42", {"id": ["42"]}),
        ("task:shop.sell", {"task": ["shop.sell"]}),
        ("queue:mail state:dead state:ready", {"queue": ["mail"], "state": ["dead", "ready"]}),
        ("key:receipt:42", {"key": ["receipt:42"]}),
        ('key:"two words"', {"key": ["two words"]}),
        ("order_id=7", {"args": ['{"order_id":7}']}),
        ('order_id=7 note="two words" to=ann', {"args": ['{"order_id":7,"note":"two words","to":"ann"}']}),
        ('{"order_id": 7}', {"args": ['{"order_id": 7}']}),
        ("url=http://a:1", {"args": ['{"url":"http://a:1"}']}),
        ("receipt", {"task": ["*receipt*"]}),
        ("shop receipt", {"task": ["*shop*receipt*"]}),
        ("*receipt queue:mail", {"queue": ["mail"], "task": ["*receipt*"]}),
        ('"a:b"', {"task": ["*a:b*"]}),
        ("error:ValueError after:2h until:15m", {"error": ["ValueError"], "after": ["2h"], "until": ["15m"]}),
        ("", {}),
    ],
)
def test_the_box_takes_an_id_terms_arguments_and_words(typed: str, parameters: dict[str, list[str]]) -> None:
    assert read_box(typed) == parameters


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("taks:shop.sell", "did you mean 'task'"),
        ("task:a task:b", "it is given twice"),
        ("task:a word", "it is given twice"),
        ("id:42 queue:mail", "an id stands alone"),
        ("queue:", "has nothing behind it"),
        ('note="two', "a quote is not closed"),
    ],
)
def test_a_term_that_makes_no_sense_is_refused_with_a_reason(typed: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_box(typed)


def test_a_quote_that_is_not_closed_is_looked_for_once() -> None:
    with pytest.raises(InvalidOption, match="not closed"):
        read_box('"' + '\\"' * 2_000_000)  # each of its quotes looked for to the end would take days


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(["task", "queue", "key", "error"]), st.text("ab:=\" *\\'7", min_size=1))
)
def test_what_the_box_shows_means_the_same_when_it_is_sent(fields: dict[str, str]) -> None:
    parameters = {name: [value] for name, value in fields.items() if value.strip() == value and value}
    assert read_box(box_text(parameters)) == parameters


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), VALUES, min_size=1, max_size=3))
@example({"a": ""})
@example({"a": {"b": "two words"}, "c": "7"})
def test_arguments_that_the_box_shows_are_the_same_when_they_are_sent(arguments: dict[str, object]) -> None:
    shown = box_text({"args": [msgspec.json.encode(arguments).decode()]})
    (text,) = read_box(shown)["args"]
    assert read_arguments(text) == arguments
