"""pgqueue's tables for SQLAlchemy: for queries with ``select()``, or for mapping in an ORM.

::

    pg = tables()
    session.execute(select(pg.jobs.c.id).where(pg.jobs.c.queue == "mail"))

They have their own ``MetaData``, so neither your ``create_all`` nor Alembic's autogenerate touches them. They are for
reading: pgqueue's promises do not cover rows that are written without its functions. A test compares them with the real
tables, column by column; a column whose type there is a domain has its base type here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import INTERVAL, JSON, JSONB
from sqlalchemy.types import TypeEngine

from pgqueue.store import columns
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.columns import Type


@dataclass(frozen=True, slots=True)
class Tables:
    """pgqueue's tables in one schema.

    Attributes:
        metadata: the tables' MetaData.
        jobs: jobs that have not ended.
        job_history: jobs that succeeded or were cancelled.
        dead_jobs: jobs that will not run again unless a caller revives them.
        workers: the processes that run jobs.
        former_workers: ended worker processes, as long as there is history of their time.
        queues: queues that were paused, closed or given settings; others need no row.
        schedules: the rules by which jobs are enqueued, and those jobs.
        schedule_ticks: the ticks of schedules that were decided on.
        alerts: conditions that workers look at, and which tasks they tell.
        all_jobs: a view of all recorded jobs, live or ended, in one shape.
    """

    metadata: MetaData
    jobs: Table
    job_history: Table
    dead_jobs: Table
    workers: Table
    former_workers: Table
    queues: Table
    schedules: Table
    schedule_ticks: Table
    alerts: Table
    all_jobs: Table


TYPES: Mapping[Type, Callable[[], TypeEngine[Any]]] = {
    Type.BIGINT: BigInteger,
    Type.INTEGER: Integer,
    Type.SMALLINT: SmallInteger,
    Type.BOOLEAN: Boolean,
    Type.TEXT: Text,
    Type.UUID: Uuid,
    Type.JSON: JSON,
    Type.JSONB: JSONB,
    Type.TIMESTAMP: lambda: DateTime(timezone=True),
}


def tables(schema: str = "pgqueue") -> Tables:
    """The tables of a schema; the same objects each time.

    Args:
        schema: the schema's name, as in ``PgQueue(schema=...)``.

    Raises:
        InvalidOption: a pgqueue schema cannot have this name.
    """
    return _tables(catalogue_of(schema).schema)


@cache
def _tables(schema: str) -> Tables:
    metadata = MetaData(schema=schema)
    return Tables(
        metadata,
        jobs=Table("jobs", metadata, *_columns(columns.JOBS)),
        job_history=Table("job_history", metadata, *_columns(columns.HISTORY)),
        dead_jobs=Table("dead_jobs", metadata, *_columns(columns.DEAD)),
        workers=Table("workers", metadata, *_workers()),
        former_workers=Table("former_workers", metadata, *_former_workers()),
        queues=Table("queues", metadata, *_queues()),
        schedules=Table("schedules", metadata, *_schedules()),
        schedule_ticks=Table("schedule_ticks", metadata, *_schedule_ticks()),
        alerts=Table("alerts", metadata, *_alerts()),
        all_jobs=Table("all_jobs", metadata, *_columns(columns.ALL_JOBS)),
    )


def _columns(described: columns.Columns) -> list[Column[Any]]:
    return [
        # id is the key of each table, for an ORM to tell rows apart.
        Column(name, TYPES[kind](), nullable=nullable, primary_key=name == "id")
        for name, kind, nullable in described
    ]


def _workers() -> list[Column[Any]]:
    return [
        *_able_to_work(),
        _required_column("lease_until", _instant()),
        _required_column("heard_at", _instant()),
        _required_column("pid", Integer()),
        _required_column("idle", Boolean()),
        _optional("tasks", ARRAY(Text)),
        _optional("chosen_tasks", ARRAY(Text)),
        _optional("blocked_since", _instant()),
        _optional("blocked_job", BigInteger()),
        _optional("blocked_task", Text()),
        _optional("blocked_where", Text()),
        _optional("not_returned", Integer()),
        _optional("overrunning", ARRAY(BigInteger)),
        *(_optional(name, Integer()) for name in ("minimum", "slots", "taken")),
        *(_optional(name, Boolean()) for name in ("quiet", "supervised")),
        _optional("answer", Text()),
        *(_optional(name, Integer()) for name in ("ask_minimum", "ask_maximum")),
        _optional("ask_quiet", Boolean()),
        _optional("ask_end", Text()),
        _optional("asked_at", _instant()),
        _optional("asked_by", Text()),
        _optional("memory", BigInteger()),
        _optional("running", ARRAY(BigInteger)),
        _optional("looked_at", _instant()),
        _optional("look_within", Double()),
        _optional("cannot_listen_since", _instant()),
    ]


def _former_workers() -> list[Column[Any]]:
    return [
        *_able_to_work(),
        _required_column("ended_at", _instant()),
        _optional("pid", Integer()),
        _optional("lost_jobs", Integer()),
    ]


def _able_to_work() -> list[Column[Any]]:
    return [
        Column("id", Uuid, primary_key=True),
        _required_column("started_at", _instant()),
        _required_column("host", Text()),
        _required_column("version", Text()),
        _required_column("concurrency", Integer()),
        _optional("queues", ARRAY(Text)),
    ]


def _queues() -> list[Column[Any]]:
    return [
        Column("name", Text, primary_key=True),
        _optional("paused_at", _instant()),
        _required_column("created_at", _instant()),
        *(_optional(name, Text()) for name in ("paused_by", "paused_why")),
        _optional("closed_at", _instant()),
        *(_optional(name, Text()) for name in ("closed_by", "closed_why")),
        *(_optional(name, SmallInteger()) for name in ("priority", "max_attempts")),
        _optional("timeout", INTERVAL()),
        _optional("keep_history", INTERVAL()),
        _optional("history_cut", Date()),
        _optional("keep_dead", INTERVAL()),
        _optional("ageing", INTERVAL()),
        _optional("ageing_to", SmallInteger()),
        _optional("backlog", Integer()),
        _optional("when_full", Text()),
        _optional("set_at", _instant()),
        _optional("set_by", Text()),
    ]


def _schedules() -> list[Column[Any]]:
    return [
        Column("name", Text, primary_key=True),
        _optional("module", Text()),
        _required_column("created_at", _instant()),
        _required_column("task", Text()),
        _required_column("queue", Text()),
        _required_column("args", JSON()),
        _optional("priority", SmallInteger()),
        _optional("max_attempts", SmallInteger()),
        _optional("unique_key", Text()),
        _required_column("unique_until_started", Boolean()),
        _optional("meta", JSONB()),
        _optional("cron", Text()),
        _optional("every", INTERVAL()),
        _optional("at", _instant()),
        _required_column("timezone", Text()),
        *(_optional(name, _instant()) for name in ("anchor", "start_at", "end_at")),
        _optional("gap", Text()),
        _optional("repeat", Text()),
        _required_column("jitter", INTERVAL()),
        _required_column("missed", Text()),
        _required_column("missed_limit", Integer()),
        _required_column("tolerance", INTERVAL()),
        _required_column("overlap", Text()),
        _optional("expires_in", INTERVAL()),
        _required_column("settled", _instant()),
        _optional("next_at", _instant()),
        _required_column("live_jobs", ARRAY(BigInteger)),
        _optional("paused_at", _instant()),
        _optional("paused_by", Text()),
        _optional("failed_at", _instant()),
        _optional("error", Text()),
    ]


def _schedule_ticks() -> list[Column[Any]]:
    return [
        Column("schedule", Text, primary_key=True),
        Column("at", _instant(), primary_key=True),
        _required_column("fired_at", _instant()),
        _optional("job_id", BigInteger()),
        _required_column("state", Text()),
        _required_column("kind", Text()),
    ]


def _alerts() -> list[Column[Any]]:
    return [
        Column("name", Text, primary_key=True),
        _required_column("module", Text()),
        _required_column("created_at", _instant()),
        _required_column("rule", Text()),
        _required_column("after", INTERVAL()),
        _required_column("clear_for", INTERVAL()),
        _optional("repeat_every", INTERVAL()),
        _required_column("resolved", Boolean()),
        _required_column("task", Text()),
        _required_column("argument", Text()),
        _required_column("queue", Text()),
        _optional("priority", SmallInteger()),
        _optional("max_attempts", SmallInteger()),
        _optional("expires_in", INTERVAL()),
        _required_column("next_at", _instant()),
        _optional("looked_at", _instant()),
        _optional("value", Double()),
        _optional("threshold", Double()),
        _optional("summary", Text()),
        *(_optional(name, _instant()) for name in ("held_at", "firing_at", "clear_at", "told_at")),
        _required_column("told", Integer()),
        _optional("job_id", BigInteger()),
        _optional("silenced_until", _instant()),
        _optional("silenced_by", Text()),
        _optional("failed_at", _instant()),
        _optional("error", Text()),
    ]


def _required_column(name: str, kind: TypeEngine[Any]) -> Column[Any]:
    return Column(name, kind, nullable=False)


def _optional(name: str, kind: TypeEngine[Any]) -> Column[Any]:
    return Column(name, kind, nullable=True)


def _instant() -> DateTime:
    return DateTime(timezone=True)
