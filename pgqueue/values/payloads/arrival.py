"""Finds the parts of a value that do not come back from JSON as they were sent.

A part is *lost* if nothing can bring it back: a field that does not arrive, or arrives with another value. Else only its type
is another: an annotation may ask for that, and it is at most warned of.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from pgqueue.errors import PayloadNotEncodable

_PLAIN: Final = (str, int, float, bool, type(None), list, dict)
"""The types of JSON."""
_LINES: Final = (list, tuple, set, frozenset)
_NO_TIME: Final = timedelta(0)


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


class Change(NamedTuple):
    """A part of a value that does not arrive as it was.

    Attributes:
        path: where it is, from the argument's name on.
        value: what was sent.
        becomes: what would arrive; :data:`ABSENT`: nothing.
        lost: nothing can bring it back.
        why: the end of a sentence.
    """

    path: str
    value: object
    becomes: object
    lost: bool
    why: str = ""

    @property
    def said(self) -> str:
        """What is lost, for people. It does not quote the value, which may be a secret."""
        kind = _article(self.value)
        if self.becomes is ABSENT:
            return f"`{self.path}` is {kind}, and would not arrive{self.why}"
        if type(self.value) is type(self.becomes):
            return f"`{self.path}` is {kind}, and would arrive with another value{_reason(self.value)}"
        becomes = repr(self.becomes) if self.becomes is None else _article(self.becomes)
        return f"`{self.path}` is {kind}, and would arrive as {becomes}{_reason(self.value)}"


def is_same(value: object, other: object) -> bool:
    """Whether two values are equal. Two times are, if they are the same instant."""
    try:
        return bool(value == other) or _is_same_instant(value, other) or (_is_nan(value) and _is_nan(other))
    except Exception:  # noqa: BLE001 - a user's type may raise any error
        return False


def _is_same_instant(value: object, other: object) -> bool:
    """In the hour that a clock change repeats, Python never finds times of two zones equal."""
    if not isinstance(value, datetime) or not isinstance(other, datetime):
        return False
    return value.tzinfo is not None and other.tzinfo is not None and value - other == _NO_TIME


def _is_nan(value: object) -> bool:
    return isinstance(value, Decimal) and value.is_nan()


def require_whole(what: str, value: object, arrived: object) -> None:
    """Refuse a value of which a part would be lost.

    Args:
        what: how messages call it.
        value: the value.
        arrived: the same, as it is read back from JSON.

    Raises:
        PayloadNotEncodable: a part would be lost.
    """
    for one in changes(what, value, arrived, asked=True):
        if one.lost:
            raise PayloadNotEncodable(one.said)


def changes(path: str, value: Any, becomes: Any, *, asked: bool) -> Iterator[Change]:  # noqa: ANN401 - any value
    """The parts of a value that would arrive as other values.

    Args:
        path: how the value is called.
        value: what was sent.
        becomes: what would arrive.
        asked: an annotation says of which type it is to arrive; False: only what was sent says so.
    """
    if is_same(value, becomes) or isinstance(value, msgspec.Raw):  # Raw is JSON that the user encoded
        return
    fields = _field_names(value)
    if fields is not None:
        yield from _changes_of_object(path, value, becomes, fields)
    elif isinstance(value, dict) and isinstance(becomes, dict):
        yield from _changes_of_dict(path, value, becomes, asked=asked)
    elif isinstance(value, _LINES) and isinstance(becomes, _LINES):
        yield from _changes_of_line(path, value, becomes, asked=asked)
    elif type(value) is type(becomes) or becomes is ABSENT or becomes is None or _is_secret(value):
        yield Change(path, value, becomes, lost=True)
    elif not asked:
        yield Change(path, value, becomes, lost=False)


def _changes_of_object(path: str, value: Any, becomes: Any, fields: Sequence[str]) -> Iterator[Change]:  # noqa: ANN401 - any object
    arriving = _field_names(becomes)
    if arriving is None:  # a dict; of a model it has the fields, by name
        is_model = hasattr(value, "model_fields_set") and isinstance(becomes, dict)
        for name in [name for name in fields if is_model and name in becomes]:
            yield from changes(f"{path}.{name}", getattr(value, name), becomes[name], asked=True)
        yield Change(path, value, becomes, lost=False)
        return
    for name in fields:
        sent = getattr(value, name, ABSENT)
        if name not in arriving:
            why = f": `{path}` would arrive as {_article(becomes)}, which has no such field"
            yield Change(f"{path}.{name}", sent, ABSENT, lost=True, why=why)
        elif sent is not ABSENT:
            yield from changes(f"{path}.{name}", sent, getattr(becomes, name, ABSENT), asked=False)
    if type(value) is not type(becomes):
        yield Change(path, value, becomes, lost=False)


def _changes_of_dict(
    path: str, value: dict[Any, Any], becomes: dict[Any, Any], *, asked: bool
) -> Iterator[Change]:
    if value.keys() == becomes.keys():
        for key, sent in value.items():
            yield from changes(f"{path}[{key!r}]", sent, becomes[key], asked=asked)
    elif len(becomes) < len(value):  # a TypedDict has not all keys, or two keys are the same in JSON
        key = next((key for key in value if key not in becomes), None)
        yield Change(f"{path}[{key!r}]", value.get(key), ABSENT, lost=True)
    else:
        if not asked:
            yield Change(path, value, becomes, lost=False)
        for (key, sent), (new, arrived) in zip(value.items(), becomes.items(), strict=False):
            yield from changes(f"{path}, key {key!r}", key, new, asked=True)
            yield from changes(f"{path}[{key!r}]", sent, arrived, asked=asked)


def _changes_of_line(path: str, value: Any, becomes: Any, *, asked: bool) -> Iterator[Change]:  # noqa: ANN401 - any collection
    if isinstance(becomes, set | frozenset):
        yield from _changes_of_set(path, value, becomes)
        return
    kept = isinstance(becomes, tuple) or isinstance(value, type(becomes))
    if not (asked or kept):
        yield Change(path, value, becomes, lost=False)
    elif len(value) != len(becomes):
        yield Change(path, value, becomes, lost=True)
    else:
        for place, (sent, arrived) in enumerate(zip(value, becomes, strict=True)):
            yield from changes(f"{path}[{place}]", sent, arrived, asked=asked)


def _changes_of_set(path: str, value: Any, becomes: Any) -> Iterator[Change]:  # noqa: ANN401 - any collection
    """Sets have no order, so one member that does not arrive is named. What was sent may be lists, which have no hash."""
    kinds = set(map(type, becomes))
    sent = [one for one in value if _field_names(one) is not None or type(one) in kinds]
    left = [one for one in sent if not _is_among(one, becomes)]
    arrived = [one for one in becomes if one not in sent] if left else []
    if left:
        yield Change(path, left[0], arrived[0] if arrived else ABSENT, lost=True)


def _is_among(value: object, others: set[Any] | frozenset[Any]) -> bool:
    try:
        return value in others
    except TypeError:  # it has no hash
        return any(is_same(value, other) for other in others)


def _field_names(value: object) -> Sequence[str] | None:
    """The names of an object's fields; None: it is no dataclass, Struct, model, or class of attrs."""
    kind: Any = type(value)
    if isinstance(value, msgspec.Struct):
        return kind.__struct_fields__  # type: ignore[no-any-return]  # of any Struct
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [field.name for field in kind.__attrs_attrs__]
    if hasattr(kind, "model_validate_json"):
        return [*kind.model_fields, *(getattr(value, "model_extra", None) or ())]
    return None


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")  # pydantic's, which is not imported


def _article(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'AEIOUaeio' else 'a'} {name}"


def _reason(value: object) -> str:
    if _is_secret(value):
        return ": the JSON of a secret is asterisks; send what the secret belongs to, and read it in the task"
    return ": it is not the same when it is read back from its JSON"
