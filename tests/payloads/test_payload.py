"""Arguments as JSON: what travels, and comes back as it was.

Arguments that cannot travel are refused where the mistake was made, with the parameter's name.
Bounds on JSON: what PostgreSQL would refuse, and what Python could not read back, is refused when it is encoded_call.
"""

import json
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
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

from pgqueue.errors import (
    ConfigurationError,
    PayloadNotDecodable,
    PayloadNotEncodable,
    PayloadTooLarge,
    PgQueueWarning,
)
from pgqueue.values.payloads.signature import Signature, encode_result
from pgqueue.values.payloads.storable import DEEPEST


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


class Opaque:
    """What has no JSON form."""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Opaque(), "argument `opts`: a test_payload.Opaque has no JSON form: <"),
        ([Opaque()], "argument `opts`: a test_payload.Opaque has no JSON form: <"),
        (math.nan, "argument `opts`: JSON has no NaN or infinity"),
        ("a\0b", "argument `opts`: a string holds NUL"),
        ("\ud800", "argument `opts`: a string holds half of a surrogate pair"),
    ],
)
def test_an_argument_without_a_json_form_is_named(value: object, words: str) -> None:
    def send(order_id: int, opts: Any, more: Any = None) -> None: ...

    with pytest.raises(PayloadNotEncodable) as refused:
        Signature(send, Injected, task="send").encode((1, value), {"more": 2})
    assert str(refused.value).startswith(f"send: {words}")


def test_what_a_type_refuses_names_its_argument_once() -> None:
    def send(amount: float) -> None: ...

    with pytest.raises(PayloadNotEncodable) as refused:
        Signature(send, Injected, task="send").encode((math.nan,), {})
    assert str(refused.value) == "send: Expected `float`, got `null` - at `amount`"


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


@pytest.mark.parametrize("text", ["\0", "a\0b", "\\\0", "\\\\\0", "\\u0000\0"])
@pytest.mark.parametrize("as_key", [False, True])
def test_nul_is_refused_for_postgresql_cannot_store_it(text: str, *, as_key: bool) -> None:
    def task(value: Any) -> None: ...

    with pytest.raises(PayloadNotEncodable, match="NUL"):
        encoded(task, {text: 1} if as_key else text)
    with pytest.raises(PayloadNotEncodable, match="NUL"):
        encode_result({text: 1} if as_key else text)


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


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ('{"number": 1, "order_id": 2}', "Object contains unknown field `order_id`"),
        ("{}", "Object missing required field `number`"),
    ],
)
def test_a_stored_payload_with_other_keys_is_answered_with_the_signature(stored: str, words: str) -> None:
    def send(ctx: Injected, number: int, copies: int = 1) -> None: ...

    with pytest.raises(PayloadNotDecodable) as refused:
        Signature(send, Injected, task="jobs.send").decode(stored, None)
    assert str(refused.value) == f"jobs.send: {words}; it takes (number: int, copies: int = 1)"


def test_the_signature_is_left_out_where_it_does_not_explain_the_error() -> None:
    def send(line: Line) -> None: ...

    signature = Signature(send, Injected, task="send")
    for stored in ('{"line": {}}', '{"line": 1}'):
        with pytest.raises(PayloadNotDecodable) as refused:
            signature.decode(stored, None)
        assert "it takes" not in str(refused.value)


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


@pytest.mark.parametrize("value", [object(), {object(): 1}, lambda: None])
def test_a_result_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadNotEncodable):
        encode_result(value)


def nested(levels: int) -> list[Any]:
    """Lists in lists."""
    outer: list[Any] = []
    for _ in range(levels - 1):
        outer = [outer]
    return outer


def encoded_call(task: Callable[..., None], *args: object) -> bytes:
    return Signature(task, Injected).encode(args, {})


def takes_any(value: Any) -> None: ...
def takes_raw(value: msgspec.Raw) -> None: ...
def takes_raws(rows: dict[str, list[msgspec.Raw]]) -> None: ...


def test_arguments_and_results_have_at_most_200_levels() -> None:
    encoded_call(takes_any, nested(DEEPEST - 1))
    encode_result(nested(DEEPEST))
    with pytest.raises(
        PayloadNotEncodable, match="takes_any: it has more than 200 levels of lists and objects"
    ):
        encoded_call(takes_any, nested(DEEPEST))
    with pytest.raises(PayloadNotEncodable, match="more than 200 levels"):
        encode_result(nested(DEEPEST + 1))


@pytest.mark.parametrize("leaf", [None, math.nan, "[" * 500])
def test_many_levels_are_refused_whatever_is_in_them(leaf: object) -> None:
    deep = nested(500)
    deep.append(leaf)

    with pytest.raises(PayloadNotEncodable, match="more than 200 levels"):
        encoded_call(takes_any, deep)


@pytest.mark.parametrize("value", ["[" * 500, '"[{' * 300, [[n] for n in range(500)], {"\\": "[" * 500}])
def test_brackets_that_are_no_levels_do_not_count(value: object) -> None:
    assert msgspec.json.decode(encoded_call(takes_any, value)) == {"value": value}
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

    assert encoded_call(takes_raw, PRETTY) == b'{"value":%b}' % flat
    assert encoded_call(takes_any, {"a": PRETTY}) == b'{"value":{"a":%b}}' % flat
    assert encoded_call(takes_raws, {"a": [PRETTY]}) == b'{"rows":{"a":[%b]}}' % flat
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
            encoded_call(task, value)
    with pytest.raises(PayloadNotEncodable):
        encode_result(msgspec.Raw(json))


def test_half_of_a_surrogate_pair_is_refused_in_words() -> None:
    with pytest.raises(
        PayloadNotEncodable, match="takes_any: argument `value`: a string holds half of a surrogate pair"
    ):
        encoded_call(takes_any, {"a": "\ud800"})
    with pytest.raises(PayloadNotEncodable, match="a string holds half of a surrogate pair"):
        encode_result("\ud800")
