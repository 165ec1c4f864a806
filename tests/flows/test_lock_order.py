"""Statements of flows lock rows and keys in one order, so that two of them do not wait for each other.

Each is given its rows in the opposite order. While it waits for the first one, it has locked no other.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import psycopg
import pytest
from flows.world import World, a_world
from store.crowd import ask, until_statements_wait

from pgqueue import JobState, chain, group
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.plan import Plan, Statement, Steps, plan

world = a_world
Params: TypeAlias = Mapping[str, Any]
COUNT = "select from pgqueue.node_counts where node_id = 1 and portion = {} for update"
FLOW = "select from pgqueue.flows where id = {} + 1 for update"
DEAD = "select from pgqueue.dead_jobs where id = {} + 1 for update"
KEY = "select from (values (chr(97 + {}))) as of (key) where pg_try_advisory_xact_lock(hashtextextended('pgqueue flow ' || key, 0))"
JOB = "select from pgqueue.jobs where id = {} + 1 for update"
UNIQUE = "insert into pgqueue.jobs (queue, task, unique_key) values ('q', 't', chr(97 + {})) returning id"


@plan(transaction=True)
def alone(name: str, params: Params) -> Steps[None]:
    """One statement."""
    yield Statement(name, params, returns=name not in {"flows/count", "flows/recount", "flows/reopen"})


def counted(world: World) -> Params:
    group(world.note.call(n) for n in range(514)).enqueue()
    return {"nodes": "{1,1}", "portions": "{1,0}", "opens": "{0,0}", "faileds": "{0,0}"}


def members(world: World) -> Params:
    """Two members of a group, the first of which is in the second portion."""
    counted(world)
    world.rows(
        "update pgqueue.nodes set place = 514 - place, state = 'failed' where parent_id = 1 returning id"
    )
    (jobs,) = world.rows("select array_agg(job_id) from pgqueue.nodes where place in (1, 513)")
    states = texts(["succeeded", "succeeded"])
    return {"jobs": numbers(sorted(jobs[0])), "nodes": None, "states": states, "results": None}


def open_members(world: World) -> Params:
    found = members(world)
    world.rows("update pgqueue.nodes set state = 'released' where parent_id = 1 returning id")
    return found


def two_flows(world: World) -> Params:
    """Two flows, the older one behind the newer one in their table."""
    jobs = [chain(world.note.call(n)).enqueue().jobs[0].id for n in range(2)]
    world.rows("update pgqueue.flows set key = 'moved' where id = 1 returning id")
    return {"jobs": numbers(jobs[::-1]), "nodes": "{}"}


def running(world: World) -> Params:
    """A flow of two running jobs, the older one behind the newer one in their table."""
    handle = group(world.note.call(n) for n in range(2)).enqueue()
    for job in handle.jobs[::-1]:
        world.rows(f"update pgqueue.jobs set status = 'running' where id = {job.id} returning id")
    return {"flow": handle.id}


def keys(_world: World) -> Params:
    """Two keys."""
    return {"keys": texts(["b", "a"])}


def dead(world: World) -> Params:
    """Two dead jobs, the older one behind the newer one in their table."""
    jobs = [world.note.enqueue("fail").id for _ in range(2)]
    world.run()
    world.rows("update pgqueue.dead_jobs set reason = 'asked' where id = 1 returning id")
    return {"ids": jobs[::-1], "statuses": ["ready", "ready"], "now": None}


def dead_of_keys(world: World) -> Params:
    """Two dead jobs, the older one of the later key."""
    jobs = [world.note.using(unique_key=key).enqueue("fail").id for key in "ba"]
    world.run()
    return {"ids": jobs, "statuses": ["ready", "ready"], "now": None}


def ended_of_keys(world: World) -> Params:
    """Two cancelled jobs, the older one of the later key."""
    jobs = [world.note.using(unique_key=key).enqueue(1) for key in "ba"]
    assert [job.cancel() for job in jobs] == [JobState.CANCELLED] * 2
    ids = [job.id for job in jobs]
    return {"ids": ids, "new_ids": [101, 102], "statuses": ["ready"] * 2, "flags": [2, 2], "now": None}


@pytest.mark.parametrize("off", ["", "sort", "indexscan bitmapscan", "hashjoin mergejoin material"])
@pytest.mark.parametrize(
    ("name", "given", "lock"),
    [
        ("count", counted, COUNT),
        ("recount", counted, COUNT),
        ("note_ended", open_members, COUNT),
        ("note_members", open_members, COUNT),
        ("reopen", members, COUNT),
        ("lock", two_flows, FLOW),
        ("lock_key", keys, KEY),
        ("ask", running, JOB),
        ("revive", dead, DEAD),
        ("revive", dead_of_keys, UNIQUE),
        ("renew", ended_of_keys, UNIQUE),
    ],
    ids=[
        "count",
        "recount",
        "note_ended",
        "note_members",
        "reopen",
        "lock",
        "lock_key",
        "ask",
        "revive",
        "revive keys",
        "renew keys",
    ],
)
def test_a_statement_that_waits_for_the_first_row_has_locked_no_other(
    world: World, dsn: str, *, name: str, given: Callable[[World], Params], lock: str, off: str
) -> None:
    options = " ".join(f"-c enable_{one}=off" for one in off.split())  # the planner takes another way
    statement: Plan[None] = alone(f"flows/{name}", given(world))
    with psycopg.connect(dsn) as first, psycopg.connect(dsn, options="-c lock_timeout=100ms") as other:
        assert first.execute(lock.format(0).encode()).fetchall()
        with psycopg.connect(dsn, autocommit=True, options=options) as connection:
            thread = threading.Thread(target=ask, args=(connection, statement))
            thread.start()
            try:
                until_statements_wait(dsn, unless=lambda: not thread.is_alive())
                assert thread.is_alive(), "it does not lock the first row"
                assert other.execute(lock.format(1).encode()).fetchall()
            finally:
                other.rollback()
                first.rollback()
                thread.join()
