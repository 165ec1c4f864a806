"""What a worker's log says of a connection whose plans are tried again: why, how often, and when it works again."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from looking import ask, until
from psycopg import errors
from worker.proxy import Proxy

from pgqueue import PgQueue
from pgqueue.embedded import Server, embedded_binaries, throwaway_server
from pgqueue.errors import ConnectionFailed
from pgqueue.store import retention
from pgqueue.store.connections.answering import NoAnswer
from pgqueue.store.schema import schema
from pgqueue.store.workers import upkeep
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.troubles import (
    FIRST_REMINDER,
    LONGEST_REMINDER,
    Reminder,
    RetryCause,
    Troubles,
    cause_of,
    first_line,
)

WORKS = "the database works again"
NO_SLOT = "connection to server at localhost failed: FATAL:  sorry, too many clients already"


class Log:
    """What the worker has logged of its connections."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [record.message for record in self._records()]

    def field(self, name: str) -> list[object]:
        """A field of each line that has it."""
        return [record.__dict__[name] for record in self._records() if name in record.__dict__]

    def _records(self) -> list[logging.LogRecord]:
        return [record for record in self._caplog.records if "connection" in record.__dict__]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


@pytest.fixture
def small() -> Iterator[Server]:
    with throwaway_server(embedded_binaries()) as server:
        server.stop()
        server.settings |= {
            "max_connections": "4",
            "superuser_reserved_connections": "0",
            "max_wal_senders": "0",
        }
        server.start()
        schema.migrate(server.dsn)
        yield server


async def test_a_lock_timeout_is_called_a_refused_statement(queue: PgQueue, log: Log) -> None:
    """The log said "database away"."""
    link = WorkerConnection("test", queue.database, settings={"lock_timeout": "20ms"})
    with psycopg.connect(queue.database.dsn) as other:
        other.execute("lock table pgqueue.lost_workers in access exclusive mode")
        reclaiming = asyncio.create_task(link.run(upkeep.reclaim()))
        await until(lambda: log.lines)
        other.rollback()
    await reclaiming
    await link.close()
    assert log.lines == [RetryCause.REFUSED.value, WORKS]
    assert log.field("error") == ["canceling statement due to lock timeout"]


async def test_another_plan_that_succeeds_does_not_end_the_refusal_of_one(queue: PgQueue, log: Log) -> None:
    link = WorkerConnection("test", queue.database, settings={"lock_timeout": "20ms"})
    with psycopg.connect(queue.database.dsn) as other:
        other.execute("lock table pgqueue.lost_workers in access exclusive mode")
        reclaiming = asyncio.create_task(link.run(upkeep.reclaim()))
        await until(lambda: log.lines)
        await link.run(retention.keep_for(None, None, said_by="test"))
        assert log.lines == [RetryCause.REFUSED.value]
        reclaiming.cancel()
        await asyncio.wait([reclaiming])
    await link.close()


async def test_a_deadline_of_the_worker_is_not_called_a_lost_connection(dsn: str, log: Log) -> None:
    """The log said "server closed the connection unexpectedly"."""
    async with Proxy(dsn).running() as proxy:
        link = WorkerConnection("test", PgQueue(proxy.dsn).database, bound=0.5)
        await link.run(upkeep.poll())
        proxy.silence_those_open()
        await link.run(upkeep.poll())
        assert log.lines == [RetryCause.NO_ANSWER.value, WORKS]
        (error,) = log.field("error")
        assert re.fullmatch(r"no answer for 0\.\d s, so the connection was closed", str(error))
        proxy.silence_those_open()
        with pytest.raises(NoAnswer, match=r"no answer for 0\.\d s"):
            await link.once(upkeep.poll())
        await link.close()


async def test_missing_tables_are_called_that_and_not_a_lost_connection(queue: PgQueue, log: Log) -> None:
    link = WorkerConnection("test", queue.database)
    ask(queue, "alter schema pgqueue rename to away")
    running = asyncio.create_task(link.run(upkeep.reclaim()))
    await until(lambda: log.lines)
    ask(queue, "alter schema away rename to pgqueue")
    await running
    await link.close()
    assert log.lines == [RetryCause.NO_TABLES.value, WORKS]


async def test_a_read_only_database_is_called_that_in_one_line_without_the_statement(
    queue: PgQueue, log: Log
) -> None:
    link = WorkerConnection("test", queue.database, settings={"default_transaction_read_only": "on"})
    running = asyncio.create_task(link.run(upkeep.reclaim()))
    await until(lambda: log.lines)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await link.close()
    assert log.lines == [RetryCause.READ_ONLY.value]
    (said,) = log.field("error")
    assert str(said).endswith("in a read-only transaction")


