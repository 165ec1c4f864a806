"""Writes the answers as Parquet: one file for each table, which replaces the old one in one rename."""

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from pgqueue.spark.report.section import Column, Kind, Table, Value
from pgqueue.spark.report.words import day_of, instant

if TYPE_CHECKING:
    from datetime import date, datetime

    from pgqueue.spark.lake.lake import Lake

TYPES = {
    Kind.TEXT: pa.string(),
    Kind.COUNT: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.SECONDS: pa.float64(),
    Kind.SHARE: pa.float64(),
    Kind.MONEY: pa.float64(),
    Kind.HOUR: pa.timestamp("us", tz="UTC"),
    Kind.DAY: pa.date32(),
}


def arrow(table: Table) -> pa.Table:
    """A table in Arrow's types; hours are instants."""
    arrays = [
        pa.array([_stored(row[index], column) for row in table.rows], TYPES[column.kind])
        for index, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.columns])


def write(lake: "Lake", table: Table) -> str:
    """Write a table to the lake; returns its file's path below the lake.

    Raises:
        LakeError: the lake cannot be written to.
    """
    path = f"report/{table.name}/{table.name}.parquet"
    data = BytesIO()
    parquet.write_table(arrow(table), data)
    lake.folder.write(path, data.getvalue())
    return path


def _stored(value: Value, column: Column) -> "Value | date | datetime":
    if value is None or isinstance(value, str):
        return value
    if column.kind is Kind.HOUR:
        return instant(int(value))
    return day_of(int(value)) if column.kind is Kind.DAY else value
