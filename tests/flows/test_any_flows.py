"""Any flows that grow, are retried and cancelled, on PostgreSQL: each node ends once, and what follows is released with that."""

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from flows.test_flows_in_memory import LEAVES, Chain, Graph, Group, build, inner
from flows.world import World
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from neighbours.places import empty, one_database

from pgqueue import Context, PgQueue, Workflow, chain, group
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.errors import FlowRefused
from pgqueue.testing import in_database

database = one_database

ENDED = {"succeeded", "failed", "cancelled", "skipped"}
PARTS = st.recursive(LEAVES | st.sampled_from(["grow", "add"]), inner, max_leaves=8)
FLOWS = PARTS.filter(lambda one: not isinstance(one, str))
STEERING = st.sampled_from(["failed", "downstream", "all", "cancel", "get well", "all dead", "purge"])
WATCH = """
create table seen (what text, job bigint, xid xid8 default pg_current_xact_id());
create function see() returns trigger language plpgsql as $$
    begin insert into public.seen values (tg_argv[0], new.id); return null; end $$;
create trigger see after update on pgqueue.jobs for each row
    when (old.status = 'blocked' and new.status <> 'blocked') execute function see('released');
create trigger see after insert on pgqueue.job_history for each row execute function see('ended');
create trigger see after insert on pgqueue.dead_jobs for each row execute function see('ended');
"""
RELEASED_APART = """
select job from seen where what = 'released' and xid not in (select xid from seen where what = 'ended')
"""
"""Jobs that were released in a transaction that has ended no job: promise 13 forbids it while workers run jobs."""
RELEASABLE = """
select id from pgqueue.jobs where status = 'blocked' and not exists (select from pgqueue.waits where job_id = id)
"""
RECORDS = """
select id, count(*) from (
    select id from pgqueue.jobs union all select id from pgqueue.job_history union all select id from pgqueue.dead_jobs
) as records group by id having count(*) > 1
"""


@pytest.fixture(scope="module")
def watched(database: str) -> str:
    """A database that notes in which transactions jobs are released, and in which they end."""
    with psycopg.connect(database) as connection:
        connection.execute(WATCH)
    return database


def grown(queue: PgQueue, connection: psycopg.Connection[Any]) -> World:
    """A world with two tasks whose flows grow."""
    world = World(queue, connection)

    @queue.task(name="grow", max_attempts=1)
    def grow(ctx: Context) -> None:
        ctx.flow.extend([world.note.call("ok"), chain(world.note.call("ok"), world.note.call("fail"))])

    @queue.task(name="add", max_attempts=1)
    def add(ctx: Context) -> None:
        ctx.flow.add("x", group([]), after=[])
        ctx.flow.add("y", world.note.call("fail"), after=["x", "n0"], before=["n3"], if_failed="continue")
        ctx.flow.add("z", grow.call(), after=["n1"], before="n3")

    return world


def enqueued(world: World, shape: Any) -> FlowHandle:
    flow = Workflow(key="k", in_turn=True)
    flow.add("all", build(world, shape))
    flow.add("always", world.note.call("ok"), after="all", if_failed="continue")
    handle = flow.enqueue()
    world.ids += sorted(job.id for job in handle.jobs)
    return handle


def steer(world: World, handles: list[FlowHandle], what: str) -> None:
    match what:
        case "get well":
            world.well = True
        case "all dead":
            world.queue.control.dead(everything=True).retry()
        case "purge":
            world.queue.control.dead(everything=True).purge()
        case _:
            for handle in handles:
                _steer_one(handle, what)


def _steer_one(handle: FlowHandle, what: Any) -> None:
    with suppress(FlowRefused):  # a job was purged, or the other flow of the key has not ended
        _ = handle.cancel() if what == "cancel" else handle.retry(what=what)


def run(world: World) -> None:
    """Run all that is due; each job is released in a transaction that ends another one, and none is left behind."""
    world.rows("delete from seen returning 1")
    world.run()
    assert world.rows(RELEASED_APART) == []
    assert world.rows(RELEASABLE) == []
    assert world.rows(RECORDS) == []


@settings(max_examples=4, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@given(
    shapes=st.lists(FLOWS, min_size=1, max_size=2),
    early=st.lists(st.integers(0, 9), max_size=2),
    then=st.lists(STEERING, max_size=3),
)
@example(shapes=[Group(["grow", "ok"], {"on_failure": "grow"})], early=[], then=["all", "get well", "failed"])
@example(
    shapes=[
        Graph(
            [
                ("fail", {}),
                ("ok", {}),
                ("add", {1: "wait"}),
                (Group(["ok"], {}), {0: "continue", 2: "cancel"}),
            ]
        )
    ],
    early=[],
    then=["failed", "get well", "downstream", "all"],
)
@example(shapes=[Chain(["fail"])], early=[], then=["purge", "all"])
@example(shapes=[Chain(["fail"]), Graph([("fail", {}), ("ok", {0: "wait"})])], early=[], then=["all dead"])
def test_each_node_of_any_flows_ends_once(
    watched: str, shapes: list[Any], early: list[int], then: list[str]
) -> None:
    queue = PgQueue("")
    empty(watched)
    with in_database(queue, watched), psycopg.connect(watched, autocommit=True) as connection:
        world = grown(queue, connection)
        handles = [enqueued(world, shape) for shape in shapes]
        for place in early:
            queue.cancel(world.ids[0] + place)
        run(world)
        for what in then:
            steer(world, handles, what)
            run(world)
        for handle in handles:  # what waits for a retry ends with its flow
            handle.cancel()
        run(world)
        assert {*world.node_states} <= ENDED
        assert {*world.states} <= ENDED
        assert world.waiting == 0
        if "purge" not in then:
            known = {
                job for (job,) in world.rows("select job_id from pgqueue.nodes where job_id is not null")
            }
            ended = world.rows(
                "select id from pgqueue.job_history union all select id from pgqueue.dead_jobs"
            )
            assert known <= {job for (job,) in ended}
