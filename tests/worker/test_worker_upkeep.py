"""When services have their first turn.

What a worker logs of other workers that start no jobs.
When tidying is held up, retries, schedules and reclaiming go on.
A job that ends while the history gets the partition of its day: it ends as it ended, and runs once.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until, wait_until
from psycopg import sql
from running import Running
from servers import free_port
from worker.helping import claimed, dismantle, ended

from pgqueue import Dead, JobState, PgQueue, Retry, Workflow, group
from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import claim, finish
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.testing import drain
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.worker import service
from pgqueue.worker import upkeep as when
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.other_workers import OtherWorkers
from pgqueue.worker.service import Service
from pgqueue.worker.worker import Worker


async def test_a_services_first_turn_comes_in_its_time_or_when_it_is_nudged() -> None:
    turns: dict[str, int] = {"at once": 0, "later": 0}

    def service(name: str, first: float) -> Service:
        async def run_once() -> None:
            turns[name] += 1

        return Service(name, 3600.0, run_once, first)

    at_once, later = service("at once", 0.0), service("later", 3600.0)
    running = [asyncio.create_task(one.run()) for one in (later, at_once)]
    await until(lambda: turns["at once"])
    assert turns == {"at once": 1, "later": 0}
    later.nudge.set()
    await until(lambda: turns["later"])
    for one in running:
        one.cancel()
    await asyncio.wait(running)


async def test_a_service_that_the_database_failed_runs_again_within_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The jobs of unknown workers were looked for again after an hour, and the log had a traceback."""
    assert service.AGAIN_AFTER * (1 + service.JITTER) < 60
    monkeypatch.setattr(service, "AGAIN_AFTER", 0.01)
    turns: list[None] = []

    async def run_once() -> None:
        turns.append(None)
        if len(turns) < 4:
            raise psycopg.OperationalError("server closed the connection\n\tThis probably means")

    running = asyncio.create_task(Service("long", 3600.0, run_once).run())
    await until(lambda: len(turns) == 4)
    running.cancel()
    await asyncio.wait([running])
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert (record.__dict__["service"], record.__dict__["error"]) == ("long", "server closed the connection")


async def test_a_service_with_a_fault_of_its_own_is_logged_with_its_traceback_and_runs_as_usual(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "AGAIN_AFTER", 0.01)
    turns: list[None] = []

    async def run_once() -> None:
        turns.append(None)
        raise ValueError

    running = asyncio.create_task(Service("wrong", 3600.0, run_once).run())
    await until(lambda: caplog.records)
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.wait([running])
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None, len(turns)) == ("ERROR", True, 1)


async def test_tidying_ends_at_the_first_step_when_no_connection_is_to_be_had(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step logged that it had failed, and the next run came after 10 minutes."""
    worker = Worker(queue)
    nowhere = WorkerConnection("tidying", Database(f"host=127.0.0.1 port={free_port()}"))
    monkeypatch.setattr(worker.parts.connections, "for_once", lambda _name: nowhere)
    (tidying,) = [one for one in worker.parts.services if one.name.startswith("tidy")]
    with pytest.raises(ConnectionFailed):
        await tidying.run_once()
    await dismantle(worker)
    assert not caplog.records
    assert nowhere.losses == 1


async def test_a_relation_with_the_name_of_a_days_partition_is_logged_once_with_what_to_do(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The day was passed over, and no one was told."""
    table = f"job_history_{datetime.now(UTC) + timedelta(days=2):%Y%m%d}"
    for statement in ("drop table pgqueue.{}", "create table pgqueue.{} (id integer)"):
        with psycopg.connect(queue.database.dsn) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(table)))
    worker = Worker(queue)
    (tidying,) = [one for one in worker.parts.services if one.name.startswith("tidy")]
    for _ in range(2):
        await tidying.run_once()
    await dismantle(worker)
    (record,) = [record for record in caplog.records if "relation" in record.__dict__]
    assert record.levelname == "WARNING"
    assert record.__dict__["relation"] == f"pgqueue.{table}"
    assert "Rename that relation, or drop it" in record.message


