"""The columns of a read: their types in PostgreSQL and in Spark, and how values are checked and parsed.

=====================  =============================================================================================
in PostgreSQL          in Spark
=====================  =============================================================================================
bigint, integer,       bigint, int, smallint; the user's schema may widen them
smallint
timestamptz            timestamp, in UTC; infinity and values outside the years 1 to 9999 are refused
date                   date
json, jsonb            string; or the user's struct, array or map, into which each row is parsed
uuid                   string
=====================  =============================================================================================

JSON is parsed strictly: msgspec is given the wanted type, and names the place of a misfit. A number is not accepted as a string,
nor a string as a number. Members that the schema does not name are left out; members that a row lacks are null. Timestamps, dates,
decimals and bytes are read from the strings in which pgqueue writes them (ISO 8601 and Base64).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Required, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pgqueue.errors import InvalidOption, PipelineError
from pgqueue.spark.reading.fitting import fit_column, row_name
from pgqueue.store.pipeline.extract_where import TABLES, ColumnKind
from pgqueue.values.hints import did_you_mean

TYPES: Mapping[ColumnKind, tuple[DataType, ...]] = {
    ColumnKind.BIGINT: (LongType(),),
    ColumnKind.INTEGER: (IntegerType(), LongType()),
    ColumnKind.SMALLINT: (ShortType(), IntegerType(), LongType()),
    ColumnKind.BOOLEAN: (BooleanType(),),
    ColumnKind.TEXT: (StringType(),),
    ColumnKind.JSON: (StringType(),),
    ColumnKind.TIMESTAMP: (TimestampType(),),
    ColumnKind.DATE: (DateType(),),
}
"""The Spark types that a column may have; the first is the default."""
PARSED = (StructType, ArrayType, MapType)
LONG = frozenset({"args", "errors", "meta", "result"})
"""Columns that are read only if they are asked for: Spark does not tell a Python source which columns a query uses."""


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


def schema_of(table: str, columns: Iterable[str] | None = None) -> StructType:
    """The schema of some of a table's columns, in the order given; by default of all but :data:`LONG`.

    Raises:
        InvalidOption: the table has no such column.
    """
    kinds = TABLES[table].columns
    names = [name for name in kinds if name not in LONG] if columns is None else list(columns)
    for name in names:
        _check_known(table, name)
    return StructType([StructField(name, TYPES[kinds[name]][0]) for name in names])


def check_schema(table: str, given: StructType) -> None:
    """Check a user's schema: its columns are the table's, in any order, and can have the given types.

    Raises:
        InvalidOption: a column is unknown, or cannot have its type; the message names it and the types it may have.
    """
    if not given.fields:
        raise InvalidOption(f"no column is asked for: table {table!r} has {', '.join(TABLES[table].columns)}")
    for field in given.fields:
        _check_known(table, field.name)
        kind = TABLES[table].columns[field.name]
        if field.dataType in TYPES[kind]:
            continue
        if kind is not ColumnKind.JSON or not isinstance(field.dataType, PARSED):
            raise InvalidOption(
                f"column {field.name!r} of table {table!r} cannot be {field.dataType.simpleString()}: "
                f"use {_choices(kind)}"
            )
        parser(field.name, field.dataType)


def _check_known(table: str, name: str) -> None:
    known = TABLES[table].columns
    if name not in known:
        hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
        raise InvalidOption(f"table {table!r} has no column {name!r}{hint}")


def _choices(kind: ColumnKind) -> str:
    names = [one.simpleString() for one in TYPES[kind]]
    if kind is ColumnKind.JSON:
        names += ["a struct", "an array", "a map"]
    return " or ".join(names)


@dataclass(frozen=True)
class Shape:
    """The shape of a read's rows: which columns, of which types, in which order.

    Attributes:
        table: one of TABLES.
        schema: Spark's, checked.
    """

    table: str
    schema: StructType

    @property
    def wanted(self) -> list[str]:
        """The columns to read from PostgreSQL; also the id, where an error may have to name a row."""
        names = self.schema.fieldNames()
        return names if "id" in names or not self._needs_naming else [*names, "id"]

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in Spark's types.

        Args:
            batch: the columns of :attr:`wanted`, as PostgreSQL sent them.

        Raises:
            PipelineError: a value does not fit; the message names the row and the column.
        """
        columns = [
            self._fitted(batch, field, batch.column(number)) for number, field in enumerate(self._target)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    @cached_property
    def _target(self) -> pa.Schema:
        return to_arrow_schema(self.schema, timezone="UTC")

    @cached_property
    def _parsers(self) -> dict[str, Callable[[str], Any]]:
        return {
            field.name: parser(field.name, field.dataType)
            for field in self.schema.fields
            if isinstance(field.dataType, PARSED)
        }

    @property
    def _needs_naming(self) -> bool:
        return any(
            isinstance(field.dataType, (*PARSED, TimestampType)) or not field.nullable
            for field in self.schema.fields
        )

    def _fitted(self, batch: pa.RecordBatch, field: pa.Field, column: pa.Array) -> pa.Array:
        if not field.nullable and column.null_count:
            raise self._misfit(batch, pc.index(column.is_null(), True).as_py(), field.name, "it is null")
        if field.name in self._parsers:
            return self._parsed(batch, field.name, field.type, column)
        return fit_column(field, column, lambda row: self._row(batch, row))

    def _parsed(self, batch: pa.RecordBatch, name: str, wanted: pa.DataType, column: pa.Array) -> pa.Array:
        parse, values = self._parsers[name], []
        try:
            for text in column.to_pylist():
                values.append(None if text is None else parse(text))  # noqa: PERF401 - on an error, its length is the row
        except msgspec.MsgspecError as error:
            raise self._misfit(batch, len(values), name, str(error)) from None
        try:
            return pa.array(values, type=wanted)
        except (pa.ArrowException, OverflowError) as error:
            row = next(number for number, value in enumerate(values) if not _goes(value, wanted))
            raise self._misfit(batch, row, name, str(error)) from None

    def _misfit(self, batch: pa.RecordBatch, row: int, name: str, reason: str) -> PipelineError:
        said = self.schema[name].dataType.simpleString()
        return PipelineError(
            f"{self._row(batch, row)}: {name!r} does not fit {said}: {reason}; "
            "give it a type that every row fits, or read it as string"
        )

    def _row(self, batch: pa.RecordBatch, row: int) -> str:
        return row_name(self.table, batch, row)


def _goes(value: object, wanted: pa.DataType) -> bool:
    try:
        pa.array([value], type=wanted)
    except (pa.ArrowException, OverflowError):
        return False
    return True


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
