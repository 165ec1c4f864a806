"""Losing connections, the server, an answer or the lease: nothing is lost, and nothing is done twice in effect."""

import asyncio
import gc
import socket
import warnings
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from running import Running
from tenacity import wait_none
from worker.helping import (
    FOR_EVER,
    beat,
    claimed,
    claims_of,
    compare_held,
    dismantle,
    ended,
    fetch,
    hand_over,
    register,
)

from pgqueue import Context, JobHandle, JobState, PgQueue, Retry
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.store.connections.database import Database
from pgqueue.store.schema import schema
from pgqueue.store.workers import upkeep, workers
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.worker import Worker

SHORT = timedelta(seconds=0.6)
EFFECTS = "create table effects (number integer)"
KILL = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name = 'pgqueue' and pid <> pg_backend_pid() and query ~ %s
"""


def enqueue_effects(queue: PgQueue, count: int) -> list[JobHandle[Any]]:
    """Jobs that each write their number into ``effects``, in the transaction of their completion."""

    @queue.task(retry=Retry(wait=wait_none()))
    async def effect(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])

    return queue.enqueue_many(effect.call(number) for number in range(count))


def kill(own: psycopg.Connection[Any], query: str) -> int:
    """Terminate the backends of pgqueue whose last query looks like this."""
    return len(own.execute(KILL.encode(), [query]).fetchall())


def left_over(own: psycopg.Connection[Any]) -> int:
    """How many jobs have not ended."""
    (count,) = own.execute("select count(*) from pgqueue.jobs").fetchone() or (0,)
    return int(count)


async def test_a_host_that_answers_nothing_leaves_time_for_the_one_that_took_its_place(dsn: str) -> None:
    """A heartbeat gave up after 7.5 s, and libpq the first host after 10: no worker came to a new primary that way."""
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as dead:  # it takes connections and never answers, as a lost machine
        there = conninfo_to_dict(dsn)
        both = make_conninfo(
            "",
            **{
                **there,
                "host": f"127.0.0.1,{there['host']}",
                "port": f"{dead.getsockname()[1]},{there['port']}",
            },
        )
        connection = WorkerConnection("heartbeat", Database(both), bound=1.0)
        found = await connection.once(workers.listed())
        await connection.close()
    assert found == []


@pytest.mark.parametrize(
    "link",
    [
        "^with claimant as|^with recursive line|and cancel_requested|workers set",
        "^with done as",
        "^with clock as|delete from pgqueue|ensure_history_days|insert into pgqueue.lost_workers",
        "^listen",
        ".",
    ],
    ids=["claims", "finishes", "upkeep", "listener", "all"],
)
async def test_a_link_that_is_cut_again_and_again_loses_and_doubles_nothing(
    dsn: str, queue: PgQueue, running: Running, link: str
) -> None:
    runs: list[int] = []

    @queue.task(retry=Retry(wait=wait_none()))
    async def note(number: int) -> None:
        runs.append(number)

    with psycopg.connect(dsn, autocommit=True) as own:
        async with running(queue, concurrency=5, lease=SHORT, poll=timedelta(seconds=0.05)):
            cuts = 0
            for start in range(0, 300, 30):
                queue.enqueue_many([note.call(number) for number in range(start, start + 30)], connection=own)
                cuts += kill(own, link)
                await until(lambda: left_over(own) == 0)
    assert cuts
    assert sorted(set(runs)) == list(range(300))
    ended_as = "select outcome, count(*), count(distinct id) from pgqueue.job_history group by outcome"
    assert ask(queue, ended_as) == [("succeeded", 300, 300)]
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]


async def test_a_restart_of_the_server_loses_and_doubles_nothing(running: Running) -> None:
    with throwaway_server(embedded_binaries()) as server:
        dsn = server.dsn
        schema.migrate(dsn)
        queue = PgQueue(dsn)
        ask(queue, EFFECTS)
        enqueue_effects(queue, 300)
        queue.close()
        async with running(queue, concurrency=5, lease=SHORT, poll=timedelta(seconds=0.05)):
            with psycopg.connect(dsn, autocommit=True) as own:
                await until(lambda: own.execute("select from effects").fetchone() is not None)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            with psycopg.connect(dsn, autocommit=True) as own:
                await until(lambda: left_over(own) == 0, guard=60)
                effects = own.execute("select count(*), count(distinct number) from effects").fetchone()
    assert effects == (300, 300)


async def test_a_comparison_leaves_alone_what_runs_waits_or_is_being_recorded(queue: PgQueue) -> None:
    release = asyncio.Event()

    @queue.task
    async def note(*, wait: bool) -> None:
        if wait:
            await release.wait()

    jobs = [note.enqueue(wait=False), note.enqueue(wait=True), note.enqueue(wait=True)]
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await until(lambda: worker.inspect().backlog == 1 and worker.inspect().running)
    await compare_held(worker)
    assert worker.inspect().backlog == 1
    assert claims_of(queue, worker) == [job.id for job in jobs]
    release.set()
    await dismantle(worker)


async def lose_lease(queue: PgQueue, worker: Worker) -> None:
    """Have the worker taken off the list, and its jobs reclaimed, and let it hear of that."""
    ask(queue, "delete from pgqueue.workers where id = %s", worker.id)
    queue.database.run(upkeep.reclaim())
    await beat(worker)


async def test_a_worker_that_lost_its_lease_lets_go_and_joins_afresh(
    queue: PgQueue, running: Running
) -> None:
    started, told = asyncio.Event(), []

    @queue.task
    async def linger(ctx: Context) -> int:
        if ctx.attempt > 1:
            return ctx.attempt
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(ctx.cancelled)
        return ctx.attempt

    job = linger.enqueue()
    async with running(queue, concurrency=1) as worker:
        await asyncio.wait_for(started.wait(), 20)
        before = worker.id
        await lose_lease(queue, worker)
        assert worker.id != before
        (found,) = await ended(queue, job)
        await until(lambda: (worker.id,) in ask(queue, "select id from pgqueue.workers"))
    assert told == [True]
    assert (found.result, [error.type for error in found.errors]) == (2, ["WorkerLost"])


async def test_a_worker_that_lost_its_lease_claims_nothing_before_it_has_joined_afresh(
    queue: PgQueue,
) -> None:
    ask(queue, "create table strangers (id uuid)")
    ask(
        queue,
        """create function note_strangers() returns trigger language plpgsql as $$ begin
               insert into public.strangers select new.worker_id
               where new.status = 'running' and not exists (select from pgqueue.workers where id = new.worker_id);
               return new;
           end $$""",
    )
    ask(
        queue,
        "create trigger strangers before update on pgqueue.jobs for each row execute function note_strangers()",
    )

    @queue.task
    async def note() -> None: ...

    note.enqueue()
    worker = Worker(queue, poll=timedelta(seconds=0.01))
    await register(worker)
    ask(queue, "delete from pgqueue.workers")
    await asyncio.gather(beat(worker), fetch(worker))
    await dismantle(worker)
    assert ask(queue, "select id from strangers") == []


async def test_a_row_that_somebody_has_locked_holds_up_no_other_completion(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any]
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @queue.task
    async def note() -> None:
        started.set()
        await release.wait()

    locked = note.enqueue()
    others = [note.enqueue() for _ in range(3)]
    async with running(queue):
        await asyncio.wait_for(started.wait(), 20)
        connection.execute("select from pgqueue.jobs where id = %s for update", [locked.id])
        release.set()
        await ended(queue, *others)
        assert locked.status() is JobState.RUNNING
        connection.rollback()
        await ended(queue, locked)
    assert queue.job(locked.id).attempts == 1


async def test_a_link_interrupted_while_it_is_made_ready_is_closed(queue: PgQueue) -> None:
    link = WorkerConnection("test", queue.database)
    connecting = asyncio.create_task(link.run(upkeep.poll()))
    for _ in range(10):  # as far as the first answer of the server
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    await link.close()
    assert connecting.cancelled()
    del connecting
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gc.collect()  # a connection left open warns here
    assert told == []


def _drop(dsn: str) -> None:
    """The worker's transactions lock tables in another order, so an operator may have to try again."""
    while True:
        try:
            ask(dsn, "drop schema pgqueue cascade")
        except psycopg.errors.DeadlockDetected:
            continue
        return


async def test_a_worker_goes_on_when_its_tables_were_dropped_and_made_again(
    queue: PgQueue, dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task
    async def rest() -> None: ...

    async with running(queue, lease=2.0) as worker:
        await ended(queue, await rest.aenqueue())
        before = worker.id
        await asyncio.to_thread(_drop, dsn)
        await until(lambda: any("migrate" in str(vars(one).get("error")) for one in caplog.records))
        await asyncio.to_thread(schema.migrate, dsn)
        (job,) = await ended(queue, await rest.aenqueue())
    assert job.state == "succeeded"
    assert worker.id != before
