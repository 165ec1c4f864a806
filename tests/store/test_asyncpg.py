"""What asyncpg's connections need beyond the conformance suite: parameters, results, caches, codecs, transactions."""

import asyncio
import json
import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from store.drivers import async_engine, asyncpg_connection, one_database
from store.samples import adding, new_job
from store.sqlfiles import SQL

from pgqueue import PgQueue, Task
from pgqueue.errors import UnsupportedConnection
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.asyncpg import AsyncpgStepRunner, as_text, copy_target, rewritten
from pgqueue.store.plan import Steps, plan
from pgqueue.values.jobs.job import JobState

database = one_database
CATALOGUE = catalogue_of("pgqueue")
OWN_CONNECTIONS = ("adopt", "alerts", "bulk", "insight", "pipeline", "schedules", "shards")
"""Folders whose statements never run on a user's connection."""
COPIES = sorted(name for name in SQL if name.startswith("jobs/") and CATALOGUE[name].startswith(b"copy"))
STATEMENTS = sorted(name for name in SQL if not CATALOGUE[name].startswith(b"copy"))
OURS = [name for name in STATEMENTS if not name.startswith(OWN_CONNECTIONS)]
READ_ALIKE = {
    *("bool", "int2", "int4", "int8", "float8", "text", "varchar", "timestamptz", "uuid", "void"),
    *("int8[]", "float8[]", "text[]"),
}
"""Types of columns that both drivers read as the same Python values."""


@pytest.fixture
async def alone(dsn: str) -> AsyncIterator[Any]:
    """An asyncpg connection, no transaction begun."""
    async with asyncpg_connection(dsn) as connection:
        yield connection


@pytest.fixture
async def elsewhere(database: str) -> AsyncIterator[Any]:
    """An asyncpg connection to the whole file's database, for tests that leave nothing there."""
    async with asyncpg_connection(database) as connection:
        yield connection


@pytest.fixture
def task(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="bill")
    def bill(number: int) -> None: ...

    return bill


def _count(dsn: str) -> int:
    with psycopg.connect(dsn) as other:
        row = other.execute("select count(*) from pgqueue.jobs").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_placeholder_has_a_cast_which_tells_what_its_text_is(name: str) -> None:
    text = CATALOGUE[name].decode()
    assert re.findall(r"%(?!\(\w+\)s::\w|%)", text) == []


@pytest.mark.parametrize("name", OURS)
async def test_every_statement_is_one_that_asyncpg_takes_and_reads_as_psycopg_does(
    elsewhere: Any, name: str
) -> None:
    query, names = rewritten(CATALOGUE[name])

    prepared = await elsewhere.prepare(query)

    assert {one.name for one in prepared.get_parameters()} <= {"text"}
    assert len(prepared.get_parameters()) == len(names)
    results = {one.name: one.type.name for one in prepared.get_attributes()}
    assert set(results.values()) <= READ_ALIKE, f"cast to text what is read differently: {results}"


def test_a_placeholder_keeps_its_number_and_a_doubled_percent_sign_is_one() -> None:
    query, names = rewritten(b"select %(a)s::int, %(b)s::text, %(a)s::int, 7 %% 2")
    assert query == "select $1::text::int, $2::text::text, $1::text::int, 7 % 2"
    assert names == ("a", "b")


@pytest.mark.parametrize("name", COPIES)
def test_every_copy_names_its_table_and_columns_and_nothing_else(name: str) -> None:
    target = copy_target(CATALOGUE[name])
    said = (
        f"copy {target.schema}.{target.table} ({', '.join(target.columns)}) from stdin with (encoding 'utf8')"
    )
    assert said.encode() == CATALOGUE[name]


def test_a_copy_that_asks_for_more_is_refused_and_not_half_done() -> None:
    with pytest.raises(ValueError, match="from stdin with"):
        copy_target(b"copy pgqueue.jobs (id) from stdin with (encoding 'utf8', freeze true)")


