"""The first connection of a pool: the schema is checked on it, and the first statement runs on it."""

import asyncio
from typing import Any

import psycopg
import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import ConnectionFailed, SchemaMissing
from pgqueue.store.connections.session import OWN, settings_after

NEW_SETTINGS = {"transaction_timeout", "idle_session_timeout"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    blocking, awaited = psycopg.Connection.connect, psycopg.AsyncConnection.connect

    def connect(cls: Any, *args: Any, **options: Any) -> Any:
        made.append(blocking.__func__(cls, *args, **options))  # type: ignore[attr-defined]
        return made[-1]

    async def aconnect(cls: Any, *args: Any, **options: Any) -> Any:
        made.append(await awaited.__func__(cls, *args, **options))  # type: ignore[attr-defined]
        return made[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(connect))
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(aconnect))
    return made


def test_the_first_call_of_a_process_makes_one_connection(queue: PgQueue, opened: list[Any]) -> None:
    assert queue.insight.search().jobs == ()
    assert queue.insight.search().jobs == ()
    assert len(opened) == 1


async def test_the_first_call_of_a_loop_makes_one_connection(queue: PgQueue, opened: list[Any]) -> None:
    assert (await queue.insight.asearch()).jobs == ()
    assert (await queue.insight.asearch()).jobs == ()
    assert len(opened) == 1
    await queue.aclose()


async def test_first_calls_at_the_same_time_share_a_pool_and_leave_no_connection_open(
    queue: PgQueue, opened: list[Any]
) -> None:
    assert await asyncio.gather(*(queue.insight.acounts() for _ in range(5))) == [([], [])] * 5
    await queue.aclose()
    assert [connection.closed for connection in opened] == [True] * len(opened)


async def test_a_pool_that_no_call_has_used_is_closed_with_its_connection(
    queue: PgQueue, opened: list[Any]
) -> None:
    queue.database.pools.blocking()
    await queue.database.pools.awaitable()
    await queue.aclose()
    queue.close()
    assert [connection.closed for connection in opened] == [True, True]


async def test_a_database_without_the_tables_is_left_without_a_connection(
    empty_dsn: str, opened: list[Any]
) -> None:
    queue = PgQueue(empty_dsn)
    with pytest.raises(SchemaMissing):
        queue.insight.search()
    with pytest.raises(SchemaMissing):
        await queue.insight.asearch()
    assert [connection.closed for connection in opened] == [True, True]


@pytest.mark.parametrize("kind", ["blocking", "awaitable"])
async def test_settings_that_the_server_does_not_know_are_left_out_after_the_first_call(
    queue: PgQueue, kind: str
) -> None:
    (await queue.insight.asearch()).jobs if kind == "awaitable" else queue.insight.search().jobs
    options = queue.database.connect_options(queue.database.dsn, OWN)["options"]
    await queue.aclose()
    sent = {name for name in OWN if f"-c {name}=" in options}
    known = {name for (name,) in ask(queue, "select name from pg_settings")}
    assert sent == known & set(OWN)


async def test_a_pool_compiles_no_statement_also_after_a_transaction_that_did(queue: PgQueue) -> None:
    """Servers with LLVM compile what the planner holds to be long: 25 ms for each of our statements on tables without statistics."""
    with queue.database.transaction() as first:
        first.execute("set jit = on")
    with queue.database.pooled() as same, queue.database.pooled() as second:
        found = [one.execute("show jit").fetchone() for one in (same, second)]
    async with queue.database.apooled() as third, queue.database.apooled() as fourth:
        found += [await (await one.execute("show jit")).fetchone() for one in (third, fourth)]
    await queue.aclose()
    assert found == [("off",)] * 4


def test_a_setting_is_left_out_before_the_version_that_brought_it() -> None:
    assert settings_after(13_00_22) == NEW_SETTINGS
    assert settings_after(14_00_00) == {"transaction_timeout"}
    assert settings_after(16_00_09) == {"transaction_timeout"}
    assert settings_after(17_00_00) == set()


async def test_a_connection_that_is_lost_while_the_schema_is_checked_is_a_failed_connection(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, aconnect = queue.database.connect, queue.database.aconnect

    def lost(opened: Any) -> Any:
        ask(dsn, "select pg_terminate_backend(%s, 5000)", opened.info.backend_pid)
        return opened

    async def alost(**given: Any) -> Any:
        return lost(await aconnect(**given))

    monkeypatch.setattr(queue.database, "connect", lambda **given: lost(connect(**given)))
    monkeypatch.setattr(queue.database, "aconnect", alost)
    with pytest.raises(ConnectionFailed, match="the connection was lost") as verified:
        queue.database.verify()
    with pytest.raises(ConnectionFailed, match="the connection was lost") as averified:
        await queue.database.averified()
    for error in (verified.value, averified.value):
        assert (error.maybe_done, str(error).endswith("; nothing was done")) == (False, True)
