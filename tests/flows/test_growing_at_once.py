"""Jobs that add to one flow at once: each waits for the other, takes a place of its own, and locks in the order of all others."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from flows.world import World, a_world
from store.crowd import ask, until_statements_wait
from store.samples import worker_info

from pgqueue import Workflow, group
from pgqueue.store.flows import flow_growth
from pgqueue.store.jobs import claim
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.flow import EdgeRule, GroupMember
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.workers.lease import LEASE

world = a_world
FLOW = "select id from pgqueue.flows for update"
LAST = "select portion from pgqueue.node_counts order by node_id, portion desc limit 1 for update"


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that does not wait for locks."""
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=100ms") as connection:
        yield connection


def adding(world: World, own: psycopg.Connection[Any], *, named: bool) -> list[Plan[States]]:
    """What completes each job that is ready, and adds one that is named, or a member."""
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    claims = ask(own, claim.fill(worker.id, ["default"], 9))
    part = world.note.call("added").as_part()
    after: dict[str | None, EdgeRule] | None = {None: EdgeRule.CANCEL} if named else None
    return [
        flow_growth.complete(
            Succeeded(one, 0.1),
            [Addition([GroupMember(part, f"new {one.id}" if named else None)], None, after)],
            keep=True,
        )
        for one in claims
    ]


@pytest.mark.parametrize("named", [False, True])
def test_two_jobs_that_add_at_once_take_places_of_their_own(
    world: World, own: psycopg.Connection[Any], dsn: str, *, named: bool
) -> None:
    if named:
        flow = Workflow()
        flow.add("a", world.note.call(1))
        flow.add("b", world.note.call(2))
        flow.enqueue()
    else:
        group([world.note.call(1), world.note.call(2)]).enqueue()
    first, second = adding(world, own, named=named)
    with psycopg.connect(dsn) as one, psycopg.connect(dsn, autocommit=True) as other:
        assert ask(one, first)
        thread = threading.Thread(target=ask, args=(other, second))
        thread.start()
        until_statements_wait(dsn, unless=lambda: not thread.is_alive())
        one.commit()
        thread.join()
    assert world.rows("select place from pgqueue.nodes where parent_id is not null order by 1") == [
        (place,) for place in range(4)
    ]
    world.run()
    assert world.states == ["succeeded"]


def test_a_job_that_adds_to_a_group_waits_for_its_count_before_it_locks_the_flow(
    world: World, own: psycopg.Connection[Any], dsn: str
) -> None:
    group([world.note.call(1), world.note.call(2)]).enqueue()
    plan, _ = adding(world, own, named=False)
    with psycopg.connect(dsn) as ender, psycopg.connect(dsn, autocommit=True) as adder:
        ender.execute(LAST)
        thread = threading.Thread(target=ask, args=(adder, plan))
        thread.start()
        try:
            until_statements_wait(dsn, unless=lambda: not thread.is_alive())
            assert own.execute(FLOW).fetchall()
        finally:
            ender.rollback()
            thread.join()
