"""How values of types that msgspec does not know become JSON, and come back: pydantic models, and subclasses of plain types.

A model is written by the names of its fields, whatever aliases it has, and without what is computed from them. It is read by
names and by aliases, as JSON: SQL and other programs may have written it by its aliases. A subclass of a plain type, such as a
template's ``SafeString``, is written as that type.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
from msgspec import inspect as inspect_types

from pgqueue.values.payloads.argument_check import remedy_for

_SHOWN: Final = 160
"""Characters of the JSON that a message quotes."""


class Unreadable(ValueError):
    """JSON that a model refuses, in pgqueue's words."""


def _plain_datetime(value: datetime, made: type[datetime] = datetime) -> datetime:
    day = value.year, value.month, value.day
    moment = value.hour, value.minute, value.second, value.microsecond
    return made(*day, *moment, value.tzinfo, fold=value.fold)


def _plain_date(value: date, made: type[date] = date) -> date:
    return made(value.year, value.month, value.day)


def _plain_time(value: time) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)


def _plain_timedelta(value: timedelta) -> timedelta:
    return timedelta(value.days, value.seconds, value.microseconds)


# The methods of the plain types: str(value) may return the subclass again. freezegun replaces names of modules, but neither
# these keys nor the defaults of the functions.
_PLAIN_FORMS: Final[Mapping[type, Callable[[Any], object]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes(memoryview(value)),
    datetime: _plain_datetime,
    date: _plain_date,
    time: _plain_time,
    timedelta: _plain_timedelta,
    Decimal: Decimal,
}
_READ_FROM: Final = (str, int, float)
"""Plain types of which a subclass is made from one value."""


def write_other(value: object) -> object:
    """The JSON form of a value whose type msgspec does not know.

    Raises:
        TypeError: it has none.
    """
    kind: Any = type(value)
    for base in kind.__mro__:
        if base in _PLAIN_FORMS:
            return _PLAIN_FORMS[base](value)
    # This finds pydantic models without importing pydantic.
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} has no JSON form: {value!r:.80}{remedy_for(value)}"
        )
    return dump(mode="json", by_alias=not reads_names(kind), round_trip=True)


def read_other(kind: type, value: object) -> object:
    """A value of a type that msgspec does not know, from its JSON form.

    Raises:
        TypeError: nothing can be read as this type.
        Unreadable: a model refuses what it is given.
    """
    if kind is object:
        return value  # as it is for Any
    if not is_readable(kind):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be read from JSON")
    if (base := _base_of(kind)) is not None:
        if base is float and type(value) is int:  # as a plain float takes it
            value = float(value)
        if not isinstance(value, base):
            raise TypeError(f"Expected `{base.__name__}`, got `{type(value).__name__}`")
        return kind(value)
    data = msgspec.json.encode(value)
    try:
        return _reader(kind)(data)
    except ValueError as error:
        said = _fields_refused(error)
        if not said:
            raise
        raise Unreadable(f"{kind.__qualname__} cannot be read from {_shortened(data)}: {said}") from error


def is_readable(kind: type) -> bool:
    """Whether :func:`read_other` knows how to make values of a type."""
    return kind is object or hasattr(kind, "model_validate_json") or _base_of(kind) is not None


def _base_of(kind: type) -> type | None:
    return next((base for base in _READ_FROM if issubclass(kind, base)), None)


@lru_cache(maxsize=1_024)
def reads_names(kind: Any) -> bool:  # noqa: ANN401 - a class of models
    """Whether a model can be told to read names, as pydantic's can since 2.11; an older one is written by its aliases."""
    read = getattr(kind, "model_validate_json", None)
    return read is not None and "by_name" in inspect.signature(read).parameters


def _reader(kind: Any) -> Callable[[bytes], object]:  # noqa: ANN401 - a class of models
    """The reader of JSON, not of Python's values: a strict model takes dates and UUIDs from JSON alone."""
    read = kind.model_validate_json
    return partial(read, by_alias=True, by_name=True) if reads_names(kind) else read


def _fields_refused(error: Any) -> str:  # noqa: ANN401 - pydantic's error, which is not imported
    """Which fields a model refuses, and why; empty: it is no error of pydantic."""
    try:
        found = error.errors(include_url=False, include_input=False, include_context=False)
    except (AttributeError, TypeError):
        return ""
    return "; ".join(
        f"field `{'.'.join(map(str, one['loc']))}`: {one['msg']}" if one["loc"] else one["msg"]
        for one in found[:3]
    )


def _shortened(data: bytes) -> str:
    text = data.decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def types_within(root: inspect_types.Type) -> list[inspect_types.Type]:
    """A type, and the types in it, at any depth."""
    found: dict[int, inspect_types.Type | inspect_types.Field] = {}
    left: list[object] = [root]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += one
        elif isinstance(one, inspect_types.Type | inspect_types.Field) and id(one) not in found:
            found[id(one)] = one  # a type may be part of itself
            left += [getattr(one, name) for name in one.__struct_fields__]
    return [one for one in found.values() if isinstance(one, inspect_types.Type)]
