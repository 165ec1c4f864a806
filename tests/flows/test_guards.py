"""Guards of flows that no other test holds: each of these fails if one condition or one lock is taken away."""

from collections.abc import Callable, Iterator, Sequence
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from flows.world import World, a_world
from store.crowd import ask
from store.samples import worker_info

from pgqueue import Context, JobState, Workflow, chain, group
from pgqueue.errors import ResultNotKept
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.flows import flow_control, flow_facts, flow_progress, flow_upkeep
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
    facts = ask(own, flow_facts.facts(job.id))
    assert facts is not None
    assert facts.before == []
    assert len(ask(own, growing(job.id))) == 1


@pytest.mark.parametrize("deed", ["enqueue", "end", "retry_flow", "retry"])
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
        "retry_flow": lambda: world.queue.retry_flow(handle.id, connection=own),
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
    monkeypatch.setattr(flow_facts, "LARGEST_RESULTS", 10_000)
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
