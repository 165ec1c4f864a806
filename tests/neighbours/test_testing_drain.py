"""Draining: what runs where, at which instant, and what a test is told of it.

What a drain runs: the jobs in memory and those of a database for tests, and no others unless it is told to.
Batch tasks in tests: a drain runs what is due in batches, in memory as on PostgreSQL.
"""

import asyncio
import contextvars
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import freezegun
import psycopg
import pytest
from documents import Document
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, every_place, one_database
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tenacity import wait_fixed

from pgqueue import Batch, Context, JobState, Limit, PgQueue, Retry, chain
from pgqueue.errors import ConfigurationError, InvalidOption, JobError, JobNotDone, TimedOut
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import claim
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.testing import (
    Clock,
    adrain,
    drain,
    dying,
    eager,
    empty,
    failing,
    in_database,
    in_memory,
    in_transaction,
)
from pgqueue.testing.draining import is_for_tests

T = TypeVar("T")

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


def test_a_frameworks_database_chooses_the_connection_at_any_instant(emptied: str) -> None:
    class Framed(Database):
        def run(self, plan: Plan[T], connection: object = None) -> T:
            if plan.kind.adds:
                given.append(connection)
            return super().run(plan, connection)

    given: list[object] = []
    queue = PgQueue("")
    queue.database = Framed(emptied)

    @queue.task
    def look() -> None:
        queue.signal("key", "seen")

    look.enqueue()
    drain(queue, now=NOON)
    with psycopg.connect(emptied) as connection, in_transaction(queue, connection):
        look.enqueue()
        drain(queue)
        connection.rollback()
    queue.close()
    assert given == [None, None, connection, connection]


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
    assert "pgqueue-close" not in {thread.name for thread in threading.enumerate()}


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


@pytest.mark.parametrize("awaited", [False, True], ids=["drain", "adrain"])
def test_a_test_sees_the_very_error_of_a_plain_task_also_where_it_is_a_stopiteration(
    memory_queue: PgQueue, *, awaited: bool
) -> None:
    @memory_queue.task(name="first", max_attempts=1)
    def first() -> int:
        return next(iter([]))

    jobs = [first.enqueue(), first.enqueue()]
    with pytest.raises(StopIteration) if not awaited else pytest.raises(RuntimeError) as seen:
        _ = asyncio.run(adrain(memory_queue)) if awaited else drain(memory_queue)
    assert isinstance(seen.value.__cause__ if awaited else seen.value, StopIteration)
    assert [job.status() for job in jobs] == [JobState.DEAD, JobState.READY]


@pytest.mark.parametrize("how", [SystemExit, GeneratorExit])
def test_an_exit_in_an_asyncio_task_is_the_end_of_its_attempt(
    memory_queue: PgQueue, how: type[BaseException]
) -> None:
    async def leave() -> None:
        raise how

    @memory_queue.task(max_attempts=1)
    async def gathers() -> None:
        await asyncio.gather(leave(), asyncio.sleep(3600))

    @memory_queue.task
    async def swift() -> None: ...

    handle, other = gathers.enqueue(), swift.enqueue()
    drain(memory_queue, raises=False)
    assert [error.type for error in memory_queue.job(handle.id).errors] == [how.__name__]
    assert other.status() is JobState.SUCCEEDED


def test_a_task_may_move_the_clock(queue: PgQueue, clock: Clock) -> None:
    @queue.task
    def takes_an_hour() -> None:
        clock.travel(HOUR)

    handles = [takes_an_hour.enqueue(), takes_an_hour.enqueue()]
    drain(queue)
    assert [queue.job(handle.id).ended_at for handle in handles] == [NOON + HOUR, NOON + 2 * HOUR]


REAL = "shop_production"


@pytest.fixture
def real_dsn(dsn: str) -> Any:
    """A database whose name says nothing of tests."""
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        name = conninfo_to_dict(dsn)["dbname"]
        connection.execute(f"drop database if exists {REAL} with (force)".encode())
        connection.execute(f"create database {REAL} template {name}".encode())
        try:
            yield make_conninfo(dsn, dbname=REAL)
        finally:
            connection.execute(f"drop database {REAL} with (force)".encode())


@pytest.fixture
def waiting(real_dsn: str) -> Any:
    """A queue of an app, where a job waits."""
    queue = PgQueue(real_dsn)
    queue.task(name="send")(_send)
    ran.clear()
    queue.find_task("send").enqueue()
    yield queue
    queue.close()


ran: list[int] = []


def _send() -> None:
    ran.append(1)


Around = Callable[[PgQueue, str], Any]


