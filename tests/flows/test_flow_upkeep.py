"""Flows are put in order later, where the end of a job did not reach them; and dropped when they are old.

A flow whose jobs end on different days: the history's partition changes in its midst, and some days have none.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flows.world import World, a_world

from pgqueue import Context, Workflow, chain, group
from pgqueue.errors import FlowRefused
from pgqueue.store import retention
from pgqueue.store.flows import flow_upkeep

world = a_world
COMPLETED = """
with gone as (delete from pgqueue.jobs where task = 'lost' returning *)
insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts, outcome,
                                 queue, task, args, result)
select id, run_at, created_at, now(), 0, 0, 1, 1, 'succeeded', queue, task, args, '7' from gone returning id
"""


@pytest.mark.parametrize(
    ("left", "ran"),
    [(COMPLETED, ["end"]), ("delete from pgqueue.jobs where task = 'lost' returning id", [])],
    ids=["another program completed it", "a person deleted it"],
)
def test_a_job_that_is_gone_without_its_flow_being_told_is_found(
    world: World, left: str, ran: list[str]
) -> None:
    world.queue.task(name="lost")(lambda: None)
    chain(world.queue.tasks["lost"].call(), world.note.call("end")).enqueue()
    assert world.rows(left)
    world.run()
    assert world.noted == []
    assert world.queue.database.run(flow_upkeep.settle_stranded()) == 1
    assert world.queue.database.run(flow_upkeep.settle_stranded()) == 0
    world.run()
    assert world.noted == ran
    assert world.states == ["succeeded" if ran else "failed"]


def test_what_waits_for_the_retry_of_a_purged_job_is_cancelled(world: World) -> None:
    flow = Workflow()
    flow.add("first", world.note.call("fail"))
    flow.add("end", world.note.call("end"), after={"first": "wait"})
    flow.enqueue()
    world.run()
    assert world.queue.database.run(flow_upkeep.settle_purged()) == 0
    assert world.queue.control.dead(everything=True).purge().done == 1
    assert world.queue.database.run(flow_upkeep.settle_purged()) == 1
    assert world.nodes == {"first": "failed", "end": "cancelled"}
    assert world.states == ["failed"]


def test_flows_are_dropped_after_the_retention_and_not_while_a_job_can_be_retried(world: World) -> None:
    for _ in range(3):
        chain(world.note.call(1), world.note.call(2)).enqueue()
    chain(world.note.call("fail"), world.note.call(2)).enqueue()
    world.run()
    chain(world.note.call(1)).enqueue()
    drop = flow_upkeep.drop_flows
    run = world.queue.database.run
    later = datetime.now(UTC) + timedelta(days=8)
    assert run(drop()) == 0
    assert run(drop(now=later)) == 9
    assert run(drop(now=later)) == 0
    assert world.states == ["failed", "running"]
    world.queue.control.dead(everything=True).purge()
    assert run(drop(now=later)) == 3
    run(drop(now=later))
    assert world.states == ["running"]
    assert (world.count("edges"), world.count("node_counts")) == (0, 1)


SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def test_a_flow_goes_on_over_midnight_and_days_that_are_not_prepared_and_is_retried_whole(
    world: World,
) -> None:
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + 2 * DAY
    handle = chain(
        world.note.using(delay=midnight - now - SECOND).call("first"),
        group([world.note.call("second"), world.note.using(delay=4 * DAY).call("third")]),
        world.note.using(delay=60 * DAY).call("fourth"),  # no partition is made as early
    ).enqueue()
    later = (midnight, midnight + SECOND, midnight + 4 * DAY, midnight + 61 * DAY)
    for at in later:
        world.run(now=at)
    assert world.noted == ["first", "second", "third", "fourth"]
    assert world.states == ["succeeded"]
    ((days,),) = world.rows("select count(distinct tableoid) from pgqueue.job_history")
    assert days >= 3
    assert handle.retry(what="all") == 4
    for at in later:
        world.run(now=at)
    assert world.noted[4:] == ["first", "second", "third", "fourth"]
    assert world.states == ["succeeded"]


def test_results_are_read_when_the_history_of_their_day_is_dropped(world: World) -> None:
    seen = list[Any]()

    @world.queue.task(name="look")
    def look(ctx: Context) -> None:
        seen.append(ctx.results.previous)

    chain(world.note.call("first"), look.using(delay=30 * DAY).call()).enqueue()
    world.run()
    drop_history(world)
    world.run(now=datetime.now(UTC) + 31 * DAY)
    assert seen == ["first"]
    assert world.states == ["succeeded"]


def test_a_retry_of_what_the_history_does_not_know_any_more_is_refused_whole(world: World) -> None:
    handle = group([world.note.call(1), world.note.call("fail")]).enqueue()
    world.run()
    drop_history(world)
    with pytest.raises(FlowRefused, match="there is no record of its job any more"):
        handle.retry(what="all")
    assert (world.count("jobs"), world.count("dead_jobs")) == (0, 1)
    assert handle.retry(what="failed") == 1


def drop_history(world: World) -> None:
    world.queue.database.run(retention.drop_history(now=datetime.now(UTC) + 20 * DAY))
    assert world.count("job_history") == 0
