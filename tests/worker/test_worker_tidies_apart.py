"""When tidying is held up, retries, schedules and reclaiming go on."""

from datetime import timedelta
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import JobState, PgQueue, Retry
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases

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
