"""Fills a database with a made-up day of a shop in which five things go wrong: ``python tests/bench/day.py DSN``.

Two of them are over: payments failed for an hour, and a deploy made thumbnails slow. Three go on: a worker has claimed nothing
for 40 minutes, the limit of a partner's API is full, and a schedule does not fire. ``docs/guides/finding-trouble.md`` finds
each. Ended jobs and the figures of minutes, hours and days are made of the same attempts, so they agree.

``--waiting N`` adds N jobs that wait, ``--pages`` prints how long each page of the dashboard takes then.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, LiteralString, NamedTuple

import psycopg

from pgqueue import Limit, PgQueue
from pgqueue.store.insight import series
from pgqueue.store.limits import lanes
from pgqueue.store.schema import schema

STORM: Final = timedelta(hours=6)
"""How long ago payments began to fail. An hour later they were well again."""
DEPLOY: Final = timedelta(hours=9)
"""How long ago thumbnails became slow."""
STALLED: Final = timedelta(minutes=40)
LATE: Final = timedelta(minutes=95)
STALLED_WORKER: Final = "exports-1:4720"
SLOW_TASK: Final = "shop.media.thumbnails"
FAILING_TASK: Final = "shop.billing.charge"
LIMIT: Final = "name:partner-api"
LATE_SCHEDULE: Final = "reports.hourly"


class Day(NamedTuple):
    """Jobs of the day, by what is to be seen at them."""

    exported: int
    synced: int
    held: tuple[int, ...]


TASKS: LiteralString = """
    create temp table task (queue, task, first, behind, run, wait, fails) as values
        ('mail', 'shop.mail.receipt', 0.0::float8, 0.62::float8, 0.08::float8, 0.02::float8, 0.004::float8),
        ('default', 'shop.search.index', 0.62, 0.77, 0.3, 0.03, 0.002),
        ('media', 'shop.media.thumbnails', 0.77, 0.87, 0.25, 0.05, 0.003),
        ('billing', 'shop.billing.charge', 0.87, 0.95, 0.4, 0.03, 0.01),
        ('partners', 'shop.partners.sync', 0.95, 0.99, 0.9, 0.4, 0.01),
        ('exports', 'shop.exports.build', 0.99, 1.0, 6.0, 0.2, 0.005)
"""
MADE: LiteralString = """
    create temp table made as
    select nth as id, queue, task, created_at, run * slower * exp(0.5 * normal) as run, wait * exp(0.9 * other) as wait,
           case when chance < failing then least(5, floor(ln(chance) / ln(failing))::integer) else 0 end as failures
    from (select nth, task.*, created_at,
                 case when task = 'shop.media.thumbnails' and created_at > %(now)s - %(deploy)s then 6 else 1 end as slower,
                 case when task = 'shop.billing.charge' and created_at between %(now)s - %(storm)s
                           and %(now)s - %(storm)s + interval '1 hour' then 0.85 else fails end as failing,
                 sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as normal,
                 sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as other, 1 - random() as chance
          from (select nth, random() as which,
                       %(now)s - interval '1 day' * (1 - nth / %(jobs)s::float8
                                                    - 0.08 * sin(2 * pi() * nth / %(jobs)s::float8)) as created_at
                from generate_series(1, %(jobs)s) as nth) as job
          join task on which >= first and which < behind
          where task <> 'shop.exports.build' or created_at < %(now)s - %(stalled)s) as drawn
"""
ATTEMPTS: LiteralString = """
    create temp table attempt as
    select *, claimed_at + run * interval '1 second' as ended_at
    from (select made.id, queue, task, created_at, attempt, failures, wait, attempt > failures as succeeded,
                 attempt <= failures and attempt = 5 as dead,
                 case when attempt > failures then run
                      when task = 'shop.billing.charge' then 5.0 + run / 10 else run / 4 end as run,
                 created_at + (wait + 15 * attempt * (attempt - 1)) * interval '1 second' as claimed_at
          from made cross join lateral generate_series(1, least(5, failures + 1)) as attempt) as one
"""
HISTORY: LiteralString = """
    insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                     max_attempts, outcome, queue, task, args, errors)
    select id, claimed_at - wait * interval '1 second', created_at, claimed_at, ended_at, 0, 0, attempt, 5, 'succeeded', queue,
           task, json_build_object('order_id', id), case when attempt > 1 then {error} end
    from attempt where succeeded and ended_at < %(now)s
