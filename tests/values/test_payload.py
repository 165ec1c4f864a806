"""Arguments as JSON: what travels, what comes back, and what is refused where the mistake was made."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable, PayloadTooLarge
from pgqueue.values.payload import Signature, encode_result


class Injected:
    """Stands for the context."""


CONTEXT = Injected()


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with arguments that have been stored, as a worker would."""
    signature = Signature(function, Injected)
    stored = json.dumps(json.loads(signature.encode(args, kwargs)))
    found, named = signature.decode(stored, CONTEXT)
    return function(*found, **named)


def encoded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return json.loads(Signature(function, Injected).encode(args, kwargs))


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date
    tags: list[str] = field(default_factory=list)


class Line(msgspec.Struct):
    sku: UUID
    price: Decimal


class Options(TypedDict):
    gift: bool


class Customer(pydantic.BaseModel):
    name: str
    address: Address


WHEN = datetime(2031, 5, 4, 12, 30, tzinfo=UTC)


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


def test_positional_only_arguments_cannot_be_named() -> None:
    def task(first: int, /) -> object:
        return first

    with pytest.raises(PayloadNotEncodable):
        encoded(task, first=1)


def test_keyword_only_arguments_must_be_named() -> None:
    def task(first: int, *, only: int = 2) -> object:
        return first, only

    with pytest.raises(PayloadNotEncodable):
        encoded(task, 1, 2)


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

    assert there_and_back(task, {"when": [WHEN]}) == {"when": ["2031-05-04T12:30:00Z"]}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"unknown": 2}), ((1,), {"number": 1}), (("one",), {}), ((None,), {})],
    ids=["missing", "too many", "unknown", "twice", "of the wrong type", "None"],
)
@pytest.mark.parametrize("collecting", [False, True])
def test_arguments_that_do_not_fit_are_refused(
    args: tuple[object, ...], kwargs: dict[str, object], *, collecting: bool
) -> None:
    def plain(number: int, other: int = 0) -> None: ...
    def collects(number: int, other: int = 0, /, *tags: str) -> None: ...

    signature = Signature(collects if collecting else plain, Injected)

    with pytest.raises(PayloadNotEncodable, match=r"test_arguments_that_do_not_fit_are_refused\.<locals>\."):
        signature.encode(args, kwargs)


def test_the_message_names_the_task_and_the_parameter() -> None:
    def bill(order_id: int, lines: list[Line]) -> None: ...

    with pytest.raises(PayloadNotEncodable, match=r"bill: Expected `int`, got `str` - at `order_id`"):
        encoded(bill, "42", [])
    with pytest.raises(PayloadNotDecodable, match=r"bill: .*`lines\[0\]\.price`"):
        Signature(bill, Injected).decode(
            b'{"order_id": 1, "lines": [{"sku": "%b", "price": []}]}' % str(UUID(int=1)).encode(), None
        )


@pytest.mark.parametrize("value", [object(), json, {object(): 1}, lambda: None, {1: object()}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    def task(value: Any) -> None: ...

    with pytest.raises(PayloadNotEncodable):
        encoded(task, value)


def test_what_contains_itself_is_refused() -> None:
    def task(value: Any) -> None: ...

    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(PayloadNotEncodable):
        encoded(task, endless)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"deep": [1, (one,)]}], ids=["bare", "deep"])
def test_json_has_no_nan_or_infinity(value: float, wrap: Callable[[float], object]) -> None:
    def task(value: Any) -> None: ...
    def typed(value: float | None) -> None: ...

    with pytest.raises(PayloadNotEncodable, match="JSON has no NaN or infinity"):
        encoded(task, wrap(value))
    with pytest.raises(PayloadNotEncodable):
        encoded(typed, value)


def test_none_is_no_nan() -> None:
    def task(value: Any, number: float = 1.5) -> object:
        return value, number

    assert there_and_back(task, {"null": [None, "null"]}) == ({"null": [None, "null"]}, 1.5)


@pytest.mark.parametrize("text", ["\0", "a\0b", "\\\0", "\\\\\0", "\\u0000\0"])
@pytest.mark.parametrize("as_key", [False, True])
def test_nul_is_refused_for_postgresql_cannot_store_it(text: str, *, as_key: bool) -> None:
    def task(value: Any) -> None: ...

    with pytest.raises(PayloadNotEncodable, match="NUL"):
        encoded(task, {text: 1} if as_key else text)
    with pytest.raises(PayloadNotEncodable, match="NUL"):
        encode_result({text: 1} if as_key else text)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "C:\\u0000 \\", "\\\\\\u0000"])
def test_text_that_only_looks_like_nul_travels_unharmed(text: str) -> None:
    def task(value: str) -> object:
        return value

    assert there_and_back(task, text) == text
    result = encode_result(text)
    assert result is not None
    assert json.loads(result) == text


def test_a_lone_surrogate_is_refused() -> None:
    def task(value: str) -> None: ...

    with pytest.raises(PayloadNotEncodable):
        encoded(task, "\ud800")


def test_a_payload_over_the_limit_is_refused_with_both_sizes() -> None:
    def task(value: str) -> None: ...

    signature = Signature(task, Injected)
    fits = "x" * (100 - len(signature.encode(("",), {})))

    assert len(signature.encode((fits,), {}, limit=100)) == 100
    with pytest.raises(PayloadTooLarge, match="take 101 bytes as JSON, over the limit of 100; store them"):
        signature.encode((fits + "x",), {}, limit=100)


@pytest.mark.parametrize(
    "stored",
    ["[]", "{", "{}", '{"number": "1"}', '{"number": 1, "unknown": 2}', '{"number": null}', "null", ""],
)
def test_a_stored_payload_that_does_not_fit_is_not_decodable(stored: str) -> None:
    def task(number: int) -> None: ...

    with pytest.raises(PayloadNotDecodable, match="task: "):
        Signature(task, Injected).decode(stored, None)


def test_a_pydantic_models_own_rules_hold_on_both_sides() -> None:
    class Adult(pydantic.BaseModel):
        age: int = pydantic.Field(ge=18)

    def task(person: Any) -> object:
        return person

    task.__annotations__["person"] = Adult

    assert there_and_back(task, Adult(age=20)) == Adult(age=20)
    with pytest.raises(PayloadNotEncodable):
        encoded(task, Adult.model_construct(age=3))
    with pytest.raises(PayloadNotDecodable):
        Signature(task, Injected).decode('{"person": {"age": 3}}', None)


def test_a_msgspec_constraint_holds_at_enqueue() -> None:
    def task(count: Any) -> None: ...

    task.__annotations__["count"] = Annotated[int, msgspec.Meta(ge=1)]

    with pytest.raises(PayloadNotEncodable, match="`count`"):
        encoded(task, 0)


def test_an_annotation_that_json_cannot_carry_is_refused_when_it_is_read() -> None:
    def task(value: Any) -> None: ...

    task.__annotations__["value"] = ModuleType | int | Address | Line

    with pytest.raises(ConfigurationError, match="annotate it as a type that JSON can carry"):
        Signature(task, Injected)


def test_a_name_that_cannot_be_resolved_is_named_with_the_remedy() -> None:
    def task(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested

    with pytest.raises(ConfigurationError, match=r"Nowhere.*outside of `if TYPE_CHECKING`"):
        Signature(task, Injected)


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


@pytest.mark.parametrize("value", [object(), {object(): 1}, lambda: None])
def test_a_result_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadNotEncodable):
        encode_result(value)
