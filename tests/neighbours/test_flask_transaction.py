"""A plain task's ``ctx.transaction()`` is a transaction of the app's session."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from neighbours.flask_shop import Order, Shop, opened, outcome
from psycopg.pq import TransactionStatus
from running import Running

from pgqueue import OWN_CONNECTION, Context, JobState, chain


@pytest.fixture
def shop(dsn: str) -> Iterator[Shop]:
    """A shop; no app context is pushed but those of its jobs."""
    with opened(dsn) as (shop, _):
        yield shop


async def test_what_the_session_writes_and_enqueues_commits_together_with_the_completion(
    shop: Shop, running: Running
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction() as connection:
            shop.db.session.add(Order(note="by the session"))
            connection.execute("insert into orders (note) values ('by psycopg')")
            shop.send.enqueue(1)

    job = await outcome(running, shop, body)

    assert job.state is JobState.SUCCEEDED
    ((transactions, written),) = shop.rows(
        "select count(distinct xmin::text), count(*) from ("
        "  select xmin from orders union all select xmin from pgqueue.job_history where task = 'work'"
        ") as written"
    )
    assert (transactions, written) == (1, 3)
    assert shop.rows("select args from pgqueue.all_jobs where task = 'send'") == [({"number": 1},)]


async def test_an_exception_undoes_what_the_session_wrote_and_fails_the_attempt(
    shop: Shop, running: Running
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction():
            shop.db.session.add(Order())
            shop.db.session.flush()
            shop.send.enqueue(1)
            raise ValueError("halfway")

    job = await outcome(running, shop, body)

    assert (job.state, [error.message for error in job.errors]) == (JobState.DEAD, ["halfway"])
    assert shop.left() == (0, 1)


async def test_an_async_task_enqueues_in_its_own_transaction_and_not_in_the_session(
    shop: Shop, running: Running
) -> None:
    async def body(ctx: Context) -> None:
        async with ctx.transaction():
            await shop.send.aenqueue(1)
            await shop.queue.aenqueue_many([shop.send.call(2), shop.send.call(3)])
            await chain(shop.send.call(5), shop.send.call(6)).aenqueue()
            await shop.send.using(connection=OWN_CONNECTION).aenqueue(4)
            if ctx.attempt == 1:
                raise ValueError("halfway")

    job = await outcome(running, shop, body)

    assert job.state is JobState.DEAD
    assert shop.rows("select args from pgqueue.all_jobs where task = 'send'") == [({"number": 4},)]


async def test_what_fails_when_the_session_is_flushed_takes_the_completion_back(
    shop: Shop, running: Running
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction():
            shop.db.session.add_all([Order(id=1), Order(id=1)])

    job = await outcome(running, shop, body)

    assert job.state is JobState.DEAD
    assert shop.left() == (0, 1)


async def test_a_superseded_attempt_cannot_commit_what_its_session_wrote(
    shop: Shop, running: Running
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction():
            shop.db.session.add(Order())
            shop.db.session.flush()
            with psycopg.connect(shop.dsn, autocommit=True) as other:
                other.execute("update pgqueue.jobs set fence = fence + 1 where id = %s", [ctx.job.id])

    shop.queue.task(name="work")(body).enqueue()
    async with running(shop.queue, concurrency=1), asyncio.timeout(20):
        while not shop.rows("select from pgqueue.jobs where fence > 1"):  # noqa: ASYNC110 - as in outcome
            await asyncio.sleep(0.02)

    assert shop.rows("select from orders") == []


def give_up() -> None:
    """Leave psycopg's transaction as its documentation says, for code behind the block to go on."""
    raise psycopg.Rollback


async def test_psycopgs_rollback_ends_the_block_quietly(shop: Shop, running: Running) -> None:
    def body(ctx: Context) -> str:
        with ctx.transaction():
            shop.db.session.add(Order())
            shop.db.session.flush()
            give_up()
        return "went on"

    job = await outcome(running, shop, body)

    assert (job.state, job.result) == (JobState.SUCCEEDED, "went on")
    assert shop.rows("select from orders") == []


async def test_after_the_block_the_session_is_free_for_more(shop: Shop, running: Running) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction():
            shop.db.session.add(Order())
        shop.db.session.add(Order())
        shop.db.session.commit()

    job = await outcome(running, shop, body)

    assert (job.state, len(shop.rows("select from orders"))) == (JobState.SUCCEEDED, 2)


