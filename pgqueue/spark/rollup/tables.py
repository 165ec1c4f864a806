"""The roll-up tables of a lake: their names and columns, of which each engine writes the same."""

from collections.abc import Mapping

import pyarrow as pa

from pgqueue.store.pipeline.rollups import ROLLUPS

BUSY = "busy"
FOLDER = "rollup"
"""The folder of the tables, below the lake's."""
INSTANT = pa.timestamp("us", "UTC")
KINDS: Mapping[str, pa.DataType] = {
    "day": pa.date32(),
    "concurrency": pa.int32(),
    **dict.fromkeys(("hour", "first_at", "last_at"), INSTANT),
    **dict.fromkeys(
        ("queue", "task", "tenant", "error_type", "reason", "sample", "worker_id", "host"), pa.string()
    ),
    **dict.fromkeys(
        ("jobs", "succeeded", "cancelled", "dead", "attempts", "retries", "failures", "busy"), pa.int64()
    ),
    **dict.fromkeys(("slo_good", "slo_total"), pa.int64()),
    **dict.fromkeys(("wait_sketch", "run_sketch"), pa.binary()),
}
"""The types of columns; of the others: seconds, shares and costs."""


def _schema(*columns: str) -> pa.Schema:
    return pa.schema([(name, KINDS.get(name, pa.float64())) for name in columns])


SCHEMAS: Mapping[str, pa.Schema] = {
    BUSY: _schema("day", "hour", "queue", "task", "worker_id", "busy"),
    **{table: _schema(*columns) for table, columns in ROLLUPS.items()},
}
"""The columns of each table; all but ``busy`` are PostgreSQL's tables, too."""
PROMISES = pa.schema(
    [
        ("queue", pa.string()),
        ("task", pa.string()),
        ("wait", pa.int64()),
        ("run", pa.int64()),
        ("objective", pa.float64()),
    ]
)
"""The promises as the statements read them: a task's own, or of its queue where the task is null; times in microseconds."""
DAYS = pa.schema([("day", pa.date32())])


def folder(table: str) -> str:
    """Where a table is below the lake, such as ``rollup/hours``."""
    return f"{FOLDER}/{table}"
