"""Bounds on JSON: what PostgreSQL would refuse, and what Python could not read back, is refused when it is encoded."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from values.shapes import Injected

from pgqueue.errors import PayloadNotEncodable
from pgqueue.values.payloads.signature import Signature, encode_result
from pgqueue.values.payloads.storable import DEEPEST


def nested(levels: int) -> list[Any]:
    """Lists in lists."""
    outer: list[Any] = []
    for _ in range(levels - 1):
        outer = [outer]
    return outer


def encoded(task: Callable[..., None], *args: object) -> bytes:
    return Signature(task, Injected).encode(args, {})


def takes_any(value: Any) -> None: ...
def takes_raw(value: msgspec.Raw) -> None: ...
def takes_raws(rows: dict[str, list[msgspec.Raw]]) -> None: ...


def test_arguments_and_results_have_at_most_200_levels() -> None:
    encoded(takes_any, nested(DEEPEST - 1))
    encode_result(nested(DEEPEST))
    with pytest.raises(
        PayloadNotEncodable, match="takes_any: it has more than 200 levels of lists and objects"
    ):
        encoded(takes_any, nested(DEEPEST))
    with pytest.raises(PayloadNotEncodable, match="more than 200 levels"):
        encode_result(nested(DEEPEST + 1))


@pytest.mark.parametrize("leaf", [None, math.nan, "[" * 500])
def test_many_levels_are_refused_whatever_is_in_them(leaf: object) -> None:
    deep = nested(500)
    deep.append(leaf)

    with pytest.raises(PayloadNotEncodable, match="more than 200 levels"):
        encoded(takes_any, deep)


@pytest.mark.parametrize("value", ["[" * 500, '"[{' * 300, [[n] for n in range(500)], {"\\": "[" * 500}])
def test_brackets_that_are_no_levels_do_not_count(value: object) -> None:
    assert msgspec.json.decode(encoded(takes_any, value)) == {"value": value}
    assert msgspec.json.decode(encode_result(value) or b"") == value


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"total": -math.inf, "of": None}])
def test_a_result_of_nan_or_infinity_is_refused_and_not_kept_as_null(value: object) -> None:
    with pytest.raises(PayloadNotEncodable, match="JSON has no NaN or infinity"):
        encode_result(value)


def test_a_result_with_null_in_it_is_kept() -> None:
    assert encode_result({"total": None, "text": "null"}) == b'{"total":null,"text":"null"}'


PRETTY = msgspec.Raw(b'{\n\t"total" : 1.50,\r\n "of": [1e2]\n}')


def test_json_that_was_encoded_elsewhere_is_stored_on_one_line_and_its_numbers_as_they_are() -> None:
    flat = b'{"total":1.50,"of":[1e2]}'

    assert encoded(takes_raw, PRETTY) == b'{"value":%b}' % flat
    assert encoded(takes_any, {"a": PRETTY}) == b'{"value":{"a":%b}}' % flat
    assert encoded(takes_raws, {"a": [PRETTY]}) == b'{"rows":{"a":[%b]}}' % flat
    assert encode_result(PRETTY) == flat


@pytest.mark.parametrize(
    "json",
    [
        b"1e400000",
        b"1e-400000000000",
        b"1" * 5000,
        b'"\\ud800"',
        b'"\\u0000"',
        b"[" * 300 + b"]" * 300,
        b"[" * 3000 + b"]" * 3000,
        b"{",
        b"nonsense",
    ],
)
def test_json_that_was_encoded_elsewhere_is_refused_where_it_could_not_be_stored_or_read(json: bytes) -> None:
    for task, value in ((takes_raw, msgspec.Raw(json)), (takes_raws, {"a": [msgspec.Raw(json)]})):
        with pytest.raises(PayloadNotEncodable, match=f"{task.__name__}: "):
            encoded(task, value)
    with pytest.raises(PayloadNotEncodable):
        encode_result(msgspec.Raw(json))


def test_half_of_a_surrogate_pair_is_refused_in_words() -> None:
    with pytest.raises(
        PayloadNotEncodable, match="takes_any: argument `value`: a string holds half of a surrogate pair"
    ):
        encoded(takes_any, {"a": "\ud800"})
    with pytest.raises(PayloadNotEncodable, match="a string holds half of a surrogate pair"):
        encode_result("\ud800")