"""
DEAD: LiteralString = """
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts, max_attempts,
                                   reason, queue, task, args, errors)
    select id, claimed_at - wait * interval '1 second', created_at, claimed_at, ended_at, 0, 0, 5, 5, 'exhausted', queue, task,
           jsonb_build_object('order_id', id), {error}
    from attempt where dead and ended_at < %(now)s order by ended_at
"""
ERROR: LiteralString = """jsonb_build_array(jsonb_build_object(
    'attempt', attempt, 'at', ended_at, 'traceback', E'Traceback (most recent call last):\n  File "shop/jobs.py", line 12',
    'type', case when task = 'shop.billing.charge' then 'builtins.ConnectionError' else 'builtins.ValueError' end,
    'message', case when task = 'shop.billing.charge' then 'payments.example: no answer after 5 s'
                    else 'order ' || id || ' has no address' end))"""
SERIES: LiteralString = """
    with seen as (
        select date_trunc('minute', created_at) as at, queue, task, 1 as enqueued, 0 as started, 0 as succeeded, 0 as failed,
               0 as retried, 0 as dead, null::float8 as wait, null::float8 as run
        from attempt where attempt = 1
        union all
        select date_trunc('minute', claimed_at), queue, task, 0, 1, 0, 0, 0, 0, wait, null from attempt
        union all
        select date_trunc('minute', ended_at), queue, task, 0, 0, succeeded::int, (not succeeded)::int,
               (not succeeded and not dead)::int, dead::int, null, case when succeeded or dead then run end
        from attempt
    ),
    counted as (
        select at, queue, task, sum(enqueued) as enqueued, sum(started) as started, sum(succeeded) as succeeded,
               sum(failed) as failed, sum(retried) as retried, sum(dead) as dead,
               ceil(ln(greatest(wait, 0.0001) / 0.0001) / ln(1.045 / 0.955))::smallint as wait_bin, count(wait) as waits,
               ceil(ln(greatest(run, 0.0001) / 0.0001) / ln(1.045 / 0.955))::smallint as run_bin, count(run) as runs
        from seen where at < date_trunc('minute', %(now)s) group by at, queue, task, wait_bin, run_bin
    )
    insert into pgqueue.series_written (at, queue, task, enqueued, started, succeeded, failed, retried, dead, wait_bins,
                                        wait_counts, run_bins, run_counts)
    select at, queue, task, sum(enqueued), sum(started), sum(succeeded), sum(failed), sum(retried), sum(dead),
           coalesce(array_agg(wait_bin) filter (where waits > 0), '{}'), coalesce(array_agg(waits) filter (where waits > 0), '{}'),
           coalesce(array_agg(run_bin) filter (where runs > 0), '{}'), coalesce(array_agg(runs) filter (where runs > 0), '{}')
    from counted group by at, queue, task
"""
WORKERS: LiteralString = """
    insert into pgqueue.workers (id, host, pid, concurrency, minimum, slots, version, queues, started_at, lease_until,
                                 looked_at, look_within, supervised)
    select gen_random_uuid(), host, pid, slots, slots, slots, '0.1.0', queues, %(now)s - %(deploy)s - started,
           %(now)s + interval '1 day', case when host = 'exports-1' then %(now)s - %(stalled)s else %(now)s end,
           case when host = 'exports-1' then 35 else 1e6 end, true
    from (values ('web-1', 4711, 20, '{mail,default,billing}'::text[], interval '1 day'),
                 ('web-2', 4711, 20, '{mail,default,billing}', interval '1 day'),
                 ('media-1', 4715, 8, '{media}', interval '0'), ('partners-1', 4718, 8, '{partners}', interval '1 day'),
                 ('exports-1', 4720, 4, '{exports}', interval '1 day')) as one (host, pid, slots, queues, started)
"""
HELD: LiteralString = """
    update pgqueue.jobs set run_at = %(now)s - interval '45 minutes' * random(), created_at = %(now)s - interval '45 minutes'
    where queue = 'partners' and in_lane returning id
"""
EXPORTS: LiteralString = """
    insert into pgqueue.jobs (queue, task, run_at, created_at, max_attempts, args)
    select 'exports', 'shop.exports.build', at, at, 5, json_build_object('shop', n)
    from (select n, %(now)s - %(stalled)s * (1 - n / %(exports)s::float8) as at
          from generate_series(0, %(exports)s - 1) as n) as job
    returning id
