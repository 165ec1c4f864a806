"""Refuses arguments of which a part would not reach the worker, and warns of those that reach it as other values.

The warning comes once for each task and parameter, and names the line of the user's code.

A parameter without an annotation has no type to decode to: a ``datetime`` arrives as a string, a tuple as a list. A time
without a zone arrives unchanged, but is another instant for a worker in another zone.

Arguments that are equal to what arrives are compared no further: that is one comparison in C. A signature of text, numbers and
lists of these has no check, so its enqueues cost nothing more.
"""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import FrameType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import inspect as types

from pgqueue.errors import ConfigurationError, PayloadNotEncodable, PgQueueWarning
from pgqueue.values.payloads.arrival import Change, changes, is_same

_CONTAINERS = (
    types.ListType,
    types.DictType,
    types.VarTupleType,
    types.TupleType,
    types.SetType,
    types.UnionType,
)
_UNIONS = (Union, UnionType)
_NAIVE = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?"')


class ArgumentCheck:
    """Checks the arguments of one task."""

    def __init__(
        self,
        task: str,
        untyped: Iterable[str],
        timed: Iterable[str],
        encode: Callable[[Any], Any],
        *,
        starred: str | None = None,
    ) -> None:
        """Watch some parameters.

        Args:
            task: the task's name, for the messages.
            untyped: parameters that may hold values without a type to decode to.
            timed: parameters that may hold times.
            encode: encodes types that msgspec does not know.
            starred: the parameter that collects positional arguments, if there is one.
        """
        self._starred = starred
        self._task = task
        self._untyped = frozenset(untyped)
        self._timed = set(timed)
        self._encode = encode
        self._warned: set[str] = set()

    def look(self, given: msgspec.Struct, arrived: msgspec.Struct, data: bytes, *, warns: bool) -> None:
        """Compare what was given with what will arrive.

        Args:
            given: the arguments.
            arrived: the same, after JSON.
            data: the JSON.
            warns: whether to warn of what arrives as another value, and of times without a zone.

        Raises:
            PayloadNotEncodable: a part of an argument would be lost.
        """
        if not is_same(given, arrived):
            self._compare(given, arrived, warns=warns)
        if warns and self._timed and _NAIVE.search(data):
            self._look_for_naive(given)

    def _compare(self, given: msgspec.Struct, arrived: msgspec.Struct, *, warns: bool) -> None:
        found: dict[str, Change] = {}
        for name in given.__struct_fields__:
            value = getattr(given, name)
            value = list(value) if name == self._starred else value
            for change in changes(name, value, getattr(arrived, name), asked=name not in self._untyped):
                if change.lost:
                    raise PayloadNotEncodable(f"{self._task}: {change.said}")
                found.setdefault(name, change)
        for name, change in found.items():
            if warns and name not in self._warned:
                remedy = f"annotate the parameter {name!r} with its type, or convert it yourself"
                warn_of_change(change, remedy, before=f"task {self._task}: ")
                self._warned.add(
                    name
                )  # after the warning: one that is raised as an error is raised each time

    def _look_for_naive(self, given: msgspec.Struct) -> None:
        plain = msgspec.to_builtins(given, builtin_types=(datetime,), enc_hook=self._encode)
        for name in [name for name in self._timed if _holds_naive(plain.get(name))]:
            warn_there(
                f"task {self._task}: argument {name!r} holds a datetime without a time zone, so it is another instant "
                "for a worker in another zone; use datetime.now(timezone.utc) or .replace(tzinfo=ZoneInfo(...)), or "
                "annotate it Annotated[datetime, msgspec.Meta(tz=False)] if that is meant",
                PgQueueWarning,
            )
            self._timed.discard(name)


def watch_over(
    task: str,
    struct: type[msgspec.Struct],
    parameters: Collection[inspect.Parameter],
    encode: Callable[[Any], Any],
) -> ArgumentCheck | None:
    """The check of a task's parameters; None if each parameter's type arrives unchanged, or is refused."""
    fields = _fields(struct)
    names = [parameter.name for parameter in parameters]
    untyped = [name for name in names if _is_open(fields[name])]
    timed = [name for name in names if _may_be_naive(fields[name], set())]
    kinds = {parameter.kind: parameter.name for parameter in parameters}
    starred = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    if all(_arrives(field) for field in fields.values()):
        return None
    return ArgumentCheck(task, untyped, timed, encode, starred=starred)


def _fields(struct: type[msgspec.Struct]) -> Mapping[str, types.Type]:
    info = types.type_info(struct)
    return {field.name: field.type for field in info.fields} if isinstance(info, types.StructType) else {}


def _arrives(kind: types.Type) -> bool:
    """Whether a value of this type arrives as it is, or is refused: then it need not be compared."""
    if isinstance(kind, types.ListType):
        return _arrives(kind.item_type)
    return isinstance(kind, types.StrType | types.IntType | types.FloatType | types.BoolType | types.NoneType)


def _is_open(kind: object) -> bool:
    """Whether a type leaves a value's type open, or the types inside a container."""
    if isinstance(kind, types.AnyType) or (isinstance(kind, types.CustomType) and kind.cls is object):
        return True
    return isinstance(kind, _CONTAINERS) and any(map(_is_open, _parts(kind)))


