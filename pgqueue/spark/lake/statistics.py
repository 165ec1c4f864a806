"""What a table's log says of a file: its rows, and the lowest and highest value of each column, by which a reader skips files.

The form is Delta's: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics. A file has bounds for all
columns or for none: ``deltalake`` takes a column without them, beside others that have them, for one without any value.

Values of jobs never stand in the log: of a text that may name a person the bounds are the lowest and the highest text there is.
"""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

SHOWN: Final = {"queue", "task", "outcome", "host", "version"}
"""Columns of text that are named by programs, not by people."""
LONGEST: Final = 32
"""Characters of a text in the log."""
LOWEST, HIGHEST = "", "\U0010ffff"
MILLISECOND: Final = timedelta(milliseconds=1)


def statistics(file: parquet.FileMetaData) -> str:
    """The JSON that stands in the log; without bounds where a column is of a kind that has none, such as a float."""
    schema, found = file.schema.to_arrow_schema(), {"numRecords": file.num_rows}
    lowest, highest, nulls = {}, {}, {}
    for place, field in enumerate(schema):
        parts = [file.row_group(group).column(place).statistics for group in range(file.num_row_groups)]
        if not _has_bounds(field) or not all(one and one.has_null_count for one in parts):
            return json.dumps(found)
        nulls[field.name] = sum(one.null_count for one in parts)
        if nulls[field.name] == file.num_rows:
            continue
        try:
            low, high = _bounds(field, [one for one in parts if one.has_min_max])
        except OverflowError:  # an instant of the year 9999
            return json.dumps(found)
        lowest[field.name], highest[field.name] = low, high
    return json.dumps({**found, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def have_bounds(schema: pa.Schema) -> bool:
    """Whether a file with these columns has bounds in the log."""
    return all(map(_has_bounds, schema))


def _has_bounds(field: pa.Field) -> bool:
    kind = field.type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _bounds(field: pa.Field, parts: list[Any]) -> tuple[Any, Any]:
    if pa.types.is_string(field.type):
        if field.name not in SHOWN or not parts:
            return LOWEST, HIGHEST
        high = max(one.max for one in parts)
        return min(one.min for one in parts)[:LONGEST], high[:LONGEST] + HIGHEST * (len(high) > LONGEST)
    return _text(min(one.min for one in parts), up=False), _text(max(one.max for one in parts), up=True)


def _text(value: Any, *, up: bool) -> Any:  # noqa: ANN401 - of any column
    if isinstance(value, datetime):  # in whole milliseconds, as Delta has them
        whole = value.astimezone(UTC).replace(microsecond=value.microsecond // 1000 * 1000)
        whole += MILLISECOND * (up and whole < value)
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value) if isinstance(value, date) else value
