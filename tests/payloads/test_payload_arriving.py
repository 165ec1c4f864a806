"""Arguments that arrive as other values, times without a zone, and models: warned of or refused, with what to do."""

import sys
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Optional

import msgspec
import pydantic
import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

from pgqueue import Context, PgQueue
from pgqueue.errors import ConfigurationError, PayloadNotEncodable, PgQueueWarning
from pgqueue.values.payloads.signature import Signature

NAIVE = datetime(2031, 5, 4, 12)  # noqa: DTZ001 - what is warned of
AWARE = datetime(2031, 5, 4, 12, tzinfo=UTC)


@dataclass
class Point:
    x: int


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    one: int
    two: int


def anything(value, other=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - the point
    return value, other


def signature(function: Callable[..., Any]) -> Signature:
    return Signature(function, Context, task="shop.send")


CHANGING = [
    AWARE, NAIVE, date(2031, 5, 4), Decimal("1.10"), uuid.UUID(int=7), Point(1), {1, 2}, b"bytes", (1, 2), Pair(1, 2),
    {"at": AWARE}, {"deep": [{"at": (1, 2)}]}, [Decimal(1)], {1: "one"}, [[(1,)]],
]  # fmt: skip


@pytest.mark.parametrize("value", CHANGING, ids=repr)
def test_what_arrives_as_another_value_is_warned_of_once(value: object) -> None:
    signed = signature(anything)
    with pytest.warns(
        PgQueueWarning, match=r"task shop\.send: `value.*arrives as a.*annotate the parameter 'value'"
    ):
        signed.encode((value,), {})
    signed.encode((value,), {})
    with pytest.warns(PgQueueWarning, match="'other'"):
        signed.encode((1, value), {})


STAYING = [
    1,
    "a",
    None,
    True,
    1.5,
    [1, "a", None],
    {"a": [1, {"b": 2}]},
    [],
    {},
    Colour.RED,
    10**30,
    "2031-05-04T12:00:00",
]


@pytest.mark.parametrize("value", STAYING, ids=repr)
def test_what_arrives_as_it_was_is_not_spoken_of(value: object) -> None:
    with warnings.catch_warnings(record=True) as seen:
        signature(anything).encode((value,), {})
    assert seen == []


def test_the_part_that_changes_is_named() -> None:
    with pytest.warns(
        PgQueueWarning,
        match=r"`value\['lines'\]\[1\]` is a Decimal, Decimal\('2.50'\), and arrives as a str, '2.50'",
    ):
        signature(anything).encode(({"lines": [1, Decimal("2.50")]},), {})


@pytest.mark.parametrize(
    "annotation", [dict, dict[str, Any], list, list[Any], Any, dict[str, Any] | None], ids=repr
)
def test_containers_that_say_nothing_of_what_they_hold_are_looked_into(annotation: Any) -> None:
    def send(value: Any) -> None: ...

    send.__annotations__["value"] = annotation
    value = [AWARE] if "list" in repr(annotation) else {"at": AWARE}
    with pytest.warns(PgQueueWarning, match="datetime"):
        signature(send).encode((value,), {})


def test_annotated_values_come_back_and_are_not_spoken_of() -> None:
    def send(at: datetime, price: Decimal, pair: tuple[int, int], tags: set[str], point: Point) -> None: ...

    given = (AWARE, Decimal(1), (1, 2), {"a"}, Point(1))
    assert b'"pair":[1,2]' in signature(send).encode(given, {})  # a warning is an error here


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple, [1, 2]),
        (tuple[Any, ...], [1, [2]]),
        (list[tuple[Any, ...]], [[1], (2,)]),
        (dict[str, tuple[Any, ...]], {"a": [1]}),
        pytest.param(dict[str, Any], {"a": msgspec.Raw(b"[1]")}, id="raw"),
    ],
    ids=repr,
)
def test_what_becomes_what_its_annotation_says_is_not_spoken_of(annotation: Any, value: object) -> None:
    def send(value: Any) -> None: ...

    send.__annotations__["value"] = annotation
    assert signature(send).encode((value,), {})  # a warning is an error here


def test_a_list_that_is_annotated_a_tuple_is_looked_into() -> None:
    def send(value: tuple[Any, ...]) -> None: ...

    with pytest.warns(PgQueueWarning, match=r"`value\[1\]` is a Decimal"):
        signature(send).encode(([1, Decimal(1)],), {})


def test_collected_arguments_are_looked_into_one_by_one() -> None:
    def send(*values: Any, **more: Any) -> None: ...

    signed = signature(send)
    signed.encode((1, "a", [2]), {"b": 3})
    with pytest.warns(PgQueueWarning, match=r"`values"):
        signed.encode((1, (2, 3)), {})
    with pytest.warns(PgQueueWarning, match=r"`more\['b'\]`"):
        signed.encode((), {"b": {1}})


def test_a_warning_that_is_an_error_is_raised_each_time() -> None:
    signed = signature(anything)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PgQueueWarning)
            with pytest.raises(PgQueueWarning):
                signed.encode(((1,),), {})


def test_a_warning_names_the_users_line() -> None:
    task = PgQueue("").task(anything)
    with pytest.warns(PgQueueWarning) as seen:
        task.call((1, 2))
    assert (seen[0].filename, seen[0].lineno) == (__file__, sys._getframe().f_lineno - 1)  # noqa: SLF001 - of the call


