"""The columns of a task's jobs: which there are, how they are called, and the SQL that makes them of a row.

A job that does not fit the contract, such as one of an older release, keeps a row: what does not fit is null, and the column
``misfit`` has the whole JSON. So does ``result_misfit`` for the result.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pgqueue.spark.typed.dialects import DIALECTS, Dialect, Engine
from pgqueue.spark.typed.kinds import Field, Kind, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN: Final[tuple[str, ...]] = (
    "id",
    "queue",
    "outcome",
    "status",
    "reason",
    "run_at",
    "created_at",
    "started_at",
    "ended_at",
    "attempts",
    "day",
)
"""Columns of the job itself, as far as its table has them."""
MADE: Final[tuple[str, ...]] = ("result", "misfit", "result_misfit")
VALUE, ARGS, OTHERS, BAD, MISFIT, RESULT, BAD_RESULT = BETWEEN = tuple(
    f"pgqueue_{name}" for name in ("value", "args", "others", "bad", "misfit", "result", "bad_result")
)
"""Columns between the steps: what was parsed, and what does not fit."""
PREFIX: Final = "arg_"


@dataclass(frozen=True, slots=True)
class ArgumentColumn:
    """An argument, and its column.

    Attributes:
        column: the column's name: that of the argument, or with ``arg_`` before it where the jobs have a column of that name.
        field: the argument.
        default: the JSON of its value where a job does not have it; None: it has to have it, or null.
    """

    column: str
    field: Field
    default: str | None


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """What the jobs of a task have.

    Attributes:
        arguments: in the order of the function's parameters.
        closed: whether a job that has other arguments does not fit.
        result: what the task returns; None: it is not said, and stays JSON.
    """

    arguments: tuple[ArgumentColumn, ...]
    closed: bool
    result: Kind | None


@dataclass(frozen=True, slots=True)
class Selection:
    """What to select of a table of jobs, step by step, so that an engine parses the arguments once and compares each once.

    Attributes:
        steps: each has expressions with names, beside the columns of the step before it.
        columns: the last step: expressions with names.
    """

    steps: tuple[tuple[tuple[str, str], ...], ...]
    columns: tuple[tuple[str, str], ...]

    def stepped(self, rows: "DataFrame") -> "DataFrame":
        """Rows of Spark, with what the last step reads."""
        for step in self.steps:
            rows = rows.selectExpr("*", *(f"{sql} as {name}" for name, sql in step))
        return rows

    def of(self, rows: str, quote: Callable[[str], str]) -> str:
        """The query.

        Args:
            rows: the jobs of the task: SQL that may stand after ``from``.
            quote: the engine's form of a name.
        """
        for step in self.steps:
            rows = f"(select *, {', '.join(f'{sql} as {name}' for name, sql in step)} from {rows}) as jobs"
        listed = [(quote(name), sql) for name, sql in self.columns]
        columns = ",\n    ".join(name if name == sql else f"{sql} as {name}" for name, sql in listed)
        return f"select\n    {columns}\nfrom {rows}"


def typed_columns(arguments: str | None, result: str | None) -> TypedColumns:
    """The columns of a task by its contract: two JSON schemas, as text; None: not said."""
    schema = _read(arguments) or {}
    parts = schema.get("$defs")
    parts = parts if isinstance(parts, dict) else {}
    properties = schema.get("properties")
    required = schema.get("required")
    names = _named(properties if isinstance(properties, dict) else {})
    found = []
    for column, (name, of) in names.items():
        is_needed = isinstance(required, list) and name in required
        default = msgspec.json.encode(of["default"]).decode() if _has_default(of) else None
        found.append(ArgumentColumn(column, Field(name, kind_of(of, parts), is_needed), default))
    said = _read(result)
    return TypedColumns(
        tuple(found), schema.get("additionalProperties") is False, None if said is None else kind_of(said)
    )


def selection(columns: TypedColumns, engine: Engine, there: Iterable[str]) -> Selection:
    """What to select of a table of one task's jobs.

    Args:
        columns: the task's.
        engine: whose SQL.
        there: the columns that the table has; those of :data:`OWN` are taken, and ``args`` and ``result`` are read if they
            are there.
    """
    dialect, has = DIALECTS[engine], frozenset(there)
    read = _Reading(columns, dialect)
    steps: list[list[tuple[str, str]]] = [[], [], []]
    made: list[tuple[str, str]] = [(name, dialect.quote(name)) for name in OWN if name in has]
    if "args" in has:
        for step, more in zip(steps, read.steps_of_arguments(), strict=True):
            step.extend(more)
        made += read.arguments()
    if "result" in has:
        if columns.result is not None:
            steps[0].append((RESULT, dialect.parsed("result")))
            steps[1].append((BAD_RESULT, read.bad_result(columns.result)))
        made.append(("result", read.result()))
    if "args" in has:
        made.append(("misfit", f"case when {MISFIT} then args end"))
    if "result" in has and columns.result is not None:
        made.append(("result_misfit", f"case when result is not null and {BAD_RESULT} then result end"))
    return Selection(tuple(tuple(step) for step in steps if step), tuple(made))


class _Reading:
    """The expressions for the jobs of one task."""

    def __init__(self, columns: TypedColumns, dialect: Dialect) -> None:
        self._columns = columns
        self._sql = dialect
        self._names = [one.field.name for one in columns.arguments]

    def steps_of_arguments(self) -> list[list[tuple[str, str]]]:
        """Parse; take the parts; compare each."""
        sql, fields = self._sql, [one.field for one in self._columns.arguments]
        bad = [sql.field_misfits(self._member(number), field) for number, field in enumerate(fields)]
        others = sql.has_others(VALUE, self._names) if self._columns.closed else "false"
        misfit = " or ".join([f"{ARGS} is null", f"coalesce({OTHERS}, true)", *bad])
        flags = f"{sql.list_of([f'({one})' for one in bad])}" if bad else "null"
        return [
            [(VALUE, sql.parsed("args"))],
            [(ARGS, sql.record(VALUE, self._names)), (OTHERS, others)],
            [(BAD, flags), (MISFIT, f"args is not null and ({misfit})")],
        ]

    def arguments(self) -> list[tuple[str, str]]:
        """The columns of the arguments."""
        return [
            (one.column, self._argument(number, one)) for number, one in enumerate(self._columns.arguments)
        ]

    def bad_result(self, kind: Kind) -> str:
        """Whether the result does not fit."""
        return f"({RESULT} is null or {self._sql.misfits(RESULT, kind)})"

    def result(self) -> str:
        """The column of the result."""
        kind = self._columns.result
        if kind is None:
            return "result"
        null = f"cast(null as {self._sql.type_of(kind)})"
        return f"case when {BAD_RESULT} then {null} else {self._sql.column(RESULT, kind)} end"

    def _argument(self, number: int, one: ArgumentColumn) -> str:
        value, kind = self._member(number), one.field.kind
        bad = f"{ARGS} is null or {self._sql.flag(BAD, number)}"
        cases = [f"when {bad} then cast(null as {self._sql.type_of(kind)})"]
        if one.default is not None:
            # a job with other arguments is of another release, or encoded: today's default says nothing of it
            cases.append(
                f"when {value} is null and not {OTHERS} then {self._sql.constant(one.default, kind)}"
            )
        return f"case {' '.join(cases)} else {self._sql.column(value, kind)} end"

    def _member(self, number: int) -> str:
        return self._sql.member(ARGS, self._names, number)


def _named(properties: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """The arguments by the names of their columns, which engines tell apart without regard to case."""
    taken = {*OWN, *MADE, *BETWEEN}
    found: dict[str, tuple[str, Any]] = {}
    for name, of in properties.items():
        column = str(name) or PREFIX
        while column.lower() in taken:
            column = f"{PREFIX}{column}"
        taken.add(column.lower())
        found[column] = (str(name), of)
    return found


def _has_default(of: object) -> bool:
    return isinstance(of, dict) and of.get("default") is not None


def _read(schema: str | None) -> dict[str, Any] | None:
    """A stored schema; None: there is none, or it is of no use."""
    try:
        found = None if schema is None else msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
