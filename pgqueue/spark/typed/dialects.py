"""SQL about one JSON value, for Spark and for DuckDB: its type, its parts, and the column that it becomes.

In both a part that is absent is null, and JSON's null is a value. In Spark a value is a ``variant``, in DuckDB a ``json``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from pgqueue.spark.typed.kinds import Field, JsonText, Kind, ListOf, MapOf, Plain, Record, Scalar, holds_json

Engine: TypeAlias = Literal["duckdb", "spark"]


class Dialect(ABC):
    """How an engine says it. Arguments and answers are expressions of SQL."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """A name of a column or of a view."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text."""

    @abstractmethod
    def parsed(self, text: str) -> str:
        """The value that a text of JSON has; null: it is no JSON."""

    @abstractmethod
    def record(self, value: str, names: Sequence[str]) -> str:
        """The parts of these names that an object has, in the form of which :meth:`member` takes one; null: it is no object."""

    @abstractmethod
    def member(self, record: str, names: Sequence[str], number: int) -> str:
        """The part with this number, from 0 on, of the names that were asked for."""

    @abstractmethod
    def flag(self, flags: str, number: int) -> str:
        """The truth with this number, from 0 on, of a list."""

    @abstractmethod
    def is_json_null(self, value: str) -> str:
        """Whether a value, which is not absent, is JSON's null."""

    @abstractmethod
    def is_of(self, value: str, scalar: Scalar) -> str:
        """Whether a value, which is not absent, is of this type."""

    @abstractmethod
    def items(self, value: str, *, of_object: bool) -> str:
        """The items of a list, or the values of an object; null: it is none."""

    @abstractmethod
    def alone(self, value: str) -> str:
        """The list that has this value alone."""

    def list_of(self, values: Sequence[str]) -> str:
        """The list of these values."""
        return self.alone(", ".join(values))

    @abstractmethod
    def any_of(self, items: str, variable: str, condition: str) -> str:
        """Whether the condition is true for an item, which it calls by the variable's name."""

    @abstractmethod
    def has_others(self, value: str, names: Sequence[str]) -> str:
        """Whether a value has parts of other names; null: it is no object."""

    @abstractmethod
    def type_of(self, kind: Kind) -> str:
        """The type of the column that values of a kind become."""

    @abstractmethod
    def column(self, value: str, kind: Kind, depth: int = 0) -> str:
        """The value of the column, for a value that fits."""

    def constant(self, value: str, kind: Kind) -> str:
        """The value of the column, for a text of JSON that the schema itself has."""
        return self.column(self.parsed(self.text(value)), kind)

    def misfits(self, value: str, kind: Kind, depth: int = 0) -> str:
        """Whether a value, which is not absent, is of another kind. It is never null."""
        if isinstance(kind, JsonText):
            return "false" if kind.nullable else self.is_json_null(value)
        bad = self._is_other(value, kind, depth)
        return f"(not {self.is_json_null(value)} and {bad})" if kind.nullable else bad

    def field_misfits(self, value: str, field: Field, depth: int = 0) -> str:
        """Whether the value of a field is absent and should not be, or is of another kind."""
        bad = self.misfits(value, field.kind, depth)
        return (
            f"({value} is null or {bad})"
            if field.required
            else f"coalesce({value} is not null and {bad}, false)"
        )

    def _is_other(self, value: str, kind: Kind, depth: int) -> str:
        one = f"x{depth}"
        match kind:
            case Plain(scalar):
                return f"not coalesce({self.is_of(value, scalar)}, false)"
            case ListOf(item):
                bad = self.misfits(one, item, depth + 1)
                return self._holds_bad(self.items(value, of_object=False), one, bad)
            case MapOf(item):
                bad = self.misfits(one, item, depth + 1)
                return self._holds_bad(self.items(value, of_object=True), one, bad)
            case Record(fields):
                # a variable, since an expression for each use of a part would double the text with each level
                names = [field.name for field in fields]
                bad = " or ".join(
                    self.field_misfits(self.member(one, names, number), field, depth + 1)
                    for number, field in enumerate(fields)
                )
                return self.any_of(self.alone(self.record(value, names)), one, f"{one} is null or {bad}")
        return "false"

    def _holds_bad(self, items: str, one: str, bad: str) -> str:
        return f"({items} is null or {self.any_of(items, one, f'coalesce({bad}, true)')})"


