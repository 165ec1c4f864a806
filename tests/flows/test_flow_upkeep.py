"""Flows are put in order later, where the end of a job did not reach them; and dropped when they are old."""

from datetime import UTC, datetime, timedelta

import pytest
from flows.world import World, a_world

from pgqueue import Workflow, chain
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
    [
        (COMPLETED, ["end"]),
        ("delete from pgqueue.jobs where task = 'lost' returning id", []),
    ],
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
