"""An enqueue lives and dies with the transaction it is in, on every kind of connection; other kinds are refused."""

import inspect
import re
import sqlite3
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from store.drivers import Ask, entered, every_kind, one_database, sqlalchemy_url
from store.samples import adding, new_job

from pgqueue import PgQueue, Task
from pgqueue.errors import NotGranted, SchemaMissing, UnsupportedConnection
from pgqueue.store.jobs import control
from pgqueue.store.plan import Steps, plan
from pgqueue.store.schema.grants import grant_statements
from pgqueue.values.jobs.job import NewJob

ask, database = every_kind, one_database


class _Undone(Exception):
    """What the tests leave transactions with."""


def _jobs(ask: Ask) -> list[str]:
    """The committed jobs' tasks: as another connection sees them."""
    with psycopg.connect(ask.dsn) as other:
        return [row[0] for row in other.execute("select task from pgqueue.jobs order by id").fetchall()]


async def test_a_commit_makes_the_job_and_not_before(ask: Ask) -> None:
    async with ask.transaction():
        await ask.within(adding(new_job("first")))
        assert _jobs(ask) == []
    assert _jobs(ask) == ["first"]


async def test_a_rollback_leaves_nothing(ask: Ask) -> None:
    await _undo(ask, ask.transaction(), new_job("first"), new_job("second", unique_key="key"))
    assert _jobs(ask) == []


async def test_a_savepoint_rolled_back_takes_its_jobs_and_no_others(ask: Ask) -> None:
    async with ask.transaction():
        await ask.within(adding(new_job("before")))
        await _undo(ask, ask.savepoint(), new_job("inside"))
        await ask.within(adding(new_job("after")))
    assert _jobs(ask) == ["before", "after"]


async def test_a_plan_with_a_transaction_that_fails_leaves_nothing_and_the_users_transaction_goes_on(
    ask: Ask,
) -> None:
    async with ask.transaction():
        await ask.within(adding(new_job("before")))
        with suppress(_Undone):
            await ask.within(_adding_and_failing())
        await ask.within(adding(new_job("after")))
    assert _jobs(ask) == ["before", "after"]


async def test_a_plan_with_a_transaction_that_fails_outside_of_a_transaction_leaves_nothing(ask: Ask) -> None:
    with suppress(_Undone):
        await ask(_adding_and_failing())
    assert _jobs(ask) == []


@pytest.mark.parametrize("bulk_first", [True, False], ids=["bulk first", "bulk last"])
@pytest.mark.parametrize("undone", [True, False], ids=["rolled back", "committed"])
async def test_the_public_methods_enqueue_in_the_users_transaction(
    ask: Ask, *, undone: bool, bulk_first: bool
) -> None:
    with suppress(_Undone):
        async with ask.transaction():
            await _enqueue_publicly(ask, bulk_first=bulk_first)
            _raise_if(undone=undone)

    assert _jobs(ask) == ([] if undone else ["bill"] * 3)


async def test_a_connection_of_the_other_colour_is_refused_with_the_method_to_use(ask: Ask) -> None:
    queue = PgQueue(ask.dsn)
    task = _task(queue).using(connection=ask.connection)

    if ask.kind.awaits:
        with pytest.raises(UnsupportedConnection, match=r"asynchronous; await aenqueue\(\.\.\.\)"):
            task.enqueue(1)
        with pytest.raises(UnsupportedConnection, match=r"or aenqueue_many\(\.\.\.\)"):
            queue.enqueue_many([_call(queue)] * 2, connection=ask.connection)
    else:
        with pytest.raises(UnsupportedConnection, match=r"blocking; use enqueue\(\.\.\.\)"):
            await task.aenqueue(1)
        with pytest.raises(UnsupportedConnection, match=r"or enqueue_many\(\.\.\.\)"):
            await queue.aenqueue_many([_call(queue)] * 2, connection=ask.connection)


async def test_a_database_without_the_schema_is_told_apart_from_a_broken_one(ask: Ask) -> None:
    with psycopg.connect(ask.dsn) as other:
        other.execute("alter schema pgqueue rename to elsewhere")
    try:
        with pytest.raises(SchemaMissing, match=r'schema "pgqueue" has no tables yet; run `pgqueue migrate`'):
            await ask(adding(new_job()))
    finally:
        with psycopg.connect(ask.dsn) as other:
            other.execute("alter schema elsewhere rename to pgqueue")


