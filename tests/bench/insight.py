"""How long each answer of ``queue.insight`` takes, with many waiting jobs: ``python tests/bench/insight.py [DSN]``.

An empty database is filled first: waiting jobs in 320 queues, 100,000 dead jobs with tracebacks, jobs that run, jobs in lanes,
schedules, history, two days of minutes and a year of hours of 20 pairs of queue and task, and depths of 100 queues.
"""

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

import psycopg

from pgqueue import PgQueue
from pgqueue.embedded import embedded_server
from pgqueue.store.insight import series
from pgqueue.store.schema import schema

if TYPE_CHECKING:
    from collections.abc import Callable

FILL = (
    # 20 large queues and 300 small ones
    """insert into pgqueue.jobs (queue, task, args, status, run_at, created_at, priority)
       select 'queue-' || (n::bigint * 7919 % 20), 'task-' || n % 5, '{"n": 1}',
              case when n % 10 < 8 then 'ready' else 'scheduled' end, now() + (n / 10000 - 500) * interval '1 second',
              now() - n % 86400 * interval '1 second', n % 3
       from generate_series(1, %(jobs)s) as n""",
    """insert into pgqueue.jobs (queue, task) select 'tenant-' || n, 'task-x' from generate_series(1, 300) as n""",
    """insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version)
       select gen_random_uuid(), now() + interval '1 day', n, 20, 'host', '0' from generate_series(1, 20) as n""",
    """with job as (
           insert into pgqueue.jobs (queue, task, status, claimed_at, worker_id, attempts)
           select 'queue-' || n % 20, 'task-' || n % 5, 'running', now(), worker.id, 1
           from generate_series(1, 400) as n
           join (select id, row_number() over () as place from pgqueue.workers) as worker on worker.place = 1 + n % 20
           returning id, worker_id)
       update pgqueue.workers set running = array(select job.id from job where worker_id = workers.id)""",
    """insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                                      queue, task, args, errors)
       select -n, now(), now(), now() - n * interval '1 second', 0, 0, 3, 3, 'exhausted', 'queue-' || n % 20, 'task-' || n % 5,
              '{}', jsonb_build_array(jsonb_build_object('attempt', 3, 'type', 'app.Error' || n % 7, 'at', now(), 'message',
              'no order ' || n, 'traceback', (select string_agg(md5(i::text), E'\n') from generate_series(n, n + 60) as i)))
       from generate_series(1, 100000) as n""",
    """insert into pgqueue.limits (name, most, declared) select 'limit-' || n, 3, '3' from generate_series(1, 50) as n""",
    """insert into pgqueue.jobs (queue, task, status, lane, in_lane)
       select 'limited', 'task', 'blocked', 'limit-' || n % 50 || ' key ' || n % 1000, true
       from generate_series(1, %(lanes)s) as n""",
    """insert into pgqueue.schedules (name, task, cron, next_at)
       select 'schedule-' || n, 'task', '@daily', now() + (n - 50) * interval '1 second' from generate_series(1, 2000) as n""",
    """insert into pgqueue.schedule_ticks (schedule, at, fired_at, job_id, state)
       select 'schedule-' || n % 2000, now() - n / 2000 * interval '1 hour', now() - n / 2000 * interval '1 hour', n, 'fired'
       from generate_series(1, 200000) as n""",
    """insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,
                                        outcome, queue, task, args)
       select -n, now(), now(), now() - n * interval '1 ms', 0, 0, 1, 1, 'succeeded', 'queue-' || n % 20, 'task', '{}'
       from generate_series(1, 500000) as n""",
    """insert into pgqueue.series_minutes (at, whole, queue, task, enqueued, started, succeeded, wait_bins, wait_counts,
                                           run_bins, run_counts)
       select date_trunc('minute', now()) - n * interval '1 minute', pair = 0, case when pair > 0 then 'queue-' || pair end,
              case when pair > 0 then 'task-' || pair % 5 end, 100, 100, 100, bins, counts, bins, counts
       from generate_series(1, 2880) as n, generate_series(0, 20) as pair,
            (select array_agg(bin::smallint) as bins, array_agg(5::bigint) as counts from generate_series(60, 79) as bin) as sketch""",
    """insert into pgqueue.series_hours (at, whole, queue, task, enqueued, started, succeeded, wait_bins, wait_counts,
                                         run_bins, run_counts)
       select date_trunc('hour', now()) - n * interval '1 hour', pair = 0, case when pair > 0 then 'queue-' || pair end,
              case when pair > 0 then 'task-' || pair % 5 end, 100, 100, 100, bins, counts, bins, counts
       from generate_series(1, 8760) as n, generate_series(0, 20) as pair,
            (select array_agg(bin::smallint) as bins, array_agg(5::bigint) as counts from generate_series(55, 89) as bin) as sketch""",
    """insert into pgqueue.series_days
       select date_trunc('day', at, 'UTC'), queue, task, sum(enqueued), sum(started), sum(succeeded), 0, 0, 0, 0, 0, 0,
              min(wait_bins), min(wait_counts), min(run_bins), min(run_counts), whole
       from pgqueue.series_hours group by 1, queue, task, whole""",
    """update pgqueue.series_state
       set hours_until = date_trunc('hour', now()), days_until = date_trunc('day', now(), 'UTC')""",
    *(
        f"""insert into pgqueue.{table}
            select date_trunc('{unit}', now()) - n * interval '1 {unit}', case when q > 0 then 'queue-' || q end, 1, 2, 3, 4, 5, 6.5, true
            from generate_series(1, {count}) as n, generate_series(0, 100) as q"""
        for table, unit, count in (("series_depths", "minute", 2880), ("series_depth_hours", "hour", 9600))
    ),
    "vacuum analyze",
)


