"""A day of a roll-up as PostgreSQL reads it: the lake's own files, as CSV."""

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv, parquet

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.lake.record import DayRecord

OPTIONS = csv.WriteOptions(include_header=False)
INSTANT = pa.timestamp("us", tz="UTC")


def rows_of(lake: "Lake", entry: "DayRecord", columns: Sequence[str]) -> Iterator[bytes]:
    """The rows of a table's day, a batch at a time.

    Args:
        lake: the lake of the files.
        entry: the day.
        columns: the columns, in order; ``day`` is the day itself.
    """
    for file in entry.files:
        read = parquet.ParquetFile(io.BytesIO(lake.folder.read(file.path)))
        for batch in read.iter_batches():
            given = {name: batch.column(name) for name in batch.schema.names}
            given["day"] = pa.repeat(pa.scalar(entry.day, pa.date32()), batch.num_rows)
            yield _csv(pa.table({name: _text_array(given[name]) for name in columns}))


def _csv(table: pa.Table) -> bytes:
    """CSV with nothing for null, and quotes for an empty string, as PostgreSQL reads them."""
    written = io.BytesIO()
    csv.write_csv(table, written, OPTIONS)
    return written.getvalue()


def _text_array(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):  # in UTC, with or without a zone in the file
        return values.cast(pa.timestamp("us", tz=values.type.tz)).cast(INSTANT)
    if pa.types.is_binary(values.type):
        return pa.array(
            [None if one is None else rf"\x{one.hex()}" for one in values.to_pylist()], pa.string()
        )
    return values