async def test_a_starting_worker_does_not_read_the_jobs_from_end_to_end(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet that starts beside ten million jobs would read them all, once each."""
    looked: list[None] = []

    note_unlisted_workers = upkeep.note_unlisted_workers

    def watched() -> Plan[int]:
        looked.append(None)
        return note_unlisted_workers()

    monkeypatch.setattr(upkeep, "note_unlisted_workers", watched)

    @queue.task
    def work() -> None: ...

    async with running(queue):
        await ended(queue, work.enqueue())
    assert not looked


async def test_a_worker_settles_flows_whose_jobs_are_gone_however_many(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when, "LONG_READS_FIRST", 0.0)

    @queue.task
    def work(_number: int) -> None: ...

    handle = group(map(work.call, range(1_001)), on_end=work.call(0)).enqueue()
    ask(queue, "delete from pgqueue.jobs where id <> %s returning id", handle.jobs[-1].id)
    async with running(queue):
        await ended(queue, handle.jobs[-1])
    assert queue.flows.get(handle.id).state == "failed"


async def test_a_worker_cancels_what_waits_for_the_retry_of_a_purged_job(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when, "LONG_READS_FIRST", 0.0)

    @queue.task
    def work() -> None:
        raise Dead("told to")

    flow = Workflow()
    flow.add("first", work.call())
    flow.add("second", work.call(), after={"first": "wait"})
    handle = flow.enqueue()
    drain(queue, raises=False)
    assert queue.control.dead(everything=True).purge().done == 1
    async with running(queue):
        await ended(queue, handle.jobs[1])
    assert handle.jobs[1].status() is JobState.CANCELLED


async def test_a_worker_raises_the_priority_of_jobs_that_wait_in_any_queue(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when, "SELDOM_EVERY", 0.0)
    queue.control.set("default", ageing=60)
    add = (
        "insert into pgqueue.jobs (queue, task, args, status, run_at, priority) "
        "values ('default', 'work', '{}', 'ready', now() - interval '1 hour', %s)"
    )
    ask(queue, add, 0)
    ask(queue, add, 90)
    async with running(queue, queues=["other"], poll=0.05):
        await until(lambda: ask(queue, "select id from pgqueue.jobs where priority = 60"))
    assert ask(queue, "select priority from pgqueue.jobs order by priority") == [(60,), (90,)]


STALLED = """
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)
values (gen_random_uuid(), now() + '1 h'::interval, %s, %s, 1, '0', true, now() - '26 s'::interval, 25)
"""


async def test_each_is_logged_once_and_once_that_it_is_over_and_the_worker_itself_is_not(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgqueue.worker")
    worker = Worker(queue)
    others = OtherWorkers(worker.parts.connections)
    ask(queue, STALLED, socket.gethostname(), os.getpid())
    ask(queue, STALLED, "far", 1)
    await others.run_once()
    await others.run_once()
    assert others.logged == {"far:1"}
    ask(queue, STALLED, "near", 2)
    ask(queue, "delete from pgqueue.workers where host = 'far'")
    await others.run_once()
    assert [(one.message, one.__dict__["worker"]) for one in caplog.records] == [
        ("another worker starts no jobs", "far:1"),
        ("another worker starts no jobs", "near:2"),
        ("another worker starts jobs again, or is gone", "far:1"),
    ]
    assert "it has claimed no job" in caplog.records[0].__dict__["problem"]
    await dismantle(worker)


NOTHING_AHEAD = """
do $$ declare one record; begin
    for one in select oid::regclass as name from pg_class where relname ~ '^job_history_[0-9]{8}$' and relkind = 'r'
        and relname > to_char(now() at time zone 'UTC', '"job_history_"YYYYMMDD')
    loop execute 'drop table ' || one.name; end loop;
