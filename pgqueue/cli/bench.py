"""``pgqueue bench``: what enqueuing, draining and picking up cost on a database.

The verbs and their output are those of a side-by-side harness: each prints one JSON object, and settings come
from the environment, so that a program in any language can be driven the same way. Everything happens in a
schema of its own, ``pgqueue_bench``.
"""

import asyncio
import json
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.cli.app import Settings as GlobalSettings
from pgqueue.store import schema
from pgqueue.worker.worker import Worker

SCHEMA = "pgqueue_bench"
FIRST_JOB_WITHIN = 8.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure, read from the environment.

    Attributes:
        dsn: ``--dsn`` or ``DSN``; by default where ``pgqueue`` finds its database.
        gap: ``GAP``, seconds between two single enqueues.
        pad: ``PAD``, bytes of payload.
        idle: ``IDLE``, seconds without a job after which a worker ends.
        stop_after: ``STOP_AFTER`` jobs a worker ends, too; 0: it does not.
        concurrency: ``CONC``, of the worker.
        sync: ``SYNC=1``, the job is a plain function in a thread.
    """

    dsn: str | None
    gap: float
    pad: int
    idle: float
    stop_after: int
    concurrency: int
    sync: bool

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read them."""
        return cls(
            dsn=_global_dsn() or environ.get("DSN"),
            gap=float(environ.get("GAP", "0")),
            pad=int(environ.get("PAD", "0")),
            idle=float(environ.get("IDLE", "2")),
            stop_after=int(environ.get("STOP_AFTER", "0")),
            concurrency=int(environ.get("CONC", "20")),
            sync=environ.get("SYNC") == "1",
        )


def _global_dsn() -> str | None:
    """What ``--dsn`` says, where the command line has one."""
    given = click.get_current_context().find_object(GlobalSettings)
    return given.dsn if given else None


@dataclass(slots=True)
class Meter:
    """Counts job starts and, where asked, how long each was under way (milliseconds)."""

    count: int = 0
    first: float | None = None
    last: float | None = None
    latencies: list[float] = field(default_factory=list)

    def hit(self, sent: float) -> None:
        """Count one; ``sent``: when it was enqueued, in epoch seconds, or 0."""
        now = time.time()
        if self.first is None:
            self.first = now
        self.last = now
        self.count += 1
        if sent:
            self.latencies.append((now - sent) * 1e3)

    def report(self) -> dict[str, Any]:
        """The worker's JSON object."""
        found: dict[str, Any] = {
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        return found | ({"lat_ms": sorted(self.latencies)} if self.latencies else {})


@click.group()
def bench() -> None:
    """Measure this machine's database; each verb prints one JSON object.

    Settings in the environment: DSN, GAP, PAD, IDLE, STOP_AFTER, CONC, SYNC=1.
    """


@bench.command()
def setup() -> None:
    """Install the schema pgqueue_bench."""
    queue = _queue(Settings.read(os.environ))
    schema.migrate(queue.database.dsn, schema=SCHEMA)


@bench.command()
@click.argument("count", type=click.IntRange(min=1))
def enqueue1(count: int) -> None:
    """Enqueue COUNT jobs, each in a transaction of its own."""
    settings = Settings.read(os.environ)
    queue = _queue(settings)
    task = _task(queue, settings, Meter())
    queue.database.verify()
    started = time.time()
    for number in range(count):
        task.enqueue(number, time.time())
        if settings.gap:
            time.sleep(settings.gap)
    _print_timing(count, started)
    queue.close()


@bench.command()
@click.argument("count", type=click.IntRange(min=1))
def bulk(count: int) -> None:
    """Enqueue COUNT jobs at once."""
    settings = Settings.read(os.environ)
    queue = _queue(settings)
    task = _task(queue, settings, Meter())
    pad = "x" * settings.pad
    queue.database.verify()
    started = time.time()
    queue.enqueue_many(task.call(number, 0.0, pad) for number in range(count))
    _print_timing(count, started)
    queue.close()


@bench.command()
@click.option("--latency", is_flag=True, help="Print how long each job was under way, too.")
def worker(*, latency: bool) -> None:
    """Run jobs until none has come for IDLE seconds, or STOP_AFTER were run."""
    settings = Settings.read(os.environ)
    meter = Meter()
    queue = _queue(settings)
    _task(queue, settings, meter, latency=latency)
    asyncio.run(_work(queue, settings, meter))
    click.echo(json.dumps(meter.report()))


def _queue(settings: Settings) -> PgQueue:
    return PgQueue(settings.dsn, schema=SCHEMA)


def _task(queue: PgQueue, settings: Settings, meter: Meter, *, latency: bool = False) -> Task[..., None]:
    def sync_noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)

    async def noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)

    register = queue.task(name="noop")
    return register(sync_noop) if settings.sync else register(noop)


async def _work(queue: PgQueue, settings: Settings, meter: Meter) -> None:
    started = time.time()
    serving = Worker(queue, concurrency=settings.concurrency)
    runner = asyncio.create_task(serving.run())
    while not runner.done():
        quiet = time.time() - (meter.last or started)
        enough = 0 < settings.stop_after <= meter.count
        if enough or quiet > (settings.idle if meter.last else max(settings.idle, FIRST_JOB_WITHIN)):
            break
        await asyncio.sleep(0.02)
    serving.stop()
    await runner
    await queue.aclose()


def _print_timing(count: int, started: float) -> None:
    click.echo(json.dumps({"n": count, "seconds": time.time() - started}))
