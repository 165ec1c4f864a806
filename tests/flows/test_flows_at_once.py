"""Jobs that add to one flow at once: each waits for the other, takes a place of its own, and locks in the order of all others.

Two people cancel and retry a flow while workers run it: nothing is stuck, no job runs beside itself, nothing is lost.
A flow that a transaction keeps locked holds up its own jobs, and nothing else (promise 11).
Statements of flows lock rows and keys in one order, so that two of them do not wait for each other.

Each is given its rows in the opposite order. While it waits for the first one, it has locked no other.
"""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
import pytest
from flows.test_cancelling import assert_nothing_left
from flows.world import World, a_world
from running import Running
from store.crowd import ask, until_statements_wait
from store.samples import worker_info

from pgqueue import FlowHandle, JobState, PgQueue, Workflow, chain, group
from pgqueue.errors import DatabaseError, FlowRefused
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_growth, flow_progress, flow_upkeep
from pgqueue.store.jobs import claim
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan, Statement, Steps, plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.flow import EdgeRule, GroupMember
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.workers.lease import LEASE

world = a_world
FLOW = "select id from pgqueue.flows for update"
LAST = "select portion from pgqueue.node_counts order by node_id, portion desc limit 1 for update"


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that does not wait for locks."""
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=100ms") as connection:
        yield connection


def adding(world: World, own: psycopg.Connection[Any], *, named: bool) -> list[Plan[States]]:
    """What completes each job that is ready, and adds one that is named, or a member."""
    worker = worker_info()
    ask(own, leases.register(worker, LEASE))
    claims = ask(own, claim.fill(worker.id, ["default"], 9))
    part = world.note.call("added").as_part()
    after: dict[str | None, EdgeRule] | None = {None: EdgeRule.CANCEL} if named else None
    return [
        flow_growth.complete(
            Succeeded(one, 0.1),
            [Addition([GroupMember(part, f"new {one.id}" if named else None)], None, after)],
            keep=True,
        )
        for one in claims
    ]


@pytest.mark.parametrize("named", [False, True])
def test_two_jobs_that_add_at_once_take_places_of_their_own(
    world: World, own: psycopg.Connection[Any], dsn: str, *, named: bool
) -> None:
    if named:
        flow = Workflow()
        flow.add("a", world.note.call(1))
        flow.add("b", world.note.call(2))
        flow.enqueue()
    else:
        group([world.note.call(1), world.note.call(2)]).enqueue()
    first, second = adding(world, own, named=named)
    with psycopg.connect(dsn) as one, psycopg.connect(dsn, autocommit=True) as other:
        assert ask(one, first)
        thread = threading.Thread(target=ask, args=(other, second))
        thread.start()
        until_statements_wait(dsn, unless=lambda: not thread.is_alive())
        one.commit()
        thread.join()
    assert world.rows("select place from pgqueue.nodes where parent_id is not null order by 1") == [
        (place,) for place in range(4)
    ]
    world.run()
    assert world.states == ["succeeded"]


def test_a_job_that_adds_to_a_group_waits_for_its_count_before_it_locks_the_flow(
    world: World, own: psycopg.Connection[Any], dsn: str
) -> None:
    group([world.note.call(1), world.note.call(2)]).enqueue()
    plan, _ = adding(world, own, named=False)
    with psycopg.connect(dsn) as ender, psycopg.connect(dsn, autocommit=True) as adder:
        ender.execute(LAST)
        thread = threading.Thread(target=ask, args=(adder, plan))
        thread.start()
        try:
            until_statements_wait(dsn, unless=lambda: not thread.is_alive())
            assert own.execute(FLOW).fetchall()
        finally:
            ender.rollback()
            thread.join()


ROUNDS = 12


def _flow(world: World) -> FlowHandle:
    flow = Workflow("busy", if_failed="continue")
    flow.add("first", group([world.note.call(n) for n in range(30)]))
    flow.add("second", group([world.note.call(n) for n in range(30)]), after="first")
    flow.add("third", world.note.call("third"), after={"second": "wait"})
    flow.add("last", world.note.call("last"), after={"third": "cancel"})
    return flow.enqueue()


class Crowd:
    """Threads that work on one flow until the operators are done.

    Attributes:
        problems: what was raised in them.
    """

    def __init__(self, world: World, handle: FlowHandle, seed: int) -> None:
        self.problems: list[BaseException] = []
        self._world = world
        self._handle = handle
        self._seed = seed
        self._stop = threading.Event()

    def run(self) -> None:
        """Two operators and two workers, until the operators are done."""
        workers = [threading.Thread(target=self._guarded, args=(self._work, number)) for number in range(2)]
        operators = [
            threading.Thread(target=self._guarded, args=(self._operate, number)) for number in range(2)
        ]
        for thread in [*workers, *operators]:
            thread.start()
        for thread in operators:
            thread.join(60)
        self._stop.set()
        for thread in workers:
            thread.join(60)

    def _guarded(self, run: Callable[[random.Random], None], number: int) -> None:
        try:
            run(random.Random(f"{self._seed} {number}"))  # noqa: S311 - not for secrets
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.problems.append(error)

    def _operate(self, draw: random.Random) -> None:
        for _ in range(ROUNDS):
            with suppress(FlowRefused):
                draw.choice(_ACTIONS)(self._handle)

    def _work(self, draw: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with self._world.queue.take(5, timeout=0.05) as jobs:
                    for job in jobs:
                        if draw.random() < 0.1:
                            job.fail("told to")
            except DatabaseError as error:  # a worker would write its verdicts again
                if "deadlock" not in str(error):
                    raise


@pytest.mark.parametrize("seed", range(3))
def test_cancels_retries_and_workers_at_once_leave_nothing_stuck(seed: int, world: World) -> None:
    handle = _flow(world)
    crowd = Crowd(world, handle, seed)
    crowd.run()
    assert not crowd.problems

    world.rows("delete from pgqueue.workers returning id")  # what a rolled-back take still held
    world.run()
    handle.cancel()
    world.run()
    assert_nothing_left(world)
    assert world.rows(MISCOUNTED) == []
    handle.retry(what="all")
    world.run()
    assert world.states == ["succeeded"]
    assert_nothing_left(world)


MISCOUNTED = """
select parent_id from pgqueue.nodes where parent_id is not null group by parent_id
having count(*) filter (where state in ('failed', 'cancelled'))
       <> (select sum(failed) from pgqueue.node_counts where node_id = parent_id)"""
"""Groups whose count of failed members is not that of their members."""


_ACTIONS: list[Callable[[FlowHandle], object]] = [
    lambda handle: handle.cancel(),
    lambda handle: handle.retry(),
    lambda handle: handle.retry(what="failed"),
    lambda handle: handle.show(),
    lambda handle: handle.jobs[0].cancel(),
]


LOCK = "select id from pgqueue.flows for update"


@pytest.fixture
def holder(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which a transaction of another program is open."""
    with psycopg.connect(dsn) as connection:
        yield connection


