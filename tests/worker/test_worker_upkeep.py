"""When services have their first turn."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until
from psycopg import sql
from running import Running
from servers import free_port
from worker.helping import dismantle, ended

from pgqueue import Dead, JobState, PgQueue, Workflow, group
from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import claim
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.testing import drain
from pgqueue.worker import service
from pgqueue.worker import upkeep as when
from pgqueue.worker.connection import WorkerConnection
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

    monkeypatch.setattr(upkeep, "workers/note_unlisted_workers", watched)

    @queue.task
    def work() -> None: ...

    async with running(queue):
        await ended(queue, work.enqueue())
    assert not looked


async def test_a_worker_runs_the_jobs_of_workers_that_nobody_knows(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when, "LONG_READS_FIRST", 0.0)

    @queue.task
    def work() -> None: ...

    handle = work.enqueue()
    worker = leases.WorkerInfo(uuid4(), "test", 1, 1, "0", None)
    queue.database.run(leases.register(worker, timedelta(minutes=1)))
    queue.database.run(claim.claim(worker.id, {"default": 1}))
    ask(queue, "update pgqueue.jobs set worker_id = gen_random_uuid()")
    async with running(queue, sweep=timedelta(milliseconds=100)):
        await ended(queue, handle)
    assert [error.type for error in queue.job(handle.id).errors] == ["WorkerLost"]


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
    assert queue.flow(handle.id).state == "failed"


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
