"""Jobs that have to be started in time: what a worker has claimed, what it takes, and what no worker has claimed."""

from datetime import UTC, datetime, timedelta
from typing import LiteralString, NamedTuple
from uuid import UUID

import msgspec
import pytest
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, claimed, dismantle

from pgqueue import Batch, JobState, PgQueue
from pgqueue.errors import JobFailed
from pgqueue.store.jobs import control, finish
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.store.jobs.expiry import Expirer
from pgqueue.store.jobs.sweep import run_sweep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import expired_verdict
from pgqueue.worker import upkeep
from pgqueue.worker.worker import Worker


class Item(NamedTuple):
    """What a batch is made of."""

    number: int


def _waited(claims: list[Claim], seconds: float) -> list[Claim]:
    """The claims as they are after they have waited in the worker's memory for this long."""
    return [msgspec.structs.replace(one, asked_at=one.asked_at - seconds) for one in claims]


@pytest.mark.parametrize("kind", ["async", "plain", "batch"])
async def test_a_claim_that_has_waited_for_too_long_is_not_started(queue: PgQueue, kind: str) -> None:
    calls: list[int] = []
    if kind == "async":

        @queue.task(name="work", expires_in=60)
        async def work(number: int) -> None:
            calls.append(number)

    elif kind == "plain":

        @queue.task(name="work", expires_in=60)
        def work(number: int) -> None:
            calls.append(number)

    else:

        @queue.batch_task(Item, name="work", wait=0, expires_in=60)
        def work(batch: Batch[Item]) -> None:
            calls.extend(one.args.number for one in batch)

    task = queue.find_task("work")
    late, in_time = task.enqueue(number=1), task.using(expires_in=600).enqueue(number=2)
    worker = Worker(queue, poll=FOR_EVER)
    await worker.parts.heartbeat.register()
    try:
        worker.parts.runners.add(_waited(claimed(queue, worker), 61))
        await worker.parts.runners.emptied()
        await worker.parts.completer.run_once()
    finally:
        await dismantle(worker)
    assert calls == [2]
    assert (await in_time.astatus(), await late.astatus()) == (JobState.SUCCEEDED, JobState.DEAD)
    job = await queue.ajob(late.id)
    assert (job.reason, job.attempts, job.started_at) == ("expired", 0, None)


def test_the_moment_of_the_end_is_too_late() -> None:
    noon = datetime(2031, 5, 4, 12, tzinfo=UTC)
    claim = Claim(
        1,
        UUID(int=1),
        1,
        3,
        25,
        0,
        "default",
        "task",
        "{}",
        noon.timestamp(),
        noon.timestamp(),
        0.0,
        None,
        None,
        5.0,
        100.0,
    )
    assert expired_verdict(claim, 104.9) is None
    assert (late := expired_verdict(claim, 105.0)) is not None
    assert late.error is not None
    assert late.error.attempt == 2


async def test_a_take_gets_no_job_that_has_expired(queue: PgQueue) -> None:
    @queue.task
    def work() -> None: ...

    late, in_time = work.using(expires_in=60).enqueue(), work.enqueue()
    ask(queue, "update pgqueue.jobs set expires_at = now() where id = %s", late.id)
    async with queue.atake(5, timeout=20) as jobs:
        assert [job.id for job in jobs] == [in_time.id]
    assert (await queue.ajob(late.id)).reason == "expired"


async def test_a_worker_ends_what_nobody_has_claimed_and_tells_those_who_wait(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SELDOM_EVERY", 0.0)

    @queue.task(queue="paused", expires_in=0.2)
    def work() -> None: ...

    queue.control.pause("paused")
    handle = work.enqueue()
    assert "; it expires in" in (await queue.awhy(handle.id)).sentence
    async with running(queue, poll=0.05):
        with pytest.raises(JobFailed, match="Expired: it was to be started by"):
            await handle.aresult(timeout=30)


def test_those_that_nobody_claims_are_ended_in_pieces(queue: PgQueue) -> None:
    @queue.task(expires_in=60)
    def work(number: int) -> None: ...

    queue.enqueue_many(work.call(number) for number in range(AT_ONCE + 5))
    later = queue.database.run(control.clock()) + timedelta(hours=1)
    assert [len(queue.database.run(finish.expire(now=later))) for _ in range(3)] == [AT_ONCE, 5, 0]
    (row,) = ask(queue, "select count(*), count(distinct reason) from pgqueue.dead_jobs")
    assert row == (AT_ONCE + 5, 1)


REFUSE: LiteralString = """
create function public.refuse() returns trigger language plpgsql as $$
begin
    if new.args->>'number' in ('7', '30') then raise 'not this one'; end if;
    return new;
end $$;
create trigger refuse before insert on pgqueue.dead_jobs for each row execute function public.refuse()"""


def _numbers(queue: PgQueue, table: str) -> set[int]:
    return {row[0] for row in ask(queue, f"select (args->>'number')::int from pgqueue.{table}")}


def test_jobs_that_the_database_refuses_to_end_are_named_and_set_aside_and_the_others_end(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(expires_in=60)
    def work(number: int) -> None: ...

    handles = [work.enqueue(number) for number in range(40)]
    ask(queue, REFUSE)
    later = queue.database.run(control.clock()) + timedelta(hours=1)
    seconds = 0.0
    expiring = Expirer(clock=lambda: seconds)
    while run_sweep(expiring.portion(now=later), queue.database.run):
        pass
    assert _numbers(queue, "dead_jobs") == {*range(40)} - {7, 30}
    assert _numbers(queue, "jobs") == {7, 30}
    told = [
        record
        for record in caplog.records
        if record.getMessage().startswith("an expired job cannot be ended")
    ]
    assert [record.__dict__["job"] for record in told] == [handles[7].id, handles[30].id]
    assert "not this one" in told[0].getMessage()

    ask(queue, "drop trigger refuse on pgqueue.dead_jobs")
    assert not run_sweep(expiring.portion(now=later), queue.database.run), "they are set aside"
    seconds = 61.0
    assert len(run_sweep(expiring.portion(now=later), queue.database.run)) == 2


async def test_a_worker_ends_the_jobs_beside_one_that_the_database_refuses_to_end(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SELDOM_EVERY", 0.0)

    @queue.task(queue="paused", expires_in=0.2)
    def work(number: int) -> None: ...

    queue.control.pause("paused")
    ask(queue, REFUSE)
    queue.enqueue_many(work.call(number) for number in range(12))
    async with running(queue, poll=0.05):
        await until(lambda: len(_numbers(queue, "dead_jobs")) == 11)
    assert _numbers(queue, "jobs") == {7}
