"""What the tables of a lake mean, for catalogues: the comment of each table and column, and which columns are never null.

The database says it first: a column that comes from one of its tables has that column's comment, and may be null where that may.
The files of the schema are read, so no database is asked. Here stands only what the database does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from pgqueue.spark.config import LEFT_OUT
from pgqueue.spark.lake.columns import DEPLOYS, ENDED, WORKERS
from pgqueue.store import columns as stored
from pgqueue.store.schema.comments import column_comment, columns_with_comment, comments, required

COMMENT = "comment"
"""The key under which Delta keeps a column's comment."""
DAY = "The UTC day of ended_at."


@dataclass(frozen=True, slots=True)
class TableText:
    """What is said of a table.

    Attributes:
        comment: the table's.
        columns: the columns' comments, by name.
        required: the columns that are never null.
    """

    comment: str
    columns: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


def described(table: str, schema: pa.Schema, *, new: bool = True) -> pa.Schema:
    """The columns of a table, with what is said of them; of a table that nothing is said of, all may be null.

    Args:
        table: its folder in the lake.
        schema: the columns.
        new: whether the table is new: a column that is added to rows may be null.
    """
    text = texts().get(table, TableText(""))
    required = text.required if new else frozenset()
    return pa.schema([_described(one, text.columns.get(one.name), one.name in required) for one in schema])


def comment_of(field: pa.Field) -> str:
    """A column's comment; empty: it has none."""
    said: bytes = (field.metadata or {}).get(COMMENT.encode(), b"")
    return said.decode()


@cache
def texts() -> Mapping[str, TableText]:
    """What is said of each table, by its folder in the lake."""
    return {
        ENDED: TableText(
            "Jobs that have ended: succeeded, cancelled or dead.",
            {one.name: _of_ended(one.name) for one in stored.ENDED} | {"day": DAY},
            frozenset(one.name for one in stored.ENDED if not one.nullable and one.name not in LEFT_OUT)
            | {"day"},
        ),
        WORKERS: TableText(
            "The workers that ran, or run.",
            {
                name: column_comment(name, "former_workers", "workers")
                for name in ("id", "started_at", "ended_at")
            }
            | {
                name: column_comment(name, "workers") for name in ("concurrency", "host", "version", "queues")
            },
            frozenset(required("workers") & required("former_workers")),
        ),
        DEPLOYS: TableText(
            comments()["deploys"],
            {name: column_comment(name, "deploys") for name in ("deployed_at", "version")},
            frozenset(required("deploys")),
        ),
        **{
            f"rollup/{name}": _of_rollup(name) for name in ("hours", "days", "failures", "tenants", "workers")
        },
        **OWN,
    }


OWN = {
    "rollup/busy": TableText(
        "When the jobs of a day ran: the hours and workers from which the roll-ups are made.",
        {
            "day": "The UTC day on which the jobs ended.",
            "hour": "An hour in which they ran.",
            "queue": "Their queue.",
            "task": "Their task.",
            "worker_id": "The worker that ran them.",
            "busy": "For how many microseconds they ran in it.",
        },
        frozenset({"day", "hour", "queue", "task"}),
    ),
    "checks": TableText(
        "The results of the checks of each day.",
        {
            "day": "The UTC day.",
            "name": "The check's name.",
            "task": "The task whose jobs were checked; null: of all tasks.",
            "jobs": "How many jobs were checked.",
            "found": "How many of them meet the condition.",
            "most": "The share that may.",
            "passed": "Whether no more do.",
            "example": "The lowest id of them; null: there is none.",
            "checked_at": "When the day was checked.",
        },
        frozenset({"day", "name", "jobs", "found", "most", "passed", "checked_at"}),
    ),
    "steps": TableText(
        "Each run of a step of the pipeline.",
        {
            "step": "The verb, such as export.",
            "started_at": "When it started.",
            "seconds": "How long it took.",
            "cpu_seconds": "The CPU time of its own process, without those of Spark and of the database.",
            "days": "How many days it changed or compared.",
            "rows": "How many rows these days have.",
            "error": "The class of the error with which it ended; null: it was done.",
        },
        frozenset({"step", "started_at", "seconds", "cpu_seconds", "days", "rows"}),
    ),
}
"""The tables that the database does not have."""


def _described(field: pa.Field, said: str | None, required: bool) -> pa.Field:  # noqa: FBT001 - a fact, no choice
    return pa.field(field.name, field.type, nullable=not required, metadata={COMMENT: said} if said else None)


def _of_ended(name: str) -> str:
    own = {
        "ended_at": "When it ended.",
        "ended_in": "The number of the transaction in which it ended.",
        "outcome": "succeeded, cancelled or dead.",
        "reason": f"Why it is dead; else null. {comments()['dead_jobs.reason']}",
    }
    return own.get(name) or column_comment(name, "job_history", "jobs")


def _of_rollup(name: str) -> TableText:
    table = f"rollup_{name}"
    columns = {column: column_comment(column, table) for column in columns_with_comment(table)}
    return TableText(comments()[table], columns, frozenset(required(table)))