end $$
"""
"""As at the end of a week in which no worker ran."""

HOLDS_UP: dict[str, LiteralString] = {
    "a reader of the history": "select from pgqueue.job_history limit 1",
    "a lock on the history": "lock table pgqueue.job_history_default in share update exclusive mode",
    "an advisory lock": "select pg_advisory_xact_lock(hashtext('pgqueue.job_history'))",
    "an expired key": "update pgqueue.unique_holds set held_until = now() + interval '1 hour'",
    "a dead job": "update pgqueue.dead_jobs set priority = 1",
}


@pytest.mark.parametrize("statement", HOLDS_UP.values(), ids=HOLDS_UP.keys())
async def test_while_a_transaction_holds_up_tidying_all_else_goes_on(
    queue: PgQueue, dsn: str, running: Running, statement: LiteralString
) -> None:
    failed: list[str] = []

    @queue.task(retry=Retry(wait=_a_moment))
    def again(name: str) -> None:
        if name not in failed:
            failed.append(name)
            raise ValueError("once")

    ask(queue, NOTHING_AHEAD)
    ask(queue, "insert into pgqueue.unique_holds values ('key', 1, now() - interval '1 day')")
    lost = again.enqueue("lost")
    worker = leases.WorkerInfo(uuid4(), "test", 1, 1, "0", None)
    queue.database.run(leases.register(worker, timedelta(minutes=1)))
    queue.database.run(claim.claim(worker.id, {"default": 1}))
    with psycopg.connect(dsn) as holder:
        holder.execute(statement)
        queue.database.run(leases.leave(worker.id))
        async with running(queue, poll=timedelta(seconds=0.1), sweep=timedelta(seconds=0.1)):
            later = again.using(delay=timedelta(seconds=0.3)).enqueue("later")
            jobs = await ended(queue, lost, later)

    assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 2
    assert {error.type for job in jobs for error in job.errors} == {"WorkerLost", "ValueError"}


def _a_moment(_: Any) -> float:
    return 0.1


async def test_a_step_of_tidying_that_takes_long_holds_up_no_tick(queue: PgQueue, running: Running) -> None:
    ask(
        queue,
        "create or replace function pgqueue.drop_old_history(at timestamptz) returns integer language sql as "
        "$$ select 0 from pg_sleep(60) $$",
    )

    @queue.task
    def work() -> None: ...

    async with running(queue, poll=timedelta(seconds=0.1), sweep=timedelta(seconds=0.1)):
        await until(lambda: ask(queue, "select pid from pg_stat_activity where wait_event = 'PgSleep'"))
        (job,) = await ended(queue, work.using(delay=timedelta(seconds=0.3)).enqueue())
    assert job.state is JobState.SUCCEEDED


async def test_a_step_of_tidying_that_fails_is_logged_and_the_others_are_run(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ask(queue, "insert into pgqueue.unique_holds values ('key', 1, now() - interval '1 day')")
    ask(
        queue,
        "create or replace function pgqueue.make_history_day(day date) returns text language plpgsql as "
        "$$ begin raise exception 'no space left'; end $$",
    )
    ask(queue, NOTHING_AHEAD)

    @queue.task
    def work() -> None: ...

    async with running(queue):
        await ended(queue, work.enqueue())
        await until(lambda: not ask(queue, "select unique_key from pgqueue.unique_holds"))

    (record,) = [record for record in caplog.records if record.message.startswith("tidying")]
    assert (record.__dict__["step"], "no space left" in record.__dict__["error"]) == (
        "ensure_history_days",
        True,
    )


async def test_a_worker_stores_the_retention_it_is_given_and_logs_a_change(
    dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    long, silent = PgQueue(dsn, history=timedelta(days=365), dead=timedelta.max), PgQueue(dsn)
    for queue in (long, silent, long):
        async with running(queue):
            await until(lambda: ask(silent, "select id from pgqueue.workers"))
            await until(
                lambda: ask(silent, "select history from pgqueue.retention") == [(timedelta(days=365),)]
            )
    changes = [record for record in caplog.records if record.message == "retention changed"]
    assert [record.__dict__["history"] for record in changes] == ["365 days"]
    for queue in (long, silent):
        await queue.aclose()
        queue.close()


WAITS = "select 1 from pg_locks where not granted and relation = 'pgqueue.job_history_default'::regclass"


@pytest.fixture
def partitioning(queue: PgQueue, dsn: str) -> Iterator[psycopg.Connection]:
    """A transaction that has made today's partition, as a worker does that starts after all made ones have passed."""
    today = datetime.now(UTC).date()
    ask(queue, f"drop table pgqueue.job_history_{today:%Y%m%d}")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select pgqueue.make_history_day(%s)", [today]).fetchall() == [("made",)]
        yield connection


async def test_a_worker_records_a_success_and_not_the_refusal_of_its_row(
    queue: PgQueue, partitioning: psycopg.Connection
) -> None:
    """It was recorded as a failure with a CheckViolation: the job ran again."""

    @queue.task
    def note() -> None: ...

    worker = Worker(queue)
    await worker.parts.heartbeat.start()
    job = note.enqueue()
    (claim,) = claimed(queue, worker)
    link = WorkerConnection("test", queue.database)
    recording = asyncio.create_task(link.run(finish.finish(worker.id, [Succeeded(claim, 0.1)], keep=True)))
    await until(lambda: ask(queue, WAITS))
    partitioning.commit()
    assert await recording == {job.id: "succeeded"}
    await link.close()
    await dismantle(worker)


def test_a_take_records_a_success_and_not_the_refusal_of_its_row(
    queue: PgQueue, partitioning: psycopg.Connection
) -> None:
    job = queue.task(name="note")(lambda: None).enqueue()

    def take() -> None:
        with queue.take(1):
            pass

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take)
        wait_until(lambda: ask(queue, WAITS))
        partitioning.commit()
        taking.result()
    assert job.status() == "succeeded"
