"""Promise 8: work done on the job's own connection commits together with its completion, or not at all.

Each test runs with a plain and with an ``async def`` task, which do the same: ``body`` writes through
``ctx.transaction()``. That two things committed together is read from ``xmin``, the transaction that wrote a row.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask
from promises.asking import do
from running import Running
from tenacity import wait_none

from pgqueue import Context, JobHandle, JobState, PgQueue, Retry, Superseded, Task
from pgqueue.store.jobs import control
from pgqueue.store.workers import upkeep

Body = Callable[[Context, "Write"], Awaitable[None]]
WRITE = b"insert into effects (attempt) values (%s)"
AT_ONCE = Retry(wait=wait_none())


class Write:
    """``ctx.transaction()`` as the kind of task at hand uses it: ``async with write(ctx) as pid``."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async

    @asynccontextmanager
    async def __call__(self, ctx: Context) -> AsyncIterator[int]:
        """Write an effect of the attempt in its transaction; yields the backend's process id."""
        if self.is_async:
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, [ctx.attempt])
                yield connection.info.backend_pid
        else:
            with ctx.transaction() as connection:
                connection.execute(WRITE, [ctx.attempt])
                yield connection.info.backend_pid


@pytest.fixture(params=["plain", "async"])
def write(request: pytest.FixtureRequest, dsn: str) -> Write:
    """The kind of task at hand; and the table of effects that it writes to."""
    ask(dsn, "create table effects (attempt integer, unique (attempt) deferrable initially deferred)")
    return Write(is_async=request.param == "async")


def registered(queue: PgQueue, write: Write, body: Body, retry: Retry = AT_ONCE) -> "Task[[], None]":
    """A task of the kind at hand that does ``body``."""

    async def in_loop(ctx: Context) -> None:
        await body(ctx, write)

    def in_thread(ctx: Context) -> None:
        asyncio.run(in_loop(ctx))

    return queue.task(name="task", retry=retry)(in_loop if write.is_async else in_thread)


async def ended(
    queue: PgQueue,
    running: Running,
    job: JobHandle[Any],
    *,
    state: JobState = JobState.SUCCEEDED,
    lease: timedelta = timedelta(seconds=30),
) -> None:
    """Run the job to its end, which is to be in this state."""
    async with running(queue, concurrency=1, lease=lease), asyncio.timeout(20):
        while not queue.job(job.id).state.ended:  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(0.02)
    assert queue.job(job.id).state is state


def give_up() -> None:
    """Leave psycopg's transaction as its documentation says, for code behind the block to go on."""
    raise psycopg.Rollback


def effects(dsn: str) -> list[int]:
    return [attempt for (attempt,) in ask(dsn, "select attempt from effects order by attempt")]


async def test_writes_and_completion_are_one_transaction(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            pass

    await ended(queue, running, registered(queue, write, body).enqueue())
    ((together,),) = ask(
        dsn, "select history.xmin = effects.xmin from pgqueue.job_history as history, effects"
    )
    assert together


async def test_an_exception_inside_undoes_the_writes_and_fails_the_attempt(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            if ctx.attempt == 1:
                raise ValueError("halfway")

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job)
    assert effects(dsn) == [2]
    assert [error.message for error in queue.job(job.id).errors] == ["halfway"]


async def test_an_exception_afterwards_changes_nothing(
    queue: PgQueue, running: Running, write: Write, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            pass
        raise ValueError("too late")

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job)
    assert effects(dsn) == [1]
    assert queue.job(job.id).attempts == 1
    assert "task raised after its transaction had completed the job" in caplog.messages


async def test_a_superseded_attempt_is_rolled_back(
    queue: PgQueue, running: Running, write: Write, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[tuple[int, type[BaseException]]] = []

    async def body(ctx: Context, write: Write) -> None:
        try:
            async with write(ctx):
                if ctx.attempt == 1:
                    # a sweep passes over a worker that is claiming at that very moment
                    while do(queue, control.show(ctx.job.id)).state is JobState.RUNNING:
                        do(queue, upkeep.reclaim(now=datetime.now(UTC) + timedelta(days=1)))
        except (Superseded, asyncio.CancelledError) as error:
            refused.append((ctx.attempt, type(error)))
            raise

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job, lease=timedelta(seconds=3))
    ((attempt, why),) = refused[:1]
    assert attempt == 1
    assert effects(dsn) == [queue.job(job.id).attempts] != [1]
    # The heartbeat may find out before the transaction does, and stop a coroutine.
    said = any(message.startswith("attempt superseded") for message in caplog.messages)
    assert said or why is asyncio.CancelledError


async def test_a_connection_killed_before_the_commit_leaves_nothing(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx) as backend:
            if ctx.attempt == 1:
                ask(dsn, "select pg_terminate_backend(%s, 10000)", backend)

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job)
    assert effects(dsn) == [2]
    assert len(queue.job(job.id).errors) == 1


async def test_a_commit_that_fails_leaves_the_job_uncompleted(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    ask(dsn, "insert into effects values (1)")

    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            pass

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job)
    assert effects(dsn) == [1, 2]
    assert [error.type for error in queue.job(job.id).errors] == ["psycopg.errors.UniqueViolation"]


async def test_a_second_transaction_is_rolled_back(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    refused: list[bool] = []

    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            pass
        try:
            async with write(ctx):
                pass
        except Superseded:
            refused.append(ctx.completed)

    job = registered(queue, write, body).enqueue()
    await ended(queue, running, job)
    assert refused == [True]
    assert effects(dsn) == [1]


async def test_a_transaction_left_by_rollback_does_not_complete_the_job(
    queue: PgQueue, running: Running, write: Write, dsn: str
) -> None:
    completed: list[bool] = []

    async def body(ctx: Context, write: Write) -> None:
        async with write(ctx):
            give_up()
        completed.append(ctx.completed)

    await ended(queue, running, registered(queue, write, body).enqueue())
    assert completed == [False]
    assert effects(dsn) == []


async def test_a_transaction_cut_short_by_the_timeout_leaves_nothing(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    ask(dsn, "create table effects (attempt integer)")
    only_once = Retry(wait=wait_none())

    @queue.task(retry=only_once, timeout=0.05, max_attempts=1)
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, [ctx.attempt])
            await asyncio.Event().wait()

    await ended(queue, running, slow.enqueue(), state=JobState.DEAD)
    assert effects(dsn) == []


async def test_jobs_enqueued_inside_commit_with_the_completion(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    @queue.task(queue="next")
    async def follow(_attempt: int) -> None: ...

    @queue.task(retry=AT_ONCE)
    async def lead(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await follow.using(connection=connection).aenqueue(ctx.attempt)
            if ctx.attempt == 1:
                raise ValueError("halfway")

    job = lead.enqueue()
    async with running(queue, queues=["default"]):
        await job.aresult(timeout=20)
    assert [one.args for one in queue.insight.search(queue="next").jobs] == [{"_attempt": 2}]
