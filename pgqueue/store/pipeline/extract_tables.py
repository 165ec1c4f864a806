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


class Kind(StrEnum):
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
class Table:
    """A table as Spark sees it.

    Attributes:
        statement: its file in ``sql/``.
        of: the database's tables from which it is made.
        columns: its columns, in order.
        ended: the column with the time of a job's end, from which ``day`` is made; None: its jobs have not ended.
    """

    statement: str
    of: tuple[str, ...]
    columns: Mapping[str, Kind]
    ended: str | None = None


KINDS: Mapping[Type, Kind] = {
    Type.BIGINT: Kind.BIGINT,
    Type.INTEGER: Kind.INTEGER,
    Type.SMALLINT: Kind.SMALLINT,
    Type.BOOLEAN: Kind.BOOLEAN,
    Type.TEXT: Kind.TEXT,
    Type.UUID: Kind.TEXT,
    Type.JSON: Kind.JSON,
    Type.JSONB: Kind.JSON,
    Type.TIMESTAMP: Kind.TIMESTAMP,
}
NOT_READ = {"unknown_since", "flags", "expires_at", "lane", "cost", "in_lane", "place_at"}


def _kinds(described: columns.Columns, **renamed: str) -> dict[str, Kind]:
    """The kinds of the columns; ``renamed``: the name of a column here, by its name in the database."""
    return {renamed.get(name, name): KINDS[kind] for name, kind, _ in described if name not in NOT_READ}


def _inserted(kinds: Mapping[str, Kind], after: str, **more: Kind) -> dict[str, Kind]:
    """The columns, with more inserted after one of them."""
    found: dict[str, Kind] = {}
    for name, kind in kinds.items():
        found[name] = kind
        if name == after:
            found |= more
    return found


def _table(name: str, *of: str, ended: str | None = None, has: Mapping[str, Kind]) -> Table:
    return Table(statement=name, of=of, columns=has, ended=ended)


TABLES: Mapping[str, Table] = {
    "history": _table(
        "pipeline/extract_history",
        HISTORY,
        ended="finished_at",
        has=_inserted(_kinds(columns.HISTORY), "finished_at", day=Kind.DATE),
    ),
    "dead": _table(
        "pipeline/extract_dead",
        DEAD,
        ended="died_at",
        has=_inserted(_kinds(columns.DEAD), "died_at", day=Kind.DATE),
    ),
    "jobs": _table("pipeline/extract_jobs", "jobs", has=_kinds(columns.JOBS)),
    "ended": _table(
        "pipeline/extract_ended",
        HISTORY,
        DEAD,
        ended="ended_at",
        has=_inserted(_kinds(columns.HISTORY, finished_at="ended_at"), "outcome", reason=Kind.TEXT)
        | {"day": Kind.DATE},
    ),
    "workers": _table(
        "pipeline/extract_workers",
        "workers",
        "former_workers",
        has={
            "id": Kind.TEXT,
            "started_at": Kind.TIMESTAMP,
            "ended_at": Kind.TIMESTAMP,
            "concurrency": Kind.INTEGER,
            "host": Kind.TEXT,
            "version": Kind.TEXT,
            "queues": Kind.JSON,
        },
    ),
}
