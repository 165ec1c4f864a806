"""Where the tests of testing keep jobs: in memory, on PostgreSQL, and in one open transaction of PostgreSQL.

A file of tests takes the fixtures by name: ``queue, clock, database = every_place, a_clock, one_database``.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from store.drivers import one_database

from pgqueue import PgQueue
from pgqueue.testing import Clock, in_database, in_memory, in_transaction

__all__ = ["a_clock", "a_database", "each_database", "empty", "every_place", "not_in_memory", "one_database"]

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
PLACES = ["memory", "database", "transaction"]
not_in_memory = pytest.mark.parametrize("queue", PLACES[1:], indirect=True)
"""For a test of what operators ask, in a file whose other tests run in memory, too."""


@pytest.fixture
def a_clock() -> Clock:
    return Clock(NOON)


@pytest.fixture(params=PLACES)
def every_place(request: pytest.FixtureRequest, clock: Clock) -> Iterator[PgQueue]:
    """A queue whose jobs are in each place in turn; the same must hold in all."""
    yield from _queue_in(request, clock)


@pytest.fixture(params=PLACES[1:])
def each_database(request: pytest.FixtureRequest, clock: Clock) -> Iterator[PgQueue]:
    """The same without memory, for what operators ask."""
    yield from _queue_in(request, clock)


def _queue_in(request: pytest.FixtureRequest, clock: Clock) -> Iterator[PgQueue]:
    queue = PgQueue("")
    with ExitStack() as stack:
        if request.param == "memory":
            stack.enter_context(in_memory(queue, clock=clock))
        else:
            dsn = request.getfixturevalue("emptied")
            stack.enter_context(in_database(queue, dsn, clock=clock))
            if request.param == "transaction":
                connection = stack.enter_context(psycopg.connect(dsn))
                stack.callback(connection.rollback)
                stack.enter_context(in_transaction(queue, connection, clock=clock))
        yield queue


@pytest.fixture
def a_database(database: str) -> str:
    """The file's database, without the rows of earlier tests: a fresh one takes ten times as long."""
    empty(database)
    return database


def empty(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "delete from pgqueue.jobs; delete from pgqueue.job_history; delete from pgqueue.dead_jobs;"
            "delete from pgqueue.workers; delete from pgqueue.lost_workers; delete from pgqueue.queues;"
            "delete from pgqueue.unique_holds; delete from pgqueue.schedules; delete from pgqueue.schedule_ticks;"
            "delete from pgqueue.notes; delete from pgqueue.signals; delete from pgqueue.deadlines; delete from pgqueue.waits;"
            "delete from pgqueue.limits; delete from pgqueue.rates; delete from pgqueue.flows; delete from pgqueue.nodes;"
            "delete from pgqueue.edges; delete from pgqueue.node_counts; delete from pgqueue.flow_work; delete from pgqueue.alerts"
        )
