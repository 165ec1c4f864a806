"""Chains, groups and workflows: each part runs when, and only when, what it waits for has ended as it has to.

Flows on every kind of connection: enqueued in its transaction, or not at all.
"""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from flows.world import World, every_world
from neighbours.places import MINUTE
from store.drivers import Ask, every_kind, one_database

from pgqueue import JobState, Observer, Outcome, PgQueue, Unique, Workflow, chain, group
from pgqueue.app.flows.chains import Flow
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.errors import FlowRefused, InvalidOption
from pgqueue.testing import adrain, assert_enqueued, dying
from pgqueue.values.flows.flow import PORTION
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob

world = every_world


def test_a_chain_runs_in_order_and_each_step_waits_for_the_one_before(world: World) -> None:
    handle = chain(world.note.call(1), world.note.call(2), world.note.call(3)).enqueue()
    assert [job.status() for job in handle.jobs] == [JobState.READY, JobState.BLOCKED, JobState.BLOCKED]
    assert world.run() == [job.id for job in handle.jobs]
    assert world.noted == [1, 2, 3]
    assert world.states == ["succeeded"]


def test_what_follows_a_failed_step_is_cancelled(world: World) -> None:
    handle = chain(world.note.call("fail"), world.note.call(2), world.note.call(3)).enqueue()
    world.run()
    assert world.noted == ["fail"]
    assert [job.status() for job in handle.jobs] == [JobState.DEAD, JobState.CANCELLED, JobState.CANCELLED]
    assert world.states == ["failed"]
    assert world.waiting == 0


@pytest.mark.parametrize(
    ("members", "after"),
    [
        ([], ["success", "end"]),
        ([1, 2], [1, 2, "success", "end"]),
        ([1, "fail", 2], [1, "fail", "failure", 2, "end"]),
        (["fail", "fail"], ["fail", "failure", "fail", "end"]),
    ],
)
def test_the_callbacks_of_a_group_run_once_and_in_order(
    members: list[Any], after: list[Any], world: World
) -> None:
    group(
        [world.note.call(what) for what in members],
        on_end=world.note.call("end"),
        on_success=world.note.call("success"),
        on_failure=world.note.using(priority=1).call("failure"),
    ).enqueue()
    world.run()
    assert world.noted == after
    assert world.states == ["failed" if "failure" in after else "succeeded"]


@pytest.mark.parametrize(
    ("rule", "ran", "state"),
    [
        ("cancel", ["fail"], "cancelled"),
        ("continue", ["fail", "next"], "succeeded"),
        ("wait", ["fail"], "waiting"),
    ],
)
def test_an_edge_says_what_happens_if_its_ancestor_fails(
    rule: Any, ran: list[str], state: str, world: World
) -> None:
    flow = Workflow()
    flow.add("first", world.note.call("fail"))
    flow.add("next", world.note.call("next"), after={"first": rule})
    flow.enqueue()
    world.run()
    assert world.noted == ran
    assert world.nodes == {"first": "failed", "next": state}
    assert world.states == ["running" if rule == "wait" else "failed"]


def test_a_group_in_a_chain_ends_before_the_next_step_begins(world: World) -> None:
    inner = chain(
        world.note.call("a"), group([world.note.call("b"), world.note.call("c")]), world.note.call("d")
    )
    chain(
        world.note.call(1),
        group([world.note.call(2), inner, world.note.call(3)]),
        group([]),
        world.note.call(4),
    ).enqueue()
    world.run()
    assert world.noted[0] == 1
    assert world.noted[-1] == 4
    assert sorted(map(str, world.noted)) == ["1", "2", "3", "4", "a", "b", "c", "d"]
    inside = [what for what in world.noted if isinstance(what, str)]
    assert (inside[0], inside[-1]) == ("a", "d")
    assert world.states == ["succeeded"]


