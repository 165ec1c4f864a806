"""Ended jobs to read, and readers without a Spark session: Spark's part is only to call them, and costs a second a time."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from pgqueue.spark.options import Options
from pgqueue.spark.reading.columns import schema_of
from pgqueue.spark.reading.options import batch_options
from pgqueue.spark.reading.reader import TableReader

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)
Connection = psycopg.Connection[Any]

HISTORY = """
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, args, result)
select id, %(at)s, %(at)s, %(at)s, %(at)s, 0, %(priority)s, 1, 25, %(outcome)s, %(queue)s, %(task)s, %(args)s::jsonb, '1'
from unnest(%(ids)s::bigint[]) as id
"""
DEAD = """
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts,
                               max_attempts, reason, queue, task, args)
select id, %(at)s, %(at)s, %(at)s, %(at)s, 0, 0, 1, 25, 'exhausted', %(queue)s, %(task)s, %(args)s::jsonb
from unnest(%(ids)s::bigint[]) as id
"""


def add_history(
    connection: Connection,
    ids: Iterable[int],
    *,
    at: datetime = NOW,
    queue: str = "mail",
    task: str = "send",
    outcome: str = "succeeded",
    priority: int = 0,
    args: object = None,
) -> None:
    """Let jobs end in the connection's transaction."""
    connection.execute(
        HISTORY,
        {
            "ids": list(ids),
            "at": at,
            "queue": queue,
            "task": task,
            "outcome": outcome,
            "priority": priority,
            "args": json.dumps(args or {}),
        },
    )


def add_dead(connection: Connection, ids: Iterable[int], *, at: datetime = NOW, queue: str = "mail") -> None:
    """Let jobs die in the connection's transaction."""
    params = {"ids": list(ids), "at": at, "queue": queue, "task": "send", "args": "{}"}
    connection.execute(DEAD, params)


def make_days(connection: Connection, first: datetime, last: datetime) -> None:
    connection.execute("select pgqueue.ensure_history_days(%s, %s)", (first.date(), last.date()))


def reader(
    dsn: str,
    table: str,
    *,
    schema: StructType | None = None,
    **options: Any,
) -> TableReader:
    """What Spark would have made for a read."""
    read = batch_options(Options({"dsn": dsn, "table": table, **options}))
    return TableReader(read, schema_of(table, read.source.columns) if schema is None else schema)


def parts(made: TableReader) -> list[datasource.InputPartition]:
    return list(made.partitions())


def rows(
    made: TableReader, planned: Iterable[datasource.InputPartition] | None = None
) -> Iterator[dict[str, Any]]:
    """What the parts give, one after the other."""
    for part in parts(made) if planned is None else planned:
        for batch in made.read(part):
            yield from batch.to_pylist()


def ids(made: TableReader, planned: Iterable[datasource.InputPartition] | None = None) -> list[int]:
    """The ids of what the parts give, in order of size, each as often as it comes."""
    return sorted(row["id"] for row in rows(made, planned))


def statements(part: datasource.InputPartition) -> list[str]:
    return [fetch.statement for fetch in part.value]


def plan_of(connection: Connection, statement: str) -> dict[str, Any]:
    row = connection.execute(f"explain (format json, verbose) {statement}".encode()).fetchone()
    assert row is not None
    return row[0][0]["Plan"]  # type: ignore[no-any-return]  # EXPLAIN's own JSON


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def tables_of(connection: Connection, part: datasource.InputPartition) -> set[str]:
    """The tables and partitions that a part reads from."""
    return {table for statement in statements(part) for _, table in scans(plan_of(connection, statement))}


def scans(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(node["Node Type"], node["Relation Name"]) for node in nodes(plan) if "Relation Name" in node]


def settle(connection: Connection, *, until: int | None = None) -> None:
    """Until every transaction of now, or all below a number, have ended: others of this server's databases count, too."""
    until = _number(connection, "xmax") if until is None else until
    while _number(connection, "xmin") < until:
        pass


def number_of(connection: Connection) -> int:
    row = connection.execute("select pg_current_xact_id()::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


def _number(connection: Connection, which: str) -> int:
    row = connection.execute(
        f"select pg_snapshot_{which}(pg_current_snapshot())::text::bigint".encode()
    ).fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0])
