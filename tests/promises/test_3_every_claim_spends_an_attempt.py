"""Promise 3: every claim spends an attempt; after ``max_attempts`` the job is in the dead table with every
attempt's error.

Jobs fail, kill their worker's process, and decide for themselves; what was spent and what was written down
is counted each time.
"""

from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from looking import ask, until
from promises.processes import LEASE, claimed, database_clock, do, listed, processes, run_on
from promises.workshop import AT_ONCE, Workshop
from running import Running
from tenacity import retry_if_exception, retry_if_exception_type, wait_fixed, wait_none

from pgqueue import Context, Dead, Job, JobHandle, JobState, PgQueue, Retry, RetryLater, Snooze
from pgqueue.store.jobs import claim, finish
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.verdict import Returned

AT_ONCE_RETRY = Retry(wait=wait_none())
AN_HOUR = timedelta(hours=1)


async def ended(queue: PgQueue, handle: JobHandle[None], running: Running) -> Job:
    """Run the job until it has ended, or waits for an hour; what is recorded of it then."""
    settled = {JobState.SUCCEEDED, JobState.DEAD, JobState.SCHEDULED}
    async with running(queue):
        await until(lambda: queue.job(handle.id).state in settled)
    job = await queue.ajob(handle.id)
    await queue.aclose()
    return job


def test_the_claim_itself_spends_the_attempt(queue: PgQueue) -> None:
    handle = Workshop(queue).succeed.enqueue()
    assert queue.job(handle.id).attempts == 0
    held = claimed(queue, listed(queue))
    assert (held.attempt, queue.job(handle.id).attempts) == (1, 1)


def test_a_job_that_kills_its_worker_dies_with_an_error_per_attempt(queue: PgQueue, dsn: str) -> None:
    workshop = Workshop(queue)
    handle = workshop.die.enqueue()
    with processes(dsn) as start:
        for attempt in range(1, 4):
            assert queue.job(handle.id).state is JobState.READY
            assert start().ended() < 0
            assert queue.job(handle.id).attempts == attempt
            do(queue, upkeep.reclaim(now=database_clock(dsn) + AN_HOUR))
        assert ask(dsn, "select attempt from marks order by id") == [(1,), (2,), (3,)]
    job = queue.job(handle.id)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "exhausted", 3)
    assert [(error.attempt, error.type) for error in job.errors] == [
        (1, "WorkerLost"),
        (2, "WorkerLost"),
        (3, "WorkerLost"),
    ]


async def test_every_attempts_error_is_kept_in_order(queue: PgQueue, running: Running) -> None:
    @queue.task(max_attempts=4, retry=AT_ONCE_RETRY)
    async def fail(ctx: Context) -> None:
        raise ValueError(f"this was attempt {ctx.attempt}")

    job = await ended(queue, await fail.aenqueue(), running)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "exhausted", 4)
    assert [(error.attempt, error.type, error.message) for error in job.errors] == [
        (number, "ValueError", f"this was attempt {number}") for number in range(1, 5)
    ]
    times = [error.at for error in job.errors if error.at is not None]
    assert times == sorted(times)
    assert len(times) == len(job.errors)
    assert all("raise ValueError" in str(error.traceback) for error in job.errors)


async def test_a_crash_and_a_failure_count_alike(queue: PgQueue, running: Running) -> None:
    @queue.task(max_attempts=2)
    async def fail() -> None:
        raise ValueError

    handle = await fail.aenqueue()
    lost = listed(queue)
    claimed(queue, lost)
    do(queue, leases.leave(lost))
    job = await ended(queue, handle, running)
    assert (job.state, job.reason) == (JobState.DEAD, "exhausted")
    assert [(error.attempt, error.type) for error in job.errors] == [(1, "WorkerLost"), (2, "ValueError")]


