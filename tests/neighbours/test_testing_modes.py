"""Where a test's queue keeps its jobs, and that an app's own code is none the wiser."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from neighbours.places import HOUR, NOON, a_database, one_database
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from pgqueue import Context, JobState, Limit, PgQueue, chain, testing
from pgqueue.app.flows.flows import Flows
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.errors import ConfigurationError, InvalidOption, JobNotFound, NotInMemory, UnsupportedConnection
from pgqueue.testing import Clock, Memory, adrain, drain, eager, in_database, in_memory, in_transaction
from pgqueue.testing.job_adder import JobAdder
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob
from pgqueue.worker.worker import Worker

emptied, database = a_database, one_database


@pytest.fixture
def app() -> PgQueue:
    return PgQueue("postgresql://nobody@127.0.0.1:1/nowhere")


# Every queue that is made


PROGRAM = """
from pgqueue import PgQueue
queue = PgQueue("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=2")
@queue.task(name="send")
def send(): ...
print(send.enqueue().status())
"""


def ran(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, env=env
    )


@pytest.mark.parametrize(("mode", "outcome"), [("memory", "ready"), ("eager", "succeeded")])
def test_one_call_keeps_the_jobs_of_every_queue_made_after_it_in_memory(mode: str, outcome: str) -> None:
    ended = ran(f"from pgqueue.testing import every_queue; every_queue({mode!r})\n{PROGRAM}")
    assert ended.stdout.split() == [outcome], ended.stderr
    assert f"jobs are kept in memory, for tests: mode={mode}" in ended.stderr


def test_a_setting_left_in_the_shell_does_not_keep_a_programs_jobs_in_memory() -> None:
    ended = ran(PROGRAM, PGQUEUE_TESTING="memory")
    assert "ConnectionFailed" in ended.stderr, ended.stdout


def test_queues_use_their_databases_again_once_the_mode_is_over() -> None:
    testing.every_queue("memory")
    assert isinstance(PgQueue("").database, Memory)
    testing.every_queue(None)
    assert not isinstance(PgQueue("").database, Memory)


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r"every_queue\('memroy'\): use 'memory' or 'eager', or None"
    ):
        testing.every_queue("memroy")


def test_outside_of_tests_nothing_of_testing_is_loaded() -> None:
    ended = ran(
        "import sys, pgqueue; pgqueue.PgQueue(''); print([m for m in sys.modules if 'pgqueue.testing' in m])"
    )
    assert ended.stdout.strip() == "[]"


# Memory


def test_a_queue_is_in_memory_for_a_block_and_empty_at_its_beginning(app: PgQueue) -> None:
    @app.task
    def send() -> None: ...

    real = app.database
    for _ in range(2):
        with in_memory(app) as memory:
            assert app.insight.search().jobs == ()
            send.enqueue()
            assert len(app.insight.search().jobs) == 1
            memory.clear()
            assert app.insight.search().jobs == ()
    assert app.database is real


def test_the_app_gets_its_database_back_when_a_test_fails(app: PgQueue) -> None:
    real = app.database
    with pytest.raises(AssertionError), in_memory(app):
        raise AssertionError
    assert app.database is real


def test_every_method_of_a_queue_that_an_app_calls_has_an_answer_in_memory(app: PgQueue) -> None:
    given = {"queue": "mail", "timeout": 0}
    tried = set()

    @app.task(name="send")
    def send() -> None: ...

    with in_memory(app):
        methods = [
            (name, getattr(part, name))
            for part in (app, app.flows)
            for name, _ in inspect.getmembers(JobMethods if part is app else Flows, inspect.isfunction)
        ]
        for name, method in methods:
            if name.startswith(("_", "a")) or (name, method) in {
                ("why", app.why),  # operators ask these two
                ("retry", app.flows.retry),
                ("resolve", app.resolve),  # it takes a token, which a running task makes
            }:
                continue
            parameters = inspect.signature(method).parameters
            wanted: dict[str, object] = {key: value for key, value in given.items() if key in parameters}
            if "job_id" in parameters:
                wanted["job_id"] = send.enqueue().id
            if "flow_id" in parameters:
                wanted["flow_id"] = chain(send.call()).enqueue().id
            if "parent" in parameters:
                wanted["parent"] = 1
            if name == "signal":
                wanted |= {"target": send.enqueue(), "name": "paid"}
            if name == "result":
                drain(app)  # else it would wait
            method(**wanted)
            tried.add(method)
    assert {
        app.job,
        app.cancel,
        app.retry,
        app.signal,
        app.flows.get,
        app.flows.list,
        app.flows.nodes,
        app.flows.cancel,
    } <= tried


def test_the_callers_connection_is_ignored_in_memory(app: PgQueue) -> None:
    @app.task
    def send() -> None: ...

    with in_memory(app):
        assert send.using(connection=object()).enqueue().status() is JobState.READY
        assert len(app.enqueue_many([send.call()], connection=object())) == 1


async def test_the_awaited_methods_are_answered_too(app: PgQueue) -> None:
    @app.task
    async def send() -> str:
        return "sent"

    with in_memory(app):
        handle = await send.aenqueue()
        many = await app.aenqueue_many([send.call(), send.call()])
        assert (await handle.astatus(), len((await app.insight.asearch()).jobs)) == (JobState.READY, 3)
        assert await many[0].acancel() is JobState.CANCELLED
        await adrain(app)
        assert await handle.aresult(timeout=0) == "sent"


def test_what_needs_postgresql_is_refused_in_words(app: PgQueue) -> None:
    words = "^this needs PostgreSQL, and the queue is in memory, for a test .* use the fixture pgqueue_queue in this test, or "

    @app.task(max_attempts=1)
    def bill(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @app.task(max_attempts=1)
    async def abill(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    with in_memory(app):
        with pytest.raises(NotInMemory, match=words), app.take():
            pass
        for task in (bill, abill):
            task.enqueue()
            with pytest.raises(NotInMemory, match=words):
                drain(app)


async def test_workers_and_awaited_takes_are_refused_in_memory(app: PgQueue) -> None:
    with in_memory(app):
        with pytest.raises(NotInMemory):
            await Worker(app).run()
        with pytest.raises(NotInMemory):
            async with app.atake():
                pass


def test_a_plan_that_memory_does_not_know_is_refused_by_name(app: PgQueue) -> None:
    from pgqueue.store.workers import upkeep  # noqa: PLC0415 - one that no queue runs

    with (
        in_memory(app) as memory,
        pytest.raises(NotInMemory, match=r"does not answer upkeep\.note_unlisted_workers"),
    ):
        memory.run(upkeep.note_unlisted_workers())


OPERATORS_ASK: dict[str, Callable[[PgQueue, FlowHandle], object]] = {
    "queue_standings": lambda queue, _: queue.insight.queues(),
    "running": lambda queue, _: queue.insight.running(),
    "errors": lambda queue, _: queue.insight.errors(),
    "insight.schedules": lambda queue, _: queue.insight.schedules(),
    "limit_control.listed": lambda queue, _: queue.insight.limits(),
    "weights": lambda queue, _: queue.insight.weights(),
    "audit": lambda queue, _: queue.insight.audit(),
    "series": lambda queue, _: queue.insight.series(),
    "totals": lambda queue, _: queue.insight.totals(),
    "store": lambda queue, _: queue.insight.store(),
    "story": lambda queue, flow: queue.insight.story(flow.jobs[0].id),
    "why": lambda queue, flow: queue.why(flow.jobs[0].id),
    "stack": lambda queue, flow: queue.control.stack(flow.jobs[0].id),
    "bulk": lambda queue, _: queue.control.dead(everything=True).retry(),
    "limit_control.change": lambda queue, _: queue.control.limits.set("queue:mail", Limit(1)),
    "alerts": lambda queue, _: queue.alerts.list(),
    "flow_control.retry": lambda _, flow: flow.retry(),
}


@pytest.mark.parametrize("what", OPERATORS_ASK)
def test_what_operators_ask_is_refused_in_memory_and_the_fixture_is_named(app: PgQueue, what: str) -> None:
    send = app.task(name="send")(lambda: None)
    with in_memory(app):
        flow = chain(send.call()).enqueue()
        with pytest.raises(NotInMemory, match=rf"{what}.*use the fixture pgqueue_queue"):
            OPERATORS_ASK[what](app, flow)


def test_threads_are_answered_one_after_the_other(app: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    both_inside, met = threading.Barrier(2), []
    enqueue = JobAdder.enqueue

    def meets_another(adding: JobAdder, job: NewJob, **given: Any) -> EnqueueAnswer:
        with suppress(threading.BrokenBarrierError):
            met.append(both_inside.wait(0.2))
        return enqueue(adding, job, **given)

    monkeypatch.setattr(JobAdder, "enqueue", meets_another)

    @app.task
    def send() -> None: ...

    with in_memory(app):
        threads = [threading.Thread(target=send.enqueue) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(app.insight.search().jobs) == 2
    assert met == []


async def test_a_way_past_a_pooler_is_not_taken_from_memory(
    app: PgQueue, emptied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUE_DIRECT_DSN", emptied)
    with in_memory(app):
        with pytest.raises(NotInMemory), app.take(timeout=0):
            pass
        with pytest.raises(NotInMemory):
            async with app.atake(timeout=0):
                pass


# Eager


def test_an_eager_enqueue_has_run_its_job(app: PgQueue) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    with eager(app):
        assert double.enqueue(21).result(timeout=0) == 42
        handles = app.enqueue_many(double.call(n) for n in range(3))
        assert [handle.result(timeout=0) for handle in handles] == [0, 2, 4]


def test_an_eager_enqueue_raises_what_its_job_raised(app: PgQueue) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("no such order")

    with eager(app):
        with pytest.raises(ValueError, match="no such order"):
            fail.enqueue()
        assert [job.state for job in app.insight.search().jobs] == [JobState.SCHEDULED]
    with eager(app, raises=False):
        assert fail.enqueue().status() is JobState.SCHEDULED


def test_eager_jobs_for_later_wait_for_a_drain(app: PgQueue) -> None:
    @app.task
    def send() -> None: ...

    with eager(app) as memory:
        later = send.using(delay=HOUR).enqueue()
        assert later.status() is JobState.SCHEDULED
        memory.clock.travel(HOUR)
        drain(app)
        assert later.status() is JobState.SUCCEEDED


def test_what_an_eager_job_enqueues_runs_within_it(app: PgQueue) -> None:
    noted = []

    @app.task
    def inner() -> None:
        noted.append("inner")

    @app.task
    def outer() -> None:
        inner.enqueue()
        noted.append("outer")

    with eager(app):
        outer.enqueue()
    assert noted == ["inner", "outer"]


async def test_eager_works_in_a_running_loop_awaited_or_not(app: PgQueue) -> None:
    @app.task
    async def where() -> int:
        return id(asyncio.get_running_loop())

    here = id(asyncio.get_running_loop())
    with eager(app):
        assert await (await where.aenqueue()).aresult(timeout=0) == here
        assert where.enqueue().result(timeout=0) != here


# On PostgreSQL


def test_a_queue_is_on_another_database_for_a_block(app: PgQueue, emptied: str) -> None:
    @app.task
    def send() -> None: ...

    real = app.database
    with in_database(app, emptied) as queue:
        assert queue is app
        handle = send.enqueue()
        with psycopg.connect(emptied) as other:
            assert other.execute("select id from pgqueue.jobs").fetchall() == [(handle.id,)]
    assert app.database is real


async def test_a_queue_on_another_database_leaves_nothing_open_in_the_loop(
    app: PgQueue, emptied: str
) -> None:
    @app.task
    async def send() -> None: ...

    with in_database(app, emptied):
        handle = await send.aenqueue()
        await adrain(app)
        assert await handle.astatus() is JobState.SUCCEEDED
        assert not app.database.pools._pools  # noqa: SLF001 - there should be none


def test_what_a_test_rolls_back_takes_its_jobs_along(app: PgQueue, emptied: str) -> None:
    noted = []

    @app.task
    def send() -> None:
        noted.append("sent")

    with in_database(app, emptied):
        with psycopg.connect(emptied) as connection, in_transaction(app, connection):
            handle = send.enqueue()
            app.enqueue_many([send.call()])
            drain(app)
            assert (noted, handle.status()) == (["sent", "sent"], JobState.SUCCEEDED)
            connection.rollback()
        assert app.insight.search().jobs == ()


def test_a_session_of_sqlalchemy_will_do_for_a_transaction(app: PgQueue, emptied: str) -> None:
    @app.task
    def send() -> None: ...

    engine = create_engine(emptied.replace("postgresql://", "postgresql+psycopg://"))
    with in_memory(app), Session(engine) as session, in_transaction(app, session):
        handle = send.enqueue()
        drain(app)
        assert handle.status() is JobState.SUCCEEDED
        session.rollback()
        with pytest.raises(JobNotFound):
            handle.status()
    engine.dispose()


def test_a_tasks_transaction_is_a_savepoint_of_the_tests(app: PgQueue, emptied: str) -> None:
    @app.task(max_attempts=1)
    def bill(ctx: Context, *, fails: bool) -> None:
        with ctx.transaction() as own:
            own.execute("insert into pgqueue.queues (name) values (%s)", [f"fails={fails}"])
            if fails:
                raise ValueError

    with psycopg.connect(emptied) as connection, in_transaction(app, connection):
        succeeded, failed = bill.enqueue(fails=False), bill.enqueue(fails=True)
        drain(app, raises=False)
        assert (succeeded.status(), failed.status()) == (JobState.SUCCEEDED, JobState.DEAD)
        assert connection.execute("select name from pgqueue.queues").fetchall() == [("fails=False",)]
        connection.rollback()


def test_a_blocking_connection_serves_what_an_async_task_awaits(app: PgQueue, emptied: str) -> None:
    @app.task(name="send")
    async def send() -> None: ...

    @app.task
    async def plan() -> None:
        handle = await send.aenqueue()
        assert await handle.astatus() is JobState.READY

    with psycopg.connect(emptied) as connection, in_transaction(app, connection):
        plan.enqueue()
        assert [ran.task for ran in drain(app)] == [plan.name, "send"]
        connection.rollback()
        assert app.insight.search().jobs == ()


async def test_an_awaitable_connection_serves_the_awaited_methods(app: PgQueue, emptied: str) -> None:
    @app.task
    async def bill(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("insert into pgqueue.queues (name) values ('billed')")

    async with await psycopg.AsyncConnection.connect(emptied) as connection:
        with in_transaction(app, connection):
            handle = await bill.aenqueue()
            await adrain(app)
            assert await handle.astatus() is JobState.SUCCEEDED
            with pytest.raises(UnsupportedConnection, match="asynchronous"):
                bill.enqueue()
        await connection.rollback()
    with in_database(app, emptied):
        assert app.insight.search().jobs == ()


def test_a_transaction_at_an_instant_of_the_tests_own(app: PgQueue, emptied: str) -> None:
    @app.task
    def send() -> None: ...

    with psycopg.connect(emptied) as connection:
        with in_transaction(app, connection, clock=Clock(NOON)):
            handle = send.using(delay=HOUR).enqueue()
            assert app.job(handle.id).run_at == NOON + HOUR
        connection.rollback()


# The words


# The clock


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = Clock(NOON)
    assert clock.now == NOON
    assert clock.travel(HOUR) == clock.now == NOON + HOUR
    with clock.at(NOON) as same:
        assert (same, clock.now) == (clock, NOON)
        clock.travel(2 * HOUR)
    assert clock.now == NOON + HOUR
    assert clock.travel(-HOUR) == NOON
    assert clock.travel(60) == NOON + timedelta(minutes=1)
    assert clock.travel(-60) == NOON
    with pytest.raises(InvalidOption, match="by='60': use a number of seconds, or a timedelta"):
        clock.travel("60")  # type: ignore[arg-type]  # the mistake at hand
    with pytest.raises(InvalidOption, match="out of the years 1 to 9999"):
        clock.travel(timedelta.max)
    assert repr(clock) == "<Clock 2031-05-04T12:00:00+00:00>"


def test_a_clock_begins_at_the_present_and_knows_time_zones() -> None:
    before = datetime.now(UTC)
    assert before <= Clock().now <= datetime.now(UTC)
    with pytest.raises(InvalidOption, match="no time zone"):
        Clock(datetime(2031, 1, 1))  # noqa: DTZ001 - the mistake at hand
    with pytest.raises(InvalidOption, match="no time zone"), Clock().at(datetime(2031, 1, 1)):  # noqa: DTZ001 - a time without a zone is the case
        pass


def test_one_clock_serves_two_queues() -> None:
    clock, queues = Clock(NOON), [PgQueue(""), PgQueue("")]
    with in_memory(queues[0], clock=clock) as one, in_memory(queues[1], clock=clock) as other:
        assert isinstance(one, Memory)
        clock.travel(timedelta(days=1))
        assert one.clock.now == other.clock.now == NOON + timedelta(days=1)
