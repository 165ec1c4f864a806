"""Parses JSON into the types of a Spark schema: gives msgspec the wanted type, and msgspec names the place of a misfit.

Parsing is strict: a number is not accepted as a string, nor a string as a number. Members that the schema does not name
are left out; members that a row lacks are null. Timestamps, dates, decimals and bytes are read from the strings in which
pgqueue writes them (ISO 8601 and Base64).
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Required, TypedDict

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pgqueue.errors import InvalidOption


def _integer(bits: int) -> Any:  # noqa: ANN401 - a type, annotated
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


PLAIN: dict[type[DataType], Any] = {
    BinaryType: bytes,
    BooleanType: bool,
    ByteType: _integer(8),
    DateType: date,
    DecimalType: Decimal,
    DoubleType: float,
    FloatType: float,
    IntegerType: _integer(32),
    LongType: _integer(64),
    ShortType: _integer(16),
    StringType: str,
    TimestampNTZType: Annotated[datetime, msgspec.Meta(tz=False)],
    TimestampType: Annotated[datetime, msgspec.Meta(tz=True)],
}


def parser(column: str, wanted: DataType) -> Callable[[str], Any]:
    """A function that parses JSON into a type.

    Args:
        column: its name, for the message.
        wanted: a struct, array or map.

    Returns:
        A function of the JSON text; it raises ``msgspec.MsgspecError`` when the JSON does not fit.

    Raises:
        InvalidOption: JSON cannot be read as this type.
    """
    return msgspec.json.Decoder(_option_value(column, wanted) | None).decode


def _option_value(column: str, wanted: DataType) -> Any:  # noqa: ANN401 - a type
    match wanted:
        case StructType():
            fields = {
                field.name: _option_value(column, field.dataType) | None
                if field.nullable
                else Required[_option_value(column, field.dataType)]
                for field in wanted.fields
            }
            return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
        case ArrayType():
            return list[_option_value(column, wanted.elementType) | None]  # type: ignore[misc]
        case MapType() if wanted.keyType == StringType():
            return dict[str, _option_value(column, wanted.valueType) | None]  # type: ignore[misc]
    plain = PLAIN.get(type(wanted))
    if plain is None:
        raise InvalidOption(
            f"column {column!r}: JSON cannot be read as {wanted.simpleString()}; use "
            "struct, array, map<string, ...>, string, boolean, a number, timestamp, date or binary"
        )
    return plain
