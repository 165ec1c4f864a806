"""What a JSON schema says of a value, as far as a column can hold it: the kinds of values, and how a schema becomes one.

A schema of a contract is made by this package, and stored where a worker may write: it may be of any form, refer to itself, or be
wrong. What this file cannot tell becomes :class:`JsonText`, which any value fits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

Scalar: TypeAlias = Literal["integer", "number", "boolean", "string", "date", "timestamp"]
MOST: Final = 2_000
"""Parts of one schema that become columns. The rest of a larger one is JSON text."""
DEEPEST: Final = 20
FLAT: Final = 4
"""Levels of objects, lists and maps below which a part counts twice as much with each level: an engine plans a lambda for each level.
511 parts in nine levels, each counted once, took DuckDB 11 s to make a view; with 2,000 it did not end."""
SCALARS: Final[Mapping[str, Scalar]] = {"integer": "integer", "number": "number", "boolean": "boolean"}
TEXTS: Final[Mapping[str, Scalar]] = {"date": "date", "date-time": "timestamp"}
"""Formats of texts that have a type of their own. A decimal stays text: its schema does not say how many digits it has."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A value without parts."""

    scalar: Scalar
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class JsonText:
    """A value of any form, kept as JSON."""

    nullable: bool = True


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    item: "Kind"
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object whose names are data."""

    value: "Kind"
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Attributes:
        name: as JSON has it.
        kind: of its value.
        required: whether each record has it.
    """

    name: str
    kind: "Kind"
    required: bool


@dataclass(frozen=True, slots=True)
class Record:
    """An object with these fields."""

    fields: tuple[Field, ...]
    nullable: bool = False


Kind: TypeAlias = Plain | JsonText | ListOf | MapOf | Record


def kind_of(schema: object, parts: Mapping[str, Any] | None = None) -> Kind:
    """The kind of the values that a schema allows.

    Args:
        schema: a JSON schema, or a part of one.
        parts: what it refers to; None: what it has under ``$defs``.
    """
    if parts is None:
        own = schema.get("$defs") if isinstance(schema, dict) else None
        parts = own if isinstance(own, dict) else {}
    return _Reading(parts).kind(schema, ())


def holds_json(kind: Kind) -> bool:
    """Whether a part of a value is kept as JSON."""
    return any(isinstance(one, JsonText) for one in within(kind))


def within(kind: Kind) -> Iterator[Kind]:
    """A kind, and the kinds in it."""
    yield kind
    match kind:
        case ListOf(item):
            yield from within(item)
        case MapOf(value):
            yield from within(value)
        case Record(fields):
            for field in fields:
                yield from within(field.kind)


class _Reading:
    """One reading of a schema; it ends, whatever the schema is."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = parts
        self._left = MOST

    def kind(self, schema: object, met: tuple[str, ...]) -> Kind:
        """The kind of a part; ``met`` has the names of the parts that it is in."""
        self._left -= 1 << max(0, met.count("") - FLAT)
        if not isinstance(schema, dict) or self._left < 0 or len(met) > DEEPEST:
            return JsonText()
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            return JsonText() if name in met else self.kind(self._parts.get(name), (*met, name))
        if isinstance(options := schema.get("anyOf"), list):
            return self._union(options, met)
        if isinstance(values := schema.get("enum"), list):
            return _enumerated(values)
        if "const" in schema:
            return _enumerated([schema["const"]])
        return self._typed(schema, (*met, ""))

    def _union(self, options: list[object], met: tuple[str, ...]) -> Kind:
        values = [one for one in options if not (isinstance(one, dict) and one.get("type") == "null")]
        nullable = len(values) < len(options)
        found = {replace(kind, nullable=False): kind for kind in (self.kind(one, met) for one in values)}
        if len(found) == 1:
            (kind,) = found.values()
        elif {*found} == {Plain("integer"), Plain("number")}:
            kind = Plain("number")
        else:
            return JsonText(nullable=nullable or any(one.nullable for one in found.values()))
        return replace(kind, nullable=kind.nullable or nullable)

    def _typed(self, schema: Mapping[str, Any], met: tuple[str, ...]) -> Kind:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return JsonText()
        if kind in SCALARS:
            return Plain(SCALARS[kind])
        if kind == "string":
            return Plain(TEXTS.get(str(schema.get("format")), "string"))
        if kind == "array":
            is_fixed = "prefixItems" in schema  # a tuple: its items differ
            return JsonText(nullable=False) if is_fixed else ListOf(self.kind(schema.get("items"), met))
        return self._object(schema, met) if kind == "object" else JsonText()

    def _object(self, schema: Mapping[str, Any], met: tuple[str, ...]) -> Kind:
        properties = schema.get("properties")
        if not properties:
            return MapOf(self.kind(schema.get("additionalProperties"), met))
        return self._record(schema, met) if isinstance(properties, dict) else JsonText(nullable=False)

    def _record(self, schema: Mapping[str, Any], met: tuple[str, ...]) -> Kind:
        said = schema.get("required")
        required = said if isinstance(said, list) else []
        properties = schema["properties"]
        if len({str(name).lower() for name in properties}) < len(properties) or "" in properties:
            return JsonText(nullable=False)  # engines of SQL tell columns apart without regard to case
        return Record(
            tuple(Field(str(name), self.kind(of, met), name in required) for name, of in properties.items())
        )


def _enumerated(values: list[object]) -> Kind:
    kinds: set[Scalar] = set()
    for value in values:
        match value:
            case None:
                continue
            case bool():
                kinds.add("boolean")
            case int():
                kinds.add("integer")
            case float():
                kinds.add("number")
            case str():
                kinds.add("string")
            case _:
                return JsonText()
    nullable = None in values
    return Plain(kinds.pop(), nullable) if len(kinds) == 1 else JsonText(nullable)
