"""Draining: what runs where, at which instant, and what a test is told of it."""

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, every_place, one_database
from tenacity import wait_fixed

from pgqueue import Context, JobState, PgQueue, Retry
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases
from pgqueue.testing import Clock, adrain, drain, failing, in_database, in_memory, in_transaction

queue, clock, emptied, database = every_place, a_clock, a_database, one_database
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


@pytest.fixture
def memory_queue() -> Any:
    queue = PgQueue("")
    with in_memory(queue):
        yield queue


@pytest.fixture
def real_queue(emptied: str) -> Any:
    """A queue on PostgreSQL, by PostgreSQL's own clock."""
    queue = PgQueue("")
    with in_database(queue, emptied):
        yield queue


def test_a_drain_leaves_no_worker_and_nothing_in_anybodys_name(real_queue: PgQueue) -> None:
    @real_queue.task(max_attempts=1)
    def fail() -> None:
        raise ValueError

    fail.enqueue()
    fail.enqueue()
    with pytest.raises(ValueError, match=r"^$"):
        drain(real_queue)
    drain(real_queue, raises=False)
    with real_queue.database.pooled() as connection:
        assert connection.execute("select from pgqueue.workers").fetchall() == []
        assert connection.execute("select from pgqueue.lost_workers").fetchall() == []
        assert connection.execute("select from pgqueue.jobs where status = 'running'").fetchall() == []


def test_without_a_clock_an_instant_is_the_databases_own(real_queue: PgQueue) -> None:
    @real_queue.task(retry=Retry(wait=wait_fixed(3600)))
    def send() -> None: ...

    handle, later = send.enqueue(), send.using(delay=HOUR).enqueue()
    assert [ran.id for ran in drain(real_queue)] == [handle.id]
    due = real_queue.job(later.id).run_at
    with failing(send):
        assert [ran.id for ran in drain(real_queue, now=due)] == [later.id]
    assert real_queue.job(later.id).run_at == due + HOUR
    assert drain(real_queue, now=due + HOUR - SECOND) == []
    (again,) = drain(real_queue, now=due + HOUR)
    assert again.outcome is JobState.SUCCEEDED


def test_without_a_clock_time_does_not_pass_while_jobs_run(real_queue: PgQueue) -> None:
    @real_queue.task(name="again")
    def again() -> None:
        job = real_queue.job(again.using(delay=timedelta(milliseconds=1)).enqueue().id)
        with real_queue.database.pooled() as connection:
            while connection.execute("select now() <= %s", [job.run_at]).fetchone() == (True,):
                pass

    again.enqueue()
    assert len(drain(real_queue)) == 1
    assert len(drain(real_queue)) == 1


def test_what_a_job_enqueues_at_an_instant_is_enqueued_then(real_queue: PgQueue) -> None:
    @real_queue.task(name="again")
    def again(times: int) -> None:
        if times:
            again.using(delay=HOUR).enqueue(times - 1)

    again.enqueue(2)
    instant = NOON + timedelta(days=1000)
    for _ in range(3):
        assert len(drain(real_queue, now=instant)) == 1
        instant += HOUR
    assert drain(real_queue, now=instant) == []


def test_a_job_of_a_real_worker_is_left_alone_until_its_lease_has_passed(real_queue: PgQueue) -> None:
    @real_queue.task
    def send() -> None: ...

    handle = send.enqueue()
    worker = leases.WorkerInfo(uuid4(), "elsewhere", 1, 1, "0", None)
    real_queue.database.run(leases.register(worker, MINUTE, now=NOON))
    real_queue.database.run(claim.claim(worker.id, {"default": 1}, now=NOON))
    assert drain(real_queue, now=NOON + MINUTE) == []
    (ran,) = drain(real_queue, now=NOON + MINUTE + SECOND)
    assert (ran.id, ran.attempt) == (handle.id, 2)


