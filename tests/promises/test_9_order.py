"""Promise 9: ready jobs of one queue and priority start in order; and what a claim reads does not grow.

A big backlog, many future jobs or a long-open snapshot elsewhere must not slow claiming. No clock decides
that here: PostgreSQL tells how it found the jobs, by which index, and how many rows it read.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from promises.asking import SET_PLANNER, do, explain, registered, run_on
from running import Running
from tenacity import wait_none
from worker.helping import all_ended, claimed, dismantle, hand_over, record_ends, register

from pgqueue import Limit, PgQueue, Retry, RetryLater, Snooze
from pgqueue.app.takes import base
from pgqueue.store.jobs import claim, finish
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Succeeded, Unknown, Verdict
from pgqueue.worker.worker import Worker

BACKLOG = 30_000
FILL = """
insert into pgqueue.jobs (queue, task, status, priority, run_at)
select 'default', 'task', %s, n %% 3, now() + %s - (n %% 1000) * interval '1 second'
from generate_series(1, %s) as n
"""
SCRAMBLE = """
insert into pgqueue.jobs (queue, task, args, priority, run_at)
select 'default', 'note', jsonb_build_object('number', n), (n * 7919) %% 3, now() - (n * 104729 %% 10) * interval '1 minute'
from generate_series(1, %s) as n
"""
IN_ORDER = "select id from pgqueue.jobs where status = 'ready' order by priority desc, run_at, id"
planned = pytest.mark.parametrize("planner", [SET_PLANNER, "select 1"], ids=["worker's", "stock"])


@contextmanager
def snapshot(dsn: str) -> Iterator[None]:
    """A transaction that sees everything as it is now, and lets vacuum clean up nothing later."""
    with psycopg.connect(dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from pgqueue.jobs")
        yield


def take(queue: PgQueue, worker: Any, count: int) -> list[Claim]:
    claims: list[Claim] = do(queue, claim.claim(worker, {"default": count}))
    return claims


def complete(queue: PgQueue, worker: Any, claims: list[Claim]) -> None:
    done = do(queue, finish.finish(worker, [Succeeded(one, 0.0) for one in claims], keep=False))
    assert done.keys() == {one.id for one in claims}


def read(nodes: list[dict[str, Any]], index: str) -> list[int]:
    """How many rows each scan of an index returned, times how often it ran; no table is read otherwise."""
    assert not [
        node
        for node in nodes
        if node["Node Type"] in {"Seq Scan", "Sort", "Bitmap Heap Scan"}
        and node.get("Relation Name", "jobs") == "jobs"
        and node["Actual Rows"] > 1_000
    ]
    return [
        node["Actual Rows"] * node["Actual Loops"]
        for node in nodes
        if node.get("Index Name") == index and node["Actual Loops"]
    ]


@pytest.mark.parametrize(
    "error", [ValueError(), RetryLater(0), Snooze(0), None], ids=["wait_none", "RetryLater", "Snooze", "fail"]
)
async def test_a_job_that_comes_back_at_once_keeps_its_place(queue: PgQueue, error: Exception | None) -> None:
    @queue.task(retry=Retry(wait=wait_none()))
    async def note() -> None:
        if error is not None:
            raise error

    jobs = [note.enqueue() for _ in range(3)]
    worker = Worker(queue, concurrency=1)
    await register(worker)
    if error is None:
        async with queue.atake(1) as (first,):
            await first.afail("again", delay=0)
    else:
        hand_over(worker, await queue.database.arun(claim.claim(worker.id, {"default": 1})))
        await all_ended(worker)
        await record_ends(worker)
    assert [one.id for one in claimed(queue, worker)] == [job.id for job in jobs]
    await dismantle(worker)


@pytest.mark.parametrize(
    "limit", [None, Limit(2), Limit(1, ordered=True)], ids=["plain", "limited", "ordered"]
)
async def test_a_blocked_take_is_told_of_a_job_that_comes_back(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, limit: Limit | None
) -> None:
    monkeypatch.setattr(base, "POLL", timedelta(hours=1))

    @queue.task(limit=limit)
    def note() -> None: ...

    note.enqueue()
    async with asyncio.timeout(20), queue.atake(1) as (held,):
        waiting = asyncio.create_task(_taken(queue))
        await until(lambda: ask(queue, "select count(*) from pgqueue.workers where idle") == [(1,)])
        await held.afail("again", delay=0)
        assert await waiting == held.id


@pytest.mark.parametrize(
    ("verdict", "tell", "is_told"),
    [
        (Returned, True, True),
        (Returned, False, False),
        (lambda held: Unknown(held, timedelta(), timedelta(days=3)), False, True),
    ],
    ids=["a worker that stops", "a worker that looks itself", "a task that it does not run"],
)
def test_idle_workers_are_told_of_a_job_that_comes_back_if_its_worker_does_not_claim_it(
    queue: PgQueue, dsn: str, verdict: Callable[[Claim], Verdict], *, tell: bool, is_told: bool
) -> None:
    """Twelve idle workers that are told of a job which its own worker claims again would each ask for nothing."""

    @queue.task
    def note() -> None: ...

    worker, _ = registered(queue), registered(queue)
    note.enqueue()
    (held,) = take(queue, worker, 1)
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute('listen "pgqueue.wake"')
        do(queue, finish.finish(worker, [verdict(held)], keep=True, tell=tell))
        ask(dsn, "notify \"pgqueue.wake\", 'over'")
        heard = next(listening.notifies(timeout=20))
    assert (heard.payload == "") is is_told


async def _taken(queue: PgQueue) -> int:
    async with queue.atake(1, lease=timedelta(hours=10)) as (job,):
        return job.id


def test_claims_come_in_order_of_priority_time_and_id(dsn: str, queue: PgQueue) -> None:
    ask(dsn, SCRAMBLE, 300)
    expected = [job_id for (job_id,) in ask(dsn, IN_ORDER)]
    worker = registered(queue)
    claimed = [one.id for count in (1, 7, 50, 400) for one in take(queue, worker, count)]
    assert claimed == expected


async def test_jobs_start_in_order(dsn: str, queue: PgQueue, running: Running) -> None:
    started: list[int] = []
    over = asyncio.Event()

    @queue.task(name="note")
    async def note(number: int) -> None:
        started.append(number)
        if len(started) == 300:
            over.set()

    ask(dsn, SCRAMBLE, 300)
    expected = [
        args["number"]
        for args, _ in ask(dsn, "select args, id from pgqueue.jobs order by priority desc, run_at, id")
    ]
    async with running(queue, concurrency=1), asyncio.timeout(30):
        await over.wait()
    assert started == expected


def test_each_of_many_workers_claims_in_order(dsn: str, queue: PgQueue) -> None:
    ask(dsn, SCRAMBLE, 300)
    expected = [job_id for (job_id,) in ask(dsn, IN_ORDER)]
    first, second = registered(queue), registered(queue)
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as other:
        mine = run_on(one, claim.claim(first, {"default": 100}))
        other.execute("set lock_timeout = '5s'")
        theirs = run_on(other, claim.claim(second, {"default": 100}))
    assert [claimed.id for claimed in (*mine, *theirs)] == expected[:200]


def test_a_locked_job_holds_up_nobody(dsn: str, queue: PgQueue) -> None:
    ask(dsn, SCRAMBLE, 10)
    expected = [job_id for (job_id,) in ask(dsn, IN_ORDER)]
    worker = registered(queue)
    with psycopg.connect(dsn) as other, psycopg.connect(dsn) as connection:
        other.execute("select from pgqueue.jobs where id = %s for update", [expected[0]])
        connection.execute("set lock_timeout = '5s'")
        claims = run_on(connection, claim.claim(worker, {"default": 3}))
    assert [one.id for one in claims] == expected[1:4]


@planned
def test_a_claim_reads_no_more_of_a_big_backlog_than_it_takes(
    planner: str, dsn: str, queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    ask(dsn, FILL, "ready", timedelta(0), BACKLOG)
    ask(dsn, "analyze pgqueue.jobs")
    worker = registered(queue)
    connection.execute(planner.encode())
    nodes = explain(connection, claim.claim(worker, {"default": 50}))
    assert read(nodes, "jobs_ready") == [50]
    assert all(rows <= 50 for rows in read(nodes, "jobs_pkey"))
    assert sum(read(explain(connection, claim.new_queues()), "jobs_ready")) <= 2


@planned
def test_future_jobs_are_not_read_by_claims_and_not_by_promotions(
    planner: str, dsn: str, queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    ask(dsn, FILL, "scheduled", timedelta(days=1), BACKLOG)
    ask(dsn, FILL, "ready", timedelta(0), 5)
    ask(dsn, "analyze pgqueue.jobs")
    worker = registered(queue)
    connection.execute(planner.encode())
    assert read(explain(connection, claim.claim(worker, {"default": 50})), "jobs_ready") == [5]
    assert sum(read(explain(connection, upkeep.poll()), "jobs_scheduled")) == 1
    assert len(take(queue, worker, 50)) == 5


def test_many_jobs_that_come_due_at_once_are_all_promoted(dsn: str, queue: PgQueue) -> None:
    ask(dsn, FILL, "scheduled", timedelta(days=1), 12_000)
    assert do(queue, upkeep.poll()).count == 0
    promoted = do(queue, upkeep.poll(now=datetime.now(UTC) + timedelta(days=2)))
    assert (promoted.count, promoted.next_in) == (12_000, None)


def test_a_long_open_snapshot_changes_neither_order_nor_rows_read(
    dsn: str, queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    ask(dsn, SCRAMBLE, 5_000)
    ask(dsn, "analyze pgqueue.jobs")
    expected = [job_id for (job_id,) in ask(dsn, IN_ORDER)]
    worker = registered(queue)
    claimed: list[int] = []
    with snapshot(dsn):
        while batch := take(queue, worker, 250):
            complete(queue, worker, batch)
            claimed += [one.id for one in batch]
            ask(dsn, "vacuum pgqueue.jobs")
        ask(dsn, SCRAMBLE, 100)
        connection.execute(SET_PLANNER.encode())
        nodes = explain(connection, claim.claim(worker, {"default": 50}))
    assert claimed == expected
    assert read(nodes, "jobs_ready") == [50]
