"""The floor: the speed of a bare psycopg client on this machine and database, without a queue.

In a loop, one statement claims 500 jobs under ``SKIP LOCKED``, and another moves them to a history table. There are no
leases, fences, retries, timeouts, hooks or heartbeats: it is the least that a job can cost. Run as ``python -m pgqueue.bench.floor``; its verbs are those that
:mod:`pgqueue.bench.contract` describes.
"""

import json
import signal
import time
from typing import Any

import click
import psycopg

from pgqueue.bench.bench_schema import SCHEMA
from pgqueue.bench.contract import ContenderSettings, Meter, padding, print_timing

BATCH = 500
EMPTY_PAUSE = 0.01
CHANNEL = f"{SCHEMA}_floor"
TABLES = f"""
create table {SCHEMA}.floor_jobs (
    id           bigint      generated always as identity primary key,
    queue        text        not null default 'default',
    task         text        not null,
    args         jsonb       not null,
    priority     smallint    not null default 0,
    status       text        not null default 'ready',
    attempts     smallint    not null default 0,
    max_attempts smallint    not null default 25,
    run_at       timestamptz not null default now(),
    created_at   timestamptz not null default now(),
    started_at   timestamptz,
    lease_until  timestamptz,
    unique_key   text
);
create index on {SCHEMA}.floor_jobs (queue, priority, run_at, id) where status = 'ready';
create index on {SCHEMA}.floor_jobs (lease_until) where status = 'running';
create unique index on {SCHEMA}.floor_jobs (unique_key) where unique_key is not null;
create table {SCHEMA}.floor_history (
    id          bigint,
    queue       text,
    task        text,
    args        jsonb,
    outcome     text,
    attempts    smallint,
    created_at  timestamptz,
    started_at  timestamptz,
    finished_at timestamptz
)"""
ENQUEUE = f"insert into {SCHEMA}.floor_jobs (task, args) values ('noop', %s)"
COPY = f"copy {SCHEMA}.floor_jobs (task, args) from stdin"
CLAIM = f"""
with next as (
    select id from {SCHEMA}.floor_jobs
    where queue = 'default' and status = 'ready' and run_at <= now()
    order by priority, run_at, id
    limit {BATCH}
    for update skip locked
)
update {SCHEMA}.floor_jobs as job
set status = 'running', attempts = job.attempts + 1, started_at = now(), lease_until = now() + interval '1 min'
from next
where job.id = next.id
returning job.id, job.task, job.args, job.attempts"""
FINISH = f"""
with done as (
    delete from {SCHEMA}.floor_jobs where id = any(%s) and status = 'running' returning *
)
insert into {SCHEMA}.floor_history
select id, queue, task, args, 'succeeded', attempts, created_at, started_at, clock_timestamp() from done"""


@click.group()
def floor() -> None:
    """Drive a bare client as a contender of a bench; settings are in the environment."""


@floor.command()
def setup() -> None:
    """Make the tables."""
    with _connect(ContenderSettings.read()) as connection:
        connection.execute(TABLES)


@floor.command()
@click.argument("count", type=click.IntRange(min=1))
def enqueue1(count: int) -> None:
    """Enqueue COUNT jobs, each in a transaction of its own; with a GAP between them, notify as well."""
    settings = ContenderSettings.read()
    with _connect(settings) as connection:
        started = time.monotonic()
        for number in range(count):
            args = json.dumps({"number": number, "sent": time.time()})
            connection.execute(ENQUEUE, [args], prepare=True)
            if settings.gap:
                connection.execute(f"notify {CHANNEL}")
                time.sleep(settings.gap)
        print_timing(count, time.monotonic() - started)


@floor.command()
@click.argument("count", type=click.IntRange(min=1))
def bulk(count: int) -> None:
    """Enqueue COUNT jobs at once."""
    print_timing(count, fill(ContenderSettings.read(), count))


def fill(settings: ContenderSettings, count: int) -> float:
    """Enqueue jobs at once; how many seconds that took."""
    pad = padding(settings)
    with _connect(settings) as connection:
        started = time.monotonic()
        with connection.cursor().copy(COPY) as rows:
            for number in range(count):
                rows.write_row(("noop", f'{{"number": {number}, "sent": 0, "pad": "{pad}"}}'))
        return time.monotonic() - started


@floor.command()
@click.option("--latency", is_flag=True, help="Listen, and print how long each job was under way, too.")
def worker(*, latency: bool) -> None:
    """Run jobs until none has come for IDLE seconds, or STOP_AFTER were run, or SIGTERM."""
    settings, started = ContenderSettings.read(), time.time()
    stopping: list[int] = []
    meter = Meter(settings.stop_after, enough=lambda: stopping.append(0))
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGUSR1, lambda _number, _: meter.print_report())
    with _connect(settings) as connection:
        if latency:
            connection.execute(f"listen {CHANNEL}")
        while not stopping and settings.seconds_to_wait(meter, started) > 0:
            if not _run_batch(connection, meter, latency=latency):
                _rest(connection, latency=latency)
    meter.print_report()


def _run_batch(connection: psycopg.Connection[Any], meter: Meter, *, latency: bool) -> bool:
    """Claim, run and finish a batch; return False if there was none."""
    claimed = connection.execute(CLAIM, prepare=True, binary=True).fetchall()
    if not claimed:
        return False
    for _, _, args, _ in claimed:
        meter.hit(args["sent"] if latency else 0.0)
    connection.execute(FINISH, [[row[0] for row in claimed]], prepare=True)
    return True


def _rest(connection: psycopg.Connection[Any], *, latency: bool) -> None:
    if latency:
        next(connection.notifies(timeout=0.5, stop_after=1), None)
    else:
        time.sleep(EMPTY_PAUSE)


def _connect(settings: ContenderSettings) -> psycopg.Connection[Any]:
    return psycopg.connect(settings.dsn or "", autocommit=True)


if __name__ == "__main__":
    floor()