async def test_a_server_without_a_free_slot_is_called_that_and_not_a_wrong_dsn(
    small: Server, log: Log
) -> None:
    link = WorkerConnection("test", PgQueue(small.dsn).database)
    others = [psycopg.connect(small.dsn) for _ in range(4)]
    polling = asyncio.create_task(link.run(upkeep.poll()))
    await until(lambda: log.lines)
    for other in others:
        other.close()
    await polling
    await link.close()
    assert log.lines == [RetryCause.NO_SLOT.value, WORKS]
    (said,) = log.field("error")
    assert str(said).endswith("sorry, too many clients already")


async def test_the_end_of_an_outage_is_logged_with_its_length(small: Server, log: Log) -> None:
    link = WorkerConnection("test", PgQueue(small.dsn).database)
    await link.run(upkeep.poll())
    await asyncio.to_thread(small.stop)
    polling = asyncio.create_task(link.run(upkeep.poll()))
    await until(lambda: link.losses > 2)
    await asyncio.to_thread(small.start)
    await polling
    await link.close()
    assert log.lines == [RetryCause.LOST.value, WORKS]
    (seconds,) = log.field("seconds")
    assert float(str(seconds)) > 0


def test_a_failure_that_lasts_is_logged_at_growing_intervals() -> None:
    """It was logged at each try: 4,000 lines an hour for each process."""
    reminder = Reminder()
    logged = [second for second in range(0, 3600, 5) if reminder.failed(now=second)]
    assert logged == [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300]
    assert (logged[1], logged[-1] - logged[-2]) == (FIRST_REMINDER, LONGEST_REMINDER)
    assert reminder.ended(now=3600) == 3600


def test_a_failure_that_comes_and_goes_is_logged_once_a_minute() -> None:
    reminder = Reminder()
    logged = []
    for second in range(0, 300, 10):
        if reminder.failed(now=second):
            logged.append(second)
            assert reminder.ended(now=second + 1) == 1
        else:
            assert reminder.ended(now=second + 1) is None
    assert logged == [0, 60, 120, 180, 240]


def test_a_new_failure_after_a_long_one_is_logged_at_once() -> None:
    reminder = Reminder()
    for second in range(0, 3305, 5):
        reminder.failed(now=second)
    reminder.ended(now=3305)
    assert reminder.failed(now=3365)


def test_each_cause_is_logged_once(log: Log) -> None:
    troubles = Troubles("test")
    for _ in range(100):
        troubles.failed(errors.LockNotAvailable("locked"))
        troubles.failed(errors.AdminShutdown("shut down"))
    troubles.connection_works()
    troubles.connection_works()
    assert log.lines == [RetryCause.REFUSED.value, RetryCause.LOST.value, WORKS]


def test_a_refusal_that_was_told_to_the_caller_is_no_part_of_the_next_one(log: Log) -> None:
    troubles = Troubles("test")
    troubles.failed(errors.LockNotAvailable("locked"))
    troubles.plan_given_up()
    troubles.plan_done()
    assert log.lines == [RetryCause.REFUSED.value]


def _refused(reason: str) -> ConnectionFailed:
    error = ConnectionFailed(f"cannot connect to db: {reason}; check --dsn, PGQUEUE_DSN or DATABASE_URL")
    error.__cause__ = psycopg.OperationalError(f"connection failed: {reason}")
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errors.AdminShutdown(), RetryCause.LOST),
        (errors.CannotConnectNow(), RetryCause.LOST),
        (errors.ConnectionException(), RetryCause.LOST),
        (errors.IdleInTransactionSessionTimeout(), RetryCause.LOST),
        (psycopg.OperationalError("server closed the connection unexpectedly"), RetryCause.LOST),
        (_refused("Connection refused"), RetryCause.LOST),
        (_refused(NO_SLOT), RetryCause.NO_SLOT),
        (errors.TooManyConnections(), RetryCause.NO_SLOT),
        (NoAnswer("no answer within 5 s"), RetryCause.NO_ANSWER),
        (errors.ReadOnlySqlTransaction(), RetryCause.READ_ONLY),
        (errors.LockNotAvailable(), RetryCause.REFUSED),
        (errors.DeadlockDetected(), RetryCause.REFUSED),
        (errors.QueryCanceled(), RetryCause.REFUSED),
        (errors.DiskFull(), RetryCause.REFUSED),
    ],
    ids=repr,
)
def test_the_cause_is_read_from_the_error(error: Exception, cause: RetryCause) -> None:
    assert cause_of(error) is cause


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            errors.ReadOnlySqlTransaction("cannot execute UPDATE\nCONTEXT:  SQL statement"),
            "cannot execute UPDATE",
        ),
        (_refused(NO_SLOT), f"connection failed: {NO_SLOT}"),
        (ConnectionFailed(""), ""),
    ],
    ids=repr,
)
def test_a_log_line_has_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