def test_the_last_attempt_is_not_reclaimed_but_dead(queue: PgQueue) -> None:
    handle = Workshop(queue).succeed.using(max_attempts=2).enqueue()
    for state in (JobState.READY, JobState.DEAD):
        worker = listed(queue)
        claimed(queue, worker)
        do(queue, leases.leave(worker))
        assert do(queue, upkeep.reclaim()) == {handle.id: state}
    assert do(queue, claim.claim(listed(queue), {"default": 1})) == []


async def test_a_snooze_spends_no_attempt(queue: PgQueue, running: Running) -> None:
    seen: list[int] = []

    @queue.task(max_attempts=2, retry=AT_ONCE_RETRY)
    async def snooze_then_fail(ctx: Context) -> None:
        seen.append(ctx.attempt)
        if len(seen) <= 3:
            raise Snooze(AT_ONCE)
        raise ValueError

    job = await ended(queue, await snooze_then_fail.aenqueue(), running)
    assert seen == [1, 1, 1, 1, 2]
    assert (job.state, job.attempts) == (JobState.DEAD, 2)
    assert [error.attempt for error in job.errors] == [1, 2]


async def test_a_snoozed_job_waits_as_long_as_it_asked_to(queue: PgQueue, dsn: str, running: Running) -> None:
    @queue.task
    async def snooze() -> None:
        raise Snooze(AN_HOUR)

    before = database_clock(dsn)
    job = await ended(queue, await snooze.aenqueue(), running)
    assert (job.state, job.attempts, job.errors) == (JobState.SCHEDULED, 0, ())
    assert before + AN_HOUR < job.run_at < database_clock(dsn) + AN_HOUR


def test_what_was_never_started_goes_back_unspent(queue: PgQueue) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue)
    held = claimed(queue, worker)
    do(queue, finish.finish(worker, [Returned(held)], keep=True))
    given_back = queue.job(handle.id)
    assert (given_back.state, given_back.attempts, given_back.errors) == (JobState.READY, 0, ())
    assert given_back.run_at == held.run_at
    claimed(queue, worker)
    assert do(queue, claim.return_unknown(worker, [])) == [handle.id]
    disowned = queue.job(handle.id)
    assert (disowned.state, disowned.attempts, disowned.errors) == (JobState.READY, 0, ())


async def test_retry_later_spends_an_attempt_and_names_its_own_delay(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(retry=AT_ONCE_RETRY)
    async def retry_later() -> None:
        raise RetryLater(AN_HOUR, "the printer is on fire")

    job = await ended(queue, await retry_later.aenqueue(), running)
    assert (job.state, job.attempts) == (JobState.SCHEDULED, 1)
    (error,) = job.errors
    assert error.message == "the printer is on fire"
    assert error.at is not None
    assert job.run_at == error.at + AN_HOUR


async def test_retry_later_has_no_more_attempts_than_others(queue: PgQueue, running: Running) -> None:
    @queue.task(max_attempts=2)
    async def retry_later() -> None:
        raise RetryLater(AT_ONCE)

    job = await ended(queue, await retry_later.aenqueue(), running)
    assert (job.state, job.reason, len(job.errors)) == (JobState.DEAD, "exhausted", 2)


async def test_dead_means_at_once(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def give_up() -> None:
        raise Dead("there is no such order")

    job = await ended(queue, await give_up.aenqueue(), running)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "asked", 1)
    assert [error.message for error in job.errors] == ["there is no such order"]


async def test_an_error_that_the_policy_does_not_name_is_not_retried(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(retry=Retry(retry=retry_if_exception_type(OSError)))
    async def fail() -> None:
        raise ValueError

    job = await ended(queue, await fail.aenqueue(), running)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "refused", 1)
    assert [error.type for error in job.errors] == ["ValueError"]


class Picky(msgspec.Struct):
    """Arguments whose own check fails in a way that no code expects."""

    name: str

    def __post_init__(self) -> None:
        {"known": True}[self.name]


async def test_an_undecodable_payload_is_dead_without_a_retry(queue: PgQueue, running: Running) -> None:
    ran: list[object] = []

    @queue.task(name="count")
    def count(number: int) -> None:
        ran.append(number)

    @queue.task(name="pick")
    def pick(picky: Picky) -> None:
        ran.append(picky)

    with queue.database.pooled() as connection:
        ids = [
            connection.execute("select pgqueue.enqueue(%s, %s::text::jsonb)", [task, args]).fetchone()
            for task, args in (
                ("count", '{"number": "one"}'),
                ("count", "{}"),
                ("count", '{"number": 1, "other": 2}'),
                ("pick", '{"picky": {"name": "unknown"}}'),
            )
        ]
    async with running(queue):
        await until(lambda: len(queue.insight.search(state=JobState.DEAD).jobs) == len(ids))
    for job in queue.insight.search().jobs:
        assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "undecodable", 1)
        assert [error.type for error in job.errors] == ["pgqueue.errors.PayloadNotDecodable"]
    assert ran == []
    await queue.aclose()


