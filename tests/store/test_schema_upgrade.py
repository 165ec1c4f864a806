"""Upgrading to revision 0002 with a history in the tables and workers of the previous release at work, and back."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from store.crowd import ask, until_statements_wait
from store.drivers import partitions, sqlalchemy_url
from store.former_release import AT_ONCE, at_work
from store.migrating import begun, consists_of
from store.samples import adding, error_of, new_job, taking

from pgqueue.errors import DatabaseError
from pgqueue.store import control, finish, schema
from pgqueue.values.verdict import Died, Succeeded

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
PARTS = """
select relname, pg_get_expr(adbin, adrelid), count(*) filter (where indexdef ~ 'USING brin .ended_in. .*autosummarize')
from pg_class
join pg_attribute on attrelid = pg_class.oid and attname = 'ended_in' and attnotnull
left join pg_attrdef on adrelid = pg_class.oid and adnum = attnum
left join pg_indexes on schemaname = 'pgqueue' and tablename = relname
where relkind = 'r' and relname ~ '^job_history_'
group by relname, adbin, adrelid
"""
PAGES = "select relname, pg_relation_filenode(oid) from pg_class where relname ~ '^(job_history|dead_jobs)' and relkind = 'r'"


@pytest.fixture
def former(empty_dsn: str) -> str:
    """A database with the schema that the previous release made."""
    schema.migrate(empty_dsn, revision="0001")
    return empty_dsn


def _all(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def _upgraded(dsn: str, revision: str = "head") -> int:
    """Upgrade; the number of the transaction that did it."""
    with begun(dsn) as connection:
        schema.upgrade(connection, revision=revision)
        return int(connection.execute(text("select txid_current()")).scalar_one())


def _do(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statements.encode())


def test_what_had_ended_before_counts_as_ended_in_the_upgrade_and_is_not_rewritten(former: str) -> None:
    _do(former, ENDED)
    pages = dict(_all(former, PAGES))

    number = _upgraded(former)

    assert _all(former, NUMBERS) == [(1, number), (2, number), (3, number)]
    assert dict(_all(former, PAGES)) == pages


def test_every_day_has_the_column_and_its_index_whenever_it_was_made(former: str) -> None:
    _do(former, "select pgqueue.ensure_history_days('2031-05-01', '2031-05-01')")
    _do(former, ENDED)
    number = _upgraded(former)
    _do(former, "select pgqueue.ensure_history_days('2031-05-04', '2031-05-05')")

    with psycopg.connect(former) as connection:
        days = partitions(connection)
    assert {"job_history_20310501", "job_history_20310505", "job_history_default"} <= set(days)
    assert sorted(_all(former, PARTS)) == [(day, "txid_current()", 1) for day in sorted(days)]
    stays = "select tableoid::regclass::text, ended_in from pgqueue.job_history where id = 2"
    assert _all(former, stays) == [("pgqueue.job_history_default", number)]


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


def test_down_to_the_former_revision_and_up_again_ends_where_it_began(former: str) -> None:
    first = consists_of(former)
    schema.migrate(former)
    last = consists_of(former)
    _do(former, ENDED)

    schema.migrate(former, revision="0001")
    assert consists_of(former) == first
    schema.migrate(former)
    assert consists_of(former) == last
    assert len(_all(former, NUMBERS)) == 3


def test_workers_of_the_former_release_go_on_before_while_and_after_it_is_upgraded(former: str) -> None:
    with at_work(former, "0002") as worker, ThreadPoolExecutor(1) as threads:
        with psycopg.connect(former) as reader:
            reader.execute("select from pgqueue.job_history limit 1")
            upgrading = threads.submit(_upgraded, former, "0002")
            until_statements_wait(former)
            worker.goes_on()
            assert not upgrading.done()
        number = upgrading.result()
        before = len(worker.ended)
        worker.goes_on()

    numbers = dict(_all(former, NUMBERS))
    assert numbers.keys() == set(worker.ended)
    assert all(numbers[job_id] > number for job_id in worker.ended[before + AT_ONCE :])


def test_an_upgrade_that_never_gets_at_the_tables_gives_up_and_says_whom_to_ask(
    former: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = schema.statements
    monkeypatch.setattr(
        schema, "statements", lambda name, where: whole(name, where).replace("1 .. 120", "1 .. 2")
    )
    before = consists_of(former)
    with psycopg.connect(former) as reader:
        reader.execute("select from pgqueue.dead_jobs limit 1")
        with pytest.raises(
            DatabaseError, match=r"kept pgqueue.job_history or pgqueue.dead_jobs open .*\n.*pg_locks"
        ):
            schema.migrate(former, revision="0002")

    assert consists_of(former) == before


NOTHING = "-- Nothing to do here, yet.\n"


@pytest.fixture
def hollow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second revision whose files hold a comment and no statement."""
    whole = schema.statements
    monkeypatch.setattr(
        schema, "statements", lambda name, where: NOTHING if name.startswith("0002") else whole(name, where)
    )


@pytest.mark.usefixtures("hollow")
def test_a_file_without_statements_is_run_and_printed(
    former: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = consists_of(former)
    schema.migrate(former, revision="0002")
    schema.migrate(former, revision="0001")
    schema.upgrade_script(revision="0001:0002")
    _do(former, capsys.readouterr().out)

    assert consists_of(former) == before
    assert _all(former, "select version_num from pgqueue.alembic_version") == [("0002",)]


@pytest.mark.usefixtures("hollow")
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_file_without_statements_is_run_on_an_asyncio_engine(driver: str, former: str) -> None:
    engine = create_async_engine(sqlalchemy_url(former, driver), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(partial(schema.upgrade, revision="0002"))

    assert _all(former, "select version_num from pgqueue.alembic_version") == [("0002",)]
