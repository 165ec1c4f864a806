"""Upgrading to revision 0002 with a history in the tables and workers of the previous release at work, and back."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from store.crowd import ask, until_somebody_waits
from store.drivers import partitions, sqlalchemy_url
from store.migrating import begun, consists_of
from store.samples import LEASE, adding, error_of, new_job, taking, worker_info

from pgqueue.errors import DatabaseError
from pgqueue.store import claim, control, finish, schema
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Buried, Succeeded, Verdict

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


def _upgraded(dsn: str) -> int:
    """Upgrade; the number of the transaction that did it."""
    with begun(dsn) as connection:
        schema.upgrade(connection)
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
    _do(former, "select pgqueue.ensure_history_days('2031-05-04', '2031-05-04')")

    with psycopg.connect(former) as connection:
        days = partitions(connection)
    assert {"job_history_20310501", "job_history_20310504", "job_history_default"} <= set(days)
    assert sorted(_all(former, PARTS)) == [(day, "txid_current()", 1) for day in sorted(days)]
    moved = "select tableoid::regclass::text, ended_in from pgqueue.job_history where id = 2"
    assert _all(former, moved) == [("pgqueue.job_history_20310504", number)]


def test_a_job_that_ends_bears_the_number_of_the_transaction_in_which_it_did(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        ask(connection, adding(new_job(), new_job(), new_job()))
        won, lost = ask(connection, taking(count=2))
        connection.commit()
        ask(connection, finish.complete(won.worker_id, [Succeeded(won, 0.0)], keep=True))
        ask(connection, finish.bury(lost.worker_id, [Buried(lost, 0.0, "asked", error_of(lost))]))
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


class FormerWorker:
    """A worker that sends the statements of the previous release, which name no column of this one."""

    def __init__(self, dsn: str) -> None:
        """Begin with nothing done."""
        self.done: dict[int, Verdict] = {}
        self._dsn = dsn
        self._stopping = threading.Event()
        self._told = threading.Condition()

    def run(self) -> None:
        """Enqueue, claim and end jobs, one after the other; by turns they succeed and die."""
        info = worker_info()
        with psycopg.connect(self._dsn, autocommit=True, options="-c statement_timeout=10s") as own:
            ask(own, claim.register(info, LEASE))
            while not self._stopping.is_set():
                ask(own, adding(new_job()))
                (taken,) = ask(own, taking(worker=info.id))
                verdict = self._verdict_on(taken)
                assert ask(own, finish.finish(info.id, [verdict], keep=True)) == {taken.id}
                with self._told:
                    self.done[taken.id] = verdict
                    self._told.notify_all()

    def goes_on(self) -> None:
        """Return when it has ended some more, so many that psycopg has each statement prepared."""
        with self._told:
            goal = len(self.done) + 20
            assert self._told.wait_for(lambda: len(self.done) >= goal, timeout=30)

    def stop(self) -> None:
        """End after the job at hand."""
        self._stopping.set()

    def _verdict_on(self, taken: Claim) -> Verdict:
        if len(self.done) % 2:
            return Buried(taken, 0.0, "asked", error_of(taken))
        return Succeeded(taken, 0.0)


@contextmanager
def at_work(dsn: str) -> Iterator[FormerWorker]:
    """Such a worker, for the length of a block; what goes wrong with it fails the test."""
    worker = FormerWorker(dsn)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.run)
        try:
            worker.goes_on()
            yield worker
        finally:
            worker.stop()
        running.result()


def test_workers_of_the_former_release_go_on_before_while_and_after_it_is_upgraded(former: str) -> None:
    with at_work(former) as worker, ThreadPoolExecutor(1) as threads:
        with psycopg.connect(former) as reader:
            reader.execute("select from pgqueue.job_history limit 1")
            upgrading = threads.submit(_upgraded, former)
            until_somebody_waits(former)
            worker.goes_on()
            assert not upgrading.done()
        number = upgrading.result()
        before = len(worker.done)
        worker.goes_on()

    numbers = dict(_all(former, NUMBERS))
    assert numbers.keys() == worker.done.keys()
    assert all(ended_in > number for ended_in in list(numbers.values())[before + 1 :])


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
            schema.migrate(former)

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
    schema.migrate(former)
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
        await connection.run_sync(schema.upgrade)

    assert _all(former, "select version_num from pgqueue.alembic_version") == [("0002",)]
