"""Which changes of a task's signature break jobs in flight, or readers of jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from pgqueue import Context
from pgqueue.values.payloads.contract import TaskContract, contract_of
from pgqueue.values.payloads.contract_changes import ContractChange, contract_changes
from pgqueue.values.payloads.result import ReturnType
from pgqueue.values.payloads.signature import Signature


@dataclass
class Line:
    sku: str
    n: int = 1


@dataclass
class LongerLine:
    sku: str
    n: int = 1
    note: str = ""


@dataclass
class StricterLine:
    sku: str
    note: str
    n: int = 1


@dataclass
class ShorterLine:
    sku: str


class Tree(msgspec.Struct):
    leaves: "list[Tree]" = []
    n: int = 0


class OtherTree(msgspec.Struct):
    leaves: "list[OtherTree]" = []
    n: str = ""


def taking(kind: Any, default: Any = ..., returns: Any = ...) -> TaskContract:
    """The contract of a task with the parameter ``a`` of this type."""

    def task(a: Any) -> None: ...

    task.__annotations__ = {"a": kind} | ({} if returns is ... else {"return": returns})
    task.__defaults__ = () if default is ... else (default,)
    return contract(task)


def contract(task: Callable[..., Any]) -> TaskContract:
    found = contract_of("t", Signature(task, Context).schema, ReturnType(task).schema)
    assert found is not None
    return found


def told(change: ContractChange) -> tuple[str, str, bool]:
    return change.place, change.what, change.breaks


WIDER = [
    (int, float),
    (int, int | None),
    (int, int | str),
    (int, Any),
    (date, str),
    (Literal["a"], Literal["a", "b"]),
    (Literal["a", "b"], str),
    (Literal[1], float),
    (list[int], list[float]),
    (list[Line], list[LongerLine]),
    (dict[str, int], dict[str, int | None]),
    (tuple[int, int], tuple[float, int]),
    (tuple[int, int], list[int]),
    (Annotated[int, Meta(ge=5)], Annotated[int, Meta(ge=1)]),
    (Annotated[str, Meta(max_length=5)], str),
    (Line | None, LongerLine | None | str),
]
NARROWER = [
    (float, int, "a"),
    (int | None, int, "a"),
    (int, str, "a"),
    (Any, int, "a"),
    (str, date, "a"),
    (str, datetime, "a"),
    (str, bytes, "a"),
    (str, Literal["a"], "a"),
    (Literal["a", "b"], Literal["a"], "a"),
    (list[float], list[int], "a[]"),
    (list[int], tuple[int, int], "a"),
    (tuple[int, int], tuple[int, str], "a[]"),
    (list[LongerLine], list[Line], "a[].note"),
    (list[Line], list[ShorterLine], "a[].n"),
    (Line, StricterLine, "a.note"),
    (dict[str, int], dict[str, str], "a.*"),
    (dict[str, int], Line, "a"),
    (int, Annotated[int, Meta(ge=1)], "a"),
    (Annotated[int, Meta(le=9)], Annotated[int, Meta(le=5)], "a"),
    (str, Annotated[str, Meta(pattern="x")], "a"),
]


@pytest.mark.parametrize(("old", "new"), WIDER, ids=str)
def test_a_wider_type_breaks_nothing(old: Any, new: Any) -> None:
    found = contract_changes(taking(old), taking(new))
    assert [one.breaks for one in found] in ([False], [])
    results = contract_changes(taking(int, returns=old), taking(int, returns=new))
    assert not any(one.breaks for one in results)


@pytest.mark.parametrize(("old", "new", "place"), NARROWER, ids=str)
def test_another_type_breaks_and_is_named_where_it_is(old: Any, new: Any, place: str) -> None:
    assert [told(one) for one in contract_changes(taking(old), taking(new))] == [(place, "narrowed", True)]
    (result,) = contract_changes(taking(int, returns=old), taking(int, returns=new))
    assert told(result) == ("result" + place[1:], "narrowed", True)
    assert result.argument is None


def test_arguments_that_go_come_or_lose_their_default() -> None:
    def old(gone: int, same: str, had: int = 5, gets: str = "x") -> None: ...

    def new(same: str, had: int, gets: str, needed: date, more: int = 1) -> None: ...

    new.__defaults__ = (1,)
    assert [told(one) for one in contract_changes(contract(old), contract(new))] == [
        ("gone", "removed", True),
        ("had", "required", True),
        ("gets", "required", True),
        ("needed", "added", True),
        ("more", "added", False),
    ]
    assert [told(one) for one in contract_changes(taking(int), taking(int, 5))] == []


def test_a_change_says_what_was_and_what_is() -> None:
    (one,) = contract_changes(taking(list[int | None]), taking(Literal["a", "b", "c", "d", "e", 1]))
    assert (one.was, one.now) == ("array of integer or null", '1 or "a" or "b" or "c" or 2 more')
    (bound,) = contract_changes(taking(str), taking(Annotated[str, Meta(max_length=5)]))
    assert (bound.was, bound.now) == ("string", "string (maxLength 5)")


def test_a_result_that_is_said_no_more_breaks_and_one_that_is_said_now_does_not() -> None:
    assert [told(one) for one in contract_changes(taking(int, returns=Line), taking(int))] == [
        ("result", "removed", True)
    ]
    assert contract_changes(taking(int), taking(int, returns=Line)) == []


def test_recursive_types_are_compared_once() -> None:
    assert contract_changes(taking(Tree), taking(Tree)) == []
    assert contract_changes(taking(Tree), taking(Tree | None))[0].breaks is False
    (one,) = contract_changes(taking(Tree), taking(OtherTree))
    assert told(one) == ("a.n", "narrowed", True)


@pytest.mark.parametrize(
    "schema",
    [
        "7",
        "[",
        '{"properties": 7}',
        '{"properties": {"a": 7}, "required": 7}',
        '{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}',
        '{"properties": {"a": {"anyOf": []}}}',
        '{"properties": {"a": {"type": ["string"], "minimum": "x", "enum": 7}}}',
        '{"properties": {"a": {"type": "array", "prefixItems": 7, "items": 7}}}',
        '{"properties": {"a": {"type": "object", "properties": {"b": null}, "required": [7]}}}',
    ],
)
def test_stored_schemas_that_make_no_sense_are_compared_all_the_same(schema: str) -> None:
    hostile = TaskContract("t", "h", schema, schema)
    for one, other in ((hostile, taking(int, returns=int)), (taking(int, returns=int), hostile)):
        assert isinstance(contract_changes(one, other), list)


@pytest.mark.parametrize(
    "inner", [{"anyOf": []}, {"type": "array"}, {"type": "object", "title": "x"}], ids=str
)
def test_a_comparison_ends_whatever_the_schemas_refer_to(inner: dict[str, Any]) -> None:
    def part(number: int) -> dict[str, Any]:
        others = [{"$ref": f"#/$defs/p{(number + step) % 30}"} for step in range(1, 9)]
        values = {"anyOf": others, "items": {"anyOf": others}, "additionalProperties": {"anyOf": others}}
        return (
            inner
            | {name: values[name] for name in ("anyOf",) if name in inner}
            | {
                "items": values["items"],
                "additionalProperties": values["additionalProperties"],
            }
        )

    parts = {f"p{number}": part(number) for number in range(30)}
    text = msgspec.json.encode({"properties": {"a": {"$ref": "#/$defs/p0"}}, "$defs": parts}).decode()
    other = text.replace('"x"', '"y"') + " "
    assert contract_changes(TaskContract("t", "1", text), TaskContract("t", "2", other)) is not None
