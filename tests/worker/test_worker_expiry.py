"""Jobs that have to be started in time: what a worker has claimed, what it takes, and what no worker has claimed.

Hostile values of ``expires_at``: through Python they are refused; through SQL a job has expired or has not, and is never stuck.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import msgspec
import pytest
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, all_ended, claimed, dismantle, hand_over, record_ends, register

from pgqueue import Batch, JobState, PgQueue
from pgqueue.errors import InvalidOption, JobFailed
from pgqueue.store.drive import drive
from pgqueue.store.jobs import control, finish
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.store.jobs.expiry import Expirer
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
    await register(worker)
    try:
        hand_over(worker, _waited(claimed(queue, worker), 61))
        await all_ended(worker)
        await record_ends(worker)
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
    while drive(expiring.portion(now=later), queue.database.run):
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
    assert not drive(expiring.portion(now=later), queue.database.run), "they are set aside"
    seconds = 61.0
    assert len(drive(expiring.portion(now=later), queue.database.run)) == 2


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


PAST = ["-infinity", "0001-01-01 00:00+00 BC", "1899-12-31 23:59+00", "1970-01-01 00:00+00"]
FUTURE = ["infinity", "294276-01-01 00:00+00", "9999-12-31 23:59+00"]


@pytest.mark.parametrize(
    "value",
    [
        "infinity",
        "2031-01-01",
        1_900_000_000,
        float("inf"),
        datetime(2031, 1, 1),  # noqa: DTZ001 - that is what is wrong with it
        datetime(1899, 12, 31, tzinfo=UTC),
        datetime(9000, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
)
def test_python_refuses_what_is_no_instant_of_a_job(queue: PgQueue, value: Any) -> None:
    @queue.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match="expires_at="):
        work.using(expires_at=value).enqueue()
    assert queue.insight.search().jobs == ()


@pytest.mark.parametrize("state", ["ready", "scheduled"])
async def test_whatever_sql_writes_a_job_is_expired_or_runs(
    queue: PgQueue, running: Running, state: str
) -> None:
    calls: list[int] = []

    @queue.task
    def work(number: int) -> None:
        calls.append(number)

    handles = [await work.aenqueue(number) for number in range(len(PAST + FUTURE))]
    for handle, value in zip(handles, PAST + FUTURE, strict=True):
        ask(
            queue,
            "update pgqueue.jobs set expires_at = %s::text::timestamptz, status = %s::text where id = %s returning 1",
            value, state, handle.id,
        )  # fmt: skip
    assert all([(await queue.awhy(handle.id)).sentence for handle in handles])
    async with running(queue):
        await until(lambda: all(handle.status().ended for handle in handles))
    jobs = [queue.job(handle.id) for handle in handles]
    late, in_time = jobs[: len(PAST)], jobs[len(PAST) :]
    assert [(one.state, one.reason, one.attempts) for one in late] == [(JobState.DEAD, "expired", 0)] * len(
        PAST
    )
    assert [one.state for one in in_time] == [JobState.SUCCEEDED] * len(FUTURE)
    assert sorted(calls) == [*range(len(PAST), len(jobs))]


async def test_a_job_that_expires_at_the_instant_of_its_claim_is_not_started(
    queue: PgQueue, running: Running
) -> None:
    """The database sets ``expires_at`` to the very instant that the claim writes: both are of one statement."""
    calls: list[int] = []

    @queue.task
    def work(number: int) -> None:
        calls.append(number)

    ask(
        queue,
        "create function meet() returns trigger language plpgsql as $$ begin "
        "new.expires_at := new.claimed_at + interval '1 microsecond' * (old.args ->> 'number')::integer; return new; end $$; "
        "create trigger meet before update on pgqueue.jobs for each row "
        "when (new.status = 'running' and old.status = 'ready') execute function meet(); select 1",
    )
    at_it, before = work.enqueue(0), work.enqueue(-1)
    after = work.enqueue(60_000_000)
    async with running(queue):
        await until(lambda: all(one.status().ended for one in (at_it, before, after)))
    assert calls == [60_000_000]
    assert [queue.job(one.id).reason for one in (at_it, before, after)] == ["expired", "expired", None]