class Spark(Dialect):
    """SQL of Spark 4.2 and later."""

    SCALARS: Final[Mapping[Scalar, str]] = {
        "integer": "bigint",
        "number": "double",
        "boolean": "boolean",
        "string": "string",
        "date": "date",
        "timestamp": "timestamp",
    }
    OBJECT = "map<string, variant>"

    def quote(self, name: str) -> str:
        """Also where a name has a backtick."""
        return "`" + name.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        """Backslashes escape in Spark."""
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def parsed(self, text: str) -> str:
        """Objects with a name twice are no JSON for Spark; PostgreSQL has none."""
        return f"try_parse_json({text})"

    def record(self, value: str, names: Sequence[str]) -> str:  # noqa: ARG002 - DuckDB needs it
        """A map of all parts."""
        return self._get(value, self.OBJECT)

    def member(self, record: str, names: Sequence[str], number: int) -> str:
        """Of a map."""
        return f"try_element_at({record}, {self.text(names[number])})"

    def flag(self, flags: str, number: int) -> str:
        """Of an array."""
        return f"{flags}[{number}]"

    def is_json_null(self, value: str) -> str:
        """Never null itself."""
        return f"is_variant_null({value})"

    def is_of(self, value: str, scalar: Scalar) -> str:
        """By the type that the variant has."""
        kind = f"schema_of_variant({value})"
        match scalar:
            case "integer":
                return f"{kind} = 'BIGINT'"
            case "number":
                return f"({kind} in ('BIGINT', 'DOUBLE') or {kind} like 'DECIMAL%')"
            case "boolean":
                return f"{kind} = 'BOOLEAN'"
            case "string":
                return f"{kind} = 'STRING'"
        return f"({kind} = 'STRING' and {self._get(value, self.SCALARS[scalar])} is not null)"

    def items(self, value: str, *, of_object: bool) -> str:
        """An array of variants."""
        return (
            f"map_values({self._get(value, self.OBJECT)})"
            if of_object
            else self._get(value, "array<variant>")
        )

    def alone(self, value: str) -> str:
        """An array."""
        return f"array({value})"

    def any_of(self, items: str, variable: str, condition: str) -> str:
        """Null for null."""
        return f"exists({items}, {variable} -> {condition})"

    def has_others(self, value: str, names: Sequence[str]) -> str:
        """By the keys of a map."""
        record = self.record(value, names)
        known = f"array({', '.join(map(self.text, names))})" if names else "cast(array() as array<string>)"
        return f"size(array_except(map_keys({record}), {known})) > 0"

    def type_of(self, kind: Kind) -> str:
        """As in DDL."""
        match kind:
            case Plain(scalar):
                return self.SCALARS[scalar]
            case ListOf(item):
                return f"array<{self.type_of(item)}>"
            case MapOf(value):
                return f"map<string, {self.type_of(value)}>"
            case Record(fields):
                return f"struct<{', '.join(f'{self.quote(one.name)}: {self.type_of(one.kind)}' for one in fields)}>"
        return "string"

    def column(self, value: str, kind: Kind, depth: int = 0) -> str:
        """In one step, unless a part stays JSON: Spark would write a text without its quotes."""
        if not holds_json(kind):
            return self._get(value, self.type_of(kind))
        one = f"y{depth}"
        match kind:
            case ListOf(item):
                made = self.column(one, item, depth + 1)
                return f"transform({self.items(value, of_object=False)}, {one} -> {made})"
            case MapOf(item):
                made = self.column(one, item, depth + 1)
                return f"transform_values({self.record(value, ())}, (k{depth}, {one}) -> {made})"
            case Record(fields):
                names = [field.name for field in fields]
                parts = ", ".join(
                    f"{self.text(name)}, {self.column(self.member(one, names, number), fields[number].kind, depth + 1)}"
                    for number, name in enumerate(names)
                )
                made = f"if({one} is null, null, named_struct({parts}))"
                return f"element_at(transform({self.alone(self.record(value, names))}, {one} -> {made}), 1)"
        return f"if(is_variant_null({value}), null, to_json({value}))"

    def _get(self, value: str, kind: str) -> str:
        return f"try_variant_get({value}, '$', {self.text(kind)})"