TEXTS = ["", "NULL", '"', "\\", "{a,b}", "a,b", " ", "$1 %s %%", "naïve 🐘", "'", "\n\t"]
VALUES: dict[str, list[Any]] = {
    "text": [*TEXTS, JobState.READY, None],
    "boolean": [True, False, None],
    "smallint": [-32768, 0, 32767],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float8": [0.1, -1e300, 5e-324, math.inf, 1e22],
    "timestamptz": [
        datetime(2031, 5, 4, 12, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2031, 5, 4, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        None,
    ],
    "interval": [timedelta(0), timedelta(days=-3, microseconds=1), timedelta(days=3650), None],
    "uuid": [UUID(int=7), UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")],
    "json": ['{"a": [1, "\\u00e9"]}', None],
    "jsonb": ['{"a": [1, "\\u00e9"]}', None],
    "text[]": [TEXTS, [], [None, "NULL", None], None],
    "bigint[]": [[1, None, -3], []],
    "boolean[]": [[True, False, None]],
    "timestamptz[]": [[datetime(2031, 5, 4, 12, tzinfo=UTC), None]],
    "uuid[]": [[UUID(int=7)]],
}


@pytest.mark.parametrize("kind", VALUES)
async def test_a_parameter_arrives_as_it_does_by_psycopg(elsewhere: Any, database: str, kind: str) -> None:
    await elsewhere.execute("set timezone = 'UTC'")
    with psycopg.connect(database) as other:
        other.execute("set timezone = 'UTC'")
        for value in VALUES[kind]:
            expected = other.execute(f"select (%s::{kind})::text".encode(), [value]).fetchone()
            assert expected is not None
            assert await elsewhere.fetchval(f"select ($1::text::{kind})::text", as_text(value)) == expected[0]


def test_a_parameter_that_has_no_spelling_is_refused() -> None:
    with pytest.raises(TypeError, match="of type object cannot be sent to asyncpg"):
        as_text(object())


async def _with_codecs_of_their_own(connection: Any) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec("uuid", encoder=repr, decoder=str, schema="pg_catalog")
    await connection.set_type_codec("interval", encoder=repr, decoder=str, schema="pg_catalog")


async def test_the_users_codecs_have_no_say_and_stay_as_they_are(
    alone: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    await _with_codecs_of_their_own(alone)

    soon = task.using(connection=alone, delay=timedelta(minutes=5), unique_key="key")
    await soon.aenqueue(1)
    await queue.aenqueue_many([task.call(2), task.using(unique_key="other").call(3)], connection=alone)

    assert sorted(job.args["number"] for job in queue.insight.search().jobs) == [1, 2, 3]
    assert await alone.fetchval("""select '{"mine": 1}'::jsonb""") == {"mine": 1}
    assert await alone.fetchval("select $1::jsonb", {"mine": 1}) == {"mine": 1}


async def test_a_row_class_of_the_users_is_no_hindrance(
    dsn: str, queue: PgQueue, task: Task[[int], None]
) -> None:
    class Dotted(asyncpg.Record):  # type: ignore[misc]  # untyped, as asyncpg is
        def __getattr__(self, name: str) -> Any:
            return self[name]

    async with asyncpg_connection(dsn, record_class=Dotted) as connection:
        handle = await task.using(connection=connection, unique_key="key").aenqueue(1)
        again = await task.using(connection=connection, unique_key="key").aenqueue(1)
    assert (handle.accepted, again.accepted, again.id) == (True, False, handle.id)
    assert queue.job(handle.id).collisions == 1


async def _prepared(connection: Any) -> int:
    return int(
        await connection.fetchval("select count(*) from pg_prepared_statements where statement ~ 'pgqueue'")
    )


async def test_a_statement_is_prepared_once_on_a_connection_that_caches_them(
    alone: Any, task: Task[[int], None]
) -> None:
    for number in range(3):
        await task.using(connection=alone).aenqueue(number)
    assert (
        await _prepared(alone) == 3
    )  # the one that learns what the queue says, the one of those that know it, and the one that asks


async def test_nothing_is_prepared_by_name_behind_a_pooler(
    dsn: str, queue: PgQueue, task: Task[[int], None]
) -> None:
    async with asyncpg_connection(dsn, statement_cache_size=0) as connection:
        await task.using(connection=connection).aenqueue(1)
        await queue.aenqueue_many([task.call(2), task.call(3)], connection=connection)
        assert await _prepared(connection) == 0
    assert _count(dsn) == 3


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "single"])
async def test_a_transaction_begun_by_a_statement_is_joined_too(
    alone: Any, dsn: str, queue: PgQueue, task: Task[[int], None], *, bulk: bool, ending: str
) -> None:
    await alone.execute("begin")
    if bulk:
        await queue.aenqueue_many([task.call(1), task.call(2)], connection=alone)
    else:
        await task.using(connection=alone).aenqueue(1)
    assert _count(dsn) == 0
    await alone.execute(ending)
    assert _count(dsn) == ((2 if bulk else 1) if ending == "commit" else 0)


async def test_a_plan_with_a_transaction_that_fails_within_a_transaction_begun_by_a_statement_takes_nothing_else_along(
    alone: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    await alone.execute("begin")
    await task.using(connection=alone).aenqueue(1)
    with pytest.raises(asyncpg.InvalidTextRepresentationError):
        await queue.database.arun(_adding_and_failing(), alone)
    await task.using(connection=alone).aenqueue(4)
    await alone.execute("commit")
    assert sorted(job.args["number"] for job in queue.insight.search().jobs) == [1, 4]


async def test_a_plan_with_a_transaction_that_is_cancelled_within_a_transaction_takes_nothing_else_along(
    alone: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    async with alone.transaction():
        await task.using(connection=alone).aenqueue(1)
        with pytest.raises(asyncio.CancelledError):
            await queue.database.arun(_adding_and_cancelled(), alone)
    assert [job.task for job in queue.insight.search().jobs] == ["bill"]


@plan(transaction=True)
def _adding_and_failing() -> Steps[None]:
    yield from adding(new_job(), new_job(args=b"no JSON"))


@plan(transaction=True)
def _adding_and_cancelled() -> Steps[None]:
    yield from adding(new_job("cancelled"))
    raise asyncio.CancelledError


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "single"])
async def test_an_engine_in_autocommit_mode_commits_at_once(
    dsn: str, queue: PgQueue, task: Task[[int], None], *, bulk: bool
) -> None:
    async with async_engine(dsn, "asyncpg", isolation_level="AUTOCOMMIT").connect() as connection:
        if bulk:
            await queue.aenqueue_many([task.call(1), task.call(2)], connection=connection)
        else:
            await task.using(connection=connection).aenqueue(1)
        assert _count(dsn) == (2 if bulk else 1)
        await connection.rollback()
    assert _count(dsn) == (2 if bulk else 1)


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "single"])
@pytest.mark.parametrize("nested", [True, False], ids=["savepoint", "transaction"])
async def test_an_enqueue_before_any_statement_of_a_session_is_rolled_back_with_it(
    dsn: str, queue: PgQueue, task: Task[[int], None], *, bulk: bool, nested: bool
) -> None:
    async with AsyncSession(async_engine(dsn, "asyncpg")) as session:
        if nested:
            await session.begin_nested()
        if bulk:
            await queue.aenqueue_many([task.call(1), task.call(2)], connection=session)
        else:
            await task.using(connection=session).aenqueue(1)
        await session.rollback()
    assert _count(dsn) == 0


