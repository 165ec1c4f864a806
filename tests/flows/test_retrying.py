"""Running flows again: failed parts, what was cancelled because of them, or all; succeeded parts keep their results."""

import random
from typing import Any

import pytest
from flows.test_cancelling import assert_nothing_left
from flows.world import World, a_world

from pgqueue import Flow, JobState, PgQueue, Workflow, chain, group
from pgqueue.errors import FlowRefused, InvalidOption
from pgqueue.store import retention
from pgqueue.testing import drain

world = a_world


def again(world: World) -> list[Any]:
    """Run all jobs, none of which fails any more; what ran."""
    world.noted.clear()
    world.well = True
    world.run()
    return world.noted


def test_downstream_runs_what_failed_and_what_was_cancelled_because_of_it(world: World) -> None:
    handle = chain(*map(world.note.call, ["first", "fail", "third", "fourth"])).enqueue()
    world.run()
    assert handle.retry() == 3
    assert world.states == ["running"]
    assert again(world) == ["fail", "third", "fourth"]
    assert world.states == ["succeeded"]
    assert world.nodes == {"1": "succeeded", "2": "succeeded", "3": "succeeded", "4": "succeeded"}
    assert_nothing_left(world)
    assert handle.retry() == 0


def test_failed_leaves_cancelled_what_was_cancelled(world: World) -> None:
    handle = chain(*map(world.note.call, ["first", "fail", "third"])).enqueue()
    world.run()
    assert handle.retry(what="failed") == 1
    assert again(world) == ["fail"]
    assert world.nodes == {"1": "succeeded", "2": "succeeded", "3": "cancelled"}
    assert world.states == ["failed"]
    assert handle.retry(what="downstream") == 1
    assert again(world) == ["third"]
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


def test_all_runs_everything_from_the_start(world: World) -> None:
    handle = chain(
        world.note.call(1),
        group([world.note.call(2), world.note.call(3)], on_success=world.note.call(4)),
        group([]),
        world.note.call(5),
    ).enqueue()
    with pytest.raises(FlowRefused, match="has not ended; cancel it first"):
        handle.retry(what="all")
    world.run()
    for _ in range(2):
        assert handle.retry(what="all") == 5
        assert again(world) == [1, 2, 3, 4, 5]
        assert world.states == ["succeeded"]
        assert_nothing_left(world)


def test_a_callback_that_has_run_does_not_run_again_and_one_that_was_cancelled_does(world: World) -> None:
    handle = group(
        [world.note.call(1), world.note.call("fail"), world.note.call(3)],
        on_failure=world.note.call("alarm"),
        on_success=world.note.call("success"),
        on_end=world.note.call("end"),
    ).enqueue()
    world.run()
    assert sorted(map(str, world.noted)) == ["1", "3", "alarm", "end", "fail"]
    assert handle.retry() == 2
    assert again(world) == ["fail", "success"]
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


def test_a_callback_for_a_failure_is_skipped_if_that_has_been_retried(world: World) -> None:
    handle = group([world.note.call("fail")], on_failure=world.note.call("fail, too")).enqueue()
    world.run()
    assert handle.retry() == 2
    assert again(world) == ["fail"]
    assert world.nodes == {"members": "succeeded", "on_failure": "skipped"}
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


def test_the_callback_for_a_failure_that_failed_is_not_needed_if_the_group_has_succeeded_since(
    world: World,
) -> None:
    handle = group([world.note.call("fail")], on_failure=world.note.call("fail, too")).enqueue()
    world.run()
    assert world.queue.retry(min(job.id for job in handle.jobs))
    assert again(world) == ["fail"]
    assert world.nodes == {"members": "succeeded", "on_failure": "failed"}
    assert handle.retry() == 0
    assert world.nodes == {"members": "succeeded", "on_failure": "skipped"}
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


@pytest.mark.parametrize("what", ["failed", "downstream"])
def test_what_waits_for_a_retry_goes_on_when_it_has_succeeded(what: Any, world: World) -> None:
    flow = Workflow(if_failed="wait")
    flow.add("first", group([world.note.call("fail"), world.note.call(2)]))
    flow.add("next", world.note.call("next"), after="first")
    handle = flow.enqueue()
    world.run()
    assert world.states == ["running"]
    assert handle.retry(what=what) == 1
    assert again(world) == ["fail", "next"]
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


