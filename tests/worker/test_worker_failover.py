"""After a failover to a streaming replica, a DSN that names both servers leads workers, pools and the listener to the new primary."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from running import Running
from servers import on_the_oldest, standby_of

from pgqueue import JobHandle, PgQueue
from pgqueue.embedded import Server, embedded_binaries, throwaway_server
from pgqueue.errors import ConnectionFailed
from pgqueue.store.schema import schema

pytestmark = pytest.mark.skipif(on_the_oldest(), reason="the standby is made with the embedded binaries")


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary with the tables, and its hot standby."""
    with throwaway_server(embedded_binaries()) as primary:
        schema.migrate(primary.dsn)
        with standby_of(primary) as standby:
            yield primary, standby


async def test_workers_pools_and_the_listener_go_on_with_the_promoted_standby(
    pair: tuple[Server, Server], running: Running
) -> None:
    folders = [conninfo_to_dict(one.dsn)["host"] for one in pair]
    queue = PgQueue(
        f"postgresql://postgres@/postgres?host={folders[0]},{folders[1]}&target_session_attrs=read-write"
    )
    task = queue.task(name="echo")(_echo)
    async with running(queue, concurrency=2, poll=30, lease=6) as worker:
        assert await (await task.aenqueue(1)).aresult(30) == 1
        waits = await task.using(delay=3600).aenqueue(2)
        await asyncio.to_thread(_fail_over, *pair)

        handle = await _again(queue)
        assert await handle.aresult(60) == 3
        assert await waits.astatus() == "scheduled"
        async with asyncio.timeout(60):
            while not worker.parts.signals.activity.can_listen:  # noqa: ASYNC110 - the listener tells no test
                await asyncio.sleep(0.05)
        assert await (await task.aenqueue(4)).aresult(20) == 4, "a notification, and not the poll, starts it"


def test_a_pooled_connection_to_a_server_that_takes_no_writes_is_not_used_again(queue: PgQueue) -> None:
    task = queue.task(name="echo")(_echo)
    with queue.database.pooled() as connection:
        connection.execute("set default_transaction_read_only = on")
    with pytest.raises(ConnectionFailed, match="target_session_attrs=read-write"):
        task.enqueue(1)
    assert task.enqueue(1).accepted


def _echo(n: int) -> int:
    return n


def _fail_over(primary: Server, standby: Server) -> None:
    with psycopg.connect(primary.dsn) as one, psycopg.connect(standby.dsn, autocommit=True) as other:
        (written,) = one.execute("select pg_current_wal_lsn()").fetchall()
        while other.execute("select pg_last_wal_replay_lsn() < %s::pg_lsn", written).fetchall() == [(True,)]:
            pass
    primary.stop()
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        connection.execute("select pg_promote()")


async def _again(queue: PgQueue) -> JobHandle[int]:
    """Enqueue as a program does that meets the failover: it tries again after an error."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await queue.find_task("echo").aenqueue(3)
            except ConnectionFailed:
                await asyncio.sleep(0.05)
