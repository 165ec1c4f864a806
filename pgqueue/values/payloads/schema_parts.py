"""What msgspec's JSON schemas leave open: types it does not know, and texts that are times.

msgspec makes the schemas. It has none for pydantic's models, and calls a ``datetime`` a text without a format, unless its
annotation demands a time zone.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec import inspect as types

from pgqueue.values.payloads.other_types import reads_names

_PLAIN: Final = ((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"))
RECORDS: Final = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)
"""Types of which msgspec makes parts that schemas refer to."""


class OtherTypes:
    """The schemas of types that msgspec does not know, by pydantic for its models.

    Attributes:
        parts: what these schemas refer to, by name.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def schema(self, kind: type) -> dict[str, Any]:
        """The schema of a type; one that only has a title allows any value."""
        if hasattr(kind, "model_json_schema"):
            with suppress(Exception):  # a field of a type that pydantic has no schema for
                return self._model(kind)
        found = next((name for base, name in _PLAIN if issubclass(kind, base)), None)
        # msgspec takes an empty schema for none
        return {"title": kind.__qualname__} if found is None else {"type": found}

    def _model(self, kind: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic is not imported
        """As a model is written, of which a reader needs the fields that have no default."""
        name = f"{kind.__module__}.{kind.__qualname__}"
        asked = {"by_alias": not reads_names(kind), "ref_template": f"#/$defs/{name}.{{model}}"}
        written = kind.model_json_schema(mode="serialization", **asked)
        read = kind.model_json_schema(mode="validation", **asked)
        parts, needed = written.pop("$defs", {}), read.get("$defs", {})
        for part, of in [(written, read), *((parts[one], needed.get(one, {})) for one in parts)]:
            if "properties" in part:
                part["required"] = of.get("required", [])
        self.parts |= {f"{name}.{part}": of for part, of in parts.items()}
        return {**written}


def say_times(kind: types.Type, schema: object) -> None:
    """Write the format of each time into the schema of a type, without the parts that it refers to."""
    while isinstance(kind, types.Metadata):
        kind = kind.type
    if not isinstance(schema, dict):
        return
    if isinstance(kind, types.DateTimeType) and kind.tz is not False:
        schema.setdefault("format", "date-time")
    elif isinstance(kind, types.UnionType):
        others = [one for one in kind.types if not isinstance(one, (types.NoneType, types.StructType))]
        for one, option in zip(others, schema.get("anyOf", ()), strict=False):
            say_times(one, option)
    elif isinstance(kind, types.TupleType):
        for one, item in zip(kind.item_types, schema.get("prefixItems", ()), strict=False):
            say_times(one, item)
    elif isinstance(kind, types.DictType):
        say_times(kind.value_type, schema.get("additionalProperties"))
    elif isinstance(kind, types.CollectionType):
        say_times(kind.item_type, schema.get("items"))


def say_times_of_record(kind: types.Type, schema: Mapping[str, Any]) -> None:
    """Write the format of each time into the schema of a record, without the parts that it refers to."""
    properties = schema.get("properties")
    for field in getattr(kind, "fields", ()):
        if isinstance(properties, dict):
            say_times(field.type, properties.get(field.encode_name))
