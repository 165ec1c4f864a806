"""JSON schemas of a task's arguments and result, and whether arguments fit one.

A worker stores the schemas of its tasks. A program that enqueues by name and has no code of the task compares names, and the JSON
types of the arguments themselves; what is inside of them is compared by the worker.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect as inspect_types

from pgqueue.values.hints import did_you_mean
from pgqueue.values.payloads.other_types import types_within
from pgqueue.values.payloads.schema_parts import RECORDS, OtherTypes, say_times, say_times_of_record

MOST: Final = 200
"""Parts of a schema that are looked at for one argument: a stored one may refer to itself."""
KINDS: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
EMPTY: Final[Mapping[str, Any]] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}


def schema_of(annotation: Any) -> dict[str, Any] | None:  # noqa: ANN401 - any annotation
    """The JSON schema of a type, with what it refers to under ``$defs``; None: it has none.

    A part of a type that has no schema, such as a class of the app's own, allows any value.
    """
    try:
        return _schema_of(annotation)
    except Exception:  # noqa: BLE001 - a type's own hooks and defaults may raise anything
        return None


def _schema_of(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any annotation
    others, root = OtherTypes(), inspect_types.type_info(annotation)
    found = types_within(root)
    has_times = any(isinstance(one, inspect_types.DateTimeType) for one in found)
    records = [one for one in found if has_times and isinstance(one, RECORDS)]
    (schema, *named), parts = msgspec.json.schema_components(
        [annotation, *(one.cls for one in records)],
        ref_template="#/$defs/{name}",
        schema_hook=others.schema,
    )
    say_times(root, schema)
    for record, said in zip(records, named, strict=True):
        say_times_of_record(record, parts.get(_name(said), said))
    parts |= others.parts
    whole = {**schema, **parts.get(_name(schema), {})}
    whole.pop("$ref", None)
    used = _used(parts, whole)
    return {**whole, "$defs": used} if used else whole


def _used(parts: Mapping[str, Any], whole: object) -> dict[str, Any]:
    """The parts to which a schema refers, or one of them."""
    found: dict[str, Any] = {}
    left = [whole]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
            name = _name(one)
            if name in parts and name not in found:
                found[name] = parts[name]
                left.append(parts[name])
        elif isinstance(one, list):
            left += one
    return found


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def misfit(schema: object, arguments: Mapping[str, object]) -> str | None:
    """Why arguments do not fit the schema that a worker has stored; None: they do, as far as this can tell."""
    if not isinstance(schema, dict) or not isinstance(known := schema.get("properties", {}), dict):
        return None
    for name in arguments:
        if name not in known and schema.get("additionalProperties") is False:
            return f"it has no parameter {name!r}{did_you_mean(name, known)}"
    required = schema.get("required")
    named = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if missing := [name for name in named if name not in arguments]:
        return f"missing argument{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
    for name, value in arguments.items():
        kinds = _kinds_in(schema, known.get(name))
        kind = KINDS.get(type(value), "object")
        if isinstance(value, float) and value.is_integer():
            kind = "integer"
        if kinds is not None and not (kind in kinds or (kind == "integer" and "number" in kinds)):
            return f"argument {name!r} is of the JSON type {kind}; it takes {' or '.join(sorted(kinds))}"
    return None


def example_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of these names: the defaults, and an empty value of its JSON type for each argument that must be given."""
    known, required = _properties(schema)
    found: dict[str, Any] = {}
    for name, of in known.items():
        if isinstance(of, dict) and "default" in of:
            found[name] = of["default"]
        elif name in required:
            kinds = _kinds_in(schema, of) or {"null"}
            found[name] = EMPTY[min(kinds, key=[*EMPTY].index)]
    return found


def parameters_of(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each argument with its JSON types, and whether it may be left out, in words."""
    known, required = _properties(schema)
    found = []
    for name, of in known.items():
        kinds = _kinds_in(schema, of)
        said = "any value" if kinds is None else " or ".join(sorted(kinds))
        found.append((str(name), said if name in required else f"{said}, may be left out"))
    return found


def _properties(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Collection[str]]:
    known, required = schema.get("properties"), schema.get("required")
    return known if isinstance(known, dict) else {}, required if isinstance(required, list) else []


def _kinds_in(schema: Mapping[str, Any], of: object) -> set[str] | None:
    """Return the JSON types that a value may have by a part of a schema; None: any."""
    parts = schema.get("$defs")
    return _kinds(of, parts if isinstance(parts, dict) else {}, [MOST])


def _kinds(schema: object, parts: Mapping[str, object], left: list[int]) -> set[str] | None:
    """Return the JSON types that a value may have; None: any. ``left`` counts down what may still be looked at."""
    left[0] -= 1
    if not isinstance(schema, dict) or left[0] < 0:
        return None
    if "$ref" in schema:
        return _kinds(parts.get(str(schema["$ref"]).rpartition("/")[2]), parts, left)
    if isinstance(options := schema.get("anyOf"), list):
        found = [_kinds(one, parts, left) for one in options]
        return None if None in found else {kind for one in found for kind in one or ()} or None
    if isinstance(values := schema.get("enum"), list):
        return {KINDS.get(type(value), "object") for value in values} or None
    kind = schema.get("type")
    if kind not in KINDS.values():
        return None
    return {"string", "number"} if schema.get("format") == "decimal" else {str(kind)}
