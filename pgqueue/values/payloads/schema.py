"""JSON schemas of a task's arguments and result, and whether arguments fit one.

A worker stores the schemas of its tasks. A program that enqueues by name and has no code of the task compares names, and the JSON
types of the arguments themselves; what is inside of them is compared by the worker.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pgqueue.values.hints import did_you_mean

DEEPEST: Final = 20
"""References that are followed."""
KINDS: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def schema_of(annotation: Any) -> dict[str, Any] | None:  # noqa: ANN401 - any annotation
    """The JSON schema of a type, with what it refers to under ``$defs``; None: it has none."""
    try:
        (schema,), parts = msgspec.json.schema_components(
            [annotation], ref_template="#/$defs/{name}", schema_hook=lambda _: {}
        )
    except Exception:  # noqa: BLE001 - a type's own hooks and defaults may raise anything
        return None
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    whole = {**parts.pop(name, {})} if name else {**schema}
    return {**whole, "$defs": parts} if parts else whole


def misfit(schema: object, arguments: Mapping[str, object]) -> str | None:
    """Why arguments do not fit the schema that a worker has stored; None: they do, as far as this can tell."""
    if not isinstance(schema, dict) or not isinstance(known := schema.get("properties", {}), dict):
        return None
    for name in arguments:
        if name not in known and schema.get("additionalProperties") is False:
            return f"it has no parameter {name!r}{did_you_mean(name, known)}"
    required = schema.get("required")
    if isinstance(required, list) and (missing := [name for name in required if name not in arguments]):
        return f"missing argument{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
    parts = schema.get("$defs")
    for name, value in arguments.items():
        kinds = _kinds(known.get(name), parts if isinstance(parts, dict) else {}, DEEPEST)
        kind = KINDS.get(type(value), "object")
        if isinstance(value, float) and value.is_integer():
            kind = "integer"
        if kinds is not None and not (kind in kinds or (kind == "integer" and "number" in kinds)):
            return f"argument {name!r} is of the JSON type {kind}; it takes {' or '.join(sorted(kinds))}"
    return None


def _kinds(schema: object, parts: Mapping[str, object], left: int) -> set[str] | None:
    """Return the JSON types that a value may have; None: any."""
    if not isinstance(schema, dict) or not left:
        return None
    if "$ref" in schema:
        return _kinds(parts.get(str(schema["$ref"]).rpartition("/")[2]), parts, left - 1)
    if isinstance(options := schema.get("anyOf"), list):
        found = [_kinds(one, parts, left - 1) for one in options]
        return None if None in found else {kind for one in found for kind in one or ()}
    if isinstance(values := schema.get("enum"), list):
        return {KINDS.get(type(value), "object") for value in values}
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) else None
