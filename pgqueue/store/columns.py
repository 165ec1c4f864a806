"""A job's columns: which the tables of live, ended and dead jobs have, and the view of all jobs.

The database's own truth is ``sql/schema/``. This is the one description of it in Python: :mod:`pgqueue.tables`, the tables
that Spark reads, and the lists in statements (:mod:`pgqueue.store.column_lists`) are made from it.
``tests/schema/test_columns.py`` compares it with the database and with the values.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Type(StrEnum):
    """The type of a column; where that is a domain, the type below it."""

    BIGINT = "bigint"
    INTEGER = "integer"
    SMALLINT = "smallint"
    BOOLEAN = "boolean"
    TEXT = "text"
    UUID = "uuid"
    JSON = "json"
    JSONB = "jsonb"
    TIMESTAMP = "timestamp with time zone"


class Column(NamedTuple):
    """A column: its name, its type, and whether it may be null."""

    name: str
    type: Type
    nullable: bool = False


Columns = Sequence[Column]

SENT = (Column("meta", Type.JSONB, nullable=True),)
"""What an enqueuer sends along with a job, in any table. No statement decides by it: it only passes through."""


def _columns(status: str, times: Columns, *own: Column, marks: Columns = ()) -> tuple[Column, ...]:
    """Return the columns that all tables of jobs have, around those that only some have.

    ``status`` is the column that says what the job does, or how it ended. ``own`` stand behind the errors, ``marks`` before the
    unique key.
    """
    return (
        Column("id", Type.BIGINT),
        Column("queue", Type.TEXT),
        Column("task", Type.TEXT),
        Column(status, Type.TEXT),
        Column("priority", Type.SMALLINT),
        Column("run_at", Type.TIMESTAMP),
        Column("created_at", Type.TIMESTAMP),
        *times,
        Column("worker_id", Type.UUID, nullable=True),
        Column("attempts", Type.SMALLINT),
        Column("max_attempts", Type.SMALLINT),
        Column("collisions", Type.INTEGER),
        *marks,
        Column("unique_key", Type.TEXT, nullable=True),
        Column("args", Type.JSON),
        Column("errors", Type.JSONB, nullable=True),
        *own,
        *SENT,
    )


_STARTED = Column("started_at", Type.TIMESTAMP, nullable=True)
_RESULT = Column("result", Type.JSON, nullable=True)
ENDED_IN = Column("ended_in", Type.BIGINT)
"""The transaction in which a job ended. The table itself fills it in."""

FLAGS = Column("flags", Type.SMALLINT, nullable=True)
"""What its end or its start concerns: :class:`pgqueue.values.jobs.job.JobFlags`."""

LIMITED = (Column("lane", Type.TEXT, nullable=True), Column("cost", Type.INTEGER, nullable=True))
"""The keys of its limits, and what its start takes of each rate: :mod:`pgqueue.values.limits.limit`."""

JOBS = _columns(
    "status",
    (Column("claimed_at", Type.TIMESTAMP, nullable=True),),
    FLAGS,
    Column("expires_at", Type.TIMESTAMP, nullable=True),
    *LIMITED,
    Column("claim_number", Type.BIGINT, nullable=True),
    Column("in_lane", Type.BOOLEAN, nullable=True),
    Column("place_at", Type.TIMESTAMP, nullable=True),
    marks=(
        Column("fence", Type.INTEGER),
        Column("unique_until_started", Type.BOOLEAN),
        Column("cancel_requested", Type.BOOLEAN),
    ),
)
NOT_READ = frozenset({"flags", "expires_at", "lane", "cost", "claim_number", "in_lane", "place_at"})
"""Columns that only workers need: Spark does not read them."""

KEPT = (FLAGS, *LIMITED)
"""What a dead job keeps for its revival, and an ended one does not."""

HISTORY = _columns("outcome", (_STARTED, Column("finished_at", Type.TIMESTAMP)), _RESULT, ENDED_IN)
DEAD = _columns("reason", (_STARTED, Column("died_at", Type.TIMESTAMP)), ENDED_IN, *KEPT)
ALL_JOBS = _columns(
    "state",
    (_STARTED, Column("ended_at", Type.TIMESTAMP, nullable=True)),
    Column("reason", Type.TEXT, nullable=True),
    _RESULT,
)


def _of_jobs(*names: str) -> tuple[Column, ...]:
    of = {column.name: column for column in JOBS}
    return tuple(of[name] for name in names)


GIVEN = (*_of_jobs("queue", "task", "args"), *SENT)
"""What is stored of a job as its enqueuer gives it."""

NEW = (*_of_jobs("run_at", "queue", "task", "args", "priority", "max_attempts", "expires_at"), *SENT)
"""The columns that an enqueue computes or is given, but for the limits, in the order in which COPY sends them."""

KEY = _of_jobs("unique_key", "unique_until_started")

CARRIED = (*_of_jobs("created_at", "collisions", "priority", "max_attempts", "queue", "task"), *SENT)
"""What stays as it is when a job moves to another table: it ends, dies or is revived."""


def _ended() -> Iterator[Column]:
    for column in HISTORY:
        yield column._replace(name="ended_at") if column.name == "finished_at" else column
        if column.name == "outcome":
            yield Column("reason", Type.TEXT, nullable=True)


ENDED = tuple(_ended())
"""Ended jobs and dead ones in one shape: the lake's."""