def test_a_failure_inside_a_group_cancels_what_follows_the_group(world: World) -> None:
    inside = chain(
        world.note.call("fail"),
        group([world.note.call("b"), chain(world.note.call("c"), world.note.call("d"))]),
    )
    chain(group([world.note.call(2), inside]), world.note.call(4), group([world.note.call(5)])).enqueue()
    world.run()
    assert sorted(map(str, world.noted)) == ["2", "fail"]
    assert world.states == ["failed"]
    assert world.waiting == 0
    ended = Counter(job.state for job in world.queue.insight.search().jobs)
    assert ended == {JobState.CANCELLED: 5, JobState.DEAD: 1, JobState.SUCCEEDED: 1}


@pytest.mark.parametrize("in_turn", [False, True])
def test_what_waits_for_a_cancelled_member_waits_for_its_group_too(in_turn: bool, world: World) -> None:  # noqa: FBT001 - pytest's parameter
    before = Workflow(key="k")
    before.add("before", world.note.call("before"))
    before.enqueue()
    inner = Workflow()
    inner.add("x", world.note.call("x"))
    inner.add("y", world.note.call("y"), after="x", if_failed="continue")
    inner.add("z", world.note.call("z"), after="x")
    flow = Workflow(key="k" if in_turn else None, in_turn=in_turn)
    flow.add("a", world.note.call("a"))
    flow.add("inner", inner, after="a")
    (a, x, y, z) = flow.enqueue().jobs
    x.cancel()
    assert [job.status() for job in (y, z)] == [JobState.BLOCKED, JobState.CANCELLED]
    world.run()
    assert world.noted == ["before", "a", "y"]
    assert world.states == ["succeeded", "failed"]
    assert (a.status(), world.waiting) == (JobState.SUCCEEDED, 0)


def test_a_chain_longer_than_one_transaction_cancels_is_cancelled_to_its_end(world: World) -> None:
    steps = [world.note.call("fail"), *(world.note.call(n) for n in range(1000))]
    chain(*steps).enqueue()
    world.run()
    assert world.states == ["failed"]
    assert world.waiting == 0


@pytest.mark.parametrize(
    "world", ["memory", "database"], indirect=True
)  # one transaction would take a minute
def test_a_large_group_behind_a_step_is_released_whole(world: World) -> None:
    count = PORTION + 1
    chain(
        world.note.call("first"), group([world.note.call(n) for n in range(count)]), world.note.call("last")
    ).enqueue()
    world.run()
    assert world.noted == ["first", *range(count), "last"]
    assert world.states == ["succeeded"]
    assert world.waiting == 0


def test_a_job_waits_for_the_others_and_for_its_time(world: World) -> None:
    now = datetime.now(UTC)
    handle = chain(
        world.note.using(run_at=now + 2 * MINUTE).call(1),
        world.note.using(run_at=now + MINUTE).call(2),
        world.note.using(run_at=now + 4 * MINUTE).call(3),
    ).enqueue()
    assert world.run(now=now + 1.5 * MINUTE) == []
    assert [job.status() for job in handle.jobs] == [JobState.SCHEDULED, JobState.BLOCKED, JobState.BLOCKED]
    world.run(now=now + 3 * MINUTE)
    assert (world.noted, handle.jobs[2].status()) == ([1, 2], JobState.SCHEDULED)
    world.run(now=now + 5 * MINUTE)
    assert (world.noted, world.states) == ([1, 2, 3], ["succeeded"])


def test_what_a_lost_worker_ended_for_good_has_failed(world: World) -> None:
    handle = chain(world.note.using(max_attempts=1).call(1), world.note.call(2)).enqueue()
    now = datetime.now(UTC)
    with dying(world.note):
        world.run(now=now)
    assert [job.status() for job in handle.jobs] == [JobState.RUNNING, JobState.BLOCKED]
    world.run(now=now + MINUTE)
    assert [job.status() for job in handle.jobs] == [JobState.DEAD, JobState.CANCELLED]
    assert (world.states, world.waiting) == (["failed"], 0)


def test_a_blocked_job_is_found_like_any_other(world: World) -> None:
    handle = chain(world.note.call(1), world.note.using(priority=5).call(2)).enqueue()
    assert [job.id for job in assert_enqueued(world.note, args=(2,), priority=5, count=1)] == [
        handle.jobs[1].id
    ]
    assert_enqueued(world.note, count=2)
    assert handle.jobs[1].status() is JobState.BLOCKED


