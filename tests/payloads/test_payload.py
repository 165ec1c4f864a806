"""Arguments as JSON: what travels, and comes back as it was."""

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from values.shapes import (
    CONTEXT,
    WHEN,
    Address,
    Colour,
    Customer,
    Injected,
    Line,
    Options,
    encoded,
    there_and_back,
)

from pgqueue.errors import PgQueueWarning
from pgqueue.values.payloads.signature import encode_result


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 2**62),
        (float, 0.1),
        (str, "é 日本 \U0001f40d \\ \" ' \t\n"),
        (bool, False),
        (bytes, b"\x00\xff"),
        (datetime, WHEN),
        (date, WHEN.date()),
        (timedelta, timedelta(days=2, microseconds=3)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("10.10")),
        (Colour, Colour.RED),
        (Address, Address("High Street", WHEN.date(), ["a"])),
        (Line, Line(UUID(int=7), Decimal("0.30"))),
        (Options, Options(gift=True)),
        (Customer, Customer(name="Ada", address=Address("High Street", WHEN.date()))),
        (list[Line], [Line(UUID(int=7), Decimal(1))]),
        (dict[str, datetime], {"due": WHEN}),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (int | None, None),
        (dict[str, Any], {"deep": [1, {"er": None}]}),
    ],
    ids=lambda value: getattr(value, "__name__", None) if isinstance(value, type) else "",
)
def test_a_value_comes_back_as_what_its_annotation_says(kind: Any, value: object) -> None:
    def task(value: Any) -> object:
        return value

    task.__annotations__["value"] = kind

    back = there_and_back(task, value)

    assert back == value
    assert type(back) is type(value)


def test_positional_only_keyword_only_and_collected_arguments_find_their_places() -> None:
    def task(first: int, /, second: int, *rest: int, only: int, other: int = 5, **named: int) -> object:
        return first, second, rest, only, other, named

    assert there_and_back(task, 1, 2, 3, 4, only=6, extra=7) == (1, 2, (3, 4), 6, 5, {"extra": 7})
    assert there_and_back(task, 1, second=2, only=6, other=8) == (1, 2, (), 6, 8, {})


def test_keyword_only_arguments_need_no_collecting_neighbours() -> None:
    def task(first: int, *, only: int = 2) -> object:
        return first, only

    assert there_and_back(task, 1) == (1, 2)
    assert there_and_back(task, first=1, only=3) == (1, 3)


def test_arguments_left_at_their_default_do_not_travel() -> None:
    def task(first: int, second: int = 2) -> object:
        return first, second

    assert encoded(task, 1) == {"first": 1}
    assert there_and_back(task, 1) == (1, 2)


def test_a_mutable_default_is_left_to_the_function() -> None:
    def task(tags: list[str] = ["new"], extra: dict[str, int] = {}) -> object:  # noqa: B006 - what users write
        return tags, extra

    assert there_and_back(task) == (["new"], {})
    assert there_and_back(task, [], {"a": 1}) == ([], {"a": 1})


def _first(ctx: Injected, number: int, other: int = 2) -> object:
    return ctx, number, other


def _between(number: int, ctx: Injected, other: int = 2) -> object:
    return ctx, number, other


def _last(number: int, other: int = 2, *, ctx: Injected) -> object:
    return ctx, number, other


def _by_position(number: int, /, ctx: Injected, *, other: int = 2) -> object:
    return ctx, number, other


@pytest.mark.parametrize("task", [_first, _between, _last, _by_position])
def test_the_context_is_injected_wherever_it_stands_and_never_travels(task: Callable[..., Any]) -> None:
    assert encoded(task, 1, other=3) == {"number": 1, "other": 3}
    assert there_and_back(task, 1, other=3) == (CONTEXT, 1, 3)
    assert there_and_back(task, 1) == (CONTEXT, 1, 2)


def test_a_task_may_take_nothing_or_its_context_alone() -> None:
    def nothing() -> str:
        return "ran"

    def alone(ctx: Injected) -> object:
        return ctx

    assert there_and_back(nothing) == "ran"
    assert there_and_back(alone) is CONTEXT


def test_arguments_without_annotations_come_back_as_plain_json() -> None:
    def task(anything) -> object:  # type: ignore[no-untyped-def]  # noqa: ANN001 - what is tested
        return anything

    with pytest.warns(PgQueueWarning, match="arrives as a str"):
        assert there_and_back(task, {"when": [WHEN]}) == {"when": ["2031-05-04T12:30:00Z"]}


def test_none_is_no_nan() -> None:
    def task(value: Any, number: float = 1.5) -> object:
        return value, number

    assert there_and_back(task, {"null": [None, "null"]}) == ({"null": [None, "null"]}, 1.5)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "C:\\u0000 \\", "\\\\\\u0000"])
def test_text_that_only_looks_like_nul_travels_unharmed(text: str) -> None:
    def task(value: str) -> object:
        return value

    assert there_and_back(task, text) == text
    result = encode_result(text)
    assert result is not None
    assert json.loads(result) == text


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (0, b"0"),
        ("", b'""'),
        ({"when": WHEN}, b'{"when":"2031-05-04T12:30:00Z"}'),
        (Line(UUID(int=0), Decimal(1)), None),
        (Customer(name="A", address=Address("B", WHEN.date())), None),
    ],
)
def test_a_result_is_kept_as_json(value: object, stored: bytes | None) -> None:
    result = encode_result(value)

    assert (result is None) == (value is None)
    if stored is not None:
        assert result == stored
