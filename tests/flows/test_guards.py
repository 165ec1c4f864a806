"""Guards of flows that no other test holds: each of these fails if one condition or one lock is taken away.

What an attack on flows has found: transactions that wait for each other, and flows that are steered while they wait.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from secrets import token_hex
from typing import Any, LiteralString

import psycopg
import pytest
from flows.world import World, a_world
from running import Running
from store.crowd import ask
from store.samples import worker_info

from pgqueue import Context, JobState, PgQueue, Workflow, chain, group
from pgqueue.errors import JobFailed, ResultNotKept
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.session import PLANNER
from pgqueue.store.flows import flow_control, flow_progress, flow_queries, flow_upkeep
from pgqueue.store.jobs import claim, finish
from pgqueue.store.plan import Row, Statement, Step, Steps, plan, run
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import AttemptError
from pgqueue.values.jobs.verdict import Died, Succeeded, Verdict
from pgqueue.values.workers.lease import LEASE

world = a_world


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that does not wait for locks."""
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=100ms") as connection:
        yield connection


@pytest.fixture
def holder(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which a transaction of another program is open."""
    with psycopg.connect(dsn) as connection:
        yield connection


class Meanwhile:
    """A connection on which something else happens before its second statement."""

    def __init__(self, connection: psycopg.Connection[Any], happens: Callable[[], object]) -> None:
        self._inner = StepRunner(connection, catalogue_of("pgqueue"))
        self._happens = happens
        self._statements = 0

    def execute(self, step: Step, /) -> Any:
        self._statements += 1
        if self._statements == 2:
            self._happens()
        return self._inner.execute(step)

    def transaction(self) -> Any:
        return self._inner.transaction()


def test_after_an_interrupted_cancel_nothing_is_released(world: World) -> None:
    handle = chain(world.note.call(1), world.note.call(2)).enqueue()
    world.queue.database.run(flow_control.begin_cancel(handle.id))
    world.run()
    assert world.noted == [1]
    assert handle.cancel()
    assert handle.jobs[1].status() is JobState.CANCELLED


def test_after_an_interrupted_cancel_no_further_portion_of_a_group_is_released(world: World) -> None:
    handle = chain(world.note.call("first"), group(map(world.note.call, range(520)))).enqueue()
    with world.queue.take(1):
        pass
    assert world.rows("select task, portion from pgqueue.flow_work") == [("enter", 1)]
    world.queue.database.run(flow_control.begin_cancel(handle.id))
    assert world.queue.database.run(flow_progress.work())
    assert world.rows("select count(*) from pgqueue.jobs where status = 'blocked'") == [(8,)]


def test_of_a_chain_behind_a_step_only_the_first_job_is_released(world: World) -> None:
    handle = chain(world.note.call(1), chain(world.note.call("fail"), world.note.call(3))).enqueue()
    with world.queue.take(1):
        pass
    assert [job.status() for job in handle.jobs[1:]] == [JobState.READY, JobState.BLOCKED]
    world.run()
    assert world.noted == ["fail"]


def test_the_last_member_of_a_group_waits_for_the_lock_of_the_flow_and_the_others_do_not(
    world: World, own: psycopg.Connection[Any], holder: psycopg.Connection[Any]
) -> None:
    flow = group([world.note.call(1), world.note.call(2)], on_success=world.note.call(3)).enqueue()
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    first, last = (
        finish.finish(worker.id, [Succeeded(job, 0.1)], keep=True)
        for job in ask(own, claim.fill(worker.id, ["default"], 2))
    )
    holder.execute("select id from pgqueue.flows for update")
    assert ask(own, first)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        ask(own, last)
    holder.rollback()
    assert ask(own, last)
    assert flow.jobs[2].status() is JobState.READY


def test_the_first_failure_of_a_group_is_not_lost_among_many_edges(
    world: World, own: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_progress, "FOLLOWED_AT_ONCE", 3)
    flow = Workflow()
    flow.add("a", world.note.call("a"))
    for number in range(5):
        flow.add(f"n{number}", world.note.call(number), after="a")
    flow.add(
        "g", group([world.note.call(1), world.note.using(delay=60).call(2)], on_failure=world.note.call(3))
    )
    handle = flow.enqueue()
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    first, second = ask(own, claim.fill(worker.id, ["default"], 2))
    assert [first.id, second.id] == [handle.jobs[0].id, handle.jobs[6].id]
    error = AttemptError(1, "Dead", "told to")
    verdicts: list[Verdict] = [Succeeded(first, 0.1), Died(second, 0.1, "asked", error)]
    assert ask(own, finish.finish(worker.id, verdicts, keep=True))
    assert handle.jobs[8].status() is JobState.READY


def test_a_job_that_two_workers_find_to_be_gone_is_counted_once(
    world: World, own: psycopg.Connection[Any], dsn: str
) -> None:
    flow = group([world.note.call(1), world.note.call(2)]).enqueue()
    own.execute("delete from pgqueue.jobs where id = %s", [flow.jobs[0].id])

    def settle() -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            assert ask(other, flow_upkeep.settle_stranded()) == 1

    run(flow_upkeep.settle_stranded(), Meanwhile(own, settle))
    assert world.rows("select open, failed from pgqueue.node_counts") == [(1, 1)]
    assert world.states == ["running"]


def test_a_group_that_has_not_started_does_not_end(world: World) -> None:
    handle = chain(
        world.note.call(1), group([world.note.call(2), world.note.call(3)]), world.note.call(4)
    ).enqueue()
    for job in handle.jobs[1:3]:
        job.cancel()
    assert world.nodes == {"1": "waiting", "2": "waiting", "3": "waiting"} | {"1": "released"}
    assert handle.jobs[3].status() is JobState.BLOCKED
    world.run()
    assert world.nodes == {"1": "succeeded", "2": "failed", "3": "cancelled"}
    assert world.states == ["failed"]


def test_what_continues_after_a_cancelled_node_is_not_cancelled_with_it(world: World) -> None:
    flow = Workflow()
    flow.add("a", world.note.call("fail"))
    flow.add("b", world.note.call("b"), after="a")
    flow.add("c", world.note.call("c"), after={"b": "continue"})
    flow.add("d", world.note.call("d"), after={"b": "wait"})
    flow.enqueue()
    world.run()
    assert world.noted == ["fail", "c"]
    assert world.nodes == {"a": "failed", "b": "cancelled", "c": "succeeded", "d": "waiting"}


@plan
def growing(job_id: int) -> Steps[Sequence[Row]]:
    """Where a job adds to its flow."""
    return (yield Statement("flows/growing", {"job": job_id, "name": "none"}))


def test_a_node_that_was_edited_by_hand_to_be_in_itself_stops_no_worker(
    world: World, own: psycopg.Connection[Any]
) -> None:
    (job,) = group([world.note.call(1)]).enqueue().jobs
    own.execute("update pgqueue.nodes set parent_id = id where kind = 'job'")
    own.execute("set statement_timeout = '5s'")
    facts = ask(own, flow_queries.facts(job.id))
    assert facts is not None
    assert facts.before == []
    assert len(ask(own, growing(job.id))) == 1


@pytest.mark.parametrize("deed", ["enqueue", "end", "retry of a flow", "retry"])
def test_what_adds_ends_or_retries_a_flow_of_a_key_waits_for_the_lock_of_that_key(
    world: World, own: psycopg.Connection[Any], holder: psycopg.Connection[Any], deed: str
) -> None:
    def keyed(what: str) -> Workflow:
        flow = Workflow(key="k", in_turn=True)
        flow.add("only", world.note.call(what))
        return flow

    handle = keyed("fail" if deed.startswith("retry") else "fine").enqueue()
    if deed.startswith("retry"):
        world.run()
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    claims = ask(own, claim.fill(worker.id, ["default"], 1))
    done = [Succeeded(one, 0.1) for one in claims]
    deeds: dict[str, Callable[[], object]] = {
        "enqueue": lambda: keyed("next").enqueue(connection=own),
        "end": lambda: ask(own, finish.finish(worker.id, done, keep=True)),
        "retry of a flow": lambda: world.queue.flows.retry(handle.id, connection=own),
        "retry": lambda: ask(own, flow_control.revive([handle.jobs[0].id], without_key=False)),
    }
    holder.execute("select pg_advisory_xact_lock(hashtextextended('pgqueue flow k', 0))")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        deeds[deed]()
    holder.rollback()
    assert deeds[deed]()


def test_of_a_flows_job_the_row_and_all_arguments_are_kept_whatever_else_ends_with_it(
    world: World, own: psycopg.Connection[Any]
) -> None:
    long = token_hex(10_000)  # it cannot be compressed
    handle = group([world.note.call(long), world.note.call("fail")]).enqueue()
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    first, second = ask(own, claim.fill(worker.id, ["default"], 2))
    verdicts: list[Verdict] = [Succeeded(first, 0.1), Died(second, 0.1, "asked", AttemptError(1, "Dead", ""))]
    assert ask(own, finish.finish(worker.id, verdicts, keep=False))
    assert handle.retry(what="all") == 2
    assert world.rows("select args ->> 'what' from pgqueue.jobs where length(args ->> 'what') > 9") == [
        (long,)
    ]


def test_the_results_of_a_long_chain_do_not_fill_the_memory_of_a_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_queries, "LARGEST_RESULTS", 10_000)
    read = list[Any]()

    @world.queue.task(name="look")
    def look(ctx: Context) -> None:
        read.append(len(ctx.results.previous))
        with pytest.raises(ResultNotKept, match=r"node '1', 6,0\d\d bytes, was not read"):
            ctx.results["1"]

    large = [world.note.call(token_hex(3_000)) for _ in range(2)]
    chain(*large, look.call()).enqueue()
    world.run()
    assert read == [6_000]
    assert world.states == ["succeeded"]


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
