"""The log of a lake: one row for each run of a step, with its duration, CPU time and size; a Delta table, ``steps``.

A run that fails is logged, too. A log that cannot be written does not stop a step: what the step did counts.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import write_deltalake

from pgqueue.errors import LakeError
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.table import KEPT_HOURS, SETTINGS, LakeTable, errors

log = logging.getLogger("pgqueue.pipeline")

STEPS = "steps"
SCHEMA = pa.schema(
    [
        ("step", pa.string()),
        ("started_at", pa.timestamp("us", "UTC")),
        ("seconds", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("days", pa.int64()),
        ("rows", pa.int64()),
        ("error", pa.string()),
    ]
)
COMPACTED_AT = 50
"""Files of the table. Each run adds one, and a reader opens them all."""


@dataclass(slots=True)
class Size:
    """How much a step did; the step fills it in.

    Attributes:
        days: how many days it changed or compared.
        rows: how many rows these days have.
    """

    days: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A run of a step.

    Attributes:
        step: the verb, such as ``export``.
        started_at: the time, in UTC.
        seconds: how long it took.
        cpu_seconds: the CPU time of its own process, without Spark's and the database's.
        days: how many days it changed or compared.
        rows: how many rows these days have.
        error: the class of the error with which it ended; None: it was done.
    """

    step: str
    started_at: datetime
    seconds: float
    cpu_seconds: float
    days: int
    rows: int
    error: str | None


@contextmanager
def log_step(lake: Lake, step: str) -> Iterator[Size]:
    """Log the block as a run of a step; the block fills in how much it did."""
    size = Size()
    started_at, started, used = datetime.now(UTC), time.monotonic(), time.process_time()
    failed: str | None = None
    try:
        yield size
    except BaseException as error:
        failed = type(error).__name__
        raise
    finally:
        row = {
            "step": step,
            "started_at": started_at,
            "seconds": time.monotonic() - started,
            "cpu_seconds": time.process_time() - used,
            "days": size.days,
            "rows": size.rows,
            "error": failed,
        }
        _append(lake, row)


def steps(lake: Lake) -> list[StepRun]:
    """All runs of steps, oldest first.

    Raises:
        LakeError: there is no lake, or the log cannot be read.
    """
    lake.marker()
    table = LakeTable(lake.folder, STEPS).latest()
    if table is None:
        return []
    with errors(f"{lake.uri}/{STEPS}"):
        rows = table.to_pyarrow_table().select(SCHEMA.names).sort_by("started_at").to_pylist()
    return [StepRun(**row) for row in rows]


def _append(lake: Lake, row: dict[str, object]) -> None:
    table = LakeTable(lake.folder, STEPS)
    try:
        with errors(table.uri):
            options = dict(lake.folder.storage_options)
            rows = pa.Table.from_pylist([row], SCHEMA)
            write_deltalake(table.uri, rows, mode="append", configuration=SETTINGS, storage_options=options)
            _compact(table)
    except LakeError as error:
        log.warning("the run of %s is not in the lake's log: %s", row["step"], error)


def _compact(table: LakeTable) -> None:
    there = table.latest()
    if there is not None and len(there.file_uris()) > COMPACTED_AT:
        there.optimize.compact()
        there.vacuum(KEPT_HOURS, dry_run=False)