async def test_the_blocking_face_of_an_asyncpg_engine_is_refused_for_nothing_would_begin_its_transaction(
    dsn: str, task: Task[[int], None]
) -> None:
    async with async_engine(dsn, "asyncpg").connect() as connection:
        with pytest.raises(UnsupportedConnection, match="give the AsyncConnection or AsyncSession itself"):
            await task.using(connection=connection.sync_connection).aenqueue(1)
        with pytest.raises(UnsupportedConnection, match="is asynchronous"):
            task.using(connection=connection.sync_connection).enqueue(1)
    assert _count(dsn) == 0


async def test_a_pool_is_refused_for_it_has_no_transaction(dsn: str, task: Task[[int], None]) -> None:
    async with asyncpg.create_pool(dsn, min_size=0, max_size=1) as pool:
        with pytest.raises(
            UnsupportedConnection, match=r"Pool>: jobs can be enqueued on .*asyncpg Connection"
        ):
            await task.using(connection=pool).aenqueue(1)


def test_the_url_of_an_asyncpg_engine_tells_where_the_database_is() -> None:
    assert PgQueue("postgresql+asyncpg://me@host/shop").database.dsn == "postgresql://me@host/shop"


def test_whoever_hands_over_no_asyncpg_connection_never_loads_asyncpg(dsn: str) -> None:
    program = f"""
import sys, asyncio, psycopg, pgqueue, pgqueue.worker.worker
queue = pgqueue.PgQueue({dsn!r})
@queue.task(name="bill")
def bill(): ...
async def main():
    async with await psycopg.AsyncConnection.connect({dsn!r}) as connection:
        await bill.using(connection=connection).aenqueue()
asyncio.run(main())
print(*sorted({{name.partition('.')[0] for name in sys.modules}} & {{"asyncpg", "sqlalchemy", "django"}}))
"""
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.split() == []
    assert _count(dsn) == 1


async def test_a_lost_connection_does_not_hide_what_ended_a_savepoint(dsn: str) -> None:
    async with asyncpg_connection(dsn) as connection:
        await connection.execute("begin")
        with pytest.raises(ValueError, match="mine"):  # noqa: PT012 - how the block is left is the claim
            async with AsyncpgStepRunner(connection, CATALOGUE).transaction():
                connection.terminate()
                raise ValueError("mine")