def test_text_numbers_and_lists_of_them_are_not_compared_since_they_arrive_or_are_refused() -> None:
    def plain(number: int, name: str, tags: list[str], price: float = 1.5, *, done: bool = False) -> None: ...
    def other(number: int, point: Point) -> None: ...

    assert signature(plain)._check is None  # noqa: SLF001 - what an enqueue costs
    assert signature(other)._check is not None  # noqa: SLF001


# Times without a zone


class Booking(msgspec.Struct):
    at: datetime


class Node(msgspec.Struct):
    at: datetime
    inner: "Node | None" = None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, NAIVE),
        (datetime | None, NAIVE),
        (list[datetime], [AWARE, NAIVE]),
        (dict[str, datetime], {"a": NAIVE}),
        (Booking, Booking(NAIVE)),
        (Node, Node(AWARE, Node(NAIVE))),
        (datetime, NAIVE.replace(microsecond=5)),
    ],
    ids=str,
)
def test_a_time_without_a_zone_is_warned_of_once(annotation: Any, value: object) -> None:
    def send(at: Any, name: str = "") -> None: ...

    send.__annotations__["at"] = annotation
    signed = signature(send)
    with pytest.warns(PgQueueWarning, match=r"argument 'at' holds a datetime without a time zone"):
        signed.encode((value,), {})
    signed.encode((value,), {})


def test_times_with_a_zone_and_words_that_look_like_times_are_not_spoken_of() -> None:
    def send(at: datetime, words: str, other: Annotated[datetime, msgspec.Meta(tz=False)]) -> None: ...

    assert b"2031-05-04T12:00:00" in signature(send).encode((AWARE, "2031-05-04T12:00:00", NAIVE), {})


# Models


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class Line(MappedAsDataclass, Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(primary_key=True)


class Model:
    """What a model of Django looks like from outside."""

    _meta = object()
    pk = 7


class Rows:
    """What a QuerySet looks like."""

    model, query = Model, "select"


class Pydantic(pydantic.BaseModel):
    pk: int = 1


@pytest.mark.parametrize("value", [Order(id=1), Model()], ids=["sqlalchemy", "django"])
def test_a_model_is_answered_with_its_primary_key(value: object) -> None:
    with pytest.raises(PayloadNotEncodable, match="enqueue its primary key and load it in the task"):
        signature(anything).encode((value,), {})


def test_a_query_is_answered_with_the_primary_keys() -> None:
    with pytest.raises(PayloadNotEncodable, match="enqueue the primary keys, as a list"):
        signature(anything).encode((Rows(),), {})


def test_a_lazy_string_is_answered_with_str() -> None:
    lazy = type("__proxy__", (), {"__module__": "django.utils.functional"})()
    with pytest.raises(PayloadNotEncodable, match=r"lazy string: enqueue str\(\.\.\.\)"):
        signature(anything).encode((lazy,), {})


@pytest.mark.parametrize("model", [Order, Line, Model], ids=["sqlalchemy", "dataclass", "django"])
@pytest.mark.parametrize(
    "shape", [lambda one: one, Optional.__getitem__, list.__class_getitem__, lambda one: one | None]
)
def test_a_parameter_annotated_with_a_model_is_refused_where_it_is_decorated(
    model: Any, shape: Callable[[Any], Any]
) -> None:
    def send(order: Any) -> None: ...

    send.__annotations__["order"] = shape(model)
    with pytest.raises(
        ConfigurationError, match=r"parameter 'order' is annotated with the model .*: order_id: int"
    ):
        PgQueue("").task(send)


def test_an_annotation_that_is_still_text_is_refused_when_it_is_read() -> None:
    def send(order: "Order") -> None: ...

    send.__annotations__["order"] = "Order"
    task = PgQueue("").task(send)
    with pytest.raises(ConfigurationError, match="the model"):
        _ = task.signature


def test_models_of_pydantic_travel() -> None:
    def send(model: Pydantic) -> None: ...

    assert signature(send).encode((Pydantic(),), {}) == b'{"model":{"pk":1}}'


# Misfits


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1, 2, 3), {}, "Extra positional arguments provided; it takes (number: int, price: decimal.Decimal = Decimal('1'))"),
        ((), {}, "Missing required argument 'number'; it takes (number: int"),
        ((1,), {"colour": 1}, "Unexpected keyword argument 'colour'; it takes (number: int"),
        ((1,), {"countdown": 5}, "options go to .using(...): countdown= is delay=, in seconds or as a timedelta"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_is_answered_with_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    def send(ctx: Context, number: int, price: Decimal = Decimal(1)) -> None: ...

    with pytest.raises(PayloadNotEncodable) as refused:
        PgQueue("").task(name="shop.send")(send).call(*args, **kwargs)
    assert str(refused.value).startswith("shop.send: ")
    assert words in str(refused.value)


def test_what_inspect_binds_is_answered_so_too() -> None:
    def send(*, number: int) -> None: ...

    with pytest.raises(
        PayloadNotEncodable,
        match=r"shop\.send: too many positional arguments; it takes \(\*, number: int\)|it takes",
    ):
        signature(send).encode((1,), {})