async def test_the_verdicts_of_other_jobs_and_flows_are_recorded(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    flow = await chain(noop.call(1), noop.call(2)).aenqueue()
    holder.execute(LOCK)
    free = await chain(noop.call(3), noop.call(4)).aenqueue()
    others = await queue.aenqueue_many(noop.call(n) for n in range(20))
    async with running(queue, concurrency=30):
        for other in [*others, *free.jobs]:
            assert await other.aresult(timeout=20) == 1
        assert flow.jobs[0].status() is JobState.RUNNING
        holder.rollback()
        assert await flow.jobs[1].aresult(timeout=20) == 1


def test_the_jobs_of_lost_workers_are_taken_over(
    world: World, dsn: str, holder: psycopg.Connection[Any]
) -> None:
    world.note.enqueue("alone")
    chain(world.note.using(max_attempts=1).call("first"), world.note.call("last")).enqueue()
    worker = worker_info()
    with psycopg.connect(dsn, autocommit=True) as own:
        ask(own, leases.register(worker, LEASE))
        assert len(ask(own, claim.fill(worker.id, ["default"], 5))) == 2
        own.execute("update pgqueue.workers set lease_until = now() - interval '1 hour'")
        holder.execute(LOCK)
        own.execute("set statement_timeout = '5s'")
        assert list(ask(own, upkeep.reclaim()).values()) == [JobState.READY]
        holder.rollback()
        assert list(ask(own, upkeep.reclaim()).values()) == [JobState.DEAD]
    assert world.states == ["failed"]


def test_what_is_left_to_do_in_it_waits_and_nothing_waits_for_that(
    world: World, dsn: str, holder: psycopg.Connection[Any]
) -> None:
    flow = chain(world.note.call("first"), world.note.call("last")).enqueue()
    with psycopg.connect(dsn, autocommit=True) as own:
        node = "select id, 'follow' from pgqueue.nodes where name = '1'"
        own.execute(f"insert into pgqueue.flow_work (node_id, task) {node}".encode())
        own.execute("delete from pgqueue.jobs where task = 'note' and status = 'ready'")
        holder.execute(LOCK)
        own.execute("set statement_timeout = '5s'")
        assert not ask(own, flow_progress.work())
        assert ask(own, flow_upkeep.settle_stranded()) == 0
        assert world.count("flow_work") == 1
        holder.rollback()
        assert ask(own, flow_progress.work())
        assert world.count("flow_work") == 0
        assert ask(own, flow_upkeep.settle_stranded()) == 1
    assert flow.jobs[1].status() is JobState.CANCELLED


async def test_an_open_transaction_that_added_a_flow_of_a_key_holds_up_only_the_flows_of_that_key(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    def keyed() -> Workflow:
        flow = Workflow(key="k", in_turn=True)
        flow.add("only", noop.call(1))
        return flow

    first = await keyed().aenqueue()
    keyed().enqueue(connection=holder)
    async with running(queue, concurrency=30):
        for _ in range(3):
            others = [await chain(noop.call(3), noop.call(4), noop.call(5)).aenqueue() for _ in range(3)]
            for other in others:
                assert await other.ajoin(timeout=20) == "succeeded"
        assert await first.astatus() == "running"
        holder.commit()
        assert await first.ajoin(timeout=20) == "succeeded"


async def test_a_locked_job_holds_up_only_the_job_that_releases_it(
    queue: PgQueue, running: Running, holder: psycopg.Connection[Any]
) -> None:
    @queue.task(name="noop")
    async def noop(_n: int) -> int:
        return 1

    first = await chain(noop.call(1), noop.call(2)).aenqueue()
    holder.execute("select from pgqueue.jobs where id = %s for update", [first.jobs[1].id])
    others = [await chain(noop.call(3), noop.call(4), noop.call(5)).aenqueue() for _ in range(5)]
    async with running(queue, concurrency=30):
        for other in others:
            assert await other.ajoin(timeout=20) == "succeeded"
        assert first.jobs[0].status() is JobState.RUNNING
        holder.rollback()
        assert await first.ajoin(timeout=20) == "succeeded"


Params: TypeAlias = Mapping[str, Any]
COUNT = "select from pgqueue.node_counts where node_id = 1 and portion = {} for update"
FLOW_ROW = "select from pgqueue.flows where id = {} + 1 for update"
DEAD = "select from pgqueue.dead_jobs where id = {} + 1 for update"
KEY = "select from (values (chr(97 + {}))) as of (key) where pg_try_advisory_xact_lock(hashtextextended('pgqueue flow ' || key, 0))"
JOB = "select from pgqueue.jobs where id = {} + 1 for update"
UNIQUE = "insert into pgqueue.jobs (queue, task, unique_key) values ('q', 't', chr(97 + {})) returning id"


@plan(transaction=True)
def alone(name: str, params: Params) -> Steps[None]:
    """One statement."""
    yield Statement(name, params, returns=name not in {"flows/count", "flows/recount", "flows/reopen"})


def counted(world: World) -> Params:
    group(world.note.call(n) for n in range(514)).enqueue()
    return {"nodes": "{1,1}", "portions": "{1,0}", "opens": "{0,0}", "faileds": "{0,0}"}


def members(world: World) -> Params:
    """Two members of a group, the first of which is in the second portion."""
    counted(world)
    world.rows(
        "update pgqueue.nodes set place = 514 - place, state = 'failed' where parent_id = 1 returning id"
    )
    (jobs,) = world.rows("select array_agg(job_id) from pgqueue.nodes where place in (1, 513)")
    states = texts(["succeeded", "succeeded"])
    return {"jobs": numbers(sorted(jobs[0])), "nodes": None, "states": states, "results": None}


def open_members(world: World) -> Params:
    found = members(world)
    world.rows("update pgqueue.nodes set state = 'released' where parent_id = 1 returning id")
    return found


def two_flows(world: World) -> Params:
    """Two flows, the older one behind the newer one in their table."""
    jobs = [chain(world.note.call(n)).enqueue().jobs[0].id for n in range(2)]
    world.rows("update pgqueue.flows set key = 'moved' where id = 1 returning id")
    return {"jobs": numbers(jobs[::-1]), "nodes": "{}"}


def running(world: World) -> Params:
    """A flow of two running jobs, the older one behind the newer one in their table."""
    handle = group(world.note.call(n) for n in range(2)).enqueue()
    for job in handle.jobs[::-1]:
        world.rows(f"update pgqueue.jobs set status = 'running' where id = {job.id} returning id")
    return {"flow": handle.id}


def keys(_world: World) -> Params:
    """Two keys."""
    return {"keys": texts(["b", "a"])}


def dead(world: World) -> Params:
    """Two dead jobs, the older one behind the newer one in their table."""
    jobs = [world.note.enqueue("fail").id for _ in range(2)]
    world.run()
    world.rows("update pgqueue.dead_jobs set reason = 'asked' where id = 1 returning id")
    return {"ids": jobs[::-1], "statuses": ["ready", "ready"], "now": None}


def dead_of_keys(world: World) -> Params:
    """Two dead jobs, the older one of the later key."""
    jobs = [world.note.using(unique_key=key).enqueue("fail").id for key in "ba"]
    world.run()
    return {"ids": jobs, "statuses": ["ready", "ready"], "now": None}


def ended_of_keys(world: World) -> Params:
    """Two cancelled jobs, the older one of the later key."""
    jobs = [world.note.using(unique_key=key).enqueue(1) for key in "ba"]
    assert [job.cancel() for job in jobs] == [JobState.CANCELLED] * 2
    ids = [job.id for job in jobs]
    return {"ids": ids, "new_ids": [101, 102], "statuses": ["ready"] * 2, "flags": [2, 2], "now": None}


@pytest.mark.parametrize("off", ["", "sort", "indexscan bitmapscan", "hashjoin mergejoin material"])
@pytest.mark.parametrize(
    ("name", "given", "lock"),
    [
        ("count", counted, COUNT),
        ("recount", counted, COUNT),
        ("note_ended", open_members, COUNT),
        ("note_members", open_members, COUNT),
        ("reopen", members, COUNT),
        ("lock", two_flows, FLOW_ROW),
        ("lock_key", keys, KEY),
        ("ask", running, JOB),
        ("revive", dead, DEAD),
        ("revive", dead_of_keys, UNIQUE),
        ("renew", ended_of_keys, UNIQUE),
    ],
    ids=[
        "count",
        "recount",
        "note_ended",
        "note_members",
        "reopen",
        "lock",
        "lock_key",
        "ask",
        "revive",
        "revive keys",
        "renew keys",
    ],
)
def test_a_statement_that_waits_for_the_first_row_has_locked_no_other(
    world: World, dsn: str, *, name: str, given: Callable[[World], Params], lock: str, off: str
) -> None:
    options = " ".join(f"-c enable_{one}=off" for one in off.split())  # the planner takes another way
    statement: Plan[None] = alone(f"flows/{name}", given(world))
    with psycopg.connect(dsn) as first, psycopg.connect(dsn, options="-c lock_timeout=100ms") as other:
        assert first.execute(lock.format(0).encode()).fetchall()
        with psycopg.connect(dsn, autocommit=True, options=options) as connection:
            thread = threading.Thread(target=ask, args=(connection, statement))
            thread.start()
            try:
                until_statements_wait(dsn, unless=lambda: not thread.is_alive())
                assert thread.is_alive(), "it does not lock the first row"
                assert other.execute(lock.format(1).encode()).fetchall()
            finally:
                other.rollback()
                first.rollback()
                thread.join()
