"""The types of Spark for the kinds of values that a contract names."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pgqueue.spark.typed.kinds import JsonText, Kind, ListOf, MapOf, Plain, Record, Scalar

SCALARS: Final[dict[Scalar, DataType]] = {
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestampType(),
}


def spark_type(kind: Kind) -> DataType:
    """The type of a column of these values. Each part may be null, as in what Spark itself makes of JSON."""
    match kind:
        case Plain(scalar):
            return SCALARS[scalar]
        case JsonText():
            return StringType()
        case ListOf(item):
            return ArrayType(spark_type(item))
        case MapOf(value):
            return MapType(StringType(), spark_type(value))
        case Record(fields):
            return StructType([StructField(one.name, spark_type(one.kind)) for one in fields])