def _no_such_attribute(error: BaseException) -> bool:
    return bool(error.status == 503)  # type: ignore[attr-defined]  # the mistake that is tried


def _broken_wait(_: object) -> float:
    raise ZeroDivisionError


BROKEN_POLICIES = [
    Retry(retry=retry_if_exception(_no_such_attribute)),
    Retry(wait=_broken_wait),
    Retry(wait=wait_fixed(float("inf"))),
    Retry(wait=wait_fixed(float("nan"))),
]


async def test_a_broken_policy_does_not_keep_an_attempt_from_being_recorded(
    queue: PgQueue, running: Running
) -> None:
    async def fail() -> None:
        raise ValueError

    for number, policy in enumerate(BROKEN_POLICIES):
        await queue.task(name=f"fail_{number}", retry=policy)(fail).aenqueue()
    async with running(queue):
        await until(lambda: all(job.errors for job in queue.insight.search().jobs))
    assert [job.errors[0].type for job in queue.insight.search().jobs] == ["ValueError"] * len(
        BROKEN_POLICIES
    )
    await queue.aclose()


class Unspeakable:
    """A result that cannot be read."""

    def model_dump(self, mode: str) -> object:
        raise LookupError(mode)


async def test_a_result_that_cannot_be_kept_does_not_run_the_job_again(
    queue: PgQueue, running: Running
) -> None:
    results = {"cut short": msgspec.Raw(b"{"), "unspeakable": Unspeakable(), "of no kind": object()}
    attempts: list[str] = []

    @queue.task
    async def answer(name: str) -> object:
        attempts.append(name)
        return results[name]

    await queue.aenqueue_many(answer.call(name) for name in results)
    async with running(queue, lease=timedelta(seconds=3)):
        await until(
            lambda: (
                all(job.state.ended for job in queue.insight.search().jobs) or len(attempts) > len(results)
            )
        )
    assert sorted(attempts) == sorted(results)
    assert [job.state for job in queue.insight.search().jobs] == [JobState.SUCCEEDED] * len(results)
    await queue.aclose()


def test_a_take_spends_attempts_as_a_worker_does(queue: PgQueue) -> None:
    handle = Workshop(queue).succeed.using(max_attempts=2).enqueue()

    def take_and_fail(attempt: int) -> None:
        with queue.take(1, timeout=0) as (taken,):
            assert taken.attempt == attempt
            raise ValueError("oops")

    for attempt in (1, 2):
        with pytest.raises(ValueError, match="oops"):
            take_and_fail(attempt)
        if attempt == 1:
            assert queue.control.run_now(handle.id)  # ready at once, before the policy's delay is over
    job = queue.job(handle.id)
    assert (job.state, job.reason) == (JobState.DEAD, "exhausted")
    assert [(error.attempt, error.message) for error in job.errors] == [(1, "oops"), (2, "oops")]


def test_a_claim_that_is_rolled_back_spends_nothing(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    handle = Workshop(queue).succeed.enqueue()
    worker = listed(queue, LEASE)
    assert len(run_on(connection, claim.claim(worker, {"default": 1}))) == 1
    connection.rollback()
    assert (queue.job(handle.id).state, queue.job(handle.id).attempts) == (JobState.READY, 0)