def test_an_enqueue_that_meets_the_key_of_a_blocked_job_leaves_it_blocked(world: World) -> None:
    keyed = world.note.using(unique_key="k")
    handle = chain(world.note.call(1), keyed.call(2)).enqueue()
    other = keyed.using(unique=Unique(collision="replace")).enqueue(3)
    assert (other.id, other.outcome) == (handle.jobs[1].id, Outcome.REPLACED)
    assert other.status() is JobState.BLOCKED
    world.run()
    assert (world.noted, world.states) == ([1, 3], ["succeeded"])


def test_an_observer_is_told_of_the_jobs_of_a_flow_with_their_ids(world: World) -> None:
    told: list[tuple[int, bytes]] = []

    class Noting(Observer):
        def enqueued(self, jobs: Sequence[NewJob], results: Sequence[EnqueueAnswer]) -> None:
            told.extend((done.id, job.args) for job, done in zip(jobs, results, strict=True))

    world.queue.observe(Noting())
    flow = chain(world.note.call(1), group([world.note.call(2), world.note.call(3)])).enqueue()
    assert told == [(flow.jobs[n].id, b'{"what":%d}' % (n + 1)) for n in range(3)]


def test_of_one_key_one_flow_runs_and_the_next_in_turn(world: World) -> None:
    for number in range(3):
        flow = Workflow(key="shop:7", in_turn=number > 0)
        flow.add("a", world.note.call(f"a{number}"))
        flow.add("b", world.note.call(f"b{number}"), after="a")
        flow.enqueue()
    again = Workflow(key="shop:7")
    again.add("a", world.note.call("never"))
    with pytest.raises(FlowRefused, match="shop:7"):
        again.enqueue()
    assert world.states == ["running", "waiting", "waiting"]
    world.run()
    assert world.noted == ["a0", "b0", "a1", "b1", "a2", "b2"]
    again.enqueue()


def test_a_flow_is_refused_whole_if_a_unique_key_is_taken(world: World) -> None:
    world.note.using(unique_key="k").enqueue(1)
    with pytest.raises(FlowRefused, match="unique_key='k'"):
        chain(world.note.call(1), world.note.using(unique_key="k").call(2)).enqueue()
    assert (world.waiting, world.nodes, world.states) == (1, {}, [])
    chain(world.note.call(1), world.note.using(unique_key="l").call(2)).enqueue()
    world.run()
    assert world.states == ["succeeded"]


def test_mistakes_are_refused_by_name_when_a_workflow_is_built(world: World) -> None:
    flow = Workflow("shop")
    flow.add("a", world.note.call(1), after="b")
    with pytest.raises(InvalidOption, match="'a': workflow 'shop' has this node already"):
        flow.add("a", world.note.call(1))
    with pytest.raises(InvalidOption, match="node 'a': there is no node 'b'"):
        flow.enqueue()
    flow.add("b", world.note.call(1), after="c")
    flow.add("c", world.note.call(1), after=["a"])
    with pytest.raises(InvalidOption, match=r"wait for each other: .*a.*b.*c"):
        flow.enqueue()
    with pytest.raises(InvalidOption, match=r"give task.call|write task.call"):
        chain(world.note)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidOption, match="it has no call"):
        chain().enqueue()
    with pytest.raises(InvalidOption, match="if_failed='ignore'"):
        flow.add("d", world.note.call(1), if_failed="ignore")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidOption, match="in_turn=True needs a key"):
        Workflow(in_turn=True)


@pytest.mark.parametrize("seed", range(20))
def test_any_graph_runs_each_node_once_after_its_ancestors(seed: int, world: World) -> None:
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    names = [f"n{number}" for number in range(draw.randint(1, 25))]
    after = {
        name: draw.sample(names[:place], draw.randint(0, min(place, 3))) for place, name in enumerate(names)
    }
    flow = Workflow()
    for name in draw.sample(names, len(names)):
        flow.add(name, world.note.call(name), after=after[name])
    flow.enqueue()
    world.run()
    assert sorted(world.noted) == sorted(names)
    for name, before in after.items():
        assert all(world.noted.index(one) < world.noted.index(name) for one in before)
    assert world.states == ["succeeded"]


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
