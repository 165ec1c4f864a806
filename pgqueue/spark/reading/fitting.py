"""Fits rows, as PostgreSQL sends them, to the types of a lake and of Spark."""

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from pgqueue.errors import PipelineError

FIRST_INSTANT = datetime(1, 1, 1, tzinfo=UTC)
LAST_INSTANT = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
"""The timestamps that Spark promises to hold."""


def fit(table: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in these types.

    Args:
        table: its name, for the message.
        batch: the columns of ``schema``, among them the id.
        schema: the columns.

    Raises:
        PipelineError: an instant has no place there; the message names the row and the column.
    """
    columns = [
        fit_column(field, batch.column(number), lambda row: row_name(table, batch, row))
        for number, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fit_column(field: pa.Field, column: pa.Array, named: Callable[[int], str]) -> pa.Array:
    """A column in its type.

    Args:
        field: its name and its type.
        column: as PostgreSQL sent it.
        named: names a row in a message.

    Raises:
        PipelineError: as for :func:`fit`.
    """
    if pa.types.is_timestamp(field.type):
        _check_instants(field.name, column, named)
    return column.cast(field.type)


def row_name(table: str, batch: pa.RecordBatch, row: int) -> str:
    """What names a row in a message."""
    return f"table {table!r}, id {batch.column('id')[row].as_py()}"


def _check_instants(name: str, column: pa.Array, named: Callable[[int], str]) -> None:
    first, last = (pa.scalar(one, column.type) for one in (FIRST_INSTANT, LAST_INSTANT))
    outside = pc.or_(pc.less(column, first), pc.greater(column, last))
    row = pc.index(outside, True).as_py()
    if row >= 0:
        raise PipelineError(
            f"{named(row)}: {name!r} is infinity, or lies outside the years 1 to 9999, and is no "
            f"timestamp in Spark; read without that column, or set it right"
        )
