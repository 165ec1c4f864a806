"""Steps and progress in a worker: how many statements they take, what waits for them, and what they cost others."""

import asyncio
import json
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from looking import ask, until
from running import Running
from tenacity import wait_none
from worker.helping import claimed, dismantle, ended
from worker.proxy import Proxy

from pgqueue import Context, PgQueue, Progress, Retry
from pgqueue.app.notes import TRIES, Board
from pgqueue.store.jobs import notes
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import ProgressReport, StoredReport
from pgqueue.worker.worker import Worker

AT_ONCE = Retry(wait=wait_none())


@pytest.fixture(autouse=True)
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts deletes what ended jobs noted; these tests look at it."""
    monkeypatch.setattr("pgqueue.worker.upkeep.TIDYING", ())


def counting(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the plans that tasks run from now on."""
    names: list[str] = []
    real = queue.database.run

    def run(plan: Any, connection: object = None) -> Any:
        names.append(plan.name)
        return real(plan, connection)

    monkeypatch.setattr(queue.database, "run", run)
    return names


async def test_ten_thousand_steps_are_read_in_one_statement(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    @queue.task(retry=AT_ONCE)
    def many(ctx: Context) -> int:
        found = [ctx.step(f"page {page}", calls.append, page) for page in range(10_000)]
        return len(found)

    job = many.enqueue()
    ask(
        dsn,
        "insert into pgqueue.notes (job_id, kind, name, value) "
        "select %s, 'step', 'page ' || page, 'null' from generate_series(0, 9998) as page",
        job.id,
    )
    names = counting(queue, monkeypatch)
    async with running(queue):
        assert await job.aresult(timeout=60) == 10_000
    assert calls == [9_999]
    assert [name for name in names if name.startswith("notes.")] == ["notes.recall", "notes.keep"]


async def test_long_results_are_read_only_when_their_step_asks(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "".join(map(str, range(100_000)))

    @queue.task(retry=AT_ONCE)
    def read(ctx: Context) -> str:
        text = ctx.step("long", lambda: long)
        short = ctx.step("short", lambda: "short")
        if ctx.attempt == 1:
            ctx.step("long, and not asked for again", lambda: long)
            raise ValueError
        return text[-5:] + short

    names = counting(queue, monkeypatch)
    job = read.enqueue()
    async with running(queue):
        assert await job.aresult(timeout=60) == "99999short"
    assert names.count("notes.recall") == 2
    assert names.count("notes.recall_long") == 1


async def test_jobs_that_note_nothing_ask_nothing(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.task
    def plain(ctx: Context) -> int:
        return ctx.attempt

    names = counting(queue, monkeypatch)
    job = plain.enqueue()
    async with running(queue) as worker:
        assert await job.aresult(timeout=60) == 1
        assert worker.parts.connections.progress.losses == 0
        assert ask(queue, "select 1 from pgqueue.notes") == []
    assert [name for name in names if name.startswith("notes.")] == []


async def test_steps_that_run_at_the_same_time_read_the_notes_once(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    real = queue.database.arun

    async def arun(plan: Any, connection: object = None) -> Any:
        names.append(plan.name)
        return await real(plan, connection)

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    @queue.task
    async def side_by_side(ctx: Context) -> list[int]:
        return await asyncio.gather(*(ctx.astep(f"number {number}", double, number) for number in range(10)))

    job = side_by_side.enqueue()
    monkeypatch.setattr(queue.database, "arun", arun)
    async with running(queue):
        assert await job.aresult(timeout=60) == [2 * number for number in range(10)]
    assert names.count("notes.recall") == 1


async def test_the_progress_of_a_thousand_jobs_is_one_statement(queue: PgQueue, dsn: str) -> None:
    @queue.task(name="count")
    async def count() -> None: ...

    handles = queue.enqueue_many(count.call() for _ in range(1_000))
    worker = Worker(queue)
    await worker.parts.heartbeat.start()
    board = worker.parts.executor.board  # what a running attempt reports to
    claims = claimed(queue, worker)
    for done in range(3):
        for one in claims:
            board.put(one, ProgressReport(done, 3))
    await worker.parts.upkeep.write_progress()
    assert ask(dsn, "select count(*), count(distinct xmin::text) from pgqueue.notes") == [(1_000, 1)]
    assert {handle.progress().done for handle in handles} == {2}  # type: ignore[union-attr]  # all have one
    await worker.parts.upkeep.write_progress()
    assert ask(dsn, "select count(distinct xmin::text) from pgqueue.notes") == [(1,)], (
        "nothing new, no statement"
    )
    await dismantle(worker)


async def test_a_running_worker_writes_progress_about_once_a_second_however_often_it_is_reported(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    seen = threading.Event()

    @queue.task
    def count(ctx: Context) -> int:
        number = 0
        while not seen.wait(0.001):
            number += 1
            ctx.progress(number, message="it counts")
        return number

    job = count.enqueue()
    ask(dsn, "create table writes (at timestamptz)")
    ask(
        dsn,
        """create function note_write() returns trigger language plpgsql as $$
           begin insert into public.writes values (clock_timestamp()); return null; end $$""",
    )
    ask(dsn, "create trigger note_write after insert on pgqueue.notes execute function note_write()")
    async with running(queue):
        await until(lambda: len(ask(dsn, "select 1 from writes")) >= 3)
        progress = await job.aprogress()
        seen.set()
        assert await job.aresult(timeout=60) > 0
    assert progress is not None
    assert progress.message == "it counts"
    ((writes, seconds),) = ask(
        dsn, "select count(*), extract(epoch from max(at) - min(at))::float8 from writes"
    )
    assert writes <= 2 + seconds / 0.9


async def test_a_superseded_attempts_report_is_not_written(queue: PgQueue) -> None:
    @queue.task(name="count")
    async def count() -> None: ...

    count.enqueue()
    worker = Worker(queue)
    await worker.parts.heartbeat.start()
    (one,) = claimed(queue, worker)
    for late in (
        Claim(**{**_fields(one), "fence": one.fence + 1}),
        Claim(**{**_fields(one), "worker_id": Worker(queue).id}),
    ):
        queue.database.run(notes.report([_reported(late)]))
    assert queue.progress(one.id) is None
    queue.database.run(notes.report([_reported(one)]))
    assert queue.progress(one.id) is not None
    await dismantle(worker)


def _fields(one: Claim) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _reported(one: Claim) -> StoredReport:
    return StoredReport(one, '{"done": 1, "total": null, "message": null}')


async def test_progress_waits_for_nothing_while_the_database_is_away(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    reported, go_on = threading.Event(), threading.Event()
    async with Proxy(dsn).running() as proxy:
        behind = PgQueue(proxy.dsn)

        @behind.task(name="count")
        def count(ctx: Context) -> str:
            go_on.wait(60)
            for number in range(1_000):
                ctx.progress(number, message="as if nothing had happened")
            reported.set()
            while queue.progress(ctx.job.id) is None and not ctx.cancelled:
                time.sleep(0.01)
            return "done"

        job = queue.task(name="count")(lambda: None).enqueue()
        async with running(behind, lease=timedelta(seconds=3), concurrency=1):
            await until(lambda: queue.job(job.id).started_at)
            proxy.silence_those_open()
            go_on.set()
            assert await asyncio.to_thread(reported.wait, 60)
            await until(lambda: queue.progress(job.id) is not None)
            await ended(queue, job)
        behind.close()
    progress = queue.progress(job.id)
    assert progress is not None
    assert progress.message == "as if nothing had happened"


async def test_no_other_service_waits_while_the_notes_are_locked(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    done = threading.Event()

    @queue.task
    def count(ctx: Context) -> None:
        while not done.wait(0.01):
            ctx.progress(1)

    @queue.task
    def short() -> str:
        return "ran"

    count.enqueue()
    with psycopg.connect(dsn) as locker:
        locker.execute("lock table pgqueue.notes in access exclusive mode")
        often = timedelta(seconds=0.1)
        async with running(
            queue, poll=often, sweep=often, lease=timedelta(minutes=20)
        ):  # a lock is waited for 5 min
            await until(
                lambda: ask(
                    dsn, "select 1 from pg_locks where not granted and relation = 'pgqueue.notes'::regclass"
                )
            )
            later = short.using(delay=0.2).enqueue()
            assert await later.aresult(timeout=60) == "ran"
            assert ask(
                dsn, "select 1 from pg_locks where not granted and relation = 'pgqueue.notes'::regclass"
            )
            locker.rollback()
            done.set()


def test_a_take_writes_the_progress_of_its_jobs(queue: PgQueue) -> None:
    @queue.task
    def count(number: int) -> None: ...

    queue.enqueue_many(count.call(number) for number in range(3))
    with queue.take(3) as jobs:
        for job in jobs:
            job.progress(job.args["number"], 3, f"it's number {job.args['number']}")
        while any(queue.progress(job.id) is None for job in jobs):
            time.sleep(0.02)
        assert [queue.progress(job.id).message for job in jobs] == [  # type: ignore[union-attr]  # all have one
            "it's number 0",
            "it's number 1",
            "it's number 2",
        ]


async def test_a_worker_deletes_what_ended_jobs_noted(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()

    @queue.task
    def waits() -> None: ...

    live = waits.using(delay=3600).enqueue()
    for job_id in (live.id, live.id + 1):
        ask(dsn, "insert into pgqueue.notes (job_id, kind, value) values (%s, 'checkpoint', '1')", job_id)
    async with running(queue):
        await until(lambda: len(ask(dsn, "select job_id from pgqueue.notes")) < 2)
    assert ask(dsn, "select job_id from pgqueue.notes") == [(live.id,)]


async def test_what_another_program_wrote_as_progress_is_no_error(queue: PgQueue, dsn: str) -> None:
    @queue.task
    def count() -> None: ...

    job = count.enqueue()
    for odd in (
        "7",
        '{"done": "x"}',
        "null",
        "[]",
        '{"done": 1' + "0" * 5_000 + "}",
        "[" * 3_000 + "]" * 3_000,
    ):
        ask(
            dsn,
            "insert into pgqueue.notes (job_id, kind, value) values (%s, 'progress', %s) "
            "on conflict (job_id, kind, name) do update set value = excluded.value",
            job.id,
            odd,
        )
        assert job.progress() is None
    ask(dsn, """update pgqueue.notes set value = '{"done": 1, "message": {"odd": [1]}, "more": 2}'""")
    progress = await job.aprogress()
    assert progress is not None
    assert isinstance(progress, Progress)
    assert isinstance(progress.message, str)


async def test_progress_that_the_database_refuses_is_written_with_the_next_try(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(queue)
    upkeep, board = worker.parts.upkeep, worker.parts.executor.board
    written: list[list[int]] = []

    async def refuse(_: Plan[int]) -> None:
        raise psycopg.errors.InsufficientPrivilege("not now")

    async def write(plan: Plan[int]) -> None:
        written.append([one.claim.id for one in plan.arguments["reports"]])

    board.put(_held(1), ProgressReport(1, 10))
    monkeypatch.setattr(worker.parts.connections.progress, "run", refuse)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await upkeep.write_progress()
    board.put(_held(2), ProgressReport(2, 10))
    monkeypatch.setattr(worker.parts.connections.progress, "run", write)
    await upkeep.write_progress()
    await upkeep.write_progress()
    assert [sorted(ids) for ids in written] == [[1, 2]]
    await dismantle(worker)


def test_of_progress_that_was_refused_the_newest_is_kept_and_for_a_bounded_number_of_tries() -> None:
    board, asked = Board(None), list[int]()
    board.put(_held(1), ProgressReport(1, 10))
    for number in range(TRIES + 2):
        with suppress(psycopg.DataError), board.writing() as reports:
            asked += [json.loads(one.value)["done"] for one in reports]
            if number == 0:
                board.put(_held(1), ProgressReport(2, 10))
            raise psycopg.DataError
    assert asked == [1, *[2] * TRIES]


def _held(job: int) -> Claim:
    return Claim(job, UUID(int=1), 1, 1, 25, 0, "default", "task", "{}", 0.0, 0.0, 0.0)