def _refused(queue: PgQueue) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"'{REAL}', which may be in use.*pgqueue_memory.*allow_real=True"
    ):
        drain(queue)
    assert ran == []


def test_a_drain_of_a_database_that_is_in_use_is_refused(waiting: PgQueue) -> None:
    _refused(waiting)
    assert [job.state for job in waiting.insight.search().jobs] == [JobState.READY]


async def test_an_awaited_drain_is_refused_too(waiting: PgQueue) -> None:
    with pytest.raises(ConfigurationError, match=REAL):
        await adrain(waiting)
    await waiting.aclose()
    assert ran == []


def test_a_clock_makes_no_difference(waiting: PgQueue, real_dsn: str) -> None:
    with in_database(waiting, real_dsn, clock=Clock()):
        _refused(waiting)


def test_a_transaction_makes_no_difference_since_it_sees_what_others_committed(
    waiting: PgQueue, real_dsn: str
) -> None:
    with psycopg.connect(real_dsn) as connection, in_transaction(waiting, connection):
        _refused(waiting)


def test_a_drain_may_be_told_to_run_them_all_the_same(waiting: PgQueue) -> None:
    (one,) = drain(waiting, allow_real=True)
    assert one.outcome is JobState.SUCCEEDED
    assert ran == [1]


def test_in_memory_nothing_of_the_database_is_run(waiting: PgQueue) -> None:
    with in_memory(waiting):
        assert drain(waiting) == []
        waiting.find_task("send").enqueue()
        assert len(drain(waiting)) == 1
    assert [job.state for job in waiting.insight.search().jobs] == [JobState.READY]


def test_a_database_for_tests_is_drained(dsn: str) -> None:
    queue = PgQueue(dsn)
    queue.task(name="send")(_send).enqueue()
    assert len(drain(queue)) == 1
    queue.close()


@pytest.mark.parametrize(
    "name",
    [
        "test",
        "test_shop",
        "shop_test",
        "shop-tests",
        "Test_Shop",
        "pgqueue_test_gw0_a1_2",
        "pgqueue_testsgw1_tmpl_20",
    ],
)
def test_a_name_with_the_word_test_is_for_tests(name: str) -> None:
    assert is_for_tests(name)


@pytest.mark.parametrize("name", ["shop", "latest", "contest_2", "testimonials", "testsgwen", "", "postgres"])
def test_any_other_is_not(name: str) -> None:
    assert not is_for_tests(name)


def test_a_task_is_no_queue() -> None:
    queue = PgQueue("")
    task: Any = queue.task(name="send")(_send)
    with pytest.raises(InvalidOption, match=r"drain\(<Task send>\): give the queue"):
        drain(task)


@pytest.fixture
def calls() -> list[list[int]]:
    """The numbers of the documents of each call."""
    return []


@pytest.fixture
def index(queue: PgQueue, calls: list[list[int]]) -> Any:
    @queue.batch_task(Document, name="index", size=3, by="tenant", retry=Retry(wait=wait_fixed(60)))
    def index(jobs: Batch[Document]) -> list[int]:
        calls.append([job.args.number for job in jobs])
        for job in jobs:
            if job.args.number < 0:
                job.fail(ValueError(job.args.number))
        return [job.args.number for job in jobs]

    return index


def test_what_is_due_runs_in_batches_and_others_run_in_their_order(
    queue: PgQueue, index: Any, calls: list[list[int]]
) -> None:
    @queue.task(name="other")
    def other(number: int) -> None: ...

    for number in range(5):
        index.enqueue(number)
        other.enqueue(number)
    index.enqueue(5, "two")
    index.using(delay=60).enqueue(6)
    ran = drain(queue)
    assert calls == [[0, 1, 2], [3, 4], [5]]
    order = [(one.task, one.args["number"]) for one in ran]
    assert order[:4] == [("index", 0), ("index", 1), ("index", 2), ("other", 0)]
    assert [number for task, number in order if task == "other"] == [0, 1, 2, 3, 4]
    assert {one.attempt for one in ran} == {1}


async def test_an_awaited_drain_runs_batches_too(queue: PgQueue, calls: list[list[int]]) -> None:
    @queue.batch_task(Document, name="index", size=2)
    async def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    for number in range(3):
        await index.aenqueue(number)
    assert [one.outcome for one in await adrain(queue)] == [JobState.SUCCEEDED] * 3
    assert calls == [[0, 1], [2]]
    await queue.aclose()


