"""What a worker process of these tests runs: tasks that leave marks, wait at a gate, fail, or kill their process.

Everything a task does outside of its job is seen in the database: a row in ``marks`` for each run, and the
gate, which is an advisory lock that a test holds for as long as the tasks at it shall wait.
"""

import asyncio
import json
import logging
import os
import random
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psycopg
from tenacity import wait_none

from pgqueue import Batch, Context, Dead, Limit, PgQueue, Retry, Snooze
from pgqueue.worker.worker import Worker

TABLES: LiteralString = """
    create table marks (id integer generated always as identity, job bigint, attempt integer, worker uuid);
    create table busy (key text primary key);
"""
GATE: LiteralString = "select pg_advisory_xact_lock_shared(1)"
AT_ONCE = timedelta(0)


@dataclass
class Kept:
    """The arguments of a job of a batch."""

    line: int


class Workshop:
    """The tasks, registered on one queue; the same on a test's side and in its processes."""

    def __init__(self, queue: PgQueue) -> None:
        self.queue = queue
        self.succeed = queue.task(name="succeed")(self._mark)
        self.fail = queue.task(name="fail", max_attempts=2, retry=Retry(wait=wait_none()))(self._fail)
        self.snooze = queue.task(name="snooze")(self._snooze)
        self.give_up = queue.task(name="give_up")(self._give_up)
        self.die = queue.task(name="die", max_attempts=3)(self._die)
        self.hold = queue.task(name="hold")(self._hold)
        self.hold_and_commit = queue.task(name="hold_and_commit")(self._hold_and_commit)
        self.block = queue.task(name="block", max_attempts=3)(self._block)
        self.nap = queue.task(name="nap")(self._nap)
        self.commit_together = queue.batch_task(
            Kept, name="commit_together", size=10, wait=0.05, by=("line",)
        )(self._commit_together)
        self.confirm = queue.task(name="confirm")(self._confirm)
        self.exclusive = queue.task(name="exclusive")(self._exclusive)
        self.charge = queue.task(name="charge")(self._charge)
        self.charge_plain = queue.task(name="charge_plain")(self._charge_plain)
        self.limited = queue.task(name="limited", limit=Limit(3, by="key"))(self._logged)
        self.in_order = queue.task(name="in_order", limit=[Limit(1, by="key"), Limit(3, name="together")])(
            self._logged
        )
        self.wait = queue.task(name="wait", max_attempts=25, retry=Retry(wait=wait_none()))(self._wait)

    async def _mark(self, ctx: Context) -> None:
        async with self.queue.database.apooled() as connection:
            await connection.execute(
                "insert into marks (job, attempt, worker) values (%s, %s, %s)",
                [ctx.job.id, ctx.attempt, ctx.job.worker_id],
            )

    async def _fail(self, ctx: Context) -> None:
        await self._mark(ctx)
        raise ValueError(f"attempt {ctx.attempt}")

    async def _snooze(self, ctx: Context) -> None:
        await self._mark(ctx)
        async with self.queue.database.apooled() as connection:
            cursor = await connection.execute("select count(*) from marks where job = %s", [ctx.job.id])
            if await cursor.fetchone() == (1,):
                raise Snooze(AT_ONCE)

    async def _give_up(self, ctx: Context) -> None:
        await self._mark(ctx)
        raise Dead("as asked")

    def _die(self, ctx: Context) -> None:
        with self.queue.database.pooled() as connection:
            connection.execute("insert into marks (job, attempt) values (%s, %s)", [ctx.job.id, ctx.attempt])
        os.kill(os.getpid(), signal.SIGKILL)

    async def _hold(self, ctx: Context) -> None:
        await self._mark(ctx)
        async with self.queue.database.apooled() as connection:
            await connection.execute(GATE)

    async def _hold_and_commit(self, ctx: Context) -> None:
        await self._mark(ctx)
        async with ctx.transaction() as connection:
            await connection.execute("insert into busy values (%s)", [f"{ctx.job.id}/{ctx.attempt}"])
            await connection.execute(GATE)

    async def _commit_together(self, jobs: Batch[Kept]) -> None:
        async with self.queue.database.apooled() as connection:
            for job in jobs:
                await connection.execute(
                    "insert into marks (job, attempt) values (%s, %s)", [job.id, job.attempt]
                )
        async with jobs.transaction() as own:
            for job in jobs:
                await own.execute("insert into busy values (%s)", [f"{job.id}/{job.attempt}"])
            await own.execute(GATE)

    async def _block(self, ctx: Context, *, seconds: float) -> None:
        await self._mark(ctx)
        time.sleep(seconds)  # noqa: ASYNC251 - the mistake itself

    async def _nap(self, ctx: Context, *, seconds: float) -> None:
        await self._mark(ctx)
        await asyncio.sleep(seconds)

    def _confirm(self, ctx: Context) -> None:
        with self.queue.database.pooled() as connection:
            connection.execute("insert into marks (job, attempt) values (%s, %s)", [ctx.job.id, ctx.attempt])
            connection.execute(GATE)

    async def _logged(self, ctx: Context, *, log: str, key: str) -> None:
        """Write when the attempt started and ended to a file: what is outside of the queue decides whether it kept its limits."""
        _write(log, "start", ctx, key)
        await asyncio.sleep(random.uniform(0, 0.02))  # noqa: S311 - spreads the ends
        _write(log, "end", ctx, key)

    async def _charge(self, ctx: Context, *, dies: str) -> None:
        await ctx.astep("charge", self._mark_and_die, ctx, dies=dies == "before the record")
        _die_at_first(ctx, dies=dies == "after the record")

    def _charge_plain(self, ctx: Context, *, dies: str) -> None:
        ctx.step("charge", self._mark_and_die, ctx, dies=dies == "before the record")
        _die_at_first(ctx, dies=dies == "after the record")

    def _mark_and_die(self, ctx: Context, *, dies: bool) -> None:
        with self.queue.database.pooled() as connection:
            connection.execute("insert into marks (job, attempt) values (%s, %s)", [ctx.job.id, ctx.attempt])
        _die_at_first(ctx, dies=dies)

    async def _wait(self, ctx: Context, *, key: str) -> int:
        number: int = await ctx.await_for("go", key=key)
        await self._mark(ctx)
        return number

    async def _exclusive(self, key: str) -> None:
        async with self.queue.database.apooled() as connection:
            cursor = await connection.execute("insert into busy values (%s) on conflict do nothing", [key])
            if cursor.rowcount == 0:
                raise Dead(f"two jobs of the key {key} run at a time")
            await connection.execute("delete from busy where key = %s", [key])


