"""Conditions on the results of other nodes of a workflow, written as Python and stored as JSON.

``result_of("extract")["rows"] == 0`` is an object, not a truth value; :func:`holds` finds out whether it is true once the
results are there.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption

LONGEST = 4_000
"""Bytes of a condition as JSON."""
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "in": lambda left, right: left in right,
    }
)


class Condition:
    """Something that is true or not once the results of other nodes are known.

    Attributes:
        form: it as JSON values.
    """

    __slots__ = ("form",)

    def __init__(self, form: list[Any]) -> None:
        """Made by comparing what :func:`result` returned.

        Raises:
            InvalidOption: what it is compared with is no JSON, or too long.
        """
        try:
            size = len(msgspec.json.encode(form))
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"a condition compares with JSON values: {error}") from None
        if size > LONGEST:
            raise InvalidOption(f"a condition takes at most {LONGEST:,} bytes as JSON, this one {size:,}")
        self.form = form

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(["and", self.form, _condition(other)])

    def __or__(self, other: "Condition") -> "Condition":
        return Condition(["or", self.form, _condition(other)])

    def __invert__(self) -> "Condition":
        return Condition(["not", self.form])

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition has no truth value before the results are there: use &, | and ~ for and, or, not"
        )

    @property
    def names(self) -> list[str]:
        """The nodes whose results it reads."""
        return sorted({*_names(self.form)})


class NodeResult:
    """The result of a node, or an item of it, to be compared. Made by :func:`result`."""

    __slots__ = ("_form",)
    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, form: list[Any]) -> None:
        self._form = form

    def __getitem__(self, key: str | int) -> "NodeResult":
        return NodeResult(["item", self._form, key])

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]  # a condition, not a truth value
        return Condition(["==", self._form, other])

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]  # a condition, not a truth value
        return Condition(["!=", self._form, other])

    def __lt__(self, other: object) -> Condition:
        return Condition(["<", self._form, other])

    def __le__(self, other: object) -> Condition:
        return Condition(["<=", self._form, other])

    def __gt__(self, other: object) -> Condition:
        return Condition([">", self._form, other])

    def __ge__(self, other: object) -> Condition:
        return Condition([">=", self._form, other])

    def is_in(self, values: list[Any]) -> Condition:
        """It is one of these JSON values."""
        return Condition(["in", self._form, list(values)])


def result_of(name: str) -> NodeResult:
    """The result of another node of the same workflow, for ``skip_if``; of a node without a result it is None.

    Args:
        name: which node.
    """
    return NodeResult(["result", name])


def holds(form: list[Any], results: Mapping[str, Any]) -> bool:
    """Whether a condition is true.

    Args:
        form: the condition, as it is stored.
        results: the results of the nodes, by their names.

    Raises:
        LookupError: a result has no such item, or there is no such node.
        TypeError: two values cannot be compared.
    """
    match form:
        case ["and", left, right]:
            return holds(left, results) and holds(right, results)
        case ["or", left, right]:
            return holds(left, results) or holds(right, results)
        case ["not", one]:
            return not holds(one, results)
        case [how, left, right] if how in COMPARED:
            return bool(COMPARED[how](_value(left, results), right))
    raise TypeError(f"{form!r:.200} is no condition")


def _value(form: list[Any], results: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    match form:
        case ["result", name]:
            return results[name]
        case ["item", inner, key]:
            return _value(inner, results)[key]
    raise TypeError(f"{form!r:.200} is no result")


def _condition(other: object) -> list[Any]:
    if not isinstance(other, Condition):
        raise InvalidOption(f"{other!r:.80} is no condition; write such as result('extract') == 0")
    return other.form


def _names(form: object) -> Iterator[str]:
    match form:
        case ["result", str(name)]:
            yield name
        case [_, *others]:
            for one in others:
                yield from _names(one)
