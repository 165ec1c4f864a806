"""Days of ended jobs for the tests of the roll-ups, made by hand and put into a lake."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from pgqueue.spark.lake.columns import ENDED, ENDED_COLUMNS, ENDED_TABLE, WORKER_SCHEMA, WORKERS
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, ExportBatch
from pgqueue.spark.rollup import in_duckdb
from pgqueue.spark.rollup.tables import SCHEMAS, folder
from pgqueue.store.pipeline.lake import NOTHING, Origin

Job = dict[str, Any]
Rows = list[dict[str, Any]]
NOBODY = Origin("0", 0, "pgqueue")
ENGINES = {"DuckDB": in_duckdb.MOST_ROWS, "Spark": -1}
"""Each engine, and the value of ``MOST_ROWS`` for which it computes every day."""
_ids = count(1)


def at(text: str) -> datetime:
    """An instant in UTC: ``20 10:00:05.5`` is of November 2026."""
    return datetime.fromisoformat(f"2026-11-{text}").replace(tzinfo=UTC)


def job(ended: datetime, *, ran: float | None = 1.0, waited: float = 0.0, **given: Any) -> Job:
    """An ended job.

    Args:
        ended: when it ended.
        ran: for how many seconds; None: it never started.
        waited: for how many seconds before; below zero: it started before its time.
        given: its columns; ``errors`` and ``args`` as values.
    """
    started = None if ran is None else ended - timedelta(seconds=ran)
    run_at = (started or ended) - timedelta(seconds=waited)
    row: Job = dict.fromkeys(ENDED_COLUMNS) | {
        "id": next(_ids),
        "queue": "mail",
        "task": "send",
        "outcome": "succeeded",
        "priority": 0,
        "run_at": run_at,
        "created_at": run_at,
        "started_at": started,
        "ended_at": ended,
        "attempts": 1 if started else 0,
        "max_attempts": 25,
        "collisions": 0,
        "args": {},
        "ended_in": 1,
        "day": ended.date(),
    }
    row |= given
    row["args"] = json.dumps(row["args"])
    if row["errors"] is not None and not isinstance(row["errors"], str):
        row["errors"] = json.dumps(row["errors"])
    return row


def error(attempt: int, instant: datetime, kind: str, message: str) -> dict[str, Any]:
    moment = instant.isoformat()
    return {"attempt": attempt, "at": moment, "type": kind, "message": message, "traceback": None}


def new_lake(lake: Lake) -> Lake:
    """A lake of no database."""
    lake.create(NOBODY)
    return lake


def put(lake: Lake, day: date, jobs: Iterable[Job]) -> None:
    """Add jobs to a day, as an export does: a first time, or because they came late."""
    former = next((one for one in lake.days() if one.day == day), None)
    generation = 1 if former is None else former.generation + 1
    written = lake.write_rows(ENDED, day, table_of(jobs).drop_columns(["day"]))
    now = datetime.now(UTC)
    batch = ExportBatch(
        generation=generation, since=0, below=9, highest=None, exported_at=now, history=NOTHING, dead=NOTHING
    )
    entry = EndedDay(table=ENDED, day=day, generation=generation, written_at=now, batches=(batch,))
    lake.commit(ENDED_TABLE, written, [entry])


def put_workers(lake: Lake, rows: Sequence[tuple[Any, ...]]) -> None:
    """Workers: id, started_at, ended_at, concurrency, host."""
    whole = [dict(zip(WORKER_SCHEMA.names, (*row, "1.0", None), strict=True)) for row in rows]
    lake.replace(WORKERS, pa.Table.from_pylist(whole, WORKER_SCHEMA))


def table_of(jobs: Iterable[Job]) -> pa.Table:
    return pa.Table.from_pylist(list(jobs), ENDED_TABLE)


def rolled_up(lake: Lake, table: str) -> Rows:
    """The rows of a roll-up table, in the order of their keys."""
    found: Rows = lake.dataset(folder(table), SCHEMAS[table]).to_table().to_pylist()
    keys = ("day", "hour", "queue", "task", "tenant", "error_type", "reason", "worker_id")
    return sorted(found, key=lambda row: [str(row.get(name)) for name in keys])


def figures(lake: Lake, table: str) -> Rows:
    """The rows of a roll-up table, without the sketches: the same values make other bytes in another order."""
    rows = rolled_up(lake, table)
    return [{name: value for name, value in row.items() if not name.endswith("_sketch")} for row in rows]