def main() -> None:
    """Print the median and the longest time of each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", nargs="?")
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--lanes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(embedded_server())
        schema.migrate(dsn, schema="pgqueue")
        with psycopg.connect(dsn, autocommit=True) as connection:
            if not connection.execute("select exists (select from pgqueue.dead_jobs)").fetchone()[0]:  # type: ignore[index]
                fill(connection, given.jobs, given.lanes)
        measure(PgQueue(dsn), given.rounds)


def fill(connection: psycopg.Connection, jobs: int, lanes: int) -> None:
    """Make jobs and all else."""
    connection.execute("set synchronous_commit = off; set session_replication_role = replica")
    for statement in FILL:
        text = statement.replace("%(jobs)s", str(jobs)).replace("%(lanes)s", str(lanes))
        connection.execute(text)


def measure(queue: PgQueue, rounds: int) -> None:
    """Ask everything in turn."""
    see, day = queue.insight, timedelta(days=1)
    minutes = (timedelta(minutes=number) for number in count(1))
    asked: dict[str, Callable[[], object]] = {
        "queues()": see.queues,
        "running()": see.running,
        "errors()": see.errors,
        "errors(task=…)": lambda: see.errors(task="task-1"),
        "schedules()": see.schedules,
        "limits()": see.limits,
        "store()": see.store,
        "series(1 h)": see.series,
        "series(1 h, by task)": lambda: see.series(by="task"),
        "series(1 day)": lambda: see.series(day),
        "series(1 day, one queue)": lambda: see.series(day, queue="queue-1"),
        "series(1 day, hours, by queue)": lambda: see.series(day, step=3600, by="queue"),
        "series(7 days)": lambda: see.series(7 * day),
        "series(30 days)": lambda: see.series(30 * day),
        "depths(1 h)": see.depths,
        "depths(1 day, one queue)": lambda: see.depths(day, queue="queue-1"),
        "depths(30 days)": lambda: see.depths(30 * day),
        "depths(365 days, one queue)": lambda: see.depths(365 * day, queue="queue-1"),
        "note of a minute": lambda: queue.database.run(series.note(now=datetime.now(UTC) + next(minutes))),
        "totals(1 h)": see.totals,
        "totals(1 day, by queue)": lambda: see.totals(day, by="queue"),
        "totals(7 days)": lambda: see.totals(7 * day),
        "totals(30 days, by queue)": lambda: see.totals(30 * day, by="queue"),
        "series(30 days, by task)": lambda: see.series(30 * day, by="task"),
    }
    for name, ask in asked.items():
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            ask()
            times.append((time.perf_counter() - began) * 1e3)
        sys.stdout.write(
            f"{name:32} median {statistics.median(times):6.1f} ms, longest {max(times):6.1f} ms\n"
        )
    queue.close()


if __name__ == "__main__":
    main()