@pytest.mark.parametrize("early", ["commit", "rollback", "close", "remove"])
async def test_ending_the_sessions_transaction_within_the_block_undoes_everything(
    shop: Shop, running: Running, early: str
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction():
            shop.db.session.add(Order())
            shop.db.session.flush()
            getattr(shop.db.session, early)()
            shop.db.session.add(Order())

    job = await outcome(running, shop, body)

    assert (job.state, job.errors[0].type) == (JobState.DEAD, "pgqueue.errors.DatabaseError")
    assert "within ctx.transaction()" in job.errors[0].message
    assert shop.rows("select from orders") == []


async def test_a_completion_never_lands_in_the_transaction_of_another(dsn: str, running: Running) -> None:
    """What a session gives back to its engine, the next one to ask has: here in the middle of the block."""
    with opened(dsn, SQLALCHEMY_ENGINE_OPTIONS={"pool_size": 1, "pool_reset_on_return": None}) as (shop, _):

        def body(ctx: Context) -> None:
            engine = shop.db.engine
            with ctx.transaction():
                shop.db.session.rollback()
                others.append(engine.connect())
                others[0].exec_driver_sql("insert into orders (note) values ('of another')")

        others: list[Any] = []
        job = await outcome(running, shop, body)
        others[0].commit()
        others[0].close()

        assert (job.state, shop.rows("select note from orders")) == (JobState.DEAD, [("of another",)])


async def test_a_completion_that_is_undone_is_not_left_open_on_a_connection_of_the_pool(
    dsn: str, running: Running
) -> None:
    with opened(dsn, SQLALCHEMY_ENGINE_OPTIONS={"pool_size": 1, "pool_reset_on_return": None}) as (shop, app):

        def body(ctx: Context) -> None:
            with ctx.transaction():
                shop.db.session.rollback()

        job = await outcome(running, shop, body)
        with app.app_context(), shop.db.engine.connect() as connection:
            status = connection.connection.driver_connection.info.transaction_status  # type: ignore[union-attr]  # psycopg's

    assert (job.state, status) == (JobState.DEAD, TransactionStatus.IDLE)


async def test_a_transaction_that_began_before_the_block_is_refused(shop: Shop, running: Running) -> None:
    def body(ctx: Context) -> None:
        shop.db.session.get(Order, 1)
        with ctx.transaction():
            pass

    job = await outcome(running, shop, body)

    assert job.state is JobState.DEAD
    assert "which is in one already" in job.errors[0].message


async def test_savepoints_within_the_block_are_what_they_always_are(shop: Shop, running: Running) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction() as connection:
            with shop.db.session.begin_nested():
                shop.db.session.add(Order(note="kept"))
            with connection.transaction(force_rollback=True):
                connection.execute("insert into orders (note) values ('undone')")

    job = await outcome(running, shop, body)

    assert (job.state, shop.rows("select note from orders")) == (JobState.SUCCEEDED, [("kept",)])


async def test_a_psycopg_block_at_the_beginning_does_not_commit_the_rest(
    shop: Shop, running: Running
) -> None:
    def body(ctx: Context) -> None:
        with ctx.transaction() as connection:
            with connection.transaction():
                connection.execute("insert into orders (note) values ('too soon')")
            raise ValueError

    job = await outcome(running, shop, body)

    assert (job.state, shop.left()) == (JobState.DEAD, (0, 1))


async def test_where_no_session_is_joined_it_is_a_transaction_of_the_queues_own(
    dsn: str, running: Running
) -> None:
    with opened(dsn, PGQUEUE_SESSION=False) as (shop, _):

        def body(ctx: Context) -> None:
            with ctx.transaction() as connection:
                connection.execute("insert into orders (note) values ('by psycopg')")
                shop.db.session.add(Order(note="by the session"))

        job = await outcome(running, shop, body)
        assert (job.state, shop.rows("select note from orders")) == (JobState.SUCCEEDED, [("by psycopg",)])


async def test_an_async_task_has_a_transaction_of_the_queues_own(shop: Shop, running: Running) -> None:
    async def body(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into orders (note) values ('awaited')")
            await shop.send.using(connection=connection).aenqueue(1)
            await shop.send.aenqueue(2)
            assert await shop.queue.asignal("order:1", "paid")

    job = await outcome(running, shop, body)

    assert (job.state, shop.left()) == (JobState.SUCCEEDED, (1, 3))
    assert shop.rows("select target from pgqueue.signals") == [("key:order:1",)]
