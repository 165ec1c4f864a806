"""A flow that a transaction keeps locked holds up its own jobs, and nothing else (promise 11)."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from flows.world import World, a_world
from running import Running
from store.crowd import ask
from store.samples import worker_info

from pgqueue import JobState, PgQueue, Workflow, chain
from pgqueue.store.flows import flow_progress, flow_upkeep
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.workers.lease import LEASE

world = a_world
LOCK = "select id from pgqueue.flows for update"


@pytest.fixture
def holder(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which a transaction of another program is open."""
    with psycopg.connect(dsn) as connection:
        yield connection


async def test_the_verdicts_of_other_jobs_and_flows_are_recorded(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    flow = await chain(noop.call(1), noop.call(2)).aenqueue()
    holder.execute(LOCK)
    free = await chain(noop.call(3), noop.call(4)).aenqueue()
    others = await queue.aenqueue_many(noop.call(n) for n in range(20))
    async with running(queue, concurrency=30):
        for other in [*others, *free.jobs]:
            assert await other.aresult(timeout=20) == 1
        assert flow.jobs[0].status() is JobState.RUNNING
        holder.rollback()
        assert await flow.jobs[1].aresult(timeout=20) == 1


def test_the_jobs_of_lost_workers_are_taken_over(
    world: World, dsn: str, holder: psycopg.Connection[Any]
) -> None:
    world.note.enqueue("alone")
    chain(world.note.using(max_attempts=1).call("first"), world.note.call("last")).enqueue()
    worker = worker_info()
    with psycopg.connect(dsn, autocommit=True) as own:
        ask(own, leases.register(worker, LEASE))
        assert len(ask(own, claim.fill(worker.id, ["default"], 5))) == 2
        own.execute("update pgqueue.workers set lease_until = now() - interval '1 hour'")
        holder.execute(LOCK)
        own.execute("set statement_timeout = '5s'")
        assert list(ask(own, upkeep.reclaim()).values()) == [JobState.READY]
        holder.rollback()
        assert list(ask(own, upkeep.reclaim()).values()) == [JobState.DEAD]
    assert world.states == ["failed"]


def test_what_is_left_to_do_in_it_waits_and_nothing_waits_for_that(
    world: World, dsn: str, holder: psycopg.Connection[Any]
) -> None:
    flow = chain(world.note.call("first"), world.note.call("last")).enqueue()
    with psycopg.connect(dsn, autocommit=True) as own:
        node = "select id, 'follow' from pgqueue.nodes where name = '1'"
        own.execute(f"insert into pgqueue.flow_work (node_id, task) {node}".encode())
        own.execute("delete from pgqueue.jobs where task = 'note' and status = 'ready'")
        holder.execute(LOCK)
        own.execute("set statement_timeout = '5s'")
        assert not ask(own, flow_progress.work())
        assert ask(own, flow_upkeep.settle_stranded()) == 0
        assert world.count("flow_work") == 1
        holder.rollback()
        assert ask(own, flow_progress.work())
        assert world.count("flow_work") == 0
        assert ask(own, flow_upkeep.settle_stranded()) == 1
    assert flow.jobs[1].status() is JobState.CANCELLED


async def test_an_open_transaction_that_added_a_flow_of_a_key_holds_up_only_the_flows_of_that_key(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    def keyed() -> Workflow:
        flow = Workflow(key="k", in_turn=True)
        flow.add("only", noop.call(1))
        return flow

    first = await keyed().aenqueue()
    keyed().enqueue(connection=holder)
    async with running(queue, concurrency=30):
        for _ in range(3):
            others = [await chain(noop.call(3), noop.call(4), noop.call(5)).aenqueue() for _ in range(3)]
            for other in others:
                assert await other.ajoin(timeout=20) == "succeeded"
        assert await first.astatus() == "running"
        holder.commit()
        assert await first.ajoin(timeout=20) == "succeeded"


async def test_a_locked_job_holds_up_only_the_job_that_releases_it(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    first = await chain(noop.call(1), noop.call(2)).aenqueue()
    holder.execute("select from pgqueue.jobs where id = %s for update", [first.jobs[1].id])
    others = [await chain(noop.call(3), noop.call(4), noop.call(5)).aenqueue() for _ in range(5)]
    async with running(queue, concurrency=30):
        for other in others:
            assert await other.ajoin(timeout=20) == "succeeded"
        assert first.jobs[0].status() is JobState.RUNNING
        holder.rollback()
        assert await first.ajoin(timeout=20) == "succeeded"
