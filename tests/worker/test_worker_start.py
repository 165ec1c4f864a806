"""A worker that cannot start says why, at once, and leaves nothing open behind."""

import asyncio
import errno
import gc
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from looking import GUARD, ask, until
from servers import free_port

from pgqueue import PgQueue
from pgqueue.errors import (
    ConfigurationError,
    ConnectionFailed,
    InvalidOption,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    UnknownQueue,
)
from pgqueue.worker.worker import Worker


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGQUEUE_DSN", "DATABASE_URL", "PGQUEUE_DIRECT_DSN"):
        monkeypatch.delenv(name, raising=False)


async def refused(queue: PgQueue, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        await Worker(queue).run()
    gc.collect()  # a connection left open would warn here


@pytest.mark.usefixtures("no_settings")
async def test_without_a_database_it_names_the_settings_it_looked_for() -> None:
    await refused(PgQueue(), ConfigurationError, "PGQUEUE_DSN or DATABASE_URL")


async def test_with_a_database_that_is_not_there_it_says_where_it_tried() -> None:
    port = free_port()
    dsn = f"postgresql://user:hush@127.0.0.1:{port}/app"
    with pytest.raises(ConnectionFailed, match=str(port)) as caught:
        await Worker(PgQueue(dsn)).run()
    assert "hush" not in str(caught.value)


async def test_without_a_schema_it_says_to_migrate(empty_dsn: str) -> None:
    await refused(PgQueue(empty_dsn), SchemaMissing, "pgqueue migrate")


async def test_with_a_schema_of_another_name_it_says_which_one_is_missing(dsn: str) -> None:
    await refused(PgQueue(dsn, schema="elsewhere"), SchemaMissing, '"elsewhere"')


async def test_with_an_older_schema_it_says_to_migrate(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.alembic_version set version_num = '0000'")
    await refused(PgQueue(dsn), SchemaTooOld, "pgqueue migrate")


async def test_with_a_schema_that_needs_newer_code_it_says_to_upgrade(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.compatibility set oldest_code = '9999'")
    await refused(PgQueue(dsn), SchemaTooNew, "upgrade pgqueue")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"lease": timedelta(0)},
        {"poll": timedelta(0)},
        {"sweep": timedelta(seconds=-1)},
        {"grace": timedelta(seconds=-1)},
        {"queues": []},
        {"queues": ["two words"]},
        {"queues": "mail"},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidOption, match=name.removesuffix("s")):
        Worker(PgQueue(""), **options)


def test_queues_that_were_not_declared_are_refused() -> None:
    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        Worker(PgQueue("", queues=["mail"]), queues=["mial"])


def test_declared_queues_are_served_by_default_and_repeated_ones_once() -> None:
    assert Worker(PgQueue("", queues=["b", "a"])).queues == ["a", "b"]
    assert Worker(PgQueue(""), queues=["b", "a", "b"]).queues == ["b", "a"]


def test_a_task_whose_annotations_cannot_be_read_is_refused_before_the_start() -> None:
    queue = PgQueue("")

    @queue.task
    def broken(what: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821 - the mistake at hand
        ...

    with pytest.raises(ConfigurationError, match="Nowhere"):
        Worker(queue)


async def test_a_worker_that_is_told_to_stop_while_it_waits_for_the_database_at_its_start_ends(
    queue: PgQueue, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(queue)
    waits = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with psycopg.connect(dsn) as locking:
        locking.execute("lock table pgqueue.workers in access exclusive mode")
        serving = asyncio.create_task(worker.run())
        await until(lambda: ask(dsn, waits))
        worker.stop()
        worker.stop()
        await asyncio.wait_for(serving, GUARD)
        locking.rollback()
    assert "this worker stops before it has started" in caplog.text
    assert ask(queue, "select id from pgqueue.workers") == []


async def test_a_worker_that_is_told_to_stop_while_it_starts_takes_its_leave(queue: PgQueue) -> None:
    worker = Worker(queue)
    worker.stop()
    await asyncio.wait_for(worker.run(), GUARD)
    assert ask(queue, "select id from pgqueue.workers") == []


async def test_without_file_descriptors_for_its_heartbeats_loop_it_ends_with_the_error(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asyncio.events.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        if threading.current_thread().name == "pgqueue-heartbeat":
            raise OSError(errno.EMFILE, "Too many open files")
        return made()

    monkeypatch.setattr("asyncio.events.new_event_loop", new_event_loop)
    async with asyncio.timeout(GUARD):
        await refused(queue, OSError, "Too many open files")
    assert not [one for one in threading.enumerate() if one.name == "pgqueue-heartbeat"]


async def test_where_gevent_has_replaced_threads_it_says_so(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat and its plain functions would wait for a loop that never turns, and say nothing."""
    patched = SimpleNamespace(is_module_patched=lambda name: name == "threading")
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    await refused(PgQueue(dsn), ConfigurationError, "gevent has replaced")
