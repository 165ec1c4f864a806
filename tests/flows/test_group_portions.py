"""Large groups: workers that end members of different portions at once do not wait, and one of them ends the group."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from flows.world import World, a_world
from store.crowd import ask, until_statements_wait
from store.samples import worker_info

from pgqueue import chain, group
from pgqueue.store.jobs import claim, finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.values.flows.flow import PORTION
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.workers.lease import LEASE

world = a_world

LOCK_THE_LAST_GROUPS_COUNT = """
select from pgqueue.node_counts where node_id = (select max(node_id) from pgqueue.node_counts) for update
"""


def a_group(world: World, count: int) -> None:
    """Enqueue a group with a callback."""
    members = (world.note.call(number) for number in range(count))
    group(members, on_success=world.note.call("callback")).enqueue()


def claimed(world: World, dsn: str, *, portions: int) -> list[list[Claim]]:
    """Enqueue a group with a callback, and claim its members; those of each portion."""
    count = PORTION * (portions - 1) + 3
    a_group(world, count)
    claims = next_claims(dsn, count)
    return [claims[start : start + PORTION] for start in range(0, count, PORTION)]


def next_claims(dsn: str, count: int) -> list[Claim]:
    worker = worker_info()
    with psycopg.connect(dsn, autocommit=True) as own:
        ask(own, leases.register(worker, LEASE))
        return ask(own, claim.claim(worker.id, {"default": count}))


def ending(claims: Sequence[Claim]) -> Plan[States]:
    return finish.finish(claims[0].worker_id, [Succeeded(one, 0.0) for one in claims], keep=True)


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_two_portions_end_at_once(world: World, dsn: str, first: int) -> None:
    members = claimed(world, dsn, portions=2)
    with psycopg.connect(dsn) as early, psycopg.connect(dsn) as late, ThreadPoolExecutor(1) as thread:
        ask(early, ending(members[first]))
        other = thread.submit(ask, late, ending(members[1 - first]))
        until_statements_wait(dsn, unless=other.done)
        early.commit()
        other.result(timeout=30)
        late.commit()
    world.run()
    assert world.noted == ["callback"]
    assert world.states == ["succeeded"]


@pytest.mark.parametrize("more", [0, 1], ids=["members only", "with a job of a chain"])
def test_two_that_each_see_the_others_portion_open_do_not_leave_the_group_open(
    world: World, dsn: str, more: int
) -> None:
    """The first one waits between its own count and its look at the others. What it looks at then is locked."""
    for _ in range(more):
        chain(world.note.call("first"), world.note.call("second")).enqueue()
    a_group(world, PORTION + 3)
    group([world.note.call("last"), world.note.call("last")]).enqueue()
    claims = next_claims(dsn, more + PORTION + 3 + 1)
    large, small = claims[more:-1], claims[-1]
    batch = [*claims[:more], *large[:PORTION], small]
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two, ThreadPoolExecutor(1) as thread:
        with psycopg.connect(dsn) as holder:
            holder.execute(LOCK_THE_LAST_GROUPS_COUNT)
            waiting = thread.submit(ask, one, ending(batch))
            until_statements_wait(dsn, unless=waiting.done)
            ask(two, ending(large[PORTION:]))
        until_statements_wait(dsn, unless=waiting.done)
        two.commit()
        waiting.result(timeout=30)
        one.commit()
    world.run()
    assert sorted(world.noted) == sorted(["second"] * more + ["callback", "last"])


def test_portions_end_at_once_while_another_is_open(world: World, dsn: str) -> None:
    members = claimed(world, dsn, portions=3)
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two, psycopg.connect(dsn) as last:
        for connection in (one, two):
            connection.execute("set lock_timeout = '5s'")
        ask(one, ending(members[0]))
        ask(two, ending(members[1]))
        two.commit()
        one.commit()
        ask(last, ending(members[2]))
    world.run()
    assert world.noted == ["callback"]
    assert world.states == ["succeeded"]


def test_a_portion_ends_while_the_flow_is_locked(world: World, dsn: str) -> None:
    members = claimed(world, dsn, portions=2)
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn) as own:
        holder.execute("select id from pgqueue.flows for update")
        own.execute("set lock_timeout = '5s'")
        assert len(ask(own, ending(members[0]))) == PORTION
    with psycopg.connect(dsn) as own:
        ask(own, ending(members[1]))
    world.run()
    assert world.noted == ["callback"]


def test_a_portion_ends_while_a_member_of_another_does(world: World, dsn: str) -> None:
    members = claimed(world, dsn, portions=3)
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as other:
        ask(other, ending(members[2][:1]))
        one.execute("set lock_timeout = '5s'")
        ask(one, ending(members[0]))
        one.commit()
        other.commit()
        ask(other, ending(members[1]))
        ask(other, ending(members[2][1:]))
    world.run()
    assert world.noted == ["callback"]


def test_the_members_of_several_portions_end_in_one_transaction(world: World, dsn: str) -> None:
    members = claimed(world, dsn, portions=3)
    with psycopg.connect(dsn) as own, own.transaction():
        for portion in members:
            ask(own, ending(portion))
    world.run()
    assert world.noted == ["callback"]


def test_the_end_of_members_changes_no_index(world: World, dsn: str) -> None:
    members = claimed(world, dsn, portions=3)
    with psycopg.connect(dsn) as own:
        for portion in members:
            ask(own, ending(portion))
        ((updated, in_place),) = own.execute(
            "select pg_stat_get_xact_tuples_updated(oid), pg_stat_get_xact_tuples_hot_updated(oid)"
            " from pg_class where oid = 'pgqueue.nodes'::regclass"
        ).fetchall()
    assert updated == in_place >= sum(map(len, members))
