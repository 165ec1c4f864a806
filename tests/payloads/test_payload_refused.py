"""Arguments that cannot travel are refused where the mistake was made, with the parameter's name."""

import json
import math
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from values.shapes import (
    Address,
    Injected,
    Line,
    encoded,
    there_and_back,
)

from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable, PayloadTooLarge
from pgqueue.values.payloads.signature import Signature, encode_result


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
        (Opaque(), "argument `opts`: a test_payload_refused.Opaque has no JSON form: <"),
        ([Opaque()], "argument `opts`: a test_payload_refused.Opaque has no JSON form: <"),
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
