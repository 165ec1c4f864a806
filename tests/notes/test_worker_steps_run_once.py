"""A step whose result is recorded never runs again; one whose worker is killed before the record runs once more.

Workers are processes that kill themselves with SIGKILL, at the seam before the record and at the one after it.
"""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, wait_until
from promises.processes import do, live_jobs, processes
from promises.workshop import Workshop
from running import Running
from tenacity import wait_none
from worker.helping import ended

from pgqueue import Context, JobState, PgQueue, Retry, Superseded
from pgqueue.errors import JobError
from pgqueue.store.jobs import control
from pgqueue.store.workers import upkeep

AT_ONCE = Retry(wait=wait_none())
SHORT = timedelta(seconds=3)


@pytest.fixture(autouse=True)
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts deletes what ended jobs noted; these tests look at it."""
    monkeypatch.setattr("pgqueue.worker.upkeep.TIDYING", ())


@pytest.mark.parametrize("task", ["charge", "charge_plain"])
@pytest.mark.parametrize(
    ("dies", "runs"), [("before the record", [1, 2]), ("after the record", [1]), ("never", [1])]
)
def test_a_worker_that_is_killed_runs_a_step_again_only_if_it_was_not_recorded(
    queue: PgQueue, dsn: str, task: str, dies: str, runs: list[int]
) -> None:
    getattr(Workshop(queue), task).enqueue(dies=dies)
    with processes(dsn) as start:
        first = start(concurrency=1, lease=30.0 if dies == "never" else 1.0)
        if dies != "never":
            assert first.ended() == -9, first.log()
            start(concurrency=1, lease=30.0)  # a slow machine must not lose this one, too
        wait_until(lambda: not live_jobs(dsn))
        assert ask(dsn, "select attempt from marks order by id") == [(attempt,) for attempt in runs]


def give_up() -> None:
    """Leave psycopg's transaction as its documentation says, for code behind the block to go on."""
    raise psycopg.Rollback


def superseding(queue: PgQueue, ctx: Context) -> None:
    """Have a sweep pass over the worker of an attempt."""
    while do(queue, control.show(ctx.job.id)).state is JobState.RUNNING:  # type: ignore[union-attr]  # it is there
        do(queue, upkeep.reclaim(now=datetime.now(UTC) + timedelta(days=1)))


@pytest.mark.parametrize(
    "use", [("plain", "step"), ("plain", "checkpoint"), ("async", "step"), ("async", "checkpoint")]
)
async def test_a_superseded_attempt_records_nothing_and_is_told_so(
    queue: PgQueue, running: Running, dsn: str, caplog: pytest.LogCaptureFixture, use: tuple[str, str]
) -> None:
    kind, what = use
    refused: list[int] = []

    async def aattempt(ctx: Context) -> None:
        if ctx.attempt == 1:
            superseding(queue, ctx)
        try:
            await (
                ctx.astep("number", lambda: ctx.attempt) if what == "step" else ctx.acheckpoint(ctx.attempt)
            )
        except Superseded:
            refused.append(ctx.attempt)
            raise

    def attempt(ctx: Context) -> None:
        if ctx.attempt == 1:
            superseding(queue, ctx)
        try:
            ctx.step("number", lambda: ctx.attempt) if what == "step" else ctx.checkpoint(ctx.attempt)
        except Superseded:
            refused.append(ctx.attempt)
            raise

    job = queue.task(name="late", retry=AT_ONCE)(aattempt if kind == "async" else attempt).enqueue()
    async with running(queue, concurrency=1, lease=SHORT):
        (record,) = await ended(queue, job)
    assert refused[:1] == [1]
    assert record.state is JobState.SUCCEEDED
    assert ask(dsn, "select value::text from pgqueue.notes where kind <> 'start'") == [
        (str(record.attempts),)
    ]
    assert "attempt superseded: nothing more is recorded of it" in caplog.messages


async def test_an_attempt_that_timed_out_records_nothing_while_its_worker_runs_the_next(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    """Both attempts are of one worker: the number of the claim tells them apart."""
    refused: list[int] = []
    second, looked = threading.Event(), threading.Event()

    @queue.task(timeout=1, retry=AT_ONCE)
    def slow(ctx: Context) -> None:
        if ctx.attempt > 1:
            second.set()
            looked.wait(60)
            return
        second.wait(60)
        try:
            ctx.checkpoint("late")
        except Superseded:
            refused.append(ctx.attempt)
        looked.set()

    job = slow.enqueue()
    async with running(queue, concurrency=2):
        await ended(queue, job)
    assert refused == [1]
    assert ask(dsn, "select 1 from pgqueue.notes") == []


async def test_no_attempt_is_superseded_between_the_look_at_the_fence_and_the_record(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    """A step that is being recorded has locked its job: who would take the job over waits for the record."""
    began, swept = threading.Event(), threading.Event()

    @queue.task
    def slow(ctx: Context) -> None:
        ctx.step("first", lambda: 1)
        began.set()
        swept.wait(60)

    job = slow.enqueue()
    async with running(queue, concurrency=1):
        await asyncio.to_thread(began.wait, 60)
        with psycopg.connect(dsn) as recording, psycopg.connect(dsn, autocommit=True) as other:
            (claim,) = recording.execute(
                "select row(id, worker_id, fence)::text, id, worker_id, fence from pgqueue.jobs"
            ).fetchall()
            params = {"id": claim[1], "worker": claim[2], "fence": claim[3], "kind": "step", "name": "second"}
            text = queue.database.catalogue["notes/keep"]
            recording.execute(text, {**params, "value": "2", "now": None})
            other.execute("set lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("update pgqueue.jobs set status = 'ready', worker_id = null")
        swept.set()
        await ended(queue, job)


async def test_a_step_within_the_jobs_transaction_is_recorded_with_it_or_not_at_all(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    calls: list[int] = []

    @queue.task(retry=AT_ONCE)
    async def bill(ctx: Context) -> None:
        async with ctx.transaction():
            await ctx.astep("write", calls.append, ctx.attempt)
            if ctx.attempt == 1:
                raise ValueError("halfway")

    job = bill.enqueue()
    async with running(queue):
        await ended(queue, job)
    assert calls == [1, 2]
    (together,) = ask(
        dsn, "select note.xmin = history.xmin from pgqueue.notes as note, pgqueue.job_history as history"
    )
    assert together == (True,)


async def test_a_checkpoint_that_was_rolled_back_is_not_the_last_one(
    queue: PgQueue, running: Running
) -> None:
    found: list[Any] = []

    @queue.task
    def walk(ctx: Context) -> None:
        ctx.checkpoint(1)
        found.append(ctx.last_checkpoint())
        with ctx.transaction():
            ctx.checkpoint(2)
            found.append(ctx.last_checkpoint())
            give_up()
        found.append(ctx.last_checkpoint())

    job = walk.enqueue()
    async with running(queue):
        await ended(queue, job)
    assert found == [1, 2, 1]


async def test_a_job_that_its_transaction_has_completed_records_nothing_more(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    refused: list[str] = []

    @queue.task
    def bill(ctx: Context) -> None:
        with ctx.transaction():
            pass
        for use in (lambda: ctx.step("late", lambda: 1), lambda: ctx.checkpoint(1), ctx.last_checkpoint):
            with pytest.raises(JobError) as raised:
                use()
            refused.append(str(raised.value))

    job = bill.enqueue()
    async with running(queue):
        await ended(queue, job)
    assert len(refused) == 3
    assert all("has completed it" in words for words in refused)
    assert ask(dsn, "select 1 from pgqueue.notes") == []