def test_a_cancelled_flow_runs_on_from_where_it_was_cancelled(world: World) -> None:
    handle = chain(world.note.call(1), world.note.using(delay=60).call(2), world.note.call(3)).enqueue()
    world.run()
    handle.cancel()
    assert handle.retry() == 2
    assert [job.state for job in world.queue.insight.search(state=["scheduled", "blocked"]).jobs] == [
        JobState.BLOCKED,
        JobState.SCHEDULED,
    ]
    assert world.queue.control.run_now(world.queue.insight.search(state="scheduled").jobs[0].id)
    assert again(world) == [2, 3]
    assert world.states == ["succeeded"]


def test_a_flow_that_is_still_being_cancelled_is_not_retried(world: World) -> None:
    handle = chain(world.note.call(1), world.note.call(2)).enqueue()
    with world.queue.take(1):
        handle.cancel()
        with pytest.raises(FlowRefused, match="wait until its running jobs have ended"):
            handle.retry()


def test_it_is_refused_whole_if_a_live_twin_has_a_unique_key(world: World) -> None:
    handle = group(
        [world.note.call("fail"), world.note.using(unique_key="k").call("fail")], name="both"
    ).enqueue()
    world.run()
    twin = world.note.using(unique_key="k").enqueue("twin")
    with pytest.raises(FlowRefused, match=f"live job {twin.id} has its unique key 'k'"):
        handle.retry()
    assert world.states == ["failed"]
    assert len(world.queue.insight.search(state="dead").jobs) == 2
    twin.cancel()
    assert handle.retry() == 2
    assert again(world) == ["fail", "fail"]


def test_it_is_refused_if_a_job_has_no_record_any_more(world: World) -> None:
    handle = chain(world.note.call("fail"), world.note.call(2)).enqueue()
    world.run()
    world.queue.control.dead(everything=True).purge()
    with pytest.raises(FlowRefused, match=r"'1' \(job 1\): there is no record of its job any more"):
        handle.retry()
    assert world.states == ["failed"]


def test_long_arguments_and_a_history_of_zero_are_no_hindrance(world: World, dsn: str) -> None:
    queue = PgQueue(dsn, history=0, history_args=10)
    noted = list[str]()

    @queue.task(name="long")
    def long(what: str) -> None:
        noted.append(what)

    queue.database.run(retention.keep_for(None, None, history_args=10, said_by="test"))
    handle = chain(long.call("".join(map(str, range(30_000)))[:100_000]), long.call("short")).enqueue()
    other = long.enqueue("y" * 100_000)
    drain(queue)
    assert handle.retry(what="all") == 2
    drain(queue)
    assert sorted(len(one) for one in noted) == [5, 5, 100_000, 100_000, 100_000]
    assert world.rows(f"select count(*) from pgqueue.job_history where id = {other.id}") == [(0,)]
    queue.close()


def test_of_a_key_no_second_flow_is_started_by_a_retry(world: World) -> None:
    def keyed(what: str) -> Workflow:
        flow = Workflow(key="k")
        flow.add("a", world.note.call(what))
        return flow

    first = keyed("fail").enqueue()
    world.run()
    second = keyed("second").enqueue()
    with pytest.raises(FlowRefused, match=f"flow {second.id} of the same key 'k' has not ended"):
        first.retry()
    job = first.jobs[0]
    assert world.queue.retry(job.id).out_of_turn == (job.id,)
    (left,) = world.queue.control.dead(everything=True).retry().examples
    assert (left.id, left.why) == (job.id, "out_of_turn")
    assert job.status() is JobState.DEAD
    world.run()
    assert world.queue.retry(job.id)
    assert world.states == ["running", "succeeded"]
    assert again(world) == ["fail"]
    assert world.states == ["succeeded", "succeeded"]


def test_one_dead_job_that_is_retried_puts_its_flow_right(world: World) -> None:
    inner = group([world.note.call(1), world.note.call("fail")], on_end=world.note.call("end"))
    flow = Workflow()
    flow.add("inner", inner)
    flow.add("cancelled", world.note.call("cancelled"), after="inner")
    flow.add("waits", world.note.call("waits"), after={"inner": "wait"})
    flow.enqueue()
    world.run()
    dead = world.queue.insight.search(state="dead").jobs[0]
    assert world.queue.retry(dead.id)
    assert world.states == ["running"]
    assert world.rows("select ended_at from pgqueue.flows") == [(None,)]
    assert world.nodes["members"] == "released"
    assert again(world) == ["fail", "waits"]
    assert world.nodes == {
        "inner": "succeeded",
        "cancelled": "cancelled",
        "waits": "succeeded",
        "members": "succeeded",
        "on_end": "succeeded",
    }
    assert world.states == ["failed"], "one of its parts is cancelled"
    assert_nothing_left(world)


