"""What an attack on flows has found: transactions that wait for each other, and flows that are steered while they wait."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from flows.world import World, a_world
from running import Running

from pgqueue import Context, JobState, PgQueue, Workflow, chain, group
from pgqueue.errors import JobFailed
from pgqueue.store.connections.session import PLANNER
from pgqueue.store.flows import flow_progress

world = a_world
LOCK_FLOW: LiteralString = "select id from pgqueue.flows for no key update"
LOCK_JOB: LiteralString = "select id from pgqueue.jobs where id = %d for update"
LOCK_COUNT: LiteralString = "select open from pgqueue.node_counts for update"
WAITS: LiteralString = (
    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@contextmanager
def deadlock(dsn: str, holds: str, wants: str) -> Iterator[Callable[[], None]]:
    """Hold one lock; the call waits for a program that waits for it, and then wants the lock which that one holds."""
    with psycopg.connect(dsn) as connection, psycopg.connect(dsn, autocommit=True) as watch:
        connection.execute("set deadlock_timeout = '1min'")  # the other one is the victim

        def close() -> None:
            while not watch.execute(WAITS).fetchall():
                time.sleep(0.01)
            connection.execute(wants.encode())
            connection.commit()

        connection.execute(holds.encode())
        yield close


def test_a_cancel_of_a_job_is_tried_again_after_a_deadlock(world: World, dsn: str) -> None:
    _, second, _ = chain(*map(world.note.call, range(3))).enqueue().jobs
    with deadlock(dsn, LOCK_FLOW, LOCK_JOB % second.id) as close:
        closer = threading.Thread(target=close)
        closer.start()
        assert second.cancel() is JobState.CANCELLED
        closer.join()
    world.run()
    assert world.noted == [0]
    assert (world.states, world.waiting) == (["failed"], 0)


def test_a_retry_of_a_job_is_tried_again_after_a_deadlock(world: World, dsn: str) -> None:
    (job,) = group([world.note.call("fail")]).enqueue().jobs
    world.run()
    with deadlock(dsn, LOCK_COUNT, LOCK_FLOW) as close:
        closer = threading.Thread(target=close)
        closer.start()
        assert world.queue.retry(job.id)
        closer.join()
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
        closer = threading.Thread(target=close)
        closer.start()
        async with running(world.queue):
            assert await handle.ajoin(timeout=20) == "succeeded"
        closer.join()
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


def tangle(world: World, nodes: int, ways: int) -> Workflow:
    """A workflow whose first node fails. Each other one waits for those just before it, so that many ways lead to it."""
    flow = Workflow()
    flow.add("n0", world.note.call("fail"))
    for place in range(1, nodes):
        before = range(max(0, place - ways), place)
        flow.add(f"n{place}", world.note.call(place), after=[f"n{one}" for one in before])
    return flow


def test_each_node_is_visited_once_however_many_ways_lead_to_it(dsn: str) -> None:
    settings = {**PLANNER, "statement_timeout": "3s"}  # as a worker's connection
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    queue = PgQueue(psycopg.conninfo.make_conninfo(dsn, options=options))
    with psycopg.connect(dsn, autocommit=True) as connection, closing(queue):
        world = World(queue, connection)
        tangle(world, 2000, 40).enqueue()
        world.run()
        assert (world.states, world.waiting) == (["failed"], 0)


def test_a_graph_is_cancelled_in_small_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_progress, "FOLLOWED_AT_ONCE", 3)
    tangle(world, 200, 3).enqueue()
    world.run()
    assert (world.states, world.waiting) == (["failed"], 0)
    assert world.rows("select from pgqueue.nodes where state in ('waiting', 'released')") == []


@pytest.mark.parametrize("what", ["succeeds", "fail"])
def test_nodes_that_many_others_wait_for_are_followed_in_portions(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(flow_progress, "FOLLOWED_AT_ONCE", 3)
    flow = Workflow()
    for name in "ab":
        flow.add(name, world.note.call(what))
    for number in range(20):
        rules: dict[str, Any] = {"a": "cancel", "b": "continue"}
        flow.add(f"n{number}", world.note.call(number), after=rules)
    handle = flow.enqueue()
    world.run()
    assert sorted(map(str, world.noted)) == sorted(
        [what] * 2 + [str(n) for n in range(20 if what == "succeeds" else 0)]
    )
    assert world.waiting == 0
    assert handle.status() == ("succeeded" if what == "succeeds" else "failed")


def test_work_that_is_left_from_before_a_retry_cancels_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_progress, "FOLLOWED_AT_ONCE", 3)
    inner = group([world.note.call(n) for n in range(3, 1100)])
    handle = chain(*map(world.note.call, [1]), inner, *map(world.note.call, range(4))).enqueue()
    handle.jobs[0].cancel()
    assert world.rows("select task from pgqueue.flow_work order by task") == [("doom",), ("follow",)]
    handle.retry()
    world.run()
    assert (world.states, world.waiting) == (["succeeded"], 0)
    assert len(world.noted) == 1 + 1097 + 4


LOCK_OUTER: LiteralString = """select from pgqueue.node_counts where node_id in (
    select id from pgqueue.nodes where parent_id is null) for update"""


@contextmanager
def crossing(dsn: str) -> Iterator[None]:
    """Hold the count of the outermost group; when a program that has locked the flow waits for it, want the flow."""
    with deadlock(dsn, LOCK_OUTER, LOCK_FLOW) as close:
        closer = threading.Thread(target=close)
        closer.start()
        yield
        closer.join()


@pytest.mark.parametrize("plain", [True, False])
async def test_a_jobs_own_transaction_goes_on_after_a_deadlock_in_the_counts_of_nested_groups(
    world: World, dsn: str, running: Running, *, plain: bool
) -> None:
    ran = list[int]()

    def write(ctx: Context) -> None:
        ran.append(ctx.attempt)
        with ctx.transaction() as connection:
            connection.execute("create table written ()")

    async def awrite(ctx: Context) -> None:
        ran.append(ctx.attempt)
        async with ctx.transaction() as connection:
            await connection.execute("create table written ()")

    task: Any = world.queue.task(name="write", max_attempts=1)(write if plain else awrite)
    handle = await group([group([task.call()])]).aenqueue()
    with crossing(dsn):
        async with running(world.queue):
            assert await handle.ajoin(timeout=20) == "succeeded"
    assert ran == [1]
    assert world.rows("select * from written") == []


@pytest.mark.parametrize("plain", [True, False])
async def test_a_take_goes_on_after_a_deadlock_in_the_counts_of_nested_groups(
    world: World, dsn: str, *, plain: bool
) -> None:
    handle = await group([group([world.note.call(1)])]).aenqueue()
    with crossing(dsn):
        if plain:
            with world.queue.take(1) as jobs:
                assert len(jobs) == 1
        else:
            async with world.queue.atake(1) as jobs:
                assert len(jobs) == 1
    assert handle.status() == "succeeded"


async def test_a_deadlock_that_rolls_back_the_tasks_own_writes_is_the_error_of_its_attempt(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("create table written ()")

    @queue.task(max_attempts=1)
    def write(ctx: Context) -> None:
        with deadlock(dsn, LOCK_JOB % ctx.job.id, "lock table written") as close:
            closer = threading.Thread(target=close)
            try:
                with ctx.transaction() as connection:
                    connection.execute("insert into written default values")
                    closer.start()
            finally:
                closer.join()

    job = await write.aenqueue()
    async with running(queue):
        with pytest.raises(JobFailed, match="deadlock detected"):
            await job.aresult(timeout=20)
