"""A value arrives as it was sent, or the enqueue refuses it: over the types that people put into arguments and results."""

import dataclasses
import warnings
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payloads import arriving
from payloads.arriving import ARRIVING, CHANGING, REFUSED
from values.shapes import Injected, there_and_back

from pgqueue.errors import PayloadNotDecodable, PayloadNotEncodable, PgQueueWarning
from pgqueue.values.payloads.arrival import is_same
from pgqueue.values.payloads.signature import Signature


class Frozen(msgspec.Struct, frozen=True):
    n: int


def taking(kind: Any) -> Callable[[Any], Any]:
    def task(value: Any) -> object:
        return value

    task.__annotations__["value"] = kind
    return task


@pytest.mark.parametrize(("kind", "value"), ARRIVING, ids=lambda one: getattr(one, "__name__", None))
def test_a_value_arrives_as_it_was_sent(kind: Any, value: object) -> None:
    assert is_same(there_and_back(taking(kind), value), value)  # a warning is an error here
    (inner,) = there_and_back(taking(list[kind]), [value])
    assert is_same(inner, value)
    assert is_same(there_and_back(taking(dict[str, kind]), {"a": value})["a"], value)


@given(st.lists(st.sampled_from(ARRIVING), min_size=1, max_size=4))
def test_values_arrive_inside_each_other_too(rows: list[tuple[Any, object]]) -> None:
    made = dataclasses.make_dataclass(
        "Made", [(f"field{place}", kind) for place, (kind, _) in enumerate(rows)]
    )
    values = [value for _, value in rows]
    line: Any = tuple.__class_getitem__(tuple(kind for kind, _ in rows))
    kind = tuple.__class_getitem__((made, list.__class_getitem__(line)))
    back, many = there_and_back(taking(kind), (made(*values), [tuple(values)]))
    for place, value in enumerate(values):
        assert is_same(getattr(back, f"field{place}"), value)
        assert is_same(many[0][place], value)


@pytest.mark.parametrize(("kind", "value", "words"), REFUSED, ids=lambda one: getattr(one, "__name__", None))
def test_a_value_of_which_a_part_would_not_arrive_is_refused_with_the_part(
    kind: Any, value: object, words: str
) -> None:
    signature = Signature(taking(kind), Injected, task="shop.send")
    for _ in range(2):  # each time
        with pytest.raises(PayloadNotEncodable) as refused:
            signature.encode((value,), {})
        assert str(refused.value).startswith("shop.send: ")
        assert words in str(refused.value)
        assert arriving.WORD not in str(refused.value)


@pytest.mark.parametrize(("kind", "value", "words"), CHANGING, ids=lambda one: getattr(one, "__name__", None))
def test_a_value_that_arrives_as_another_type_is_warned_of_once(kind: Any, value: object, words: str) -> None:
    signature = Signature(taking(kind), Injected, task="shop.send")
    with pytest.warns(PgQueueWarning, match=words):
        signature.encode((value,), {})
    signature.encode((value,), {})  # a warning is an error here


@pytest.mark.parametrize(
    "value", [arriving.Private(name="a"), arriving.Uncompared(1, arriving.TWICE)], ids=repr
)
def test_objects_that_are_never_equal_are_compared_by_their_fields(value: Any) -> None:
    back = there_and_back(taking(type(value)), value)  # a warning is an error here
    assert (type(back), back != value) == (type(value), True)


def test_what_cannot_be_compared_is_compared_by_its_fields() -> None:
    @dataclasses.dataclass
    class Odd:
        x: int

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("cannot be compared")

        __hash__ = None  # type: ignore[assignment]

    assert there_and_back(taking(Odd), Odd(3)).x == 3


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, "2031-05-04T12:30:00Z"), (UUID, str(arriving.KEY)), (Decimal, 1.5), (arriving.Animal, {"name": "rex"}),
        (arriving.Point, {"x": 1}), (set[int], [1, 1, 2]), (list[int], (1, 2)), (dict[UUID, int], {str(arriving.KEY): 1}),
        (str, arriving.KEY), (arriving.Colour, "red"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_arrives_as_its_annotation_says(kind: Any, value: object) -> None:
    there_and_back(taking(kind), value)  # a warning is an error here


def test_a_model_is_read_by_its_aliases_too_for_sql_may_have_written_it() -> None:
    signature = Signature(taking(arriving.Required), Injected)
    for name in ("userId", "user_id"):
        (value,), _ = signature.decode(f'{{"value": {{"{name}": 3}}}}', None)
        assert value == arriving.Required(userId=3)


def test_what_a_model_cannot_read_is_refused_with_what_pgqueue_wrote_and_the_field() -> None:
    value = arriving.Animal.model_construct(name=3)
    signature = Signature(taking(arriving.Animal), Injected, task="shop.send")
    warnings.simplefilter("ignore")  # pydantic's own
    with pytest.raises(PayloadNotEncodable) as refused:
        signature.encode((value,), {})
    assert str(refused.value) == (
        'shop.send: Animal cannot be read from {"name":3}: field `name`: Input should be a valid string - at `value`; '
        "pgqueue wrote that: a model is written by the names of its fields, and read by its names and aliases"
    )
    with pytest.raises(
        PayloadNotDecodable, match=r'Animal cannot be read from \{"n":1\}: field `name`: Field required - at'
    ):
        Signature(taking(arriving.Animal), Injected).decode('{"value": {"n": 1}}', None)


@pytest.mark.parametrize(
    ("kind", "value", "arrives"),
    [
        (set[tuple[int, int]], [[1, 2], [1, 2]], {(1, 2)}),
        (frozenset[Frozen], [{"n": 1}], frozenset([Frozen(1)])),
        (arriving.Ratio, 2, arriving.Ratio(2)),
    ],
    ids=str,
)
def test_what_json_lacks_may_be_sent_as_json_has_it(kind: Any, value: object, arrives: object) -> None:
    assert there_and_back(taking(kind), value) == arrives  # a warning is an error here


def test_a_subclass_of_a_plain_type_is_read_from_that_type_alone() -> None:
    for kind, stored in (
        (arriving.Name, "3"),
        (arriving.Count, '"3"'),
        (arriving.Ratio, '"3"'),
        (arriving.Moment, '"3"'),
    ):
        with pytest.raises(PayloadNotDecodable):
            Signature(taking(kind), Injected).decode(f'{{"value": {stored}}}', None)


def test_validators_run_once_for_the_comparison_at_the_enqueue_and_once_in_the_worker() -> None:
    calls = []

    class Counted(pydantic.BaseModel):
        name: str

        @pydantic.field_validator("name")
        @classmethod
        def _count(cls, name: str) -> str:
            calls.append(name)
            return name

    signature = Signature(taking(Counted), Injected)
    data = signature.encode((Counted(name="a"),), {})
    assert len(calls) == 2  # the caller's own, and the comparison's
    signature.decode(data, None)
    assert len(calls) == 3