async def test_a_role_without_a_right_is_told_which_grant_gives_it(ask: Ask) -> None:
    with psycopg.connect(ask.dsn) as own:
        if not own.execute("select from pg_roles where rolname = 'app_looks'").fetchall():
            own.execute("create role app_looks login")
        for statement in grant_statements("monitor", "app_looks"):
            own.execute(statement.encode())
    async with entered(ask.kind.open(re.sub("//[^:@/]*", "//app_looks", ask.dsn))) as connection:
        theirs = Ask(ask.kind, connection, ask.dsn)
        for refused, grant in ((adding(new_job()), "producer"), (control.show(1), "reader")):
            with pytest.raises(
                NotGranted, match=f"permission denied for .*: `pgqueue grants {grant}` gives this right"
            ):
                await theirs(refused)


async def _undo(ask: Ask, part: AbstractAsyncContextManager[None], *jobs: NewJob) -> None:
    """Enqueue within a transaction or savepoint, and leave it by an exception."""
    with suppress(_Undone):
        async with part:
            await ask.within(adding(*jobs))
            _raise_if(undone=True)


@plan(transaction=True)
def _adding_and_failing() -> Steps[None]:
    yield from adding(new_job("failing"))
    raise _Undone


async def _enqueue_publicly(ask: Ask, *, bulk_first: bool) -> None:
    queue = PgQueue(ask.dsn)
    task = _task(queue)
    calls = [task.call(1), task.using(unique_key="key").call(2)]

    async def single() -> None:
        one = task.using(connection=ask.connection)
        await _awaited(one.aenqueue(0) if ask.kind.awaits else one.enqueue(0))

    async def bulk() -> None:
        many = queue.aenqueue_many if ask.kind.awaits else queue.enqueue_many
        await _awaited(many(calls, connection=ask.connection))

    for way in (bulk, single) if bulk_first else (single, bulk):
        await way()


async def _awaited(value: object) -> None:
    if inspect.isawaitable(value):
        await value


def _raise_if(*, undone: bool) -> None:
    if undone:
        raise _Undone


class _LikePsycopg2:
    """As much of another driver's connection as one might mistake for psycopg's."""

    def cursor(self) -> None: ...

    def execute(self) -> None: ...


def _sqlite_session() -> Any:
    return Session(create_engine("sqlite://", poolclass=NullPool))


def _sqlite_connection() -> Any:
    return create_engine("sqlite://", poolclass=NullPool).connect()


@pytest.mark.parametrize(
    "stranger",
    [
        _LikePsycopg2,
        lambda: sqlite3.connect(":memory:"),
        _sqlite_session,
        _sqlite_connection,
        lambda: "a dsn",
    ],
    ids=["psycopg2-like", "sqlite3", "sqlite Session", "sqlite Connection", "a string"],
)
async def test_other_kinds_are_refused_and_the_right_ones_named(stranger: Any) -> None:
    queue = PgQueue("postgresql://nobody@nowhere/none")
    given = stranger()
    task = _task(queue).using(connection=given)
    named = (
        rf"<{type(given).__module__}.{type(given).__qualname__}>: jobs can be enqueued on psycopg Connection"
    )

    with pytest.raises(UnsupportedConnection, match=named):
        task.enqueue(1)
    with pytest.raises(UnsupportedConnection, match=named):
        await task.aenqueue(1)
    if hasattr(given, "close"):
        given.close()


async def test_an_engine_is_refused_for_it_has_no_transaction(dsn: str) -> None:
    task = _task(PgQueue(dsn))

    with pytest.raises(UnsupportedConnection, match=r"Engine>: jobs can be enqueued on psycopg Connection"):
        task.using(connection=create_engine(sqlalchemy_url(dsn))).enqueue(1)
    with pytest.raises(UnsupportedConnection, match=r"AsyncEngine>: jobs can be enqueued on psycopg"):
        await task.using(connection=create_async_engine(sqlalchemy_url(dsn))).aenqueue(1)


def _task(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="bill")
    def bill(number: int) -> None: ...

    return bill


def _call(queue: PgQueue) -> Any:
    return queue.find_task("bill").call(1)
