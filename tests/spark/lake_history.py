"""History for the tests of the lake: a few ended jobs on days of long ago, and what is there of them."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, LiteralString

from looking import ask

from pgqueue.spark.lake.lake import Lake
from pgqueue.store.pipeline.lake import Checksum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, NEXT = date(2026, 1, 20), date(2026, 1, 21)
ENDED: LiteralString = """
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, unique_key, args, errors, result)
select nextval('pgqueue.jobs_id_seq'), ended - interval '1 minute', ended - interval '2 minutes',
       case when n %% 5 > 0 then ended - interval '1.000001 seconds' end, ended,
       case when n %% 5 > 0 then gen_random_uuid() end, n %% 2, n %% 7 - 3, n %% 4, 25,
       case when n %% 5 > 0 then 'succeeded' else 'cancelled' end, %(queue)s, 'send', case when n %% 3 = 0 then 'key ' || n end,
       jsonb_build_object('n', n, 'text', e'h\\u00e9 "quoted" \\u2028', 'big', 1e20, 'none', null),
       case when n %% 4 = 0 then '[{"attempt": 1, "type": "OSError"}]'::jsonb end,
       case when n %% 2 = 0 then to_jsonb(n) end
from generate_series(1, %(count)s) as n, lateral (select %(day)s::date::timestamp at time zone 'UTC'
     + n * interval '1 second' as ended) as at
returning id"""
DIED: LiteralString = """
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority, attempts,
                               max_attempts, reason, queue, task, args, errors)
select nextval('pgqueue.jobs_id_seq'), died, died, died, died, gen_random_uuid(), 0, 0, 3, 3, 'exhausted', %(queue)s, 'send',
       '{}', '[{"attempt": 3}]'
from generate_series(1, %(count)s) as n, lateral (select %(day)s::date::timestamp at time zone 'UTC'
     + n * interval '1 hour' as died) as at
returning id"""


def ended(dsn: str, day: date, count: int, *, queue: str = "mail", partition: bool = True) -> list[int]:
    """Put jobs that have ended into a day's partition, or into the default one; their ids."""
    if partition:
        ask(dsn, "select pgqueue.ensure_history_days(%(day)s, %(day)s)", day=day)
    return [row[0] for row in ask(dsn, ENDED, day=day, count=count, queue=queue)]


def died(dsn: str, day: date, count: int, *, queue: str = "mail") -> list[int]:
    """Put dead jobs into a day, one for each hour; their ids."""
    return [row[0] for row in ask(dsn, DIED, day=day, count=count, queue=queue)]


def history_ids(dsn: str) -> list[int]:
    return [row[0] for row in ask(dsn, "select id from pgqueue.job_history order by id")]


def lake_ids(spark: "SparkSession", lake: Lake, days: Iterable[date] | None = None) -> list[int]:
    """What the lake holds, doubled rows twice."""
    return sorted(row["id"] for row in lake.ended(spark, days).select("id").collect())


def total(shares: Iterable[Checksum]) -> Checksum:
    return sum(shares, Checksum())


def end_of(day: date) -> datetime:
    """The instant at which a day is over."""
    return datetime.combine(day, datetime.min.time(), UTC) + timedelta(days=1)


def no_session() -> "SparkSession":
    """Given in place of a session where none may be started."""
    raise AssertionError("a session was started")
