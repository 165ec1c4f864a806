"""Writes the answers as Parquet: one file for each table, which replaces the old one in one rename."""

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from pgqueue.spark.report.section import ReportColumn, ReportTable, Value, ValueKind
from pgqueue.spark.report.words import day_of, instant

if TYPE_CHECKING:
    from datetime import date, datetime

    from pgqueue.spark.lake.lake import Lake

TYPES = {
    ValueKind.TEXT: pa.string(),
    ValueKind.COUNT: pa.int64(),
    ValueKind.NUMBER: pa.float64(),
    ValueKind.SECONDS: pa.float64(),
    ValueKind.SHARE: pa.float64(),
    ValueKind.MONEY: pa.float64(),
    ValueKind.HOUR: pa.timestamp("us", tz="UTC"),
    ValueKind.DAY: pa.date32(),
}


def arrow(table: ReportTable) -> pa.Table:
    """A table in Arrow's types; hours are instants."""
    arrays = [
        pa.array([_storable_value(row[index], column) for row in table.rows], TYPES[column.kind])
        for index, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.columns])


def write(lake: "Lake", table: ReportTable) -> str:
    """Write a table to the lake; returns its file's path below the lake.

    Raises:
        LakeError: the lake cannot be written to.
    """
    path = f"report/{table.name}/{table.name}.parquet"
    data = BytesIO()
    parquet.write_table(arrow(table), data)
    lake.folder.write(path, data.getvalue())
    return path


def _storable_value(value: Value, column: ReportColumn) -> "Value | date | datetime":
    if value is None or isinstance(value, str):
        return value
    if column.kind is ValueKind.HOUR:
        return instant(int(value))
    return day_of(int(value)) if column.kind is ValueKind.DAY else value
