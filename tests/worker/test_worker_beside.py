"""Several workers in one process, each with its own tasks and slots, that share connections."""

import asyncio
from datetime import timedelta

import pytest
from looking import ask, until
from worker.helping import ended

from pgqueue import PgQueue, Worker
from pgqueue.errors import ConfigurationError


async def test_workers_of_their_own_tasks_share_connections_and_no_slots(queue: PgQueue) -> None:
    hold, inside = asyncio.Event(), list[str]()

    @queue.task(name="slow.hold")
    async def slow() -> None:
        inside.append("slow")
        await hold.wait()

    @queue.task(name="fast.run")
    async def fast() -> None: ...

    first = Worker(queue, tasks=["slow.*"], concurrency=1, grace=timedelta(seconds=5))
    second = Worker(queue, tasks=["fast.*"], concurrency=2, beside=first)
    running = [asyncio.create_task(worker.run()) for worker in (first, second)]
    held = [await slow.aenqueue() for _ in range(2)]
    await until(lambda: inside)
    await ended(queue, *[await fast.aenqueue() for _ in range(5)])
    assert (inside, first.inspect().slots_taken) == (["slow"], 1)
    count = "select count(*) from pg_catalog.pg_stat_activity where application_name = 'pgqueue worker'"
    assert second.parts.connections.claiming is first.parts.connections.claiming
    assert second.parts.connections.heartbeat is not first.parts.connections.heartbeat
    assert ask(queue, count)[0][0] <= 9
    second.stop()
    await running[1]
    hold.set()  # the other goes on
    await ended(queue, *held)
    first.stop()
    await running[0]


def test_a_worker_of_another_database_shares_none(queue: PgQueue) -> None:
    other = PgQueue(queue.database.dsn)
    with pytest.raises(ConfigurationError, match="another database"):
        Worker(other, beside=Worker(queue))


async def test_a_worker_that_was_made_and_never_ran_keeps_no_connection_open(queue: PgQueue) -> None:
    first = Worker(queue)
    Worker(queue, beside=first)
    running = asyncio.create_task(first.run())
    await until(lambda: first.inspect().waits)
    first.stop()
    await running
    assert not first.parts.connections.users
