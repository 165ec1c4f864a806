"""Promise 2: at most one attempt of a job holds a live claim; a superseded attempt cannot complete, fail,
snooze or extend.

The fence is attacked with every verdict, on every way by which a claim is lost, through every door that
records one: the store's plans, ``ctx.transaction()`` and ``take``.
"""

import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from looking import ask, until, wait_until
from promises.processes import (
    LEASE,
    Start,
    claimed,
    closed_gate,
    database_clock,
    do,
    held_by,
    listed,
    processes,
    run_on,
    waiting_for_locks,
)
from promises.workshop import Workshop
from running import Running

from pgqueue import Context, JobState, PgQueue, Superseded, TakenJob
from pgqueue.store.jobs import claim, finish
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Verdict
from pgqueue.worker.executor import Executor

NOTHING = timedelta(0)
OOPS = describe(ValueError("oops"), 1)

VERDICTS: dict[str, Callable[[Claim], Verdict]] = {
    "complete": lambda one: Succeeded(one, 0.0),
    "fail": lambda one: Again(one, NOTHING, OOPS),
    "die": lambda one: Died(one, 0.0, "asked", OOPS),
    "snooze": lambda one: Returned(one, LEASE),
    "give back": Returned,
    "cancel": Cancelled,
}


def reclaimed_by_another(queue: PgQueue, former: UUID, _: Claim) -> None:
    do(queue, leases.leave(former))
    do(queue, upkeep.reclaim())
    claimed(queue, listed(queue))


def reclaimed_and_waiting(queue: PgQueue, former: UUID, _: Claim) -> None:
    do(queue, leases.leave(former))
    do(queue, upkeep.reclaim())


def failed_and_claimed_again(queue: PgQueue, former: UUID, held: Claim) -> None:
    do(queue, finish.finish(former, [Again(held, NOTHING, OOPS)], keep=True))
    claimed(queue, former)


def given_back_and_claimed_again(queue: PgQueue, former: UUID, held: Claim) -> None:
    """As when the answer to the giving back was lost, and is asked for once more."""
    do(queue, finish.finish(former, [Returned(held)], keep=True))
    claimed(queue, former)


def disowned_and_claimed_again(queue: PgQueue, former: UUID, _: Claim) -> None:
    do(queue, claim.return_unknown(former, []))
    claimed(queue, former)


def put_back_in_line_by_hand(queue: PgQueue, _former: UUID, _: Claim) -> None:
    """By an operator who leaves the worker's name where it is."""
    with queue.database.pooled() as connection:
        connection.execute("update pgqueue.jobs set status = 'ready'")


def lost_with_the_end_of_the_log(queue: PgQueue, former: UUID, held: Claim) -> None:
    """As after a fail-over: the job is gone, its id is given out again, and the same worker claims the new job."""
    with queue.database.pooled() as connection:
        connection.execute("delete from pgqueue.jobs")
        connection.execute("select setval('pgqueue.jobs_id_seq', %s, false)", [held.id])
    queue.tasks["succeed"].enqueue()
    assert claimed(queue, former).id == held.id


LOSSES = [
    reclaimed_by_another,
    reclaimed_and_waiting,
    failed_and_claimed_again,
    given_back_and_claimed_again,
    disowned_and_claimed_again,
    put_back_in_line_by_hand,
    lost_with_the_end_of_the_log,
]
every_loss = pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)


def everything(dsn: str) -> list[Any]:
    """All that is recorded of all jobs, wherever it is."""
    return [
        ask(dsn, "select * from pgqueue.jobs"),
        ask(dsn, "select * from pgqueue.job_history"),
        ask(dsn, "select * from pgqueue.dead_jobs"),
    ]


@every_loss
def test_a_superseded_attempt_is_not_heard(
    lose: Callable[[PgQueue, UUID, Claim], None], queue: PgQueue, dsn: str
) -> None:
    Workshop(queue).succeed.enqueue()
    former = listed(queue)
    held = claimed(queue, former)
    lose(queue, former, held)
    before = everything(dsn)
    for name, verdict in VERDICTS.items():
        heard = do(queue, finish.finish(former, [verdict(held)], keep=True))
        assert (name, heard) == (name, {})
        assert (name, everything(dsn)) == (name, before)