def test_each_job_of_a_batch_ends_by_itself(
    queue: PgQueue, clock: Clock, index: Any, calls: list[list[int]]
) -> None:
    jobs = [index.enqueue(1), index.enqueue(-2), index.enqueue(3)]
    with pytest.raises(ValueError, match="-2"):
        drain(queue)
    assert [job.status() for job in jobs] == [JobState.SUCCEEDED, JobState.SCHEDULED, JobState.SUCCEEDED]
    assert jobs[2].result() == 3
    ran = drain(queue, now=clock.now + MINUTE, raises=False)
    assert [(one.attempt, one.outcome) for one in ran] == [(2, JobState.SCHEDULED)]
    assert calls == [[1, -2, 3], [-2]]


def test_a_limit_counts_the_jobs_of_batches(queue: PgQueue, index: Any, calls: list[list[int]]) -> None:
    for number in range(7):
        index.enqueue(number)
    with pytest.raises(JobError, match="drain ran 5 jobs"):
        drain(queue, limit=5)
    assert calls == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("trouble", [failing, dying])
def test_trouble_meets_whole_calls(
    trouble: Callable[..., Any], queue: PgQueue, clock: Clock, index: Any, calls: list[list[int]]
) -> None:
    jobs = [index.enqueue(number) for number in range(3)]
    with trouble(index):
        drain(queue)
    assert all(job.status() is not JobState.SUCCEEDED for job in jobs)
    assert {one.attempt for one in drain(queue, now=clock.now + MINUTE)} == {2}
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert calls[-1] == [0, 1, 2]


def test_eager_runs_a_batch_of_one(calls: list[list[int]]) -> None:
    queue = PgQueue("postgresql://nowhere")

    @queue.batch_task(Document, name="index")
    def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    with eager(queue):
        index.enqueue(1)
        queue.enqueue_many([index.call(2), index.call(3)])
    assert calls == [[1], [2, 3]]


def test_an_emptied_database_is_as_a_new_one(real_queue: PgQueue) -> None:
    @real_queue.task(name="shop.work", max_attempts=1, limit=Limit(5))
    def work(*, fails: bool) -> None:
        if fails:
            raise ValueError

    for fails in (True, False):
        work.enqueue(fails=fails)
    chain(work.call(fails=False), work.call(fails=False)).enqueue()
    real_queue.schedules.add("nightly", work.call(fails=False), every=timedelta(hours=1))
    drain(real_queue, raises=False)
    empty(real_queue)
    with real_queue.database.pooled() as connection:
        tables = connection.execute("select relname from pg_stat_user_tables where schemaname = 'pgqueue'")
        filled = [
            name
            for (name,) in tables.fetchall()
            if connection.execute(f"select from pgqueue.{name} limit 1".encode()).fetchone() is not None
        ]
    assert sorted(filled) == [
        "alembic_version",
        "callback_key",
        "compatibility",
        "retention",
        "series_state",
    ]
    work.enqueue(fails=False)
    assert [ran.outcome for ran in drain(real_queue)] == ["succeeded"]


def test_a_database_that_may_be_in_use_is_not_emptied(
    real_queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.testing.draining.WORD", re.compile("never"))
    with pytest.raises(ConfigurationError, match=r"empty would delete all jobs.*allow_real=True"):
        empty(real_queue)
    empty(real_queue, allow_real=True)


def test_jobs_in_memory_are_emptied_too(memory_queue: PgQueue) -> None:
    @memory_queue.task
    def note() -> None: ...

    note.enqueue()
    empty(memory_queue)
    assert memory_queue.insight.search().jobs == ()


def test_what_waits_ends_in_time_where_freezegun_stops_the_clock(real_queue: PgQueue) -> None:
    @real_queue.task(name="shop.work", timeout=0.05)
    def work(ctx: Context) -> None:
        while not ctx.cancelled:
            threading.Event().wait(0.001)

    with freezegun.freeze_time("2026-01-01"):
        handle = work.enqueue()
        with pytest.raises(JobNotDone):
            handle.result(timeout=0.01)
        (ran,) = drain(real_queue, raises=False)
    assert isinstance(ran.error, TimedOut)


async def test_what_is_awaited_ends_there_too(real_queue: PgQueue) -> None:
    @real_queue.task(name="shop.work", timeout=0.05)
    async def work() -> None:
        await asyncio.sleep(3600)

    with freezegun.freeze_time("2026-01-01", real_asyncio=True):
        handle = await work.aenqueue()
        with pytest.raises(JobNotDone):
            await handle.aresult(timeout=0.01)
        (ran,) = await adrain(real_queue, raises=False)
    assert isinstance(ran.error, TimedOut)
