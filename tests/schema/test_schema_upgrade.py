"""Upgrading to a next revision with a history in the tables and workers of this release at work, and back."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from schema.migrating import consists_of
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from store.crowd import ask
from store.drivers import partitions, sqlalchemy_url
from store.releases import NEXT, NextRelease, next_release
from store.samples import adding, error_of, new_job, taking

from pgqueue.errors import DatabaseError
from pgqueue.store.jobs import control, finish
from pgqueue.store.schema import schema
from pgqueue.values.jobs.verdict import Died, Succeeded

ENDED = """
insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,
                                 outcome, queue, task, args)
select n, now(), now(), day, 0, 0, 1, 1, 'succeeded', 'default', 'bill', '{}'
from unnest(array[now(), '2031-05-04 12:00+00']) with ordinality as days (day, n);
insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                               queue, task, args)
values (3, now(), now(), now(), 0, 0, 1, 1, 'asked', 'default', 'bill', '{}');
"""
"""Two jobs of the history, one of a day that has a partition and one of a day that has none, and a dead one."""

NUMBERS = """
select id, ended_in from pgqueue.job_history union all select id, ended_in from pgqueue.dead_jobs order by id
"""
INDEXED = """
select tablename from pg_indexes where schemaname = 'pgqueue' and tablename ~ '^job_history_' and indexdef ~ '.region.$'
"""
PAGES = "select relname, pg_relation_filenode(oid) from pg_class where relname ~ '^(job_history|dead_jobs)' and relkind = 'r'"
VERSION = "select version_num from pgqueue.alembic_version"
THIS = schema.REVISION
NOTHING = "-- Nothing to do here, yet.\n"


@pytest.fixture
def after() -> Iterator[NextRelease]:
    """The next release."""
    with next_release() as release:
        yield release


@pytest.fixture
def hollow(after: NextRelease) -> NextRelease:
    """A next release whose revision's files hold a comment and no statement."""
    for name in ("00_locks.up.sql", "01_large.up.sql", "02_pre.up.sql", "00_all.down.sql"):
        after.file(name).write_text(NOTHING)
    return after


def _all(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def _do(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statements.encode())


def test_a_column_with_a_default_is_there_for_what_had_ended_before_and_no_row_is_rewritten(
    dsn: str, after: NextRelease
) -> None:
    _do(dsn, ENDED)
    pages = dict(_all(dsn, PAGES))

    after.migrate(dsn)

    assert _all(dsn, "select id, region from pgqueue.job_history order by id") == [(1, "here"), (2, "here")]
    assert dict(_all(dsn, PAGES)) == pages


def test_every_day_has_the_index_whenever_it_was_made(dsn: str, after: NextRelease) -> None:
    _do(dsn, "select pgqueue.ensure_history_days('2031-05-01', '2031-05-01')")
    _do(dsn, ENDED)
    after.migrate(dsn)
    _do(dsn, "select pgqueue.ensure_history_days('2031-05-04', '2031-05-05')")

    with psycopg.connect(dsn) as connection:
        days = partitions(connection)
    assert {"job_history_20310501", "job_history_20310505", "job_history_default"} <= set(days)
    assert sorted(_all(dsn, INDEXED)) == sorted((day,) for day in days)


def test_a_job_that_ends_bears_the_number_of_the_transaction_in_which_it_did(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        ask(connection, adding(new_job(), new_job(), new_job()))
        won, lost = ask(connection, taking(count=2))
        connection.commit()
        ask(connection, finish.finish(won.worker_id, [Succeeded(won, 0.0)], keep=True))
        ask(connection, finish.finish(lost.worker_id, [Died(lost, 0.0, "asked", error_of(lost))], keep=True))
        with connection.transaction():
            ask(connection, control.cancel(max(won.id, lost.id) + 1))
        row = connection.execute("select txid_current()").fetchone()

    assert row is not None
    assert [number for _, number in _all(dsn, NUMBERS)] == [row[0]] * 3


def test_down_and_up_again_with_a_history_ends_where_it_began(dsn: str, after: NextRelease) -> None:
    first = consists_of(dsn)
    after.migrate(dsn)
    last = consists_of(dsn)
    _do(dsn, ENDED)

    after.migrate(dsn, schema.REVISION)
    assert consists_of(dsn) == first
    after.migrate(dsn)
    assert consists_of(dsn) == last
    assert len(_all(dsn, NUMBERS)) == 3


def test_an_upgrade_that_never_gets_at_the_tables_gives_up_and_says_whom_to_ask(
    dsn: str, after: NextRelease
) -> None:
    locks = after.file("00_locks.up.sql")
    locks.write_text(locks.read_text().replace("1 .. 120", "1 .. 2"))
    before = consists_of(dsn)
    with psycopg.connect(dsn) as reader:
        reader.execute("select from pgqueue.dead_jobs limit 1")
        with pytest.raises(
            DatabaseError, match=r"kept pgqueue.job_history, dead_jobs or jobs open .*\n.*pg_locks"
        ):
            after.migrate(dsn)

    assert consists_of(dsn) == before


def test_a_file_without_statements_is_run_and_printed(
    dsn: str, hollow: NextRelease, capsys: pytest.CaptureFixture[str]
) -> None:
    before = consists_of(dsn)
    hollow.migrate(dsn)
    hollow.migrate(dsn, schema.REVISION)
    with hollow.installed():
        schema.upgrade_script(revision=f"{THIS}:{NEXT}")
    _do(dsn, capsys.readouterr().out)

    assert consists_of(dsn) == before
    assert _all(dsn, VERSION) == [(NEXT,)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_file_without_statements_is_run_on_an_asyncio_engine(
    driver: str, dsn: str, hollow: NextRelease
) -> None:
    engine = create_async_engine(sqlalchemy_url(dsn, driver), poolclass=NullPool)
    with hollow.installed():
        async with engine.begin() as connection:
            await connection.run_sync(schema.upgrade)

    assert _all(dsn, VERSION) == [(NEXT,)]
