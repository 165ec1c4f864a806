"""What an attack on flows has found: transactions that wait for each other, and flows that are steered while they wait."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from flows.world import World, a_world
from running import Running

from pgqueue import Context, JobState, Workflow, chain, group

world = a_world
LOCK_FLOW: LiteralString = "select id from pgqueue.flows for no key update"
LOCK_JOB: LiteralString = "select id from pgqueue.jobs where id = %d for update"
LOCK_COUNT: LiteralString = "select open from pgqueue.node_counts for update"
WAITS: LiteralString = (
    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@contextmanager
def deadlock(dsn: str, holds: LiteralString, wants: str) -> Iterator[Callable[[], None]]:
    """Hold one lock; the call waits for a program that waits for it, and then wants the lock which that one holds."""
    with psycopg.connect(dsn) as connection, psycopg.connect(dsn, autocommit=True) as watch:
        connection.execute("set deadlock_timeout = '1min'")  # the other one is the victim

        def close() -> None:
            while not watch.execute(WAITS).fetchall():
                time.sleep(0.01)
            connection.execute(wants.encode())
            connection.commit()

        connection.execute(holds)
        yield close


def test_a_cancel_of_a_job_is_tried_again_after_a_deadlock(world: World, dsn: str) -> None:
    _, second, _ = chain(*map(world.note.call, range(3))).enqueue().jobs
    with deadlock(dsn, LOCK_FLOW, LOCK_JOB % second.id) as close:
        closing = threading.Thread(target=close)
        closing.start()
        assert second.cancel() is JobState.CANCELLED
        closing.join()
    world.run()
    assert world.noted == [0]
    assert (world.states, world.waiting) == (["failed"], 0)


def test_a_retry_of_a_job_is_tried_again_after_a_deadlock(world: World, dsn: str) -> None:
    (job,) = group([world.note.call("fail")]).enqueue().jobs
    world.run()
    with deadlock(dsn, LOCK_COUNT, LOCK_FLOW) as close:
        closing = threading.Thread(target=close)
        closing.start()
        assert world.queue.retry(job.id)
        closing.join()
    assert world.states == ["running"]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_job_that_adds_to_its_flow_is_completed_after_a_deadlock(
    world: World, dsn: str, running: Running, *, plain: bool
) -> None:
    ran = list[int]()

    def grow(ctx: Context) -> None:
        ran.append(ctx.attempt)
        ctx.flow.extend([world.note.call("added")])

    async def agrow(ctx: Context) -> None:
        grow(ctx)

    task: Any = world.queue.task(name="grow", max_attempts=1)(grow if plain else agrow)
    handle = await group([task.call()]).aenqueue()
    with deadlock(dsn, LOCK_FLOW, LOCK_COUNT) as close:
        closing = threading.Thread(target=close)
        closing.start()
        async with running(world.queue):
            assert await handle.ajoin(timeout=20) == "succeeded"
        closing.join()
    assert (ran, world.noted) == ([1], ["added"])


def test_a_retry_of_a_flow_that_waits_for_its_turn_does_not_start_it(world: World) -> None:
    handles = []
    for number in range(2):
        flow = Workflow(key="k", in_turn=True)
        for name in "ab":
            flow.add(name, world.note.call(f"{name}{number}"))
        handles.append(flow.enqueue())
    handles[1].jobs[0].cancel()
    assert handles[1].retry() == 1
    assert world.states == ["running", "waiting"]
    world.run()
    assert sorted(world.noted) == ["a0", "a1", "b0", "b1"]
    assert (world.states, world.waiting) == (["succeeded", "succeeded"], 0)