class DuckDb(Dialect):
    """SQL of DuckDB 1.3 and later."""

    SCALARS: Final[Mapping[Scalar, str]] = {
        "integer": "bigint",
        "number": "double",
        "boolean": "boolean",
        "string": "varchar",
        "date": "date",
        "timestamp": "timestamptz",
    }
    TYPES: Final[Mapping[Scalar, str]] = {
        "integer": "in ('BIGINT', 'UBIGINT')",
        "number": "in ('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')",
        "boolean": "= 'BOOLEAN'",
    }

    def quote(self, name: str) -> str:
        """As SQL does."""
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        """Backslashes escape nothing."""
        return "'" + value.replace("'", "''") + "'"

    def parsed(self, text: str) -> str:
        """A ``json``."""
        return f"try_cast({text} as json)"

    def record(self, value: str, names: Sequence[str]) -> str:
        """A list of the parts: all are found in one reading of the value."""
        pointers = ", ".join(self.text(_pointer(name)) for name in names)
        return (
            f"case when json_type({value}) = 'OBJECT' then json_extract({value}, [{pointers}]::varchar[]) end"
        )

    def member(self, record: str, names: Sequence[str], number: int) -> str:  # noqa: ARG002 - Spark needs it
        """Of a list, which counts from 1."""
        return f"{record}[{number + 1}]"

    def flag(self, flags: str, number: int) -> str:
        """Of a list, which counts from 1."""
        return f"{flags}[{number + 1}]"

    def is_json_null(self, value: str) -> str:
        """By its type."""
        return f"coalesce(json_type({value}) = 'NULL', false)"

    def is_of(self, value: str, scalar: Scalar) -> str:
        """By its type, and whether the column can have it."""
        kind, made = f"json_type({value})", self.column(value, Plain(scalar))
        fits = self.TYPES.get(scalar, "= 'VARCHAR'")
        return f"{kind} {fits}" if scalar == "string" else f"({kind} {fits} and {made} is not null)"

    def items(self, value: str, *, of_object: bool) -> str:
        """A list of ``json``."""
        kind, path = ("OBJECT", "$.*") if of_object else ("ARRAY", "$[*]")
        return f"case when json_type({value}) = '{kind}' then json_extract({value}, '{path}') end"

    def alone(self, value: str) -> str:
        """A list."""
        return f"[{value}]"

    def any_of(self, items: str, variable: str, condition: str) -> str:
        """Null for null."""
        return f"len(list_filter({items}, lambda {variable}: {condition})) > 0"

    def has_others(self, value: str, names: Sequence[str]) -> str:
        """By the keys of the object."""
        known = f"[{', '.join(map(self.text, names))}]::varchar[]"
        others = f"len(list_filter(json_keys({value}), lambda k: not list_contains({known}, k))) > 0"
        return f"case when json_type({value}) = 'OBJECT' then {others} end"

    def type_of(self, kind: Kind) -> str:
        """As in DDL."""
        match kind:
            case Plain(scalar):
                return self.SCALARS[scalar]
            case ListOf(item):
                return f"{self.type_of(item)}[]"
            case MapOf(value):
                return f"map(varchar, {self.type_of(value)})"
            case Record(fields):
                return f"struct({', '.join(f'{self.quote(one.name)} {self.type_of(one.kind)}' for one in fields)})"
        return "json"

    def column(self, value: str, kind: Kind, depth: int = 0) -> str:  # noqa: ARG002 - Spark needs it
        """A cast of JSON itself where it has parts, else of its text."""
        match kind:
            case Plain(scalar):
                return f"try_cast({value}->>'$' as {self.SCALARS[scalar]})"
            case JsonText():
                return f"case when json_type({value}) <> 'NULL' then {value} end"
        return f"try_cast({value} as {self.type_of(kind)})"


def _pointer(name: str) -> str:
    """A JSON pointer, in which every name can be written."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


DIALECTS: Final[Mapping[Engine, Dialect]] = {"duckdb": DuckDb(), "spark": Spark()}
