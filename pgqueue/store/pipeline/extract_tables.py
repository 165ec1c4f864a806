"""The database's tables as Spark sees them: their columns, and the columns' kinds.

The statements are in ``sql/pipeline/extract_*.sql``, one for each table, with every cast; this module lists what they
return. :mod:`pgqueue.store.columns` decides which columns jobs have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pgqueue.store import columns
from pgqueue.store.columns import Type

HISTORY = "job_history"
DEAD = "dead_jobs"


class ColumnKind(StrEnum):
    """The kind of a column's values."""

    BIGINT = "bigint"
    INTEGER = "integer"
    SMALLINT = "smallint"
    BOOLEAN = "boolean"
    TEXT = "text"
    JSON = "json, as text"
    TIMESTAMP = "timestamp"
    DATE = "date"


@dataclass(frozen=True, kw_only=True)
class SparkTable:
    """A table as Spark sees it.

    Attributes:
        statement: its file in ``sql/``.
        of: the database's tables from which it is made.
        columns: its columns, in order.
        ended: the column with the time of a job's end, from which ``day`` is made; None: its jobs have not ended.
    """

    statement: str
    of: tuple[str, ...]
    columns: Mapping[str, ColumnKind]
    ended: str | None = None


KINDS: Mapping[Type, ColumnKind] = {
    Type.BIGINT: ColumnKind.BIGINT,
    Type.INTEGER: ColumnKind.INTEGER,
    Type.SMALLINT: ColumnKind.SMALLINT,
    Type.BOOLEAN: ColumnKind.BOOLEAN,
    Type.TEXT: ColumnKind.TEXT,
    Type.UUID: ColumnKind.TEXT,
    Type.JSON: ColumnKind.JSON,
    Type.JSONB: ColumnKind.JSON,
    Type.TIMESTAMP: ColumnKind.TIMESTAMP,
}
NOT_READ = {"unknown_since", "flags", "expires_at", "lane", "cost", "in_lane", "place_at"}


def _kinds(described: columns.Columns, **renamed: str) -> dict[str, ColumnKind]:
    """Return the kinds of the columns. ``renamed``: the name of a column here, by its name in the database."""
    return {renamed.get(name, name): KINDS[kind] for name, kind, _ in described if name not in NOT_READ}


def _insert_columns(kinds: Mapping[str, ColumnKind], after: str, **more: ColumnKind) -> dict[str, ColumnKind]:
    found: dict[str, ColumnKind] = {}
    for name, kind in kinds.items():
        found[name] = kind
        if name == after:
            found |= more
    return found


def _table(name: str, *of: str, ended: str | None = None, has: Mapping[str, ColumnKind]) -> SparkTable:
    return SparkTable(statement=name, of=of, columns=has, ended=ended)


TABLES: Mapping[str, SparkTable] = {
    "history": _table(
        "pipeline/extract_history",
        HISTORY,
        ended="finished_at",
        has=_insert_columns(_kinds(columns.HISTORY), "finished_at", day=ColumnKind.DATE),
    ),
    "dead": _table(
        "pipeline/extract_dead",
        DEAD,
        ended="died_at",
        has=_insert_columns(_kinds(columns.DEAD), "died_at", day=ColumnKind.DATE),
    ),
    "jobs": _table("pipeline/extract_jobs", "jobs", has=_kinds(columns.JOBS)),
    "ended": _table(
        "pipeline/extract_ended",
        HISTORY,
        DEAD,
        ended="ended_at",
        has=_insert_columns(
            _kinds(columns.HISTORY, finished_at="ended_at"), "outcome", reason=ColumnKind.TEXT
        )
        | {"day": ColumnKind.DATE},
    ),
    "workers": _table(
        "pipeline/extract_workers",
        "workers",
        "former_workers",
        has={
            "id": ColumnKind.TEXT,
            "started_at": ColumnKind.TIMESTAMP,
            "ended_at": ColumnKind.TIMESTAMP,
            "concurrency": ColumnKind.INTEGER,
            "host": ColumnKind.TEXT,
            "version": ColumnKind.TEXT,
            "queues": ColumnKind.JSON,
        },
    ),
}
