"""What a drain runs: the jobs in memory and those of a database for tests, and no others unless it is told to."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqueue import JobState, PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.testing import Clock, adrain, drain, in_database, in_memory, in_transaction
from pgqueue.testing.draining import is_for_tests

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
