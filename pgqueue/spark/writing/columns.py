"""What a DataFrame's columns are for, which types they may have, and how their values become a job's.

Values take the JSON form that :mod:`pgqueue.values.payloads.signature` gives the same Python values: instants as RFC 3339 in UTC,
dates and times as ISO 8601, decimals as strings, bytes in base64, intervals as ISO 8601 durations.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, get_type_hints

from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from pgqueue.app.context import Context
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError, RowsRefused
from pgqueue.values.hints import did_you_mean

Reader: TypeAlias = Callable[[Any], Any]
"""Makes a job's value from Arrow's value, or raises ValueError; never called with None."""

WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
RESERVED: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "queue": ((types.StringType,), "a string"),
    "priority": (WHOLE, "a whole number"),
    "run_at": ((types.TimestampType,), "a timestamp with time zone (TIMESTAMP_LTZ), which names an instant"),
    "max_attempts": (WHOLE, "a whole number"),
    "unique_key": ((types.StringType,), "a string"),
}
PLAIN = (
    *WHOLE,
    types.BinaryType,
    types.BooleanType,
    types.DateType,
    types.DayTimeIntervalType,
    types.DecimalType,
    types.DoubleType,
    types.FloatType,
    types.NullType,
    types.StringType,
    types.TimestampNTZType,
    types.TimestampType,
    types.TimeType,
)
KEYS = (types.StringType, *WHOLE)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Which arguments a task takes by name.

    Attributes:
        named: the names of its parameters.
        required: those of them that have no default.
        others: whether it takes any other names too (``**``).
    """

    named: tuple[str, ...]
    required: frozenset[str]
    others: bool


def check_columns(
    columns: StructType,
    args: str | None,
    parameters: Parameters | None,
    task: str,
    key: Sequence[str] = (),
) -> None:
    """Refuse columns that cannot become jobs, before any row is looked at.

    Args:
        columns: the DataFrame's.
        args: the column that holds all arguments, or None.
        parameters: what the task takes, or None: not known.
        task: the task's name.
        key: the columns that jobs keep; they need not be arguments.

    Raises:
        RowsRefused: a column is missing, unexpected, or of a type without a JSON form; the message names it.
    """
    _check_names(columns.names)
    for column in columns.fields:
        _check_type(column.name, column.dataType)
    if args is not None:
        _check_args(columns, args, key)
    elif parameters is not None:
        _check_parameters(columns.names, parameters, task, key)


def parameters_of(task: Task[..., Any]) -> Parameters:
    """What a task's function takes, without its context.

    Raises:
        ConfigurationError: its annotations cannot be read, or it takes arguments by position only.
    """
    _ = task.signature  # raises ConfigurationError for a wrong annotation
    hints = get_type_hints(task.function)
    found = [
        parameter
        for name, parameter in inspect.signature(task.function).parameters.items()
        if hints.get(name) is not Context
    ]
    for parameter in found:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"task {task.name}: it takes {parameter.name!r} by position only, and columns have names; "
                "take the / out of its parameters"
            )
    named = [
        parameter
        for parameter in found
        if parameter.kind not in {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    ]
    return Parameters(
        tuple(parameter.name for parameter in named),
        frozenset(parameter.name for parameter in named if parameter.default is inspect.Parameter.empty),
        any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in found),
    )


