"""The cursor that a connection of ours keeps: it holds no big answer in memory, and runs any next statement."""

import gc

import psycopg
import pytest
from store.samples import adding, new_job

from pgqueue import PgQueue
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import FEW, OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan, Steps, plan, run
from pgqueue.store.schema import schema
from pgqueue.values.jobs.job import Job

MANY = FEW + 1


@pytest.fixture
def queue(queue: PgQueue) -> PgQueue:
    """With more jobs than a kept cursor may hold."""
    queue.database.run(adding(*[new_job() for _ in range(MANY)]))
    return queue


def test_a_connection_goes_on_with_the_cursor_it_has(queue: PgQueue) -> None:
    with queue.database.pooled() as connection:
        run(_jobs(1), connection.steps(queue.database.catalogue))
        before = [one for one in _own_cursors() if one.connection is connection]
        assert len(before) == 1
        run(_jobs(1), connection.steps(queue.database.catalogue))
        assert [one for one in _own_cursors() if one.connection is connection] == before


def test_a_connection_runs_the_statements_of_the_schema_that_is_asked(dsn: str) -> None:
    schema.migrate(dsn, schema="other")
    with Database(dsn).pooled() as connection:
        for name in ("pgqueue", "other", "pgqueue"):
            run(adding(new_job()), connection.steps(catalogue_of(name)))
        counts = "select (select count(*) from pgqueue.jobs), (select count(*) from other.jobs)"
        assert connection.execute(counts).fetchone() == (2, 1)


def test_a_big_answer_is_not_kept_on_a_blocking_connection(queue: PgQueue) -> None:
    assert len(queue.database.run(_jobs(MANY))) == MANY
    assert _most_rows_kept() <= FEW


async def test_a_big_answer_is_not_kept_on_an_awaitable_connection(queue: PgQueue) -> None:
    assert len(await queue.database.arun(_jobs(MANY))) == MANY
    assert _most_rows_kept() <= FEW


def test_statements_of_one_plan_share_a_pipeline(dsn: str) -> None:
    """On a user's connection in psycopg's pipeline mode, where answers come late."""
    with psycopg.connect(dsn, autocommit=True) as connection, connection.pipeline():
        first, second, jobs = Database(dsn).run(_two_and_a_look(), connection)
    assert {job.id for job in jobs} == {first, second}


def test_a_statement_that_failed_leaves_the_next_one_unharmed(queue: PgQueue) -> None:
    with queue.database.pooled() as connection:
        steps = connection.steps(queue.database.catalogue)
        connection.execute("set lock_timeout = 1")
        with psycopg.connect(queue.database.dsn) as other:
            other.execute("lock pgqueue.jobs")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                run(_jobs(1), steps)
        assert len(run(_jobs(1), steps)) == 1


def _jobs(limit: int) -> Plan[list[Job]]:
    return control.newest(limit=limit)


@plan
def _two_and_a_look() -> Steps[tuple[int, int, list[Job]]]:
    first, second = yield from adding(new_job(), new_job())
    return first, second, (yield from _jobs(10))


def _own_cursors() -> list[psycopg.Cursor | psycopg.AsyncCursor]:
    gc.collect()
    of_psycopg = psycopg.Cursor, psycopg.AsyncCursor
    # Not isinstance: it asks the object, and a lazy one of Django's then wants its settings.
    cursors = [one for one in gc.get_objects() if issubclass(type(one), of_psycopg)]
    return [one for one in cursors if isinstance(one.connection, OwnConnection | OwnAsyncConnection)]


def _most_rows_kept() -> int:
    cursors = _own_cursors()
    assert cursors
    return max((result.ntuples for cursor in cursors if (result := cursor.pgresult)), default=0)
