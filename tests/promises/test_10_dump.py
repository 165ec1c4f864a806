"""Promise 10: a dump that is made while workers run is restored elsewhere, and work goes on there, nothing lost or doubled."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from looking import ask, until
from running import Running

from pgqueue import Context, PgQueue
from pgqueue.embedded import embedded_binaries, throwaway_server

HELD = 0
"""The order whose job runs while the dump is made."""
ENOUGH = 20
APP = "create table orders (id bigint primary key); create table effects (place bigint)"
EVERY_JOB_ONCE = """
select (select array_agg(id order by id) from orders)
     = (select array_agg((args ->> 'place')::bigint order by (args ->> 'place')::bigint) from pgqueue.all_jobs)
"""
EFFECTS_OF_WHAT_SUCCEEDED = """
select (select array_agg(place order by place) from effects)
     = (select array_agg((args ->> 'place')::bigint order by (args ->> 'place')::bigint) from pgqueue.job_history)
"""


class Shop:
    """An app that adds a job for each order, in the order's transaction, and writes an effect in the job's."""

    def __init__(self, dsn: str, gate: asyncio.Event) -> None:
        self.queue = PgQueue(dsn)
        self.holding = asyncio.Event()
        self._gate = gate
        self.sell = self.queue.task(name="sell")(self._sell)

    async def _sell(self, ctx: Context, place: int) -> None:
        if place == HELD:
            self.holding.set()
            await self._gate.wait()
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [place])

    @asynccontextmanager
    async def open(self, dsn: str) -> AsyncIterator[None]:
        """Orders come in, one after the other, for the length of a block."""
        selling = asyncio.create_task(self._orders(dsn))
        try:
            yield
        finally:
            selling.cancel()
            await asyncio.gather(selling, return_exceptions=True)

    async def _orders(self, dsn: str) -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            for place in range(HELD, 1_000_000):
                async with connection.transaction():
                    await connection.execute("insert into orders values (%s)", [place])
                    await self.sell.using(connection=connection).aenqueue(place)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """Another server."""
    with throwaway_server(embedded_binaries()) as server:
        yield server.dsn


async def test_a_dump_of_a_running_system_goes_on_on_another_server(
    dsn: str, elsewhere: str, tmp_path: Path, running: Running
) -> None:
    ask(dsn, APP)
    gate = asyncio.Event()
    shop, copy = Shop(dsn, gate), Shop(elsewhere, gate)
    async with running(shop.queue, concurrency=4, lease=1), shop.open(dsn):
        await shop.holding.wait()
        await until(lambda: len(ask(dsn, "select 1 from effects")) >= ENOUGH)
        await _run("pg_dump", "-Fc", "-f", str(tmp_path / "dump"), dsn)
        gate.set()

    await _run("pg_restore", "--no-owner", "-d", elsewhere, str(tmp_path / "dump"))
    assert ask(elsewhere, EVERY_JOB_ONCE) == [(True,)]
    assert ask(elsewhere, EFFECTS_OF_WHAT_SUCCEEDED) == [(True,)]
    assert (
        ask(elsewhere, "select args ->> 'place' from pgqueue.jobs where status = 'running'").count(("0",))
        == 1
    )

    ask(elsewhere, "insert into orders values (-1)")
    added = await copy.sell.aenqueue(-1)
    async with running(copy.queue, concurrency=4, lease=1):
        await until(lambda: ask(elsewhere, "select 1 from pgqueue.jobs") == [])
    assert ask(elsewhere, "select place from effects order by 1") == ask(
        elsewhere, "select id from orders order by 1"
    )
    assert added.id == ask(elsewhere, "select max(id) from pgqueue.all_jobs")[0][0]
    assert ask(elsewhere, "select attempts from pgqueue.all_jobs where args ->> 'place' = '0'") == [(2,)]


async def _run(program: str, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(embedded_binaries() / program), *words, stdout=PIPE, stderr=PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
