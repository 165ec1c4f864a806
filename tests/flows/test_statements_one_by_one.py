"""Guards of single statements of flows: each of these tests fails if one condition of one statement is taken away.

Guards of the statements that release, follow and cancel nodes: each test fails if one condition is taken away.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from flows.world import World, a_world
from limits.test_claims_from_lanes import Workers

from pgqueue import Dead, JobState, Rate, Workflow, chain, group
from pgqueue.errors import FlowRefused
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_control, flow_upkeep
from pgqueue.store.flows.flow_progress import FOLLOWED_AT_ONCE
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.job import JobFlags

world = a_world
LATER = timedelta(days=30)


@plan(transaction=True)
def alone(name: str, params: dict[str, Any]) -> Steps[Sequence[Row]]:
    """One statement."""
    return (yield Statement(f"flows/{name}", params))


@plan(transaction=True)
def changing(name: str, params: dict[str, Any]) -> Steps[None]:
    yield Statement(f"flows/{name}", params, returns=False)


def asked(world: World, statement: str, **params: Any) -> Sequence[Row]:
    """The answer of one statement."""
    return world.queue.database.run(alone(statement, params))


def keyed(world: World, *whats: str) -> list[Any]:
    """Flows of one key, one after the other."""
    flows = []
    for what in whats:
        flow = Workflow(key="k", in_turn=True)
        flow.add("only", world.note.call(what))
        flows.append(flow.enqueue())
    return flows


def test_the_next_flow_of_a_key_is_started_at_its_root_and_nowhere_else(world: World) -> None:
    keyed(world, "first", "second")
    world.rows("update pgqueue.flows set state = 'succeeded', ended_at = now() where id = 1 returning id")
    ((root,),) = world.rows("select id from pgqueue.nodes where flow_id = 2 and parent_id is null")
    assert asked(world, "next_of_key", keys=texts(["k"])) == [(root,)]


def test_a_flow_whose_turn_is_over_is_no_hindrance_for_the_retry_of_another(world: World) -> None:
    first, _ = keyed(world, "fail", "second")
    world.run()
    assert world.states == ["failed", "succeeded"]
    assert first.retry() == 1


def test_a_cancel_reads_nodes_from_the_end_and_groups_not_at_all(world: World) -> None:
    handle = group([group(map(world.note.call, range(5)))]).enqueue()
    ((inner,),) = world.rows("select id from pgqueue.nodes where kind = 'group' and parent_id is not null")
    parent, place = flow_control.LAST
    found = []
    for _ in range(4):
        rows = asked(world, "open", flow=handle.id, parent=parent, place=place, limit=2)
        found.append([row[1:3] for row in rows])
        if rows:
            parent, place = rows[-1][1:3]
    assert found == [[(inner, 4), (inner, 3)], [(inner, 2), (inner, 1)], [(inner, 0)], []]


def test_a_cancelled_group_ends_with_its_last_job_that_runs(world: World) -> None:
    handle = group([group(map(world.note.call, range(2))), world.note.call(3)]).enqueue()
    with world.queue.take(1):
        handle.cancel()
        assert world.node_states[:2] == ["released", "released"]
    assert world.states == ["cancelled"]
    assert world.rows("select count(*) from pgqueue.flows where ended_at is null") == [(0,)]


def test_a_job_that_was_asked_to_stop_and_does_not_run_is_cancelled_with_its_flow(world: World) -> None:
    handle = group([world.note.call(1)]).enqueue()
    world.rows("update pgqueue.jobs set cancel_requested = true returning id")
    assert handle.cancel()
    assert handle.jobs[0].status() is JobState.CANCELLED


def test_workers_are_asked_once_to_stop_the_jobs_that_run(world: World, dsn: str) -> None:
    handle = group(map(world.note.call, range(2))).enqueue()
    with psycopg.connect(dsn, autocommit=True) as worker, world.queue.take(1) as (job,):
        worker.execute('listen "pgqueue.wake"')
        assert asked(world, "ask", flow=handle.id) == [(1,)]
        assert asked(world, "ask", flow=handle.id) == [(0,)]
        told = [one.payload for one in worker.notifies(timeout=10, stop_after=1)]
        assert told == ["cancel"]
        assert world.rows("select id from pgqueue.jobs where cancel_requested") == [(job.id,)]


MOVED = """
with gone as (delete from pgqueue.dead_jobs returning *)
insert into pgqueue.jobs (id, run_at, created_at, priority, max_attempts, status, queue, task, args, flags)
select id, run_at, created_at, priority, max_attempts, 'ready', queue, task, args, flags from gone returning id"""
"""What a worker of a release without flows does to retry a dead job."""


def purged(world: World) -> bool:
    """Purge the dead jobs; whether something that waits for a retry is cancelled then."""
    world.queue.control.dead(everything=True).purge()
    return bool(world.queue.database.run(flow_upkeep.settle_purged()))


def waiting_for(world: World, first: Any, rule: Any = "wait") -> Any:
    """A flow in which "second" waits for "first", and that goes on for long."""
    flow = Workflow()
    flow.add("first", first)
    flow.add("second", world.note.call("second"), after={"first": rule})
    flow.add("long", world.note.using(delay=3600).call("long"))
    return flow.enqueue()


def test_what_waits_for_a_job_that_was_cancelled_goes_on_waiting_for_its_retry(world: World) -> None:
    handle = waiting_for(world, world.note.call(1))
    handle.jobs[0].cancel()
    assert world.nodes["first"] == "cancelled"
    assert not purged(world)
    assert world.nodes["second"] == "waiting"


def test_what_waits_for_a_group_goes_on_waiting_while_a_job_of_it_can_be_retried(world: World) -> None:
    waiting_for(world, group([world.note.call("fail"), world.note.call(1)]))
    world.run()
    assert world.nodes["first"] == "failed"
    assert not world.queue.database.run(flow_upkeep.settle_purged())
    assert world.nodes["second"] == "waiting"


def test_what_waits_for_a_group_is_cancelled_if_a_failed_job_in_it_is_purged(world: World) -> None:
    inner = group([world.note.call("fail"), world.note.call(1)])
    waiting_for(world, group([inner, world.note.call(2)]))
    world.run()
    assert purged(world)
    assert world.nodes["second"] == "cancelled"
    assert not purged(world)


def test_what_was_cancelled_with_a_job_is_not_looked_at_when_that_is_purged(world: World) -> None:
    waiting_for(world, world.note.call("fail"), "cancel")
    world.run()
    assert not purged(world)


def test_a_flow_that_has_ended_is_not_looked_at_when_its_jobs_are_purged(world: World) -> None:
    handle = waiting_for(world, world.note.call("fail"))
    world.run()
    assert handle.cancel()
    assert not purged(world)


def test_what_waits_for_a_job_that_plain_sql_retried_goes_on_waiting(world: World) -> None:
    waiting_for(world, world.note.call("fail"))
    world.run()
    assert world.rows(MOVED)
    assert not purged(world)
    assert world.nodes["second"] == "waiting"


@pytest.mark.parametrize(
    ("lost", "became"),
    [
        ("select 1 from pgqueue.set_aside(1, 'because', now())", ["failed", "cancelled"]),
        ("delete from pgqueue.jobs where id = 1 returning id", ["cancelled", "cancelled"]),
        ("delete from pgqueue.jobs where id = 2 returning id", ["released", "cancelled"]),
    ],
    ids=["set aside", "deleted", "deleted while it waited"],
)
def test_what_became_of_a_job_of_which_its_flow_was_not_told(
    world: World, lost: str, became: list[str]
) -> None:
    chain(world.note.call(1), world.note.call(2)).enqueue()
    assert world.rows(lost)
    assert world.queue.database.run(flow_upkeep.settle_stranded()) == 1
    assert world.node_states[1:] == became


def test_groups_are_no_lost_jobs_and_take_no_place_of_them(world: World) -> None:
    group([group([world.note.call(1)])]).enqueue()
    assert world.queue.database.run(flow_upkeep.settle_stranded()) == 0
    world.rows("delete from pgqueue.jobs returning id")
    assert world.queue.database.run(flow_upkeep.settle_stranded(limit=1)) == 1
    assert world.states == ["failed"]


def test_old_flows_are_dropped_in_portions_and_before_their_nodes_never(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_upkeep, "DROPPED_AT_ONCE", 2)
    for _ in range(3):
        chain(*map(world.note.call, range(4))).enqueue()
    chain(world.note.using(delay=3600).call("not yet")).enqueue()
    world.run()
    now = datetime.now(UTC) + LATER
    for _ in range(4):
        world.queue.database.run(flow_upkeep.drop_flows(now=now))
    assert world.rows("select id from pgqueue.flows") == [(4,)]
    assert world.rows("select distinct flow_id from pgqueue.nodes") == [(4,)]


@pytest.mark.parametrize("ended", ["failed", "cancelled"])
def test_a_flow_is_not_dropped_while_a_job_of_it_is_dead(world: World, ended: str) -> None:
    handle = group(
        [world.note.call("fail"), world.note.using(delay=3600 * (ended == "cancelled")).call(1)]
    ).enqueue()
    world.run()
    handle.cancel()
    assert world.states == [ended]
    for dropped in (0, 3):
        for _ in range(2):
            world.queue.database.run(flow_upkeep.drop_flows(now=datetime.now(UTC) + LATER))
        assert world.count("nodes") == 3 - dropped
        world.queue.control.dead(everything=True).purge()
    assert world.states == []


@pytest.mark.parametrize("what", ["failed", "all"])
def test_jobs_that_a_retry_brings_back_wait_for_their_limits(world: World, what: Any) -> None:
    @world.queue.task(name="limited", limit=Rate("1000/second", burst=100, cost="size"))
    def limited(size: int) -> None:
        if what == "failed":
            raise Dead(f"told to: {size}")

    Workers(world.queue).claim(0, 0)  # a worker stores what its tasks say
    handle = chain(group(map(limited.call, [2, 3])), limited.call(4)).enqueue()
    world.run()
    assert handle.retry(what=what) == (2 if what == "failed" else 3)
    lanes = world.rows("select cost, in_lane, status, lane from pgqueue.jobs order by id")
    assert {row[2:] for row in lanes} == {("blocked", "task:limited:per-second")}
    assert [row[:2] for row in lanes if row[1]] == [(2, True), (3, True)]


def test_a_retried_job_that_was_cancelled_late_is_due_now_and_keeps_what_was_counted(world: World) -> None:
    handle = group([world.note.call(1), world.note.using(unique_key="u").call("fail")]).enqueue()
    assert world.note.using(unique_key="u").enqueue(2).id == handle.jobs[1].id
    world.rows("update pgqueue.jobs set run_at = now() - interval '1 hour' where id = 1 returning id")
    assert handle.jobs[0].cancel() is JobState.CANCELLED
    world.run()
    assert handle.retry(what="downstream") == 2
    jobs = "select collisions, run_at > now() - interval '1 minute' from pgqueue.jobs order by collisions"
    assert world.rows(jobs) == [(0, True), (1, True)]


def test_a_job_that_is_brought_back_from_the_history_keeps_what_was_sent_along_with_it(world: World) -> None:
    handle = group([world.note.using(meta={"tenant": "7"}).call(1)]).enqueue()
    world.run()
    world.rows("update pgqueue.job_history set max_attempts = 3 returning id")
    assert handle.retry(what="all") == 1
    assert world.rows("select meta ->> 'tenant', max_attempts from pgqueue.jobs") == [("7", 3)]


def test_a_retry_sets_the_edges_that_it_names_and_no_others(world: World) -> None:
    world.rows("insert into pgqueue.edges values (1, 3, 'cancel', true), (2, 3, 'cancel', true) returning 1")
    done = {"froms": "{1,2}", "tos": "{3,4}", "mets": "{f,f}"}
    world.queue.database.run(changing("put_edges", done))
    assert world.rows("select from_id, met from pgqueue.edges order by 1") == [(1, False), (2, True)]


def test_a_retry_counts_each_portion_of_a_group_by_itself(world: World) -> None:
    group(world.note.call(n) for n in range(514)).enqueue()
    given = {"nodes": "{1,1}", "portions": "{0,1}", "opens": "{10,-1}", "faileds": "{0,1}"}
    world.queue.database.run(changing("recount", given))
    counts = "select portion, open, failed from pgqueue.node_counts order by 1"
    assert world.rows(counts) == [(0, 522, 0), (1, 1, 1)]


def test_dead_members_of_two_portions_are_counted_again_in_their_own(world: World) -> None:
    handle = group(world.note.call(n) for n in range(514)).enqueue()
    world.rows("update pgqueue.nodes set state = 'failed' where place in (0, 1, 513) returning id")
    jobs = [handle.jobs[place].id for place in (0, 1, 513)]
    world.queue.database.run(changing("reopen", {"jobs": numbers(jobs)}))
    counts = "select portion, open, failed from pgqueue.node_counts where node_id = 1 order by 1"
    assert world.rows(counts) == [(0, 514, -2), (1, 3, -1)]


def test_a_job_that_runs_again_has_no_result_until_then(world: World) -> None:
    handle = group([world.note.call(1)]).enqueue()
    world.run()
    assert handle.retry(what="all") == 1
    assert world.rows("select result from pgqueue.nodes where kind = 'job'") == [(None,)]


def test_a_failed_member_that_plain_sql_ran_again_is_not_counted_twice(world: World) -> None:
    group([world.note.call("fail"), world.note.using(delay=3600).call(1)]).enqueue()
    world.run()
    world.well = True
    assert world.rows(MOVED)
    assert world.run() == [1]
    assert world.rows("select open, failed from pgqueue.node_counts") == [(1, 1)]
    assert world.node_states == ["released", "failed", "released"]


def test_a_retried_job_reopens_no_group_that_is_open(world: World) -> None:
    inner = group([world.note.call("fail"), world.note.using(delay=3600).call(1)])
    handle = group([inner, world.note.using(delay=3600).call(2)]).enqueue()
    world.run()
    assert world.queue.retry(handle.jobs[0].id)
    assert world.rows("select open, failed from pgqueue.node_counts order by node_id") == [(2, 0), (2, 0)]


def test_a_retry_names_the_live_twin_of_a_job_that_has_succeeded(world: World) -> None:
    handle = group([world.note.using(unique_key="u").call(1)]).enqueue()
    world.run()
    twin = world.note.using(unique_key="u").enqueue(2)
    with pytest.raises(FlowRefused, match=f"live job {twin.id} has its unique key 'u'"):
        handle.retry(what="all")


@contextmanager
def locking(dsn: str, query: str) -> Iterator[None]:
    """A transaction of another program, which has locked something."""
    with psycopg.connect(dsn) as connection:
        connection.execute(query.encode())
        yield
        connection.rollback()


def a_line(world: World, rule: Any = "cancel") -> dict[str, int]:
    """A flow in which "a" comes before "b" and "b" before "c"; the ids of their nodes."""
    flow = Workflow()
    flow.add("a", world.note.call("a"))
    flow.add("b", world.note.call("b"), after={"a": rule})
    flow.add("c", world.note.call("c"), after={"b": rule})
    flow.enqueue()
    world.rows("update pgqueue.nodes set state = 'waiting' where name = 'a' returning id")
    return dict(world.rows("select name, id from pgqueue.nodes where name is not null"))


def doomed(world: World, node: int, limit: int = FOLLOWED_AT_ONCE) -> list[tuple[int, bool]]:
    """Which nodes are cancelled with this one, and from which of them others are left."""
    rows = asked(world, "doom", nodes=numbers([node]), limit=limit)
    return sorted((row[0], row[5]) for row in rows)


def test_a_node_that_does_not_wait_is_not_cancelled_nor_what_is_behind_it(world: World) -> None:
    nodes = a_line(world)
    world.rows("update pgqueue.nodes set state = 'released' where name = 'b' returning id")
    assert doomed(world, nodes["a"]) == [(nodes["a"], False)]
    world.rows("update pgqueue.nodes set state = 'released' where name = 'c' returning id")
    assert doomed(world, nodes["c"]) == []


def test_what_waits_no_more_for_a_node_is_not_cancelled_with_it(world: World) -> None:
    nodes = a_line(world)
    world.rows("update pgqueue.edges set met = true returning from_id")
    assert doomed(world, nodes["a"]) == [(nodes["a"], False)]


def test_nodes_behind_the_last_one_that_is_cancelled_now_are_left(world: World) -> None:
    nodes = a_line(world)
    assert doomed(world, nodes["a"], 2) == [(nodes["a"], False), (nodes["b"], True)]


@pytest.mark.parametrize(
    "change",
    [
        "update pgqueue.edges set rule = 'wait' where from_id = {a} returning from_id",
        "update pgqueue.edges set met = true where from_id = {a} returning from_id",
        "update pgqueue.nodes set state = 'released' where id = {b} returning id",
    ],
)
def test_nothing_is_left_behind_a_node_where_nothing_is_cancelled_with_it(world: World, change: str) -> None:
    nodes = a_line(world)
    world.rows(change.format(**nodes))
    assert doomed(world, nodes["a"], 1) == [(nodes["a"], False)]


def test_a_portion_of_a_group_is_released_and_no_other(world: World) -> None:
    chain(world.note.call("first"), group(map(world.note.call, range(1025)))).enqueue()
    ((node,),) = world.rows(
        "update pgqueue.nodes set state = 'released' where kind = 'group' and parent_id is not null returning id"
    )
    assert [row[0] is None for row in asked(world, "enter", node=node, portion=1)] == [False] * 512 + [True]
    assert len(asked(world, "enter", node=node, portion=2)) == 1
    assert len(asked(world, "enter", node=node, portion=0)) == 513


def test_only_nodes_that_wait_are_released(world: World) -> None:
    nodes = a_line(world)
    assert [row[0] for row in asked(world, "release", nodes=numbers([nodes["a"]]))] == [nodes["a"]]
    assert asked(world, "release", nodes=numbers([nodes["a"]])) == []


def test_a_node_that_does_not_wait_is_not_released_by_the_edge_to_it(world: World) -> None:
    nodes = a_line(world)
    world.rows("update pgqueue.nodes set state = 'cancelled' where name = 'b' returning id")
    params = {"nodes": numbers([nodes["a"]]), "states": texts(["succeeded"]), "limit": FOLLOWED_AT_ONCE}
    assert asked(world, "follow", **params) == []


def test_a_flow_whose_key_another_transaction_has_locked_is_left_for_later(world: World, dsn: str) -> None:
    flow = Workflow(key="k")
    flow.add("only", world.note.call(1))
    job = flow.enqueue().jobs[0].id
    with locking(dsn, "select pg_advisory_xact_lock(hashtextextended('pgqueue flow k', 0))"):
        assert asked(world, "free", jobs=numbers([job]), nodes="{}") == []
    assert [row[1] for row in asked(world, "free", jobs=numbers([job]), nodes="{}")] == [job]


WORK = """insert into pgqueue.flow_work (node_id, task, portion)
values (1, 'follow', 0), (2, 'enter', 0), (3, 'follow', 0) returning id"""


def test_work_is_taken_one_piece_at_a_time_and_nodes_to_be_followed_together(world: World) -> None:
    world.rows(WORK)
    assert sorted(asked(world, "take_work")) == [(1, "follow", 0), (3, "follow", 0)]
    assert asked(world, "take_work") == [(2, "enter", 0)]


@pytest.mark.parametrize(("locked", "taken"), [(1, [(2, "enter", 0)]), (3, [(1, "follow", 0)])])
def test_work_that_another_worker_has_taken_is_passed_over(
    world: World, dsn: str, locked: int, taken: list[Row]
) -> None:
    world.rows(WORK)
    with locking(dsn, f"select from pgqueue.flow_work where node_id = {locked} for update"):
        assert asked(world, "take_work") == taken


def test_of_two_groups_of_a_name_the_nearest_one_grows(world: World) -> None:
    inner = Workflow()
    inner.add("g", group([world.note.call(1)]))
    inner.add("own", world.note.call("own"))
    outer = Workflow()
    outer.add("g", group([world.note.call(2)]))
    outer.add("inner", inner)
    outer.enqueue()
    ((job, near),) = world.rows(
        "select own.job_id, g.id from pgqueue.nodes as own join pgqueue.nodes as g using (parent_id)"
        " where own.name = 'own' and g.name = 'g'"
    )
    assert [row[3] for row in asked(world, "growing", job=job, name="g")] == [near]


def test_a_cancel_tells_the_programs_that_wait_for_its_jobs(world: World, dsn: str) -> None:
    handle = group([world.note.call(1)]).enqueue()
    world.rows(f"update pgqueue.jobs set flags = flags | {int(JobFlags.TELL)} returning id")
    with psycopg.connect(dsn, autocommit=True) as waiter:
        waiter.execute('listen "pgqueue.ended"')
        assert handle.cancel()
        assert [one.payload for one in waiter.notifies(timeout=10, stop_after=1)] == [str(handle.jobs[0].id)]
    assert handle.jobs[0].status() is JobState.CANCELLED


def test_a_retried_job_says_at_its_end_what_it_said_before(world: World) -> None:
    """Members of a group are counted without a lock; one that others wait for is not."""
    flow = group([world.note.call(0), chain(world.note.call(2), world.note.call("fail 3"))]).enqueue()
    before = world.rows("select args::jsonb::text, flags from pgqueue.jobs order by 1")
    world.run()
    assert flow.retry(what="all") == 3
    assert world.rows("select args::jsonb::text, flags from pgqueue.jobs order by 1") == before
    assert {bool(flags & JobFlags.MEMBER) for _, flags in before} == {True, False}