@every_loss
def test_a_superseded_transaction_is_rolled_back(
    lose: Callable[[PgQueue, UUID, Claim], None], queue: PgQueue, dsn: str
) -> None:
    ask(dsn, "create table done (id integer)")
    Workshop(queue).succeed.enqueue()
    former = listed(queue)
    context = Context(claimed(queue, former), Executor(queue))
    lose(queue, former, context.job)
    before = everything(dsn)
    with pytest.raises(Superseded), context.transaction() as connection:
        connection.execute("insert into done values (1)")
    assert not context.completed
    assert everything(dsn) == before
    assert ask(dsn, "select * from done") == []


async def test_a_superseded_async_transaction_is_rolled_back(queue: PgQueue, dsn: str) -> None:
    ask(dsn, "create table done (id integer)")
    Workshop(queue).succeed.enqueue()
    former = listed(queue)
    context = Context(claimed(queue, former), Executor(queue))
    reclaimed_by_another(queue, former, context.job)
    before = everything(dsn)
    with pytest.raises(Superseded):
        async with context.transaction() as connection:
            await connection.execute("insert into done values (1)")
    assert everything(dsn) == before
    assert ask(dsn, "select * from done") == []
    await queue.aclose()


def complete(job: TakenJob) -> None:
    job.complete()


def fail(job: TakenJob) -> None:
    job.fail("oops")


def leave(_: TakenJob) -> None: ...


def leave_by_an_error(_: TakenJob) -> None:
    raise ValueError("oops")


@pytest.mark.parametrize(
    ("settle", "told"),
    [(complete, Superseded), (fail, Superseded), (leave, Superseded), (leave_by_an_error, ValueError)],
)
def test_a_take_that_lost_its_lease_is_not_heard_and_told_so_unless_it_has_an_error_of_its_own(
    settle: Callable[[TakenJob], None], told: type[Exception], queue: PgQueue, dsn: str
) -> None:
    before: list[Any] = []

    def take_too_long() -> None:
        with queue.take(1, timeout=0) as (job,):
            ask(dsn, "delete from pgqueue.workers")
            do(queue, upkeep.reclaim())
            claimed(queue, listed(queue))
            before.extend(everything(dsn))
            settle(job)

    Workshop(queue).succeed.enqueue()
    with pytest.raises(told):
        take_too_long()
    assert everything(dsn) == before


def test_an_expired_lease_cannot_be_extended(queue: PgQueue, dsn: str) -> None:
    now = database_clock(dsn)
    worker = listed(queue, now=now)
    late = now + LEASE + timedelta(microseconds=1)
    do(queue, upkeep.reclaim(now=late))
    assert do(queue, leases.renew(worker, LEASE, now=late)) is None
    assert do(queue, leases.beat(worker, LEASE, now=late)) is None
    assert ask(dsn, "select * from pgqueue.workers") == []


