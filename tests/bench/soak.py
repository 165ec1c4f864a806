"""One process enqueues at a steady rate, one works, and what grows is watched: `make bench-soak`.

How many samples there are, and how far apart, is decided here; what they prove, in
:mod:`bench.endurance`.
"""

import time
from collections.abc import Callable, Sequence

import click
from bench import endurance
from bench.endurance import SoakEnds, SoakSample, SoakVerdict
from bench.ground import ground
from rich import box
from rich.console import Console
from rich.table import Table

from pgqueue.bench.bench_schema import SCHEMA
from pgqueue.bench.loads import percentile
from pgqueue.bench.stage import OURS, BenchStage, Process
from pgqueue.cli.bench import warn_of_others
from pgqueue.cli.output import bar, json_option, print_json

SIZES = """
select relname, pg_relation_size(pg_class.oid), relkind in ('i', 'I')
from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where nspname = %s and relkind in ('r', 'i') and relname not like 'job_history%%'"""
HISTORY = """
select coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where nspname = %s and relkind = 'r' and relname like 'job_history%%'"""
DEAD_TUPLES = """
select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables
where schemaname = %s and relname not like 'job_history%%'"""
ENDED = f"""
select count(*) filter (where state = 'succeeded'), count(*) filter (where state in ('dead', 'cancelled')),
       count(*) filter (where ended_at is null)
from {SCHEMA}.all_jobs"""
DRAIN_WITHIN = 30.0
MB = 1 << 20
WORTH_A_ROW = MB // 10


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.01),
    default=10.0,
    show_default=True,
    help="How many minutes to run.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=5_000,
    show_default=True,
    help="How many jobs to enqueue per second.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds between two samples.",
)
@json_option
@click.option("--dsn", help="The database; without it PGQUEUE_DSN, DATABASE_URL or an embedded server.")
def soak(*, dsn: str | None, minutes: float, rate: int, every: float, as_json: bool) -> None:
    """Enqueue at a steady rate while one worker works, and watch what grows.

    The exit code is 1 if a job was lost, or if the queue could not hold the rate.
    """
    with ground(dsn) as stage:
        warn_of_others(stage.place.others())
        samples, ends = _soak(stage, minutes * 60, rate, every)
    verdict = endurance.judge(samples, ends, rate=rate)
    if as_json:
        print_json({"rate": rate, "samples": samples, "ends": ends, "verdict": verdict})
    else:
        _show(samples, ends, verdict)
    if verdict.complaints:
        click.get_current_context().exit(1)


def _soak(stage: BenchStage, seconds: float, rate: int, every: float) -> tuple[list[SoakSample], SoakEnds]:
    """Soak; what was seen on the way, and what had become of every job in the end."""
    stage.begin(OURS)
    worker = stage.crew.start(OURS, "worker", "--latency", IDLE=0, CONC=stage.concurrency)
    stream = stage.crew.start(OURS, "stream", rate)
    stream.until_busy()
    worker.until_busy()
    samples = [_sample(stage, stream, worker, None)]
    with bar(seconds) as progress:
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            time.sleep(min(every, seconds - elapsed))
            samples.append(_sample(stage, stream, worker, samples[-1]))
            progress.step("soaking", steps=time.monotonic() - started - elapsed)
    return samples, _ends(stage, stream.stop(), worker)


def _sample(stage: BenchStage, stream: Process, worker: Process, before: SoakSample | None) -> SoakSample:
    """Look at everything; rates are those since the sample before."""
    enqueued, ran = stream.ask(), worker.ask()
    sizes = stage.place.connection.execute(SIZES, [SCHEMA]).fetchall()
    waits = ran.get("lat_ms", [])
    now = SoakSample(
        seconds=enqueued["seconds"],
        enqueued=enqueued["n"],
        started=ran["count"],
        p99_wait_ms=percentile(waits, 0.99) if waits else None,
        worker_mb=ran["rss_now_mb"],
        jobs_bytes=sum(size for _, size, is_index in sizes if not is_index),
        index_bytes={name: size for name, size, is_index in sizes if is_index},
        history_bytes=stage.place.one(HISTORY, SCHEMA),
        dead_tuples=stage.place.one(DEAD_TUPLES, SCHEMA),
    )
    return now.since(before) if before else now


def _ends(stage: BenchStage, enqueued: dict[str, float], worker: Process) -> SoakEnds:
    """Let the worker run what is left, within reason, and count what has become of every job."""
    backlog = int(enqueued["n"]) - worker.ask()["count"]
    deadline = time.monotonic() + DRAIN_WITHIN
    while worker.ask()["count"] < enqueued["n"] and time.monotonic() < deadline:
        time.sleep(0.1)
    worker.stop()
    ((succeeded, dead, left),) = stage.place.connection.execute(ENDED.encode()).fetchall()
    return SoakEnds(int(enqueued["n"]), enqueued["seconds"], backlog, succeeded, dead, left)


def _show(samples: Sequence[SoakSample], ends: SoakEnds, verdict: SoakVerdict) -> None:
    """Print the first, the middle and the last sample, and the verdict."""
    chosen = [samples[0], samples[len(samples) // 2], samples[-1]]
    table = Table("", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("first", "middle", "last"):
        table.add_column(head, justify="right")
    for name, cell in ROWS:
        table.add_row(name, *map(cell, chosen))
    last = samples[-1].index_bytes
    for name in sorted(last, key=lambda name: last[name], reverse=True):
        if last[name] >= WORTH_A_ROW:
            table.add_row(f"  {name}, MB", *(_mb(one.index_bytes.get(name, 0)) for one in chosen))
    Console(markup=False, highlight=False).print(table)
    click.echo(
        f"{ends.enqueued:,} enqueued: {ends.succeeded:,} in the history, {ends.dead:,} dead or cancelled, "
        f"{ends.left:,} left, {verdict.lost:,} lost"
    )
    for line in [*verdict.notes, *(f"FAILED: {complaint}" for complaint in verdict.complaints)]:
        click.echo(line)
    if not verdict.complaints:
        click.echo("nothing was lost, and the rate was held")


def _mb(size: int) -> str:
    return f"{size / MB:,.1f}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


ROWS: Sequence[tuple[str, Callable[[SoakSample], str]]] = (
    ("seconds", lambda one: f"{one.seconds:,.0f}"),
    ("jobs/s in", lambda one: _rate(one.enqueued_per_second)),
    ("jobs/s out", lambda one: _rate(one.started_per_second)),
    ("backlog", lambda one: f"{one.backlog:,}"),
    ("p99 wait, ms", lambda one: _rate(one.p99_wait_ms)),
    ("worker's memory, MB", lambda one: f"{one.worker_mb:,.0f}"),
    ("dead tuples", lambda one: f"{one.dead_tuples:,}"),
    ("history, MB", lambda one: _mb(one.history_bytes)),
    ("other tables, MB", lambda one: _mb(one.jobs_bytes)),
    ("their indices, MB", lambda one: _mb(one.all_index_bytes)),
)


if __name__ == "__main__":
    soak()
