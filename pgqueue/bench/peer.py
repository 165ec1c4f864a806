"""pgqueue as a contender of the bench: its tasks, and its verbs as :mod:`pgqueue.bench.contract` wants them.

Run as ``python -m pgqueue.bench.peer``. The bench starts its processes this way, and a side-by-side harness
can, too. Everything happens in the schema ``pgqueue_bench``. Who enqueues and who works register the same tasks.
"""

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import click
import psycopg

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.bench.bench_schema import COMMAND, SCHEMA
from pgqueue.bench.contract import ContenderSettings, Meter, padding, print_timing
from pgqueue.bench.own_schema import make
from pgqueue.errors import RetryLater
from pgqueue.store.connections.connection import OwnAsyncConnection
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

AT_ONCE = 100_000
"""Calls in one transaction at most: more would only take memory."""
STREAM_EVERY = 0.1

TIMEOUT = 60.0
"""Seconds; every job has a timeout, as jobs of an app have."""


class Tasks(NamedTuple):
    """One of each.

    Attributes:
        noop: does nothing, and counts. It takes a number, when it was sent (epoch seconds, or 0), and a payload.
        late: does nothing, and does not count.
        flaky: fails at its first attempt and is put back at once; does not count.
        hold: waits until all jobs there are room for have started.
    """

    noop: Task[..., None]
    late: Task[..., None]
    flaky: Task[..., None]
    hold: Task[..., None]


@click.group()
def peer() -> None:
    """Drive pgqueue as a contender of a bench; settings are in the environment."""


@peer.command()
def setup() -> None:
    """Drop the schema pgqueue_bench and make it again, with the queue in it."""
    queue = _queue(ContenderSettings.read())
    with queue.database.connect() as connection:
        make(connection, SCHEMA, COMMAND)
    schema.migrate(queue.database.dsn, schema=SCHEMA)


@peer.command()
@click.argument("count", type=click.IntRange(min=1))
def enqueue1(count: int) -> None:
    """Enqueue COUNT jobs, each in a transaction of its own, from THREADS threads."""
    settings = ContenderSettings.read()
    queue = _connected(settings)
    noop = _tasks(queue, settings).noop
    numbers = iter(range(count))

    def enqueue_some(_thread: int) -> None:
        for number in numbers:
            noop.enqueue(number, time.time())
            if settings.gap:
                time.sleep(settings.gap)

    started = time.monotonic()
    if settings.threads == 1:
        enqueue_some(0)
    else:
        with ThreadPoolExecutor(settings.threads) as threads:
            list(threads.map(enqueue_some, range(settings.threads)))
    print_timing(count, time.monotonic() - started)
    queue.close()


@peer.command()
@click.argument("count", type=click.IntRange(min=1))
def bulk(count: int) -> None:
    """Enqueue COUNT jobs at once."""
    print_timing(count, fill(ContenderSettings.read(), count))


def fill(settings: ContenderSettings, count: int) -> float:
    """Enqueue jobs at once, and those that fail at first; how many seconds the former took."""
    queue = _connected(settings)
    tasks = _tasks(queue, settings)
    delay = timedelta(seconds=settings.delay) if settings.delay else None
    noop = tasks.noop.using(queue=settings.queue, priority=settings.priority, delay=delay)
    pad = padding(settings)
    started = time.monotonic()
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        if settings.names:
            queue.enqueue_many(
                noop.using(queue=f"tenant-{number % settings.names}").call(number, 0.0, pad)
                for number in numbers
            )
        else:
            queue.enqueue_many(noop.call(number, 0.0, pad) for number in numbers)
    seconds = time.monotonic() - started
    if settings.flaky:
        queue.enqueue_many(tasks.flaky.call() for _ in range(settings.flaky))
    queue.close()
    return seconds


@peer.command()
@click.argument("rate", type=click.IntRange(min=1))
def stream(rate: int) -> None:
    """Enqueue RATE jobs a second, ten batches a second, until SIGTERM; SIGUSR1: print how many so far."""
    settings = ContenderSettings.read()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGUSR1, lambda _number, _: print_timing(count, time.monotonic() - started))
    queue = _connected(settings)
    noop = _tasks(queue, settings).noop
    count, started = 0, time.monotonic()
    click.echo("busy")
    while not stopping and settings.seconds_to_wait(Meter(seen=time.time()), started) > 0:
        due = int(rate * (time.monotonic() - started)) - count
        if due > 0:
            sent = time.time()
            queue.enqueue_many(noop.call(number, sent) for number in range(count, count + due))
            count += due
        time.sleep(STREAM_EVERY)
    print_timing(count, time.monotonic() - started)
    queue.close()


