"""Guards of the statements that release, follow and cancel nodes: each test fails if one condition is taken away."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from flows.test_statements_one_by_one import alone
from flows.world import World, a_world

from pgqueue import JobState, Workflow, chain, group
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows.flow_progress import FOLLOWED_AT_ONCE
from pgqueue.store.plan import Row
from pgqueue.values.jobs.job import JobFlags

world = a_world


def asked(world: World, statement: str, **params: Any) -> Sequence[Row]:
    """The answer of one statement."""
    return world.queue.database.run(alone(statement, params))


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
