"""Flows in memory: any flow ends there as it does on PostgreSQL."""

import re
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from flows.world import World
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from neighbours.places import empty, one_database

from pgqueue import Context, JobState, PgQueue, Workflow, chain, group
from pgqueue.app.flows.chains import Flow
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.task import Call
from pgqueue.errors import NotInMemory
from pgqueue.testing import drain, eager, in_database, in_memory
from pgqueue.values.flows.record import FlowRecord

database = one_database

RULES = ["cancel", "continue", "wait"]
LEAVES = st.sampled_from(["ok", "ok", "ok", "fail", "cancel 0", "cancel 3", "cancel 7"])


@dataclass(frozen=True)
class Chain:
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


def inner(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(parts, max_size=4)
    callbacks = st.dictionaries(st.sampled_from(["on_failure", "on_success", "on_end"]), parts, max_size=3)
    after = st.dictionaries(st.integers(0, 3), st.sampled_from(RULES), max_size=3)
    graph = st.lists(st.tuples(parts, after), max_size=5)
    return st.builds(Chain, several) | st.builds(Group, several, callbacks) | st.builds(Graph, graph)


FLOWS = st.recursive(LEAVES, inner, max_leaves=14).filter(lambda one: not isinstance(one, str))


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
        case _ if shape in world.queue.tasks:
            return world.queue.tasks[shape].call()
        case _:
            return world.note.call(shape)


STEERING = st.sampled_from(["cancel", "one dead", "enqueue, cancel", "get well"])


def drawn(flow: FlowRecord) -> list[Any]:
    """A flow and its nodes, without the ids that differ between two databases."""
    places = {node.id: place for place, node in enumerate(flow.nodes)}
    rows: list[Any] = [(flow.kind, flow.state, flow.ended_at is None, flow.counts)]
    for node in flow.nodes:
        after = [(places[one.node], one.label, one.state, one.rule, one.met) for one in node.after]
        why = re.sub(r"jobs show \d+|flow \d+", "", node.why or "")
        job = node.job_state, node.attempts, node.max_attempts, node.queue, node.cancel_requested
        row = (
            places.get(node.parent or 0),
            node.place,
            node.label,
            node.state,
            *job,
            after,
            node.members,
            why,
        )
        rows.append(row)
    return rows


def ranks(world: World, job_ids: list[int]) -> list[int]:
    """The places of these jobs among all: what is refused leaves a gap in the ids of PostgreSQL."""
    known = sorted(job.id for job in world.queue.insight.search(limit=1000).jobs)
    return [known.index(job_id) for job_id in job_ids]


def seen(world: World) -> list[Any]:
    """All that can be seen of the flows and of their jobs."""
    listed = [(flow.state, flow.counts) for flow in world.queue.flows.list()]
    shown = [drawn(world.queue.flows.get(flow.id)) for flow in world.queue.flows.list()]
    jobs = [
        (job.task, job.args, job.state, job.attempts) for job in world.queue.insight.search(limit=1000).jobs
    ]
    return [world.noted[:], jobs, world.states, world.node_states, listed, shown]


def enqueued(world: World, shape: Any) -> FlowHandle:
    """Enqueue a flow of the key of all the others."""
    flow = Workflow(key="k", in_turn=True)
    flow.add("all", build(world, shape))
    flow.add("always", world.note.call("ok"), after="all", if_failed="continue")
    handle = flow.enqueue()
    world.ids += sorted(job.id for job in handle.jobs)
    return handle


def steered(world: World, handles: list[FlowHandle], shape: Any, what: str) -> object:
    """Do something with the flows; what was answered."""
    match what:
        case "cancel":
            return [handle.cancel() for handle in handles]
        case "enqueue, cancel":
            return enqueued(world, shape).cancel()
        case "get well":
            world.well = True
        case "one dead":
            return [
                len(world.queue.retry(job.id)) for job in world.queue.insight.search(state="dead").jobs[:1]
            ]
    return None


def outcome(
    queue: PgQueue,
    connection: psycopg.Connection[Any] | None,
    shapes: list[Any],
    early: list[int],
    then: list[str],
) -> Any:
    """Enqueue these flows, cancel some jobs, run everything, and do other things; all that can be seen of it."""
    world = World(queue, connection)

    handles = [enqueued(world, shape) for shape in shapes]
    for place in early:
        queue.cancel(world.ids[0] + place)
    story: list[Any] = [seen(world)]
    story += [ranks(world, world.run()), seen(world)]
    for what in then:
        story += [what, steered(world, handles, shapes[0], what), seen(world)]
        world.run()
        story += [seen(world)]
    return story


@settings(max_examples=30, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@given(
    shapes=st.lists(FLOWS, min_size=1, max_size=2),
    early=st.lists(st.integers(0, 9), max_size=2),
    then=st.lists(STEERING, max_size=4),
)
@example(shapes=[Chain(["fail", Group(["ok"], {})])], early=[], then=["one dead", "get well", "one dead"])
@example(
    shapes=[
        Graph(
            [
                ("fail", {}),
                ("ok", {}),
                ("ok", {1: "wait"}),
                (Group(["ok"], {}), {0: "continue", 2: "cancel"}),
            ]
        )
    ],
    early=[],
    then=["get well", "one dead"],
)
@example(shapes=[Chain(["fail"])], early=[], then=["enqueue, cancel"])
@example(shapes=[Chain(["fail"]), Graph([("fail", {}), ("ok", {0: "wait"})])], early=[], then=["one dead"])
def test_any_flows_end_in_memory_as_on_postgresql(
    database: str, shapes: list[Any], early: list[int], then: list[str]
) -> None:
    queue = PgQueue("")
    empty(database)
    with in_database(queue, database), psycopg.connect(database, autocommit=True) as connection:
        stored = outcome(queue, connection, shapes, early, then)
    queue = PgQueue("")
    with in_memory(queue):
        assert outcome(queue, None, shapes, early, then) == stored


def test_an_eager_enqueue_runs_the_whole_flow_in_order() -> None:
    queue = PgQueue("")
    world = World(queue, None)
    with eager(queue):
        handle = chain(
            world.note.call(1),
            group([world.note.call(2), world.note.call(3)], on_end=world.note.call(4)),
            world.note.call(5),
        ).enqueue()
        assert world.noted == [1, 2, 3, 4, 5]
        assert {job.status() for job in handle.jobs} == {JobState.SUCCEEDED}
        assert (handle.status(), handle.join(0)) == ("succeeded", "succeeded")
        assert handle.results() == {"1": 1, "3": 5}


def test_what_a_job_adds_in_its_own_transaction_is_refused_in_memory() -> None:
    queue = PgQueue("")

    @queue.task
    def grow(ctx: Context) -> None:
        with ctx.transaction():
            ctx.flow.add("more", grow.call())

    flow = Workflow()
    flow.add("grow", grow.call())
    with in_memory(queue):
        flow.enqueue()
        with pytest.raises(NotInMemory, match="needs PostgreSQL"):
            drain(queue)


async def test_an_eager_enqueue_raises_what_a_job_raised_and_the_rest_is_cancelled() -> None:
    queue = PgQueue("")

    @queue.task(max_attempts=1)
    async def fail() -> None:
        raise ConnectionError("no mail server")

    with eager(queue):
        with pytest.raises(ConnectionError, match="no mail server"):
            await chain(fail.call(), fail.call()).aenqueue()
        assert [job.state for job in queue.insight.search().jobs] == [JobState.CANCELLED, JobState.DEAD]


@pytest.mark.parametrize("way", ["add", "map"])
def test_a_flow_that_grows_is_refused_in_memory_with_what_to_use(way: str) -> None:
    queue = PgQueue("")

    @queue.task(max_attempts=1)
    def plan(ctx: Context) -> list[int]:
        if way == "add":
            ctx.flow.add("more", check.call(1))
        return [1, 2]

    @queue.task
    def check(number: int) -> None: ...

    flow = Workflow()
    flow.add("plan", plan.call())
    if way == "map":
        flow.map("each", check, over="plan")
    with in_memory(queue):
        flow.enqueue()
        with pytest.raises(NotInMemory, match=r"flow_growth.* use the fixture pgqueue_queue"):
            drain(queue)


def test_an_eager_flow_goes_on_at_its_signal() -> None:
    queue = PgQueue("")
    world = World(queue, None)
    flow = Workflow()
    flow.add("plan", world.note.call("plan"))
    flow.wait("approved", after="plan")
    flow.add("end", world.note.call("end"), after="approved")
    with eager(queue):
        handle = flow.enqueue()
        assert world.noted == ["plan"]
        waiting = next(node for node in handle.show().nodes if node.name == "approved")
        assert waiting.why == f"its job is blocked; see `pgqueue jobs show {waiting.job_id}`"
        assert queue.signal(handle, "approved")
        assert world.noted[1:] == ["end"]
        assert handle.show().counts == {"succeeded": 3}


def test_jobs_of_flows_are_kept_in_memory_without_a_history() -> None:
    queue = PgQueue("", history=0)
    world = World(queue, None)
    with in_memory(queue):
        chain(world.note.call(1), world.note.call(2)).enqueue()
        world.note.enqueue(3)
        world.run()
        assert len(queue.insight.search().jobs) == 2
