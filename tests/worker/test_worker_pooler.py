"""Behind PgBouncer in transaction mode: a real one, with fewer connections to the server than clients have to it."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from looking import ask, until
from psycopg.conninfo import conninfo_to_dict
from running import Running
from servers import free_port
from store.releases import next_release
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from worker.helping import FOR_EVER, ended

from pgqueue import Context, PgQueue, Task, chain, group
from pgqueue.errors import ConfigurationError, ConnectionFailed
from pgqueue.store.schema import build_ahead
from pgqueue.worker.worker import Worker

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {folder}/log
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that PgBouncer's user can read: unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="pgqueue-pgbouncer-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def pooler(dsn: str, folder: Path) -> Iterator[str]:
    """The DSN of a PgBouncer before the fresh database."""
    where = conninfo_to_dict(dsn)
    listen = free_port()
    (folder / "ini").write_text(
        CONFIGURATION.format(
            listen=listen, folder=folder, host=where["host"], port=where.get("port", 5432), user=where["user"]
        )
    )
    binary = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    user = not_root(str(where["host"]))
    if user is not None:
        os.chown(folder, user, -1)
    process = subprocess.Popen([binary, "-q", str(folder / "ini")], cwd="/", user=user)  # noqa: S603 - our own words
    pooled = f"postgresql://{where['user']}@127.0.0.1:{listen}/{where['dbname']}"
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(20),
        ):
            with attempt:
                psycopg.connect(pooled, connect_timeout=5).close()
        yield pooled
    finally:
        process.terminate()
        process.wait(timeout=20)


def not_root(host: str) -> int | None:
    """Whom to run PgBouncer as, which refuses to be root: the owner of the server's socket folder; None: us."""
    if os.geteuid() != 0:
        return None
    owner = Path(host).stat().st_uid if host.startswith("/") else 0
    return owner or pwd.getpwnam("nobody").pw_uid


@pytest.fixture(params=["polling", "listening"])
def pooled(request: pytest.FixtureRequest, pooler: str, dsn: str) -> Iterator[PgQueue]:
    """A queue behind the pooler, that polls, or listens past it."""
    queue = PgQueue(pooler, behind_pooler=True, direct_dsn=dsn if request.param == "listening" else None)
    yield queue
    queue.close()


def square(queue: PgQueue) -> "Task[[int], int]":
    @queue.task
    async def square(number: int) -> int:
        return number * number

    return square


def test_an_upgrade_of_large_tables_is_refused_behind_a_pooler_which_gives_each_statement_another_session(
    pooler: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ahead, "LARGE", 0)
    with next_release() as after:
        with pytest.raises(
            ConfigurationError, match=r"goes through a pooler .* the DSN of PostgreSQL itself"
        ):
            after.migrate(pooler)
        after.migrate(dsn)


async def test_jobs_run_from_enqueue_to_history(pooled: PgQueue, running: Running) -> None:
    task = square(pooled)
    async with running(pooled, concurrency=5, poll=timedelta(seconds=0.1)):
        many = await pooled.aenqueue_many(task.call(number) for number in range(50))
        single = [await task.using(unique_key=str(number)).aenqueue(number) for number in range(50)]
        found = await ended(pooled, *many, *single)
    assert [job.result for job in found] == [number * number for number in range(50)] * 2


async def test_flows_run_grow_and_are_cancelled(pooled: PgQueue, running: Running) -> None:
    task = square(pooled)

    @pooled.task
    async def grow(ctx: Context) -> None:
        ctx.flow.extend(task.call(number) for number in range(5))

    flow = chain(task.call(1), group([grow.call(), *map(task.call, range(600))]), task.call(2))
    async with running(pooled, concurrency=5, poll=timedelta(seconds=0.1)):
        handle, other = await flow.aenqueue(), await flow.aenqueue()
        assert await other.acancel()
        await ended(pooled, handle.jobs[-1])
    assert [one.state for one in pooled.flows.list()] == ["cancelled", "succeeded"]


async def test_a_transaction_commits_with_its_completion(pooled: PgQueue, running: Running) -> None:
    ask(pooled, "create table effects (number integer)")

    @pooled.task
    async def awaited(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])

    @pooled.task
    def plain(ctx: Context, number: int) -> None:
        with ctx.transaction() as connection:
            connection.execute("insert into effects values (%s)", [number])

    jobs = pooled.enqueue_many(task.call(number) for number in range(20) for task in (awaited, plain))
    async with running(
        pooled, concurrency=2, poll=timedelta(seconds=0.1)
    ):  # one of PgBouncer's three is for us
        await ended(pooled, *jobs)
    together = """select count(*) from effects join pgqueue.job_history as history
                  on history.xmin = effects.xmin and (history.args->>'number')::integer = effects.number"""
    assert ask(pooled, together) == [(40,)]


async def test_jobs_are_taken(pooled: PgQueue) -> None:
    task = square(pooled)
    many = pooled.enqueue_many(task.call(number) for number in range(4))
    with pooled.take(2, timeout=20) as jobs:
        assert [job.args for job in jobs] == [{"number": 0}, {"number": 1}]
    async with pooled.atake(2, timeout=20) as more:
        assert [job.args for job in more] == [{"number": 2}, {"number": 3}]
    await ended(pooled, *many)


async def test_a_direct_dsn_lets_a_sleeping_worker_be_woken(pooler: str, dsn: str, running: Running) -> None:
    queue = PgQueue(pooler, behind_pooler=True, direct_dsn=dsn)
    task = square(queue)
    async with running(queue, poll=FOR_EVER) as worker:
        await ended(queue, await task.aenqueue(1))
        await until(lambda: worker.inspect().waits)
        (woken,) = await ended(queue, await task.aenqueue(2))
    queue.close()
    assert woken.result == 4


async def test_a_worker_that_is_not_told_of_the_pooler_refuses_to_start_and_says_what_to_do(
    pooler: str,
) -> None:
    """M5: what it had set with SET, synchronous_commit = off among it, was handed to other applications."""
    worker = Worker(PgQueue(pooler))
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionFailed, match="behind_pooler=True"):
            await worker.run()


@pytest.mark.parametrize("kind", ["blocking", "awaitable"])
async def test_a_program_that_only_enqueues_need_not_be_told_of_the_pooler(pooler: str, kind: str) -> None:
    """Its connections ask for a setting that the pooler does not know, and do without it."""
    queue = PgQueue(pooler)
    task = square(queue)
    job = task.enqueue(1) if kind == "blocking" else await task.aenqueue(1)
    assert [one.id for one in (await queue.insight.asearch()).jobs] == [job.id]
    await queue.aclose()
    queue.close()


def settings_of(dsn: str) -> set[tuple[str, str]]:
    """Every setting that a new connection has, but for those that name it."""
    with psycopg.connect(dsn, application_name="any") as other:
        return set(
            other.execute("select name, setting from pg_settings where name !~ '[.]|encoding'").fetchall()
        )


async def test_nothing_that_a_worker_sets_is_left_on_the_poolers_connections(
    pooled: PgQueue, pooler: str, dsn: str, running: Running
) -> None:
    task = square(pooled)
    async with running(pooled, concurrency=2, poll=timedelta(seconds=0.1)):
        await ended(pooled, *[await task.aenqueue(number) for number in range(20)])
    for _ in range(10):
        assert settings_of(pooler) - settings_of(dsn) == set()
