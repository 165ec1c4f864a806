"""The app that is put under faults, written like a user's: one task for each kind of work.

Workers load it with ``--app pgqueue.chaos.tasks:queue``. Each attempt writes to the log when it starts and when it stops;
:mod:`pgqueue.chaos.log` adds what the queue says of it.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from tenacity import wait_fixed, wait_none

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.chaos.history.events import Started, Stopped
from pgqueue.chaos.kinds import LIMIT, MOST_AT_ONCE, STEPS, TICK, name_of, step_of
from pgqueue.chaos.log import FOLDER, WORKER, HistoryLog, log_of_process, observer
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.limits.limit import Limit

SCHEMA: LiteralString = "pgqueue_chaos"
EFFECT = f"insert into {SCHEMA}.effects (job, attempt) values (%s, %s)"
SOON = Retry(wait=wait_fixed(0.2))
ATTEMPTS = 1_000
"""Of a job that must succeed: faults may fail it again and again."""
HELD = 0.002
"""Seconds for which a limited or keyed job runs, so that others of its key would meet it."""
SLOW = "slow"
"""A file in the folder of the log; while it is there, plain jobs take as many seconds as it says."""

queue = PgQueue(schema=SCHEMA, history=timedelta.max)


@cache
def log() -> HistoryLog:
    """This worker's log."""
    return log_of_process(Path(os.environ[FOLDER]), WORKER)


@contextmanager
def logged(ctx: Context, name: str) -> Iterator[None]:
    """Log an attempt's start and its end."""
    worker, attempt, fence = str(ctx.job.worker_id), ctx.attempt, ctx.job.fence
    log().write(Started(at=time.monotonic(), job=name, worker=worker, attempt=attempt, fence=fence))
    try:
        yield
    finally:
        log().write(Stopped(at=time.monotonic(), job=name, worker=worker, attempt=attempt, fence=fence))


if (writing := observer(log)) is not None:
    queue.observe(writing)


@queue.task(name="plain", retry=SOON, max_attempts=ATTEMPTS)
async def plain(ctx: Context, name: str) -> None:
    """Do nothing, or wait while the overload says so."""
    with logged(ctx, name):
        if seconds := slowness():
            await asyncio.sleep(seconds)


@queue.task(name="written", retry=SOON, max_attempts=ATTEMPTS)
async def written(ctx: Context, name: str) -> None:
    """Write on the event loop, together with the completion."""
    with logged(ctx, name):
        async with ctx.transaction() as connection:
            await connection.execute(EFFECT, [name, ctx.attempt])


@queue.task(name="flaky", retry=SOON, max_attempts=ATTEMPTS)
def flaky(ctx: Context, name: str) -> None:
    """Fail at the first attempt, after it has written: that must be undone."""
    with logged(ctx, name), ctx.transaction() as connection:
        _write(connection, ctx, name)
        if ctx.attempt == 1:
            raise OSError("as the first attempt must")


@queue.task(name="doomed", max_attempts=2, retry=Retry(wait=wait_none()))
async def doomed(ctx: Context, name: str) -> None:
    """Fail always."""
    with logged(ctx, name):
        raise OSError("as each attempt must")


@queue.task(name="chained", retry=SOON, max_attempts=ATTEMPTS)
def chained(ctx: Context, name: str) -> None:
    """Be one of three jobs that run one after the other."""
    with logged(ctx, name), ctx.transaction() as connection:
        _write(connection, ctx, name)


@queue.task(name="grouped", retry=SOON, max_attempts=ATTEMPTS)
def grouped(ctx: Context, name: str) -> None:
    """Be one of three jobs that run side by side, or the one after them."""
    with logged(ctx, name), ctx.transaction() as connection:
        _write(connection, ctx, name)


@queue.task(name=LIMIT, limit=Limit(MOST_AT_ONCE, by="key"), retry=SOON, max_attempts=ATTEMPTS)
async def limited(ctx: Context, name: str, key: int) -> None:  # noqa: ARG001 - the limit's key
    """Run beside at most one other job of the key."""
    with logged(ctx, name):
        await asyncio.sleep(HELD)


@queue.task(name="keyed", retry=SOON, max_attempts=ATTEMPTS)
def keyed(ctx: Context, name: str) -> None:
    """Be the only live job of a unique key."""
    with logged(ctx, name):
        time.sleep(HELD)
        with ctx.transaction() as connection:
            _write(connection, ctx, name)


@queue.task(name="stepped", retry=SOON, max_attempts=ATTEMPTS)
def stepped(ctx: Context, name: str) -> None:
    """Do two steps, and write."""
    with logged(ctx, name):
        for part in STEPS:
            ctx.step(part, _log_step, ctx, step_of(name, part))
        with ctx.transaction() as connection:
            _write(connection, ctx, name)


@queue.schedule(every=timedelta(seconds=1), name=TICK)
@queue.task(name=TICK, retry=SOON, max_attempts=ATTEMPTS)
def tick(ctx: Context) -> None:
    """Be the only job of a tick of the schedule."""
    name = name_of(TICK, ctx.job.id)
    with logged(ctx, name), ctx.transaction() as connection:
        _write(connection, ctx, name)


@queue.task(name="hog")
def hog(seconds: float) -> None:
    """Hold a thread."""
    time.sleep(seconds)


def slowness() -> float:
    """For how long a plain job runs now, in seconds."""
    try:
        return float((Path(os.environ[FOLDER]) / SLOW).read_text())
    except FileNotFoundError:
        return 0.0


def _log_step(ctx: Context, name: str) -> None:
    log().write(Started(at=time.monotonic(), job=name, worker=str(ctx.job.worker_id), attempt=ctx.attempt))


def _write(connection: psycopg.Connection[Any], ctx: Context, name: str) -> None:
    connection.execute(EFFECT.encode(), [name, ctx.attempt])