@peer.command()
@click.argument("count", type=click.IntRange(min=1))
def hold(count: int) -> None:
    """Enqueue COUNT jobs that wait until all that there is room for have started."""
    queue = _queue(ContenderSettings.read())
    task = _tasks(queue, ContenderSettings.read()).hold
    started = time.monotonic()
    queue.enqueue_many(task.call() for _ in range(count))
    print_timing(count, time.monotonic() - started)
    queue.close()


@peer.command()
@click.option("--latency", is_flag=True, help="Print how long each job was under way, too.")
def worker(*, latency: bool) -> None:
    """Run jobs until none has come for IDLE seconds, or STOP_AFTER were run, or SIGTERM."""
    settings = ContenderSettings.read()
    meter = Meter(settings.stop_after)
    queue = _queue(settings)
    register(queue, settings, meter, latency=latency)
    if settings.trace:
        _trace(settings.trace)
    asyncio.run(_work(queue, settings, meter))
    meter.print_report()


def register(queue: PgQueue, settings: ContenderSettings, meter: Meter, *, latency: bool = False) -> Tasks:
    """Register the tasks with a queue.

    Args:
        queue: whose tasks they are.
        settings: say whether the no-op is a plain function, and for how long it waits.
        meter: counts.
        latency: whether to measure how long jobs were under way.
    """

    async def late() -> None:
        meter.touch()

    async def flaky(ctx: Context) -> None:
        meter.touch()
        if ctx.attempt == 1:
            raise RetryLater(timedelta(0))

    return Tasks(
        queue.task(name="noop", timeout=TIMEOUT)(_noop(settings, meter, latency=latency)),
        queue.task(name="late", timeout=TIMEOUT)(late),
        queue.task(name="flaky", timeout=TIMEOUT)(flaky),
        queue.task(name="hold", timeout=TIMEOUT)(_hold(settings, meter)),
    )


def _noop(settings: ContenderSettings, meter: Meter, *, latency: bool) -> Any:  # noqa: ANN401 - a function of either colour
    one_at_a_time = threading.Lock()

    def sync_noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        with one_at_a_time:
            meter.hit(sent if latency else 0.0)

    async def noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)

    async def waiting_noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)
        await asyncio.sleep(settings.wait)

    if settings.sync:
        return sync_noop
    return waiting_noop if settings.wait else noop


def _hold(settings: ContenderSettings, meter: Meter) -> Any:  # noqa: ANN401 - a coroutine function or a plain one
    all_in = asyncio.Event()

    async def hold() -> None:
        meter.hit(0.0)
        if meter.count == settings.concurrency:
            meter.print_report()
            all_in.set()
        await all_in.wait()

    return hold


def _connected(settings: ContenderSettings) -> PgQueue:
    """Return the queue with a connection in its pool: an app that enqueues has one already, and so has the floor."""
    queue = _queue(settings)
    queue.insight.counts()
    return queue


def _queue(settings: ContenderSettings) -> PgQueue:
    return PgQueue(settings.dsn, schema=SCHEMA, pool_size=max(10, settings.threads))


def _tasks(queue: PgQueue, settings: ContenderSettings) -> Tasks:
    return register(queue, settings, Meter())


async def _work(queue: PgQueue, settings: ContenderSettings, meter: Meter) -> None:
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()
    meter.enough = lambda: loop.call_soon_threadsafe(enough.set)
    loop.add_signal_handler(signal.SIGTERM, enough.set)
    loop.add_signal_handler(signal.SIGUSR1, meter.print_report)
    started = time.time()
    serving = Worker(queue, concurrency=settings.concurrency, queues=settings.queues)
    working, stopping = asyncio.create_task(serving.run()), asyncio.create_task(enough.wait())
    while (waits := settings.seconds_to_wait(meter, started)) > 0:
        done, _ = await asyncio.wait({working, stopping}, timeout=waits, return_when=asyncio.FIRST_COMPLETED)
        if done:
            break
    serving.stop()
    stopping.cancel()
    await working
    await queue.aclose()


def _trace(path: str) -> None:
    """Have libpq write down what it exchanges with the server, on every awaitable connection of ours."""
    connect = OwnAsyncConnection.connect

    async def traced(*args: Any, **kwargs: Any) -> OwnAsyncConnection:  # noqa: ANN401 - as psycopg's
        connection = await connect(*args, **kwargs)
        with suppress(psycopg.NotSupportedError):  # libpq traces on Linux only
            connection.pgconn.trace(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        return connection

    OwnAsyncConnection.connect = traced  # type: ignore[method-assign]


if __name__ == "__main__":
    peer()