def test_dead_jobs_that_are_retried_by_a_filter_put_their_flows_right(world: World) -> None:
    flows = [group([world.note.call("fail"), world.note.call("fail")]).enqueue() for _ in range(3)]
    world.run()
    assert world.states == ["failed"] * 3
    assert world.queue.control.dead(task="note").retry().done == 6
    assert world.states == ["running"] * 3
    assert len(again(world)) == 6
    assert world.states == ["succeeded"] * 3
    assert flows


def test_a_job_that_fails_again_can_be_retried_again(world: World) -> None:
    handle = chain(world.note.call("fail"), world.note.call(2)).enqueue()
    for _ in range(3):
        world.run()
        assert world.nodes == {"1": "failed", "2": "cancelled"}
        assert world.states == ["failed"]
        assert handle.retry() == 2
        assert world.nodes == {"1": "released", "2": "waiting"}
    assert again(world) == ["fail", 2]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("what", ["failed", "downstream", "all"])
def test_after_a_retry_any_flow_runs_to_its_end(what: Any, seed: int, world: World) -> None:
    draw = random.Random(f"{seed} {what}")  # noqa: S311 - not for secrets
    flow = _drawn(draw, world, depth=2)
    handle = flow.enqueue()
    if draw.random() < 0.3:
        draw.choice(handle.jobs).cancel()
    world.run()
    succeeded = {name for name in world.noted if not name.startswith("fail")}
    if what == "all" or draw.random() < 0.3:
        handle.cancel()
    handle.retry(what=what)
    ran = again(world)
    assert len(ran) == len({*ran}), "no job runs twice"
    if what == "failed":
        assert not world.rows(f"select from ({USED}) as used where state = 'failed' and kind = 'job'")
        succeeded |= {*ran}
        handle.retry()
        ran = again(world)
    if what != "all":
        assert not succeeded & {*ran}, "what has succeeded does not run again"
    assert not world.rows(f"select from ({USED}) as used where state not in ('succeeded', 'skipped')")
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


USED = """
with recursive used (id, state, kind) as (
    select id, state, kind from pgqueue.nodes where parent_id is null
    union
    select node.id, node.state, node.kind
    from used join pgqueue.nodes as node on node.parent_id = used.id where used.state <> 'skipped'
) select * from used"""
"""All nodes but those in parts that were skipped: these are cancelled."""


def _drawn(draw: random.Random, world: World, *, depth: int) -> Flow:
    """A workflow of jobs, groups and workflows with edges of all kinds; a quarter of the jobs fail."""
    flow = Workflow()
    names = [f"n{number}" for number in range(draw.randint(1, 7))]
    for place, name in enumerate(names):
        before = draw.sample(names[:place], draw.randint(0, min(place, 2)))
        rules: dict[Any, Any] = {one: draw.choice(["cancel", "continue", "wait"]) for one in before}
        flow.add(name, _part(draw, world, depth if place else 0), after=rules)
    return flow


def _part(draw: random.Random, world: World, depth: int) -> Any:
    kind = draw.randint(0, 3) if depth else 0
    if kind == 0:
        name = f"{'fail ' if draw.random() < 0.25 else ''}{draw.random()}"
        return world.note.call(name)
    if kind == 1:
        return _drawn(draw, world, depth=depth - 1)
    members = [_part(draw, world, depth - 1) for _ in range(draw.randint(0, 3))]
    if kind == 2:
        return group(members)
    callbacks = {
        name: _part(draw, world, depth - 1)
        for name in ("on_failure", "on_success", "on_end")
        if draw.random() < 0.7
    }
    return group(members, **callbacks)


def test_there_are_three_kinds_of_retry(world: World) -> None:
    handle = chain(world.note.call(1)).enqueue()
    with pytest.raises(InvalidOption, match="use one of failed, downstream, all"):
        handle.retry(what="some")  # type: ignore[arg-type]  # the mistake
