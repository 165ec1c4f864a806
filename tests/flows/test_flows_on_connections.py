"""Flows on every kind of connection: enqueued in its transaction, or not at all."""

from contextlib import suppress
from typing import Any

from flows.world import World
from store.drivers import Ask, every_kind, one_database

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.app.flows.chains import Flow
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.testing import adrain

ask, database = every_kind, one_database

NASTY = 'a\\b\tc\nd "é" %s %(x)s'


async def enqueued(flow: Flow, ask: Ask) -> FlowHandle:
    """Enqueue a flow on the connection, in its current transaction, if it has one."""
    if ask.kind.awaits:
        return await flow.aenqueue(connection=ask.connection)
    return flow.enqueue(connection=ask.connection)


def a_flow(world: World, say: Any = NASTY) -> Flow:
    """A flow that has every row that a flow can have: keyed jobs, groups, names, edges and waits."""
    flow = Workflow(NASTY)
    flow.add(NASTY, chain(world.note.call(1), group([world.note.call(say)] * 3)))
    flow.add("last", world.note.using(unique_key=NASTY, meta={"a": NASTY}).call("last"), after=NASTY)
    return flow


async def test_a_flow_exists_if_the_transaction_commits_and_only_then(ask: Ask) -> None:
    queue = PgQueue(ask.dsn)
    world = World(queue, None)
    with suppress(ZeroDivisionError):
        async with ask.transaction():
            await enqueued(a_flow(world), ask)
            _ = 1 / 0
    assert await adrain(queue) == []
    async with ask.transaction():
        with suppress(ZeroDivisionError):
            async with ask.savepoint():
                await enqueued(a_flow(world), ask)
                _ = 1 / 0
        handle = await enqueued(a_flow(world), ask)
        assert queue.insight.search().jobs == ()
    ran = await adrain(queue)
    assert [one.id for one in ran] == [job.id for job in handle.jobs]
    assert world.noted == [1, NASTY, NASTY, NASTY, "last"]
    assert queue.insight.search(unique_key=NASTY).jobs[0].meta == {"a": NASTY}
    await queue.aclose()
    queue.close()


async def test_a_large_flow_is_copied_whole(ask: Ask) -> None:
    queue = PgQueue(ask.dsn)
    world = World(queue, None)
    async with ask.transaction():
        handle = await enqueued(group([world.note.call([NASTY, n]) for n in range(1200)]), ask)
    assert {job.id for job in queue.insight.search(limit=10_000).jobs} == {job.id for job in handle.jobs}
    assert [job.args["what"] for job in queue.insight.search(limit=10_000).jobs][::-1] == [
        [NASTY, n] for n in range(1200)
    ]
    queue.close()
