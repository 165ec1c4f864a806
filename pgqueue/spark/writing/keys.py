"""The key columns of a write: each job keeps their values in its meta, so that results can be joined to the rows.

Arguments would not do: a job's history may be kept without them, and its task may read a value as another type. The values have the
JSON form of arguments. A queue's codec encodes them as it encodes arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql.types import StructField, StructType

from pgqueue.errors import InvalidOption, PayloadTooLarge, RowsRefused
from pgqueue.spark.reading.columns import PLAIN
from pgqueue.values.hints import remedy
from pgqueue.values.payloads.codec import Codec, encoded_args
from pgqueue.values.payloads.signature import encode_result

KeyOf: TypeAlias = Callable[[Mapping[str, Any]], bytes]
"""Makes the JSON of a row's key columns."""
MEMBER = "key"
"""The member of a job's meta that has them."""
LONGEST = 4_000
"""Bytes of a key as JSON."""


def key_columns(columns: StructType, names: Sequence[str]) -> StructType:
    """The key columns of a DataFrame.

    Raises:
        InvalidOption: it has no such column.
        RowsRefused: a column's type cannot be read back from JSON.
    """
    for name in names:
        if name not in columns.names:
            raise InvalidOption(f"key={name!r}: there is no such column; {remedy(name, columns.names)}")
        kind = columns[name].dataType
        if type(kind) not in PLAIN:
            raise RowsRefused(
                f"column {name!r} is of type {kind.simpleString()}, which no key column can be; "
                "cast it, to a string for example"
            )
    # Nullable: of a job of which there is no record any more they are null.
    return StructType([StructField(name, columns[name].dataType) for name in names])


def key_encoder(codec: Codec | None, task: str) -> KeyOf:
    """Return what makes the JSON of key columns, as it is stored; it raises PayloadError."""

    def encode(values: Mapping[str, Any]) -> bytes:
        data = encode_result(values) or b"{}"
        if len(data) > LONGEST:
            raise PayloadTooLarge(
                f"the key columns take {len(data):,} bytes as JSON, over the limit of {LONGEST:,}; choose shorter ones"
            )
        return data if codec is None else encoded_args(codec, task, data)

    return encode


def meta_of(key: bytes) -> bytes:
    """The meta of a job with this key."""
    return b'{"%b":%b}' % (MEMBER.encode(), key)