def _may_be_naive(kind: object, seen: set[int]) -> bool:
    if id(kind) in seen:  # a type may be part of itself
        return False
    seen.add(id(kind))
    if isinstance(kind, types.DateTimeType):
        return kind.tz is not False
    return any(_may_be_naive(part, seen) for part in _parts(kind))


def _parts(kind: object) -> list[object]:
    if not isinstance(kind, types.Type | types.Field):
        return []
    found: list[object] = []
    for name in kind.__struct_fields__:
        value = getattr(kind, name)
        found += value if isinstance(value, tuple) else (value,)
    return [one for one in found if isinstance(one, types.Type | types.Field)]


def _holds_naive(value: object) -> bool:
    match value:
        case datetime():
            return value.utcoffset() is None
        case dict():
            return any(map(_holds_naive, (*value.keys(), *value.values())))
        case list() | tuple() | set() | frozenset():
            return any(map(_holds_naive, value))
    return False


PACKAGE = str(Path(__file__).parents[2])


def caller() -> FrameType:
    """The innermost frame of code outside pgqueue."""
    frame = sys._getframe()  # noqa: SLF001 - inspect.stack() reads every source file
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def warn_there(message: str, category: type[Warning]) -> None:
    """Warn with the user's line as the place, from any depth in this package."""
    frame = caller()
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def warn_of_change(change: Change, remedy: str, *, before: str = "") -> None:
    """Warn of a value that arrives as another one; ``before`` begins the message."""
    value, becomes = change.value, change.becomes
    warn_there(
        f"{before}`{change.path}` is a {type(value).__qualname__}, {value!r:.60}, and arrives as a "
        f"{type(becomes).__qualname__}, {becomes!r:.60}: JSON does not say what it was; {remedy}",
        PgQueueWarning,
    )


def remedy_for(value: object) -> str:
    """The end of an error message about a value without a JSON form; empty for other values."""
    if is_model(type(value)):
        return "; enqueue its primary key and load it in the task"
    if hasattr(value, "model") and hasattr(value, "query"):
        return "; enqueue the primary keys, as a list, and load the rows in the task"
    if type(value).__module__ == "django.utils.functional":
        return "; it is a lazy string: enqueue str(...) of it"
    return ""


def is_model(kind: type) -> bool:
    """Whether a class is a model of Django, SQLAlchemy or peewee that has no JSON form of its own."""
    if hasattr(kind, "model_dump"):
        return False
    return hasattr(kind, "_sa_class_manager") or (
        hasattr(kind, "_meta") and (hasattr(kind, "pk") or hasattr(kind, "_pk"))
    )


def refuse_models(task: str, annotations: Mapping[str, Any]) -> None:
    """Refuse parameters that are annotated with a model.

    Args:
        task: the task's name, for the message.
        annotations: the parameters' annotations, by name; those that are still text are skipped.

    Raises:
        ConfigurationError: a parameter is annotated with a model.
    """
    for name, annotation in annotations.items():
        for kind in _classes(annotation):
            if is_model(kind):
                raise ConfigurationError(
                    f"task {task}: parameter {name!r} is annotated with the model {kind.__module__}.{kind.__qualname__}, "
                    f"which no job can carry; enqueue its primary key and load it in the task: {name}_id: int"
                )


def is_filled_in(annotation: Any, injected: type) -> bool:  # noqa: ANN401 - any annotation
    """Whether the worker fills in a parameter with this annotation: the type itself, or it and None, or ``Annotated``.

    Args:
        annotation: the parameter's; one that is text counts if the name of a type stands in it as a word.
        injected: the type that the worker makes.
    """
    if isinstance(annotation, str):
        return re.search(rf"\b{injected.__name__}\b", annotation) is not None
    if get_origin(annotation) is Annotated:
        return is_filled_in(get_args(annotation)[0], injected)
    kinds = {*(get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,))} - {type(None)}
    return bool(kinds) and all(
        kind is injected or (kind is not annotation and is_filled_in(kind, injected)) for kind in kinds
    )


def refuse_injected(task: str, annotations: Mapping[str, Any], injected: type) -> None:
    """Refuse parameters whose annotation has the type that the worker makes in it, and that it cannot fill in.

    Args:
        task: the task's name, for the message.
        annotations: the parameters' annotations, by name; those that are still text are skipped.
        injected: the type that the worker makes.

    Raises:
        ConfigurationError: a parameter is annotated so.
    """
    kind = injected.__name__
    for name, annotation in annotations.items():
        if name == "return" or isinstance(annotation, str) or is_filled_in(annotation, injected):
            continue
        if any(issubclass(one, injected) for one in _classes(annotation)):
            raise ConfigurationError(
                f"task {task}: parameter {name!r} is annotated {inspect.formatannotation(annotation)}, which no worker can fill "
                f"in: it makes a {kind}; annotate the parameter {kind}, or {kind} | None"
            )


def _classes(annotation: Any) -> Iterator[type]:  # noqa: ANN401 - any annotation
    if inspect.isclass(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)
