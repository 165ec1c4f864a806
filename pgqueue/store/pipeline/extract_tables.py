"""The database's tables as Spark sees them: which columns they have, and what these hold.

The statements stand in ``sql/extract_*.sql``, one for each table, with every cast; here is what they give.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

HISTORY = "job_history"
DEAD = "dead_jobs"


class Kind(StrEnum):
    """What a column holds."""

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
        of: the tables of the database that it is made of.
        columns: what it has, in order.
        ended: the column with the time at which a job ended, whose UTC day ``day`` is; None: its jobs have not ended.
    """

    statement: str
    of: tuple[str, ...]
    columns: Mapping[str, Kind]
    ended: str | None = None


def _table(name: str, *of: str, ended: str | None = None, **columns: Kind) -> Table:
    return Table(statement=name, of=of, columns=columns, ended=ended)


_LEADING = {"id": Kind.BIGINT, "queue": Kind.TEXT, "task": Kind.TEXT}
_TIMES = {"run_at": Kind.TIMESTAMP, "created_at": Kind.TIMESTAMP, "started_at": Kind.TIMESTAMP}
_ATTEMPTS = {
    "worker_id": Kind.TEXT,
    "attempts": Kind.SMALLINT,
    "max_attempts": Kind.SMALLINT,
    "collisions": Kind.INTEGER,
}
_PAYLOAD = {"unique_key": Kind.TEXT, "args": Kind.JSON, "errors": Kind.JSON}

TABLES: Mapping[str, Table] = {
    "history": _table(
        "pipeline/extract_history",
        HISTORY,
        ended="finished_at",
        **_LEADING,
        outcome=Kind.TEXT,
        priority=Kind.SMALLINT,
        **_TIMES,
        finished_at=Kind.TIMESTAMP,
        day=Kind.DATE,
        **_ATTEMPTS,
        **_PAYLOAD,
        result=Kind.JSON,
        ended_in=Kind.BIGINT,
    ),
    "dead": _table(
        "pipeline/extract_dead",
        DEAD,
        ended="died_at",
        **_LEADING,
        reason=Kind.TEXT,
        priority=Kind.SMALLINT,
        **_TIMES,
        died_at=Kind.TIMESTAMP,
        day=Kind.DATE,
        **_ATTEMPTS,
        **_PAYLOAD,
        ended_in=Kind.BIGINT,
    ),
    "jobs": _table(
        "pipeline/extract_jobs",
        "jobs",
        **_LEADING,
        status=Kind.TEXT,
        priority=Kind.SMALLINT,
        run_at=Kind.TIMESTAMP,
        created_at=Kind.TIMESTAMP,
        claimed_at=Kind.TIMESTAMP,
        **_ATTEMPTS,
        claims=Kind.INTEGER,
        unique_until_started=Kind.BOOLEAN,
        cancel_requested=Kind.BOOLEAN,
        **_PAYLOAD,
    ),
    "ended": _table(
        "pipeline/extract_ended",
        HISTORY,
        DEAD,
        ended="ended_at",
        **_LEADING,
        outcome=Kind.TEXT,
        reason=Kind.TEXT,
        priority=Kind.SMALLINT,
        **_TIMES,
        ended_at=Kind.TIMESTAMP,
        **_ATTEMPTS,
        **_PAYLOAD,
        result=Kind.JSON,
        ended_in=Kind.BIGINT,
        day=Kind.DATE,
    ),
    "workers": _table(
        "pipeline/extract_workers",
        "workers",
        "former_workers",
        id=Kind.TEXT,
        started_at=Kind.TIMESTAMP,
        ended_at=Kind.TIMESTAMP,
        concurrency=Kind.INTEGER,
        host=Kind.TEXT,
        version=Kind.TEXT,
        queues=Kind.JSON,
    ),
}