def test_a_tasks_own_transaction_completes_its_job(real_queue: PgQueue) -> None:
    @real_queue.task
    def bill(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.execute("insert into pgqueue.queues (name) values ('billed')")

    handle = bill.enqueue()
    (ran,) = drain(real_queue)
    assert (ran.outcome, handle.status()) == (JobState.SUCCEEDED, JobState.SUCCEEDED)


def test_a_frameworks_queue_finds_its_own_kind_of_database_at_any_instant(emptied: str) -> None:
    class Framed(Database):
        pass

    queue, kinds = PgQueue(""), []
    queue.database = Framed(emptied)

    @queue.task
    def look() -> None:
        kinds.append(isinstance(queue.database, Framed))

    look.enqueue()
    drain(queue, now=NOON)
    with psycopg.connect(emptied) as connection, in_transaction(queue, connection):
        look.enqueue()
        drain(queue)
        connection.rollback()
    queue.close()
    assert kinds == [True, False]


def test_a_refused_verdict_is_what_a_test_sees_and_its_transaction_goes_on(emptied: str) -> None:
    queue = PgQueue("")

    @queue.task
    def work() -> None: ...

    with psycopg.connect(emptied) as connection, in_transaction(queue, connection):
        connection.execute(
            "create function pgqueue.refuse() returns trigger language plpgsql as $$begin raise 'as asked'; end$$;"
            "create trigger refuse before delete on pgqueue.jobs for each row execute function pgqueue.refuse()"
        )
        handle = work.enqueue()
        with pytest.raises(psycopg.errors.RaiseException, match="as asked"):
            drain(queue)
        assert handle.status() is JobState.RUNNING
        connection.rollback()
    queue.close()


def test_plain_functions_run_in_the_callers_thread(queue: PgQueue) -> None:
    @queue.task
    def where() -> int:
        return threading.get_ident()

    handle = where.enqueue()
    drain(queue)
    assert handle.result(timeout=0) == threading.get_ident()


def test_an_async_task_may_enqueue_and_await(memory_queue: PgQueue) -> None:
    @memory_queue.task
    async def inner() -> str:
        return "inner"

    @memory_queue.task
    async def outer() -> int:
        return (await inner.aenqueue()).id

    handle = outer.enqueue()
    ran = drain(memory_queue)
    assert [one.id for one in ran] == [handle.id, handle.result(timeout=0)]


def test_the_loop_of_async_tasks_is_closed_with_its_connections(emptied: str) -> None:
    closed = []

    class Closing(PgQueue):
        async def aclose(self) -> None:
            closed.append(asyncio.get_running_loop())
            await super().aclose()

    queue = Closing(emptied)  # with pools of its own

    @queue.task
    async def outer() -> None:
        await inner.aenqueue()

    @queue.task
    async def inner() -> None: ...

    outer.enqueue()
    assert len(drain(queue)) == 2
    queue.close()
    assert [loop.is_closed() for loop in closed] == [True]
    assert "pgqueue-drain" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
def test_context_variables_come_in_and_do_not_go_out(memory_queue: PgQueue, *, plain: bool) -> None:
    def look() -> str:
        found = seen.get()
        seen.set("the job's")
        return found

    async def alook() -> str:
        return look()

    task = memory_queue.task(name="look")(look if plain else alook)
    handles = [task.enqueue(), task.enqueue()]
    token = seen.set("the test's")
    drain(memory_queue)
    assert [handle.result(timeout=0) for handle in handles] == ["the test's", "the test's"]
    assert seen.get() == "the test's"
    seen.reset(token)


async def test_an_awaited_drain_runs_async_tasks_here_and_plain_ones_beside(memory_queue: PgQueue) -> None:
    @memory_queue.task
    async def here() -> int:
        seen.set("the job's")
        return threading.get_ident()

    @memory_queue.task
    def beside() -> int:
        asyncio.run(asyncio.sleep(0))  # as a plain function may
        return threading.get_ident()

    handles = [here.enqueue(), beside.enqueue()]
    ran = await adrain(memory_queue)
    assert [one.outcome for one in ran] == [JobState.SUCCEEDED, JobState.SUCCEEDED]
    assert handles[0].result(timeout=0) == threading.get_ident()
    assert handles[1].result(timeout=0) != threading.get_ident()
    assert seen.get() == "nothing"


async def test_an_awaited_drain_raises_as_a_blocking_one_does(memory_queue: PgQueue) -> None:
    @memory_queue.task
    async def fail() -> None:
        raise ValueError("no")

    fail.enqueue()
    with pytest.raises(ValueError, match="no"):
        await adrain(memory_queue)
    fail.enqueue()
    (ran,) = await adrain(memory_queue, raises=False, queues=["default"])
    assert str(ran.error) == "no"
    fail.enqueue()
    with failing(fail):
        (ran,) = await adrain(memory_queue)
    assert ran.outcome is JobState.SCHEDULED


async def test_an_awaited_drain_at_an_instant_of_postgresql(real_queue: PgQueue) -> None:
    @real_queue.task
    async def send() -> None: ...

    handle, later = await send.aenqueue(), await send.using(delay=HOUR).aenqueue()
    assert [ran.id for ran in await adrain(real_queue)] == [handle.id]
    due = (await real_queue.ajob(later.id)).run_at
    assert [ran.id for ran in await adrain(real_queue, now=due)] == [later.id]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_drain_that_is_cancelled_ends(memory_queue: PgQueue, *, plain: bool) -> None:
    started, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(20)

    async def await_() -> None:
        started.set()
        await asyncio.Event().wait()

    memory_queue.task(name="wait")(wait if plain else await_).enqueue()
    draining = asyncio.create_task(adrain(memory_queue, raises=False))
    await started.wait()
    draining.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await draining


async def test_a_blocking_drain_works_in_a_running_loop(memory_queue: PgQueue) -> None:
    @memory_queue.task
    async def wait() -> str:
        await asyncio.sleep(0)
        return "waited"

    handle = wait.enqueue()
    drain(memory_queue)
    assert handle.result(timeout=0) == "waited"


def test_ctrl_c_is_for_whoever_runs_the_tests(memory_queue: PgQueue) -> None:
    @memory_queue.task
    def interrupted() -> None:
        raise KeyboardInterrupt

    interrupted.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain(memory_queue, raises=False)


def test_a_task_may_move_the_clock(queue: PgQueue, clock: Clock) -> None:
    @queue.task
    def takes_an_hour() -> None:
        clock.travel(HOUR)

    handles = [takes_an_hour.enqueue(), takes_an_hour.enqueue()]
    drain(queue)
    assert [queue.job(handle.id).ended_at for handle in handles] == [NOON + HOUR, NOON + 2 * HOUR]
