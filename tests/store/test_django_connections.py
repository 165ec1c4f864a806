"""What Django's connections need beyond the conformance suite: their own states are heeded, and other databases refused."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections
from django.db.transaction import TransactionManagementError
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from store.drivers import atomic, django_connection

from pgqueue import PgQueue, Task
from pgqueue.errors import UnsupportedConnection


@pytest.fixture
def connection(dsn: str) -> Iterator[Any]:
    """A Django connection to the fresh database, not open yet."""
    with django_connection(dsn) as made:
        yield made


@pytest.fixture
def task(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="bill")
    def bill(number: int) -> None: ...

    return bill


def test_a_transaction_that_is_to_be_rolled_back_takes_no_more_jobs(
    connection: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    with atomic(connection):
        with suppress(DatabaseError), atomic(connection, savepoint=False):
            connection.cursor().execute("select no_such_column")
        with pytest.raises(TransactionManagementError, match="until the end of the 'atomic' block"):
            task.using(connection=connection).enqueue(1)
    assert queue.insight.search().jobs == ()


def test_a_connection_that_was_closed_is_opened(
    connection: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    connection.close()
    task.using(connection=connection).enqueue(1)
    assert len(queue.insight.search().jobs) == 1


def test_the_name_that_stands_for_the_current_connection_is_taken(
    connection: Any, queue: PgQueue, task: Task[[int], None]
) -> None:
    with atomic(connection):
        task.using(connection=ConnectionProxy(connections, connection.alias)).enqueue(1)
        assert queue.insight.search().jobs == ()
    assert len(queue.insight.search().jobs) == 1


def test_a_loop_is_no_place_to_block_and_django_says_so(
    connection: Any, task: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def within_a_loop() -> None:
        task.using(connection=connection).enqueue(1)

    monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE")
    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(within_a_loop())


def test_a_database_other_than_postgresql_is_refused(task: Task[[int], None]) -> None:
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    other = ConnectionHandler({"default": sqlite})["default"]
    with pytest.raises(
        UnsupportedConnection, match=r"sqlite3.base.DatabaseWrapper>: jobs can be enqueued on"
    ):
        task.using(connection=other).enqueue(1)


def test_the_handler_of_all_connections_is_refused_for_it_is_none_of_them(task: Task[[int], None]) -> None:
    with pytest.raises(UnsupportedConnection, match=r"ConnectionHandler>: jobs can be enqueued on"):
        task.using(connection=connections).enqueue(1)