def test_a_beat_on_its_way_keeps_the_lease(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    now = database_clock(dsn)
    Workshop(queue).succeed.enqueue()
    worker = listed(queue, now=now)
    held = claimed(queue, worker)
    late = now + LEASE + timedelta(seconds=1)
    assert run_on(connection, leases.renew(worker, LEASE, now=late))
    assert do(queue, upkeep.reclaim(now=late)) == {}
    connection.commit()
    assert do(queue, upkeep.reclaim(now=late)) == {}
    assert do(queue, finish.finish(worker, [Succeeded(held, 0.0)], keep=True)).keys() == {held.id}


def test_a_beat_that_meets_its_expiry_loses(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    now = database_clock(dsn)
    worker = listed(queue, now=now)
    late = now + LEASE + timedelta(seconds=1)
    run_on(connection, upkeep.reclaim(now=late))
    with ThreadPoolExecutor(1) as thread:
        renewed = thread.submit(do, queue, leases.renew(worker, LEASE, now=late))
        wait_until(lambda: waiting_for_locks(dsn))
        connection.commit()
        assert renewed.result() is None


def test_two_claims_at_a_time_never_share_a_job(
    queue: PgQueue, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    task = Workshop(queue).succeed
    queue.enqueue_many(task.call() for _ in range(10))
    one, other = listed(queue), listed(queue)
    connection.execute("set lock_timeout = '5s'")  # a statement that waits for the other's jobs fails
    with psycopg.connect(dsn) as second:
        second.execute("set lock_timeout = '5s'")
        first_half = run_on(connection, claim.claim(one, {"default": 5}))
        second_half = run_on(second, claim.claim(other, {"default": 10}))
        connection.commit()
    assert (len(first_half), len(second_half)) == (5, 5)
    assert not {job.id for job in first_half} & {job.id for job in second_half}


def test_many_claimers_share_out_the_jobs(queue: PgQueue) -> None:
    task = Workshop(queue).succeed
    handles = queue.enqueue_many(task.call() for _ in range(400))

    def claim_all(_: int) -> list[int]:
        worker, found = listed(queue), []
        while batch := do(queue, claim.claim(worker, {"default": 7})):
            found += [one.id for one in batch]
        return found

    with ThreadPoolExecutor(8) as threads:
        found = [job for jobs in threads.map(claim_all, range(8)) for job in jobs]
    assert sorted(found) == sorted(handle.id for handle in handles)


def test_a_running_job_is_not_claimed(queue: PgQueue) -> None:
    Workshop(queue).succeed.enqueue()
    claimed(queue, listed(queue))
    assert do(queue, claim.claim(listed(queue), {"default": 1})) == []


def test_a_worker_off_the_list_claims_nothing(queue: PgQueue) -> None:
    """What it claimed would belong to no worker: any sweeper could reclaim it at once, and an attempt would be lost."""
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    do(queue, leases.leave(worker))
    assert do(queue, claim.claim(worker, {"default": 1})) == []
    assert queue.job(handle.id).attempts == 0


async def test_a_worker_is_told_that_its_attempt_was_superseded(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task
    async def lose_the_job(ctx: Context) -> None:
        reclaimed_by_another(queue, ctx.job.worker_id, ctx.job)

    handle = await lose_the_job.aenqueue()
    with caplog.at_level(logging.WARNING, "pgqueue.worker"):
        async with running(queue, sweep=timedelta(hours=1)) as worker:
            await until(lambda: "superseded" in caplog.text)
            former = worker.id
    (told,) = [record for record in caplog.records if "superseded" in record.message]
    assert (vars(told)["job"], vars(told)["attempt"]) == (handle.id, 1)
    job = await queue.ajob(handle.id)
    assert (job.state, job.attempts) == (JobState.RUNNING, 2)
    assert job.worker_id != former
    await queue.aclose()


@pytest.mark.parametrize("task", ["hold", "hold_and_commit"])
def test_a_worker_that_slept_past_its_lease_is_not_heard_and_joins_afresh(
    task: str, queue: PgQueue, dsn: str
) -> None:
    workshop = Workshop(queue)
    with ExitStack() as stack:
        start = stack.enter_context(processes(dsn))
        open_gate = stack.enter_context(closed_gate(dsn))
        handle = queue.find_task(task).enqueue()
        sleeper = start(lease=2.0)
        wait_until(lambda: marks(dsn, handle.id) == [1])
        sleeper.signal(signal.SIGSTOP)
        finish_elsewhere(start, dsn, handle.id, open_gate)
        before = everything(dsn)
        sleeper.signal(signal.SIGCONT)
        assert workshop.succeed.enqueue().result(timeout=20) is None  # by the one worker there is
        assert everything(dsn)[0] == []
        assert [row for row in everything(dsn)[1] if row[0] == handle.id] == before[1]
        assert ask(dsn, "select key from busy") == [(f"{handle.id}/2",)] * (task == "hold_and_commit")
        names = ask(dsn, "select distinct worker from marks")
        assert len(names) == 3
        sleeper.signal(signal.SIGTERM)
        assert sleeper.ended() == 0
        assert "lease lost" in sleeper.log()


def finish_elsewhere(start: Start, dsn: str, job: int, open_gate: Callable[[], object]) -> None:
    other = start(lease=20.0)
    wait_until(lambda: marks(dsn, job) == [1, 2])
    assert held_by(dsn, other.pid) == 1
    open_gate()
    wait_until(lambda: not everything(dsn)[0])
    other.signal(signal.SIGTERM)
    assert other.ended() == 0


def marks(dsn: str, job: int) -> list[int]:
    """The attempts of a job that have begun."""
    return [attempt for (attempt,) in ask(dsn, "select attempt from marks where job = %s order by id", job)]
