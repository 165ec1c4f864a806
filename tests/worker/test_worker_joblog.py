"""What a worker says in its log: whom it serves, one line per attempt, and what it waits for when it stops."""

import asyncio
import logging
from collections import Counter
from typing import Any

import psycopg
import pytest
from looking import until
from psycopg.conninfo import make_conninfo
from running import Running
from worker.helping import ended

from pgqueue import Context, Dead, JobState, PgQueue, Snooze
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.worker import joblog
from pgqueue.worker.worker import Worker


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pgqueue")


def of_jobs(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The records that are about a job, as dicts."""
    return [{"words": one.getMessage(), **vars(one)} for one in caplog.records if hasattr(one, "job")]


def only(caplog: pytest.LogCaptureFixture, beginning: str) -> dict[str, Any]:
    """The only record whose message begins so."""
    (found,) = [one for one in caplog.records if one.getMessage().startswith(beginning)]
    return {"words": found.getMessage(), **vars(found)}


async def test_each_attempt_is_one_line_with_its_outcome_and_duration(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="plain", queue="mail")
    def plain() -> None: ...

    @queue.task(name="within")
    async def within(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    @queue.task(name="doomed")
    async def doomed() -> None:
        raise Dead("no such order")

    @queue.task(name="later")
    async def later() -> None:
        raise Snooze(3600)

    jobs = [plain.enqueue(), within.enqueue(), doomed.enqueue(), later.enqueue()]
    async with running(queue):
        await ended(queue, *jobs[:3])
        await until(lambda: jobs[3].status() is JobState.SCHEDULED)
    told = {one["job"]: one for one in of_jobs(caplog)}
    assert Counter(one["job"] for one in of_jobs(caplog)) == Counter(job.id for job in jobs)
    assert [told[job.id]["words"] for job in jobs] == [
        "job succeeded",
        "job succeeded",
        "job is dead: the task raised Dead (reason: asked)",
        "job returned to its queue",
    ]
    assert (told[jobs[0].id]["task"], told[jobs[0].id]["queue"], told[jobs[0].id]["attempt"]) == (
        "plain",
        "mail",
        1,
    )
    assert all(0 <= told[job.id]["seconds"] < 60 for job in jobs[:3])
    assert told[jobs[3].id]["runs_in"] == "1:00:00"


async def test_a_verdict_that_waits_for_a_locked_row_is_told_once_and_when_it_is_recorded(
    queue: PgQueue, running: Running, connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @queue.task
    async def note() -> None:
        started.set()
        await release.wait()

    locked, other = note.enqueue(), note.enqueue()
    async with running(queue):
        await asyncio.wait_for(started.wait(), 20)
        connection.execute("select from pgqueue.jobs where id = %s for update", [locked.id])
        release.set()
        await ended(queue, other)
        await until(lambda: of_jobs(caplog) != [])  # the database says it first, then the worker
        assert [one["job"] for one in of_jobs(caplog)] == [other.id]
        connection.rollback()
        await ended(queue, locked)
    assert [one["job"] for one in of_jobs(caplog)] == [other.id, locked.id]


async def test_a_worker_says_at_its_start_which_database_queues_and_tasks_it_serves_and_no_secret(
    dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    queue = PgQueue(make_conninfo(dsn, password="sekret"))  # noqa: S106 - a server that asks for none
    queue.task(name="b")(lambda: None)
    queue.task(name="a")(lambda: None)
    async with running(queue, queues=["mail", "default"]):
        await until(lambda: any(one.getMessage() == "worker started" for one in caplog.records))
    told = only(caplog, "worker started")
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    assert told["database"].startswith(f"{database} on ")
    assert (told["queues"], told["tasks"]) == ("mail, default", "a, b")
    assert "sekret" not in str(told)


async def test_a_worker_without_tasks_warns_that_no_job_can_run(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(queue):
        await until(
            lambda: any(one.getMessage().startswith("no task is registered") for one in caplog.records)
        )
    (told,) = (one for one in caplog.records if one.getMessage().startswith("no task is registered"))
    assert told.levelno == logging.WARNING


async def test_a_stopping_worker_says_what_it_waits_for_and_the_second_stop_what_it_does(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    started = asyncio.Event()

    @queue.task
    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    hold.enqueue()
    worker = Worker(queue, grace=90)
    run = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 20)
    worker.stop()
    await until(lambda: any(one.getMessage().startswith("worker stopping") for one in caplog.records))
    told = only(caplog, "worker stopping")
    assert told["words"] == (
        "worker stopping: waiting up to 90 s for 1 job; Ctrl-C again returns it to the queue now"
    )
    worker.stop()
    worker.stop()
    await asyncio.wait_for(run, 20)
    assert only(caplog, "worker stopping now")["words"] == "worker stopping now: 1 job returned to the queue"
    assert only(caplog, "job returned")["words"] == "job returned to its queue"
    assert only(caplog, "worker stopped")["levelname"] == "INFO"


def test_what_was_not_recorded_is_told_in_plain_words(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(PgQueue("postgresql://nowhere"))
    joblog.log_stop(worker.id, 2)
    told = only(caplog, "worker stopped")
    assert (
        told["words"]
        == "worker stopped before the database recorded how 2 jobs ended; other workers run them again"
    )
    assert told["levelname"] == "ERROR"


def test_a_batch_costs_one_look_where_the_logger_is_off(caplog: pytest.LogCaptureFixture) -> None:
    class Untouched(list[Succeeded]):
        def __iter__(self) -> Any:
            raise AssertionError("no handler takes this, so nothing may be read")

    caplog.set_level(logging.WARNING, "pgqueue.jobs")
    joblog.JobLog().ended(Untouched())
    assert caplog.records == []