def arguments_of(
    columns: StructType, args: str | None, parameters: Parameters | None = None, key: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names of the columns that are arguments, in their order; with ``args``, that one.

    A key column of which the task is known not to take an argument is none.
    """
    if args is not None:
        return (args,)
    others = set() if parameters is None or parameters.others else {*key} - {*parameters.named}
    return tuple(name for name in columns.names if name not in RESERVED and name not in others)


def reader_of(kind: DataType) -> Reader | None:
    """The function that makes a value of this type from Arrow's value; None: Arrow's value is used unchanged."""
    match kind:
        case types.FloatType() | types.DoubleType():
            return _finite
        case types.TimestampType():
            return _in_utc
        case types.ArrayType():
            return _list_reader(reader_of(kind.elementType))
        case types.MapType():
            return _map_reader(reader_of(kind.valueType))
        case types.StructType():
            return _struct_reader({field.name: reader_of(field.dataType) for field in kind.fields})
        case _:
            return None


def _check_names(names: list[str]) -> None:
    if not names:
        raise RowsRefused("the DataFrame has no columns; a job's arguments are columns by their names")
    for name in names:
        if names.count(name) > 1:
            raise RowsRefused(f"column {name!r} is there {names.count(name)} times; rename all but one")
        if name not in RESERVED and name.lower() in RESERVED:
            raise RowsRefused(
                f"column {name!r}: write it {name.lower()!r} if it is to say how jobs are queued, or rename it"
            )


def _check_type(name: str, kind: DataType) -> None:
    allowed, form = RESERVED.get(name, ((), ""))
    if allowed and not isinstance(kind, (*allowed, types.NullType)):
        raise RowsRefused(
            f"column {name!r} is of type {kind.simpleString()}; it has to be {form}; cast or rename it"
        )
    if not allowed and (where := _misfit(name, kind)):
        raise RowsRefused(f"column {where}, which has no JSON form here; cast it, to a string for example")


def _misfit(name: str, kind: DataType) -> str | None:
    """Describe the part of a type that cannot be an argument; None: all parts can."""
    match kind:
        case types.ArrayType():
            return _misfit(f"{name}[]", kind.elementType)
        case types.MapType():
            if isinstance(kind.keyType, KEYS):
                return _misfit(f"{name}[]", kind.valueType)
            return f"{name!r} has keys of type {kind.keyType.simpleString()}"
        case types.StructType():
            if len(set(kind.names)) < len(kind.names):
                return f"{name!r} has two fields of one name"
            found = (_misfit(f"{name}.{field.name}", field.dataType) for field in kind.fields)
            return next(filter(None, found), None)
    return None if isinstance(kind, PLAIN) else f"{name!r} is of type {kind.simpleString()}"


def _check_args(columns: StructType, args: str, key: Sequence[str]) -> None:
    if args not in columns.names:
        raise RowsRefused(f"args={args!r}: there is no such column{did_you_mean(args, columns.names)}")
    kind = columns[args].dataType
    is_object = isinstance(kind, types.StructType) or (
        isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType)
    )
    if not is_object and not isinstance(kind, types.StringType):
        raise RowsRefused(
            f"column {args!r} is of type {kind.simpleString()}; a column of all arguments is a struct, a map "
            "with strings for keys, or a string of JSON"
        )
    others = [name for name in columns.names if name not in RESERVED and name != args and name not in key]
    if others:
        raise RowsRefused(
            f"column {', '.join(map(repr, others))}: {args!r} holds all arguments, so there is no place for more; "
            f"drop it, or use one of {', '.join(RESERVED)}"
        )


def _check_parameters(given: Sequence[str], parameters: Parameters, task: str, key: Sequence[str]) -> None:
    for name in given:
        if name not in {*RESERVED, *parameters.named, *key} and not parameters.others:
            takes = ", ".join(parameters.named) or "none"
            raise RowsRefused(
                f"column {name!r}: the task {task} takes no argument of this name"
                f"{did_you_mean(name, parameters.named)}; it takes {takes}"
            )
    for name in parameters.named:
        if name in RESERVED and (name in parameters.required or name in given):
            raise RowsRefused(
                f"the task {task} has an argument {name!r}, which as a column says how a job is queued; "
                'give all arguments in one column: .option("args", ...)'
            )
        if name in parameters.required and name not in given:
            raise RowsRefused(
                f"the task {task} needs an argument {name!r}, and there is no column of this name"
            )


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON form; make it null, or filter it out")
    return value


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _list_reader(element: Reader | None) -> Reader | None:
    if element is None:
        return None
    return lambda values: [None if value is None else element(value) for value in values]


def _map_reader(element: Reader | None) -> Reader:
    if element is None:
        return dict
    return lambda pairs: {key: None if value is None else element(value) for key, value in pairs}


def _struct_reader(fields: Mapping[str, Reader | None]) -> Reader | None:
    readers = {name: reader for name, reader in fields.items() if reader is not None}
    if not readers:
        return None

    def read(value: dict[str, Any]) -> dict[str, Any]:
        changed = {name: read(value[name]) for name, read in readers.items() if value[name] is not None}
        return {**value, **changed}

    return read
