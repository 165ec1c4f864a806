"""Flows in memory: any flow ends there as it does on PostgreSQL."""

from dataclasses import dataclass
from typing import Any

import psycopg
from flows.world import World
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from neighbours.places import empty, one_database

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.app.flows import Flow
from pgqueue.app.task import Call
from pgqueue.testing import in_database, in_memory

database = one_database

RULES = ["cancel", "continue", "wait"]
LEAVES = st.sampled_from(["ok", "ok", "ok", "fail", "cancel 0", "cancel 3", "cancel 7"])


@dataclass(frozen=True)
class Chain:
    """The parts of a chain."""

    parts: list[Any]


@dataclass(frozen=True)
class Group:
    """The parts of a group, and of its callbacks."""

    parts: list[Any]
    callbacks: dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """The nodes of a workflow: what each is, and for which nodes before it waits."""

    nodes: list[tuple[Any, dict[int, str]]]


def _inner(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(parts, max_size=4)
    callbacks = st.dictionaries(st.sampled_from(["on_failure", "on_success", "on_end"]), parts, max_size=3)
    after = st.dictionaries(st.integers(0, 3), st.sampled_from(RULES), max_size=3)
    graph = st.lists(st.tuples(parts, after), max_size=5)
    return st.builds(Chain, several) | st.builds(Group, several, callbacks) | st.builds(Graph, graph)


FLOWS = st.recursive(LEAVES, _inner, max_leaves=14).filter(lambda one: not isinstance(one, str))


def build(world: World, shape: Any) -> Call[Any] | Flow:
    """The part that a drawn shape stands for."""
    match shape:
        case Chain(parts):
            return chain(*(build(world, part) for part in parts))
        case Group(parts, callbacks):
            made: Any = {name: build(world, part) for name, part in callbacks.items()}
            return group([build(world, part) for part in parts], **made)
        case Graph(nodes):
            flow = Workflow()
            for place, (part, after) in enumerate(nodes):
                rules: Any = {f"n{one}": rule for one, rule in after.items() if one < place}
                flow.add(f"n{place}", build(world, part), after=rules)
            return flow
        case _:
            return world.note.call(shape)


def outcome(
    queue: PgQueue, connection: psycopg.Connection[Any] | None, shapes: list[Any], early: list[int]
) -> Any:
    """Enqueue these flows, all of one key, cancel some jobs, and run everything; all that can be seen of it."""
    world = World(queue, connection)
    for shape in shapes:
        flow = Workflow(key="k", in_turn=True)
        flow.add("all", build(world, shape))
        flow.add("always", world.note.call("ok"), after="all", if_failed="continue")
        world.ids += [job.id for job in flow.enqueue().jobs]
    first = min(world.ids)
    for place in early:
        queue.cancel(first + place)
    ran = [job_id - first for job_id in world.run()]
    jobs = {job.id - first: job.state for job in queue.jobs(limit=1000)}
    return ran, world.noted, jobs, world.states, world.node_states


@settings(max_examples=30, phases=[Phase.generate, Phase.shrink])
@given(shapes=st.lists(FLOWS, min_size=1, max_size=2), early=st.lists(st.integers(0, 9), max_size=2))
def test_any_flows_end_in_memory_as_on_postgresql(database: str, shapes: list[Any], early: list[int]) -> None:
    queue = PgQueue("")
    empty(database)
    with in_database(queue, database), psycopg.connect(database, autocommit=True) as connection:
        stored = outcome(queue, connection, shapes, early)
    queue = PgQueue("")
    with in_memory(queue):
        assert outcome(queue, None, shapes, early) == stored
