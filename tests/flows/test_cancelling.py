"""Cancelling flows: all that has not ended ends, nothing is released any more, and what runs is asked to stop."""

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from flows.world import World, a_world

from pgqueue import JobState, Workflow, chain, group
from pgqueue.errors import FlowNotFound
from pgqueue.store.drive import drive
from pgqueue.store.flows import flow_control
from pgqueue.store.jobs.sweep import Sweep
from pgqueue.store.plan import Plan

world = a_world


def ends_of(world: World) -> dict[str, int]:
    return dict(world.rows("select state, count(*) from pgqueue.nodes group by 1"))


def assert_nothing_left(world: World) -> None:
    """No job, no reason to wait and no count of an open member is left."""
    assert (world.count("jobs"), world.count("waits")) == (0, 0)
    assert world.rows("select sum(open) from pgqueue.node_counts where open <> 0") == [(None,)]
    assert world.rows("select count(*) from pgqueue.flows where ended_at is null") == [(0,)]


def test_a_cancelled_flow_ends_at_once_if_no_job_runs(world: World) -> None:
    inner = Workflow("inner")
    inner.add("a", world.note.call("a"))
    inner.add("b", world.note.call("b"), after="a")
    flow = Workflow()
    flow.add("first", world.note.call("first"))
    flow.add("many", group([world.note.call(1), inner, chain(world.note.call(2), world.note.call(3))]))
    flow.add("last", world.note.call("last"), after={"first": "continue", "many": "continue"})
    handle = flow.enqueue()
    assert handle.cancel()
    assert {job.status() for job in handle.jobs} == {JobState.CANCELLED}
    assert world.states == ["cancelled"]
    assert_nothing_left(world)
    assert world.run() == []
    assert not handle.cancel()


def test_what_has_succeeded_stays_and_what_is_behind_it_is_cancelled(world: World) -> None:
    handle = chain(world.note.call(1), world.note.using(delay=60).call(2), world.note.call(3)).enqueue()
    world.run()
    assert handle.cancel()
    assert [job.status() for job in handle.jobs] == [
        JobState.SUCCEEDED,
        JobState.CANCELLED,
        JobState.CANCELLED,
    ]
    assert world.states == ["cancelled"]
    assert_nothing_left(world)


@pytest.mark.parametrize("rule", ["cancel", "continue"])
def test_a_running_job_is_asked_to_stop_and_releases_nothing(rule: Any, world: World) -> None:
    flow = Workflow()
    flow.add("runs", world.note.call(1))
    flow.add("beside", world.note.using(queue="other").call(2))
    flow.add("after", world.note.call(3), after={"runs": rule})
    handle = flow.enqueue()
    with world.queue.take(1, queues=["default"]) as taken:
        assert handle.cancel()
        assert world.states == ["cancelled"]
        assert world.rows("select count(*) from pgqueue.flows where ended_at is null") == [(1,)]
        assert taken[0].id == handle.jobs[0].id
        assert world.rows("select cancel_requested from pgqueue.jobs") == [(True,)]
        assert handle.cancel(), "it can be called again"
    assert [job.status() for job in handle.jobs][1:] == [JobState.CANCELLED, JobState.CANCELLED]
    assert world.noted == []
    assert_nothing_left(world)


def _continued(steps: Sweep[bool], plan: Plan[Any]) -> Sweep[bool]:
    """A sweep from a plan on that was not run."""
    with suppress(StopIteration):
        while True:
            plan = steps.send((yield plan))
    return True


@pytest.mark.parametrize("back_before", ["flow_control.cancel_portion", "flow_control.ask"])
def test_a_job_that_starts_and_goes_back_while_its_flow_is_cancelled_is_cancelled(
    back_before: str, world: World
) -> None:
    run = world.queue.database.run
    handle = chain(world.note.call(1)).enqueue()
    steps = flow_control.cancel_flow(handle.id)
    plan = steps.send(run(next(steps)))
    assert plan.name == "flow_control.ask"
    run(plan)
    with world.queue.take(1) as (job,):
        plan = steps.send(None)  # it was not running when workers were asked
        if back_before == "flow_control.ask":
            plan = steps.send(run(plan))
        job.fail("again")
    drive(_continued(steps, plan), run)
    assert handle.jobs[0].status() is JobState.CANCELLED
    assert_nothing_left(world)


def test_an_interrupted_cancel_is_continued_by_another(world: World) -> None:
    handle = chain(
        world.note.call("first"), group([world.note.call(n) for n in range(2500)]), world.note.call("last")
    ).enqueue()
    steps = flow_control.cancel_flow(handle.id)
    plan = next(steps)
    for _ in range(3):
        plan = steps.send(world.queue.database.run(plan))
    steps.close()
    assert world.states == ["cancelled"]
    assert 0 < world.count("jobs") < 2502
    assert handle.cancel()
    assert_nothing_left(world)
    assert ends_of(world).keys() <= {"cancelled", "failed"}


def test_a_flow_that_waits_for_its_turn_is_cancelled_and_the_next_one_starts(world: World) -> None:
    handles = []
    for number in range(3):
        flow = Workflow(key="k", in_turn=True)
        flow.add("a", world.note.call(number))
        flow.add("b", world.note.call(number), after="a")
        handles.append(flow.enqueue())
    assert handles[1].cancel()
    assert world.states == ["running", "cancelled", "waiting"]
    assert handles[0].cancel()
    assert world.states == ["cancelled", "cancelled", "running"]
    world.run()
    assert world.noted == [2, 2]
    assert world.states[2] == "succeeded"
    assert_nothing_left(world)


def test_on_a_users_connection_all_of_it_is_in_that_transaction(world: World, dsn: str) -> None:
    handle = chain(world.note.call(1), group([world.note.call(n) for n in range(1500)])).enqueue()
    with psycopg.connect(dsn) as connection:
        assert world.queue.flows.cancel(handle.id, connection=connection)
        connection.rollback()
        assert world.states == ["running"]
        assert world.count("jobs") == 1501
        assert world.queue.flows.cancel(handle.id, connection=connection)
        connection.commit()
    assert_nothing_left(world)


def test_cancelling_one_job_cancels_what_is_downstream(world: World) -> None:
    handle = chain(*map(world.note.call, range(4)), group([world.note.call(4), world.note.call(5)])).enqueue()
    world.queue.cancel(handle.jobs[1].id)
    assert [job.status() for job in handle.jobs] == [JobState.READY, *[JobState.CANCELLED] * 5]
    world.run()
    assert world.noted == [0]
    assert world.states == ["failed"]
    assert_nothing_left(world)


def test_a_cancelled_member_of_a_group_calls_its_failure_back(world: World) -> None:
    handle = group([world.note.call(1), world.note.call(2)], on_failure=world.note.call("failure")).enqueue()
    world.queue.cancel(handle.jobs[1].id)
    world.run()
    assert sorted(map(str, world.noted)) == ["1", "failure"]
    assert world.states == ["failed"]


async def test_awaited_it_does_the_same(world: World) -> None:
    handle = chain(world.note.call(1), world.note.call(2)).enqueue()
    assert await handle.acancel()
    assert world.states == ["cancelled"]
    await world.queue.aclose()


def test_a_flow_that_there_is_not_is_named(world: World) -> None:
    with pytest.raises(FlowNotFound, match="no record of flow 4711"):
        world.queue.flows.cancel(4711)
    with pytest.raises(FlowNotFound, match="ids go up to"):
        world.queue.flows.cancel(1 << 70)
