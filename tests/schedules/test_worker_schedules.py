"""A worker stores what its app declares, fires what is due, and stays when a schedule makes no sense."""

from datetime import datetime, timedelta
from typing import LiteralString

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Alert, Backlog, Context, PgQueue

SECOND = timedelta(seconds=1)
DECLARED: LiteralString = "select 1 from pgqueue.schedules cross join pgqueue.alerts"


async def test_a_declared_schedule_is_stored_and_fired_by_the_worker(
    queue: PgQueue, running: Running
) -> None:
    seen: list[datetime | None] = []

    @queue.schedule(every=SECOND)
    @queue.task(name="look")
    def look(ctx: Context) -> None:
        seen.append(ctx.scheduled_for)

    async with running(queue):
        await until(lambda: len(seen) >= 2)
    assert [run.at for run in queue.schedules.runs("look")][::-1][:2] == seen[:2]
    assert queue.schedules.get("look").module == __name__


async def test_a_schedule_of_a_task_of_another_app_is_fired_all_the_same(
    queue: PgQueue, running: Running
) -> None:
    ask(queue, "select pgqueue.schedule('theirs', 'theirs.task', every => '1 second', queue => 'theirs')")
    async with running(queue, queues=["default"]):
        await until(lambda: len(queue.insight.search(queue="theirs").jobs) >= 1)
    assert queue.insight.search(queue="theirs").jobs[0].task == "theirs.task"


async def test_a_schedule_that_makes_no_sense_is_logged_and_the_others_fire(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ask(queue, "select pgqueue.schedule('good', 'good', every => '1 second', queue => 'theirs')")
    ask(queue, "select pgqueue.schedule('bad', 'bad', cron => '99 99 * * *')")
    async with running(queue, queues=["default"]):
        await until(lambda: len(queue.insight.search(queue="theirs").jobs) >= 1)
    assert queue.schedules.get("bad").state == "set aside"
    (record,) = [one for one in caplog.records if "set aside" in one.message]
    assert vars(record)["schedule"] == "bad"


@pytest.mark.parametrize(
    "lock",
    [
        "select pg_advisory_xact_lock(hashtext('pgqueue.schedules'))",
        "lock table pgqueue.alerts in share row exclusive mode",
    ],
)
async def test_a_worker_runs_jobs_while_another_transaction_keeps_what_it_declares_from_being_stored(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch, lock: LiteralString
) -> None:
    """It is stored when that transaction has ended. Before, the worker looked alive and ran nothing until then."""
    monkeypatch.setattr("pgqueue.worker.worker.DECLARED_WITHIN", 0.1)

    @queue.schedule("@daily")
    @queue.task(name="nothing")
    def nothing() -> None: ...

    @queue.alert("busy", Backlog(queue="mail", over=0))
    @queue.task(name="page")
    def page(alert: Alert) -> None: ...

    with psycopg.connect(dsn) as other:
        other.execute(lock)
        async with running(queue):
            await ended(queue, await nothing.aenqueue())
            assert ask(queue, DECLARED) == []
            other.rollback()
            await until(lambda: ask(queue, DECLARED))


async def test_a_worker_that_is_stopped_while_it_waits_to_store_what_it_declares_ends(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.worker.worker.DECLARED_WITHIN", 0.1)
    with psycopg.connect(dsn) as other:
        other.execute("select pg_advisory_xact_lock(hashtext('pgqueue.schedules'))")
        async with running(queue):
            pass
        assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]


async def test_a_worker_whose_schedules_cannot_be_stored_runs_jobs_all_the_same(
    queue: PgQueue, running: Running, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.schedule("@daily")
    @queue.task(name="nothing")
    def nothing() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter table pgqueue.schedules add constraint refused check (task <> 'nothing')")
    async with running(queue):
        handle = nothing.enqueue()
        await until(lambda: handle.status().ended)
    assert "could not be stored" in caplog.text
    caplog.clear()