"""
HOLDING: LiteralString = """
    with holder as (
        select id, row_number() over (order by id) as place from pgqueue.jobs where queue = 'partners' order by id limit 4
    ),
    worker as (
        update pgqueue.workers set running = array(select id from holder) where host = 'partners-1' returning id
    )
    update pgqueue.jobs set status = 'running', attempts = 1, worker_id = worker.id,
                            claimed_at = %(now)s - interval '50 minutes' - place * interval '3 seconds'
    from holder, worker where jobs.id = holder.id returning jobs.id
"""
DEPTHS: LiteralString = """
    with span (queue, state, since, until) as (
        select queue, 'ready', claimed_at - wait * interval '1 second', claimed_at from attempt
        union all
        select queue, 'running', claimed_at, ended_at from attempt
        union all
        select queue, status, case status when 'running' then claimed_at else created_at end, %(now)s from pgqueue.jobs
    ),
    died as materialized (select queue, ended_at from attempt where dead),
    seen as (
        select at, queue, state, at - since as age
        from span cross join generate_series(date_trunc('minute', since) + interval '1 minute', until, interval '1 minute') as at
        where at < %(now)s
        union all
        select at, '', '', null
        from generate_series(date_trunc('minute', %(now)s - interval '1 day'), %(now)s, interval '1 minute') as at
    )
    insert into pgqueue.series_depths
    select at, queue, count(*) filter (where state = 'blocked'), count(*) filter (where state = 'scheduled'),
           count(*) filter (where state = 'ready'), count(*) filter (where state = 'running'),
           (select count(*) from died where ended_at < seen.at and (died.queue = seen.queue or seen.queue is null)),
           extract(epoch from max(age) filter (where state = 'ready')), false
    from seen group by grouping sets ((at, queue), (at)) having queue is null or queue <> ''
"""
WAITING: LiteralString = """
    insert into pgqueue.jobs (queue, task, status, run_at, created_at, args, priority)
    select queue, task, case when n % 10 < 8 then 'ready' else 'scheduled' end,
           %(now)s + (n % 10 - 8) * interval '10 seconds', %(now)s - n %% 86400 * interval '1 second',
           json_build_object('order_id', n), n % 3
    from (select n, (array['mail', 'default', 'media', 'billing'])[1 + n % 4] as queue
          from generate_series(1, %(waiting)s) as n) as job
    join (select distinct on (queue) queue, task from task) as task using (queue)
"""


def main() -> None:
    """Fill, and measure the pages where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--pages", action="store_true")
    given = parser.parse_args()
    schema.migrate(given.dsn)
    queue = PgQueue(given.dsn)
    if not queue.insight.totals(timedelta(days=1)).lines:
        fill(queue, given.dsn, jobs=given.jobs, waiting=given.waiting)
    if given.pages:
        measure(queue)
    queue.close()