def _write(log: str, what: str, ctx: Context, key: str) -> None:
    with Path(log).open("a", encoding="utf-8") as lines:
        lines.write(f"{time.monotonic()} {what} {ctx.job.task} {key} {ctx.job.id} {os.getpid()}\n")


def _die_at_first(ctx: Context, *, dies: bool) -> None:
    if dies and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def work(dsn: str, options: str) -> None:
    """Run a worker with these options until this process is told to stop."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("pgqueue.worker").setLevel(logging.INFO)
    queue = PgQueue(dsn)
    Workshop(queue)
    asyncio.run(_work(queue, **json.loads(options)))


def work_until_a_hook(dsn: str, options: str) -> None:
    """Run a worker that is killed within the first call of a hook of this event."""
    given = json.loads(options)
    queue = PgQueue(dsn)
    Workshop(queue)
    event, plain = given["event"], given["plain"]

    def die(_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def adie(_: object) -> None:
        await asyncio.sleep(0)
        die(_)

    queue.on(event)(die if plain else adie)  # type: ignore[no-untyped-call]  # of any name
    asyncio.run(_work(queue, concurrency=3, lease=1.0, grace=30.0))


async def _work(queue: PgQueue, *, concurrency: int, lease: float, grace: float) -> None:
    worker = Worker(
        queue,
        concurrency=concurrency,
        lease=timedelta(seconds=lease),
        grace=timedelta(seconds=grace),
        poll=timedelta(seconds=0.1),
        sweep=timedelta(seconds=0.1),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await queue.aclose()


def signal_and_die(dsn: str, options: str) -> None:
    """Send a signal, and be killed at once: before the commit, or after it."""
    given = json.loads(options)
    queue = PgQueue(dsn)
    with psycopg.connect(dsn) as connection:
        queue.signal(given["key"], "go", 7, connection=connection)
        if given["commits"]:
            connection.commit()
        os.kill(os.getpid(), signal.SIGKILL)


def enqueue(dsn: str, options: str) -> None:
    """Enqueue each key ``times`` times, and print how many were accepted."""
    queue = PgQueue(dsn)
    workshop = Workshop(queue)
    keys, times = json.loads(options).values()
    handles = [
        workshop.exclusive.using(unique_key=f"key {key}").enqueue(f"key {key}")
        for _ in range(times)
        for key in range(keys)
    ]
    print(sum(handle.accepted for handle in handles))  # noqa: T201 - its answer
    queue.close()