def fill(queue: PgQueue, dsn: str, *, jobs: int, waiting: int = 0) -> Day:
    """Make the day, up to the present.

    Args:
        queue: its database is empty.
        dsn: of that database.
        jobs: how many jobs ended on that day.
        waiting: how many more jobs wait.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        now = datetime.now(UTC)
        for statement in _made(now, jobs):
            connection.execute(statement[0], statement[1])
        while queue.database.run(series.move()):
            pass
        day = _live(queue, connection, now, jobs)
        _run(connection, DEPTHS, now=now)
        if waiting:
            _run(connection, WAITING, now=now, waiting=waiting)
        connection.execute("vacuum analyze")
    return day


def _made(now: datetime, jobs: int) -> Iterator[tuple[Any, Any]]:
    """What ended, and the figures of it."""
    times = {"now": now, "jobs": jobs, "storm": STORM, "deploy": DEPLOY, "stalled": STALLED}
    yield "set synchronous_commit = off; set timezone = 'UTC'; select setseed(0.42)", None
    yield "select pgqueue.make_history_day(%(day)s::date)", {"day": now - timedelta(days=1)}
    yield TASKS, None
    yield _doubled(MADE), times
    yield ATTEMPTS, None
    yield "analyze attempt", None
    yield HISTORY.replace("{error}", ERROR), times
    yield DEAD.replace("{error}", ERROR), times
    yield SERIES, times
    yield "select setval(pg_get_serial_sequence('pgqueue.jobs', 'id'), %(jobs)s)", times
    yield WORKERS, times


def _live(queue: PgQueue, connection: psycopg.Connection, now: datetime, jobs: int) -> Day:
    """What goes on."""

    @queue.task(name="shop.partners.sync", queue="partners", limit=Limit(4, name="partner-api"))
    def sync(shop: int) -> None: ...

    @queue.task(name="shop.reports.build", queue="default")
    def report() -> None: ...

    queue.database.run(lanes.declare(queue.limits))  # as a worker does when it starts
    many = max(20, jobs // 600)
    handles = list(queue.enqueue_many(sync.call(n) for n in range(2 * many)))
    held = _run(connection, HOLDING, now=now)
    _run(connection, HELD, now=now)
    exports = _run(connection, EXPORTS, now=now, stalled=STALLED, exports=many)
    for name, cron in (
        ("reports.nightly", "30 2 * * *"),
        (LATE_SCHEDULE, "0 * * * *"),
        ("tidy", "*/5 * * * *"),
    ):
        queue.schedules.add(name, report.call(), cron)
    _run(
        connection,
        """with moved as (
               update pgqueue.schedules set created_at = %(now)s - interval '30 days',
                      settled = date_trunc('hour', %(now)s - %(late)s) - interval '1 minute',
                      next_at = date_trunc('hour', %(now)s - %(late)s)
               where name = %(name)s returning name, next_at)
           insert into pgqueue.schedule_ticks (schedule, at, fired_at, job_id, state)
           select name, next_at - n * interval '1 hour', next_at - n * interval '1 hour' + interval '1 s', -n, 'fired'
           from moved cross join generate_series(1, 12) as n""",
        now=now,
        late=LATE,
        name=LATE_SCHEDULE,
    )
    return Day(exports[-1], handles[-1].id, tuple(held))


def _run(connection: psycopg.Connection, statement: LiteralString, **given: object) -> list[int]:
    cursor = connection.execute(_doubled(statement), given)
    return [row[0] for row in cursor.fetchall()] if cursor.description else []


def _doubled(statement: str) -> Any:
    """Remainders are written with one per cent sign above; psycopg wants two."""
    return statement.replace(" % ", " %% ")


def measure(queue: PgQueue, rounds: int = 10) -> None:
    """Print the median time of each page, and its CPU time: in this process, and in those of a server on this machine."""
    from werkzeug.test import Client  # noqa: PLC0415 - with the extra `dashboard`

    from pgqueue.dashboard import Dashboard, User  # noqa: PLC0415

    client = Client(Dashboard(queue, login=lambda _: User("bench"), actions=True))
    with psycopg.connect(queue.database.dsn, autocommit=True) as connection:
        server = (
            Path(f"/proc/{connection.info.backend_pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[1]
        )
    for path in paths(queue):
        status = client.get(path).status_code
        took, here, there = [], time.process_time(), _cpu_of_server(server)
        for _ in range(rounds):
            began = time.perf_counter()
            client.get(path)
            took.append((time.perf_counter() - began) * 1e3)
        here, there = time.process_time() - here, _cpu_of_server(server) - there
        sys.stdout.write(
            f"{path:50} {status} median {statistics.median(took):6.1f} ms, CPU here {here * 1e3 / rounds:5.1f} ms, "
            f"of the server {there * 1e3 / rounds:5.1f} ms\n"
        )


def _cpu_of_server(postmaster: str) -> float:
    """Seconds of CPU time of a server's processes, also of those that have ended."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (process / "stat").read_text("utf-8", "replace").rsplit(")", 1)[1].split()
            if process.name == postmaster:
                ticks += sum(map(int, fields[11:15]))
            elif fields[1] == postmaster:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def paths(queue: PgQueue) -> list[str]:
    """A page of each kind, and the searches that look at most jobs."""
    (ready,) = queue.insight.search(state="ready", limit=1).jobs
    return [
        *(f"/overview?window={one}" for one in ("1h", "6h", "24h", "7d", "30d")),
        *(f"/task?name={FAILING_TASK}&window={one}" for one in ("1h", "24h", "30d")),
        "/queues",
        "/queue?name=mail",
        "/queue?name=mail&window=24h",
        "/jobs",
        "/jobs?state=ready",
        "/jobs?state=succeeded&task=shop.exports.build",
        "/jobs?task=shop.exports.*",
        "/jobs?args=order_id%3D7",
        f"/jobs/{ready.id}",
        f"/jobs/{ready.id}/cancel",
        "/dead",
        f"/dead?task={FAILING_TASK}",
        "/dead/retry",
        "/workers",
        "/schedules",
        "/alerts",
        f"/schedule?name={LATE_SCHEDULE}",
        "/workflows",
        "/limits",
        f"/limit?name={LIMIT}",
        "/audit",
        "/store",
    ]


if __name__ == "__main__":
    os.environ.setdefault("PGTZ", "UTC")
    main()
