"""What goes wrong within a take, and that no job is held by it afterwards: rows, leases, connections, policies."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from app.silence import Way, way_to
from looking import ask, wait_until
from tenacity import retry_if_exception_type, stop_after_attempt, wait_fixed

from pgqueue import Cancelled, Dead, JobState, PgQueue, Retry, RetryLater, Snooze, Superseded
from pgqueue.app.takes import base
from pgqueue.errors import ConnectionFailed, InvalidOption
from pgqueue.store.workers import upkeep

SHORT = timedelta(seconds=0.6)
MINUTE = timedelta(minutes=1)

LEVELS = 11_000
"""Arrays in arrays that no Python reads: 3.11 reads 1,000, later ones 10,000. PostgreSQL stores more."""
POISON = {"deep": "[" * LEVELS + "]" * LEVELS, "digits": "1" * 5_000}


def enqueue_raw(queue: PgQueue, args: str) -> int:
    """A job of the kind that an insert by SQL lets in."""
    ask(queue, "alter domain pgqueue.arguments drop constraint if exists arguments_fit")
    found: int = ask(
        queue,
        "insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts) "
        "values ('default', 'note', %s::json, 0, 'ready', now(), 25) returning id",
        f'{{"number": {args}}}',
    )[0][0]
    return found


def good(queue: PgQueue) -> list[int]:
    return [enqueue_raw(queue, str(number)) for number in range(2)]


def live(queue: PgQueue) -> list[tuple[Any, ...]]:
    return ask(queue, "select id, status::text, attempts from pgqueue.jobs order by id")


def dead(queue: PgQueue) -> list[tuple[Any, ...]]:
    return ask(queue, "select id, reason, errors->0->>'type' from pgqueue.dead_jobs order by id")


def taken(queue: PgQueue, count: int, *, awaited: bool) -> list[int]:
    """Take and complete; the ids of what was handed over."""
    if not awaited:
        with queue.take(count, timeout=0) as jobs:
            return [job.id for job in jobs]

    async def take() -> list[int]:
        async with queue.atake(count, timeout=0) as jobs:
            return [job.id for job in jobs]

    return asyncio.run(take())


both_kinds = pytest.mark.parametrize("awaited", [False, True], ids=["take", "atake"])


@both_kinds
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_a_job_that_cannot_be_read_is_dead_and_the_others_are_handed_over(
    queue: PgQueue, poison: str, *, awaited: bool
) -> None:
    bad = enqueue_raw(queue, poison)
    ids = good(queue)

    assert taken(queue, 5, awaited=awaited) == ids

    assert dead(queue) == [(bad, "undecodable", "pgqueue.errors.PayloadNotDecodable")]
    assert live(queue) == []
    assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]


@both_kinds
def test_a_take_of_nothing_but_such_jobs_goes_on_waiting(queue: PgQueue, *, awaited: bool) -> None:
    enqueue_raw(queue, POISON["deep"])
    ids = good(queue)
    assert taken(queue, 1, awaited=awaited) == ids[:1]


@both_kinds
def test_one_that_cannot_be_buried_waits_and_the_others_are_handed_over(
    queue: PgQueue, *, awaited: bool
) -> None:
    bad = enqueue_raw(queue, POISON["digits"])
    ids = good(queue)
    ask(
        queue,
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
    )
    ask(queue, "create trigger refuse before insert on pgqueue.dead_jobs execute function refuse()")

    assert taken(queue, 5, awaited=awaited) == ids

    assert live(queue) == [(bad, "scheduled", 1)]


@both_kinds
def test_whatever_raises_on_the_way_in_gives_everything_back(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, *, awaited: bool
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    ids = good(queue)
    monkeypatch.setattr(base, "args_of", broken)
    with pytest.raises(MemoryError):
        taken(queue, 5, awaited=awaited)

    assert live(queue) == [(job_id, "ready", 0) for job_id in ids]
    assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]
    assert not [thread for thread in threading.enumerate() if thread.name == "pgqueue-take"]


# Policies


@pytest.fixture
def patient(queue: PgQueue) -> PgQueue:
    """A queue that knows a task with a policy of its own."""

    @queue.task(name="note", retry=Retry(wait=wait_fixed(120), retry=retry_if_exception_type(OSError)))
    def note(number: int) -> None: ...

    return queue


def delay_of(queue: PgQueue, job_id: int) -> timedelta:
    job = queue.job(job_id)
    assert job.errors[-1].at is not None
    return job.run_at - job.errors[-1].at


def leave(queue: PgQueue, error: BaseException, *, awaited: bool) -> None:
    """Leave a take of everything by an exception."""
    if not awaited:
        with pytest.raises(type(error)), queue.take(5):
            raise error
        return

    async def take() -> None:
        async with queue.atake(5):
            raise error

    with pytest.raises(type(error)):
        asyncio.run(take())


@both_kinds
def test_an_exception_returns_jobs_after_the_delay_of_their_tasks_policy(
    patient: PgQueue, *, awaited: bool
) -> None:
    ids = good(patient)
    leave(patient, ValueError("not one that the policy names"), awaited=awaited)
    assert [delay_of(patient, job_id) for job_id in ids] == [timedelta(seconds=120)] * 2


@both_kinds
def test_an_exception_returns_jobs_of_unknown_tasks_after_the_default_delay(
    queue: PgQueue, *, awaited: bool
) -> None:
    (job_id, _) = good(queue)
    leave(queue, ValueError("mine"), awaited=awaited)
    assert timedelta(0) < delay_of(queue, job_id) <= timedelta(seconds=2)


def test_a_task_decides_by_what_the_block_raises(patient: PgQueue) -> None:
    (first, second) = good(patient)
    leave(patient, RetryLater(300), awaited=False)
    assert delay_of(patient, first) == delay_of(patient, second) == timedelta(seconds=300)
    for job_id in (first, second):
        patient.control.run_now(job_id)
    leave(patient, Snooze(60), awaited=False)
    assert [(state, attempts) for _, state, attempts in live(patient)] == [("scheduled", 1)] * 2
    for job_id in (first, second):
        patient.control.run_now(job_id)
    leave(patient, Dead("no use"), awaited=False)
    assert [reason for _, reason, _ in dead(patient)] == ["asked"] * 2


def test_a_block_ends_a_job_or_all_of_them_as_cancelled(queue: PgQueue) -> None:
    (first, second, *_) = [note.enqueue() for note in [queue.task(name="note")(print)] for _ in range(2)]
    with queue.take(1) as (job,):
        job.fail(Cancelled("not needed"))
    with suppress(Cancelled), queue.take(1):
        raise Cancelled
    assert (first.status(), second.status()) == (JobState.CANCELLED, JobState.CANCELLED)
    assert [len(queue.job(one.id).errors) for one in (first, second)] == [1, 0]


def test_a_policy_that_fails_itself_leaves_the_decision_to_the_default_one(queue: PgQueue) -> None:
    def broken(_: object) -> float:
        raise ZeroDivisionError

    @queue.task(name="note", retry=Retry(wait=broken))
    def note(number: int) -> None: ...

    (job_id, _) = good(queue)
    leave(queue, ValueError("mine"), awaited=False)
    assert timedelta(0) < delay_of(queue, job_id) <= timedelta(seconds=2)


def test_a_policy_for_failing_a_job_is_asked_what_a_worker_would_ask(patient: PgQueue) -> None:
    first, second, third = enqueue_raw(patient, "1"), enqueue_raw(patient, "2"), enqueue_raw(patient, "3")
    with patient.take(3) as jobs:
        jobs[0].fail(OSError("named by the policy"))
        jobs[1].fail(ValueError("not named"))
        jobs[2].fail("a message has no type")
    assert delay_of(patient, first) == delay_of(patient, third) == timedelta(seconds=120)
    assert dead(patient) == [(second, "refused", "ValueError")]


@pytest.mark.parametrize(("delay", "waits"), [(60, MINUTE), (MINUTE, MINUTE)])
def test_a_delay_given_wins_over_the_policy(
    patient: PgQueue, delay: float | timedelta, waits: timedelta
) -> None:
    (job_id, _) = good(patient)
    with patient.take(1) as jobs:
        jobs[0].fail(ValueError("mine"), delay=delay)
    assert delay_of(patient, job_id) == waits


@pytest.mark.parametrize("delay", [-1, True, float("nan"), "5"])
async def test_a_delay_out_of_range_is_refused_before_the_claim_is_let_go(queue: PgQueue, delay: Any) -> None:
    ids = good(queue)
    with queue.take(1) as jobs, pytest.raises(InvalidOption, match="delay="):
        jobs[0].fail("no ink", delay=delay)
    async with queue.atake(1) as jobs:
        with pytest.raises(InvalidOption, match="delay="):
            await jobs[0].afail("no ink", delay=delay)
    assert [queue.job(job_id).state for job_id in ids] == [JobState.SUCCEEDED] * 2


# The lease


def lose(queue: PgQueue) -> None:
    ask(queue, "delete from pgqueue.workers")
    queue.database.run(upkeep.reclaim())


def test_a_lost_lease_is_noticed_and_told_at_the_next_word(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    ids = good(queue)
    with pytest.raises(Superseded, match=f"job {ids[1]}: not recorded"), queue.take(2, lease=SHORT) as jobs:  # noqa: PT012 - how a block is left is the claim
        assert not jobs[0].lost
        lose(queue)
        wait_until(lambda: jobs[0].lost)
        with pytest.raises(Superseded, match=f"job {ids[0]}: not recorded"):
            jobs[0].complete()
        assert "lost" in repr(jobs[1])
    (warned,) = [record for record in caplog.records if "lease of a take is lost" in record.message]
    assert (warned.levelno, vars(warned)["jobs"]) == (logging.WARNING, ids)
    assert live(queue) == [(job_id, "ready", 1) for job_id in ids]


def test_after_a_lost_lease_nothing_is_recorded_even_before_the_jobs_are_taken_over(queue: PgQueue) -> None:
    (job_id, _) = good(queue)
    with queue.take(1, lease=SHORT) as jobs:
        ask(queue, "delete from pgqueue.workers")
        wait_until(lambda: jobs[0].lost)
        with pytest.raises(Superseded):
            jobs[0].complete()
    assert queue.job(job_id).state is not JobState.SUCCEEDED
    with queue.take(2, timeout=20) as jobs:  # found by the note of the lost worker, and taken over
        assert job_id in [job.id for job in jobs]


async def test_a_lost_lease_of_an_awaited_take_is_noticed(queue: PgQueue) -> None:
    good(queue)
    with pytest.raises(Superseded):  # noqa: PT012 - how a block is left is the claim
        async with queue.atake(1, lease=SHORT) as jobs:
            lose(queue)
            await asyncio.to_thread(wait_until, lambda: jobs[0].lost)
            with pytest.raises(Superseded):
                await jobs[0].afail("no ink")
            raise Superseded


def test_a_take_can_be_entered_again_after_a_lost_lease(queue: PgQueue) -> None:
    ids = good(queue)
    take = queue.take(1, lease=SHORT)
    with pytest.raises(Superseded), take as jobs:  # noqa: PT012 - how a block is left is the claim
        lose(queue)
        wait_until(lambda: jobs[0].lost)
    with take as jobs:
        assert [(job.id, job.lost) for job in jobs] == [(ids[0], False)]
    assert live(queue) == [(ids[1], "ready", 0)]


async def test_a_blocked_loop_keeps_its_lease(queue: PgQueue) -> None:
    good(queue)
    async with queue.atake(1, lease=SHORT) as jobs:
        before = ask(queue, "select lease_until from pgqueue.workers")[0][0]
        wait_until(
            lambda: ask(queue, "select lease_until from pgqueue.workers")[0][0] > before
        )  # blocks the loop
        assert not jobs[0].lost


def test_a_settling_that_waits_for_a_lock_keeps_the_lease(queue: PgQueue, dsn: str) -> None:
    (job_id, _) = good(queue)
    with queue.take(1, lease=SHORT) as jobs, psycopg.connect(dsn) as other:
        other.execute("select from pgqueue.jobs where id = %s for update", [job_id])
        settling = threading.Thread(target=jobs[0].complete)
        settling.start()
        wait_until(lambda: ask(queue, "select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
        before = ask(queue, "select lease_until from pgqueue.workers")[0][0]
        wait_until(lambda: ask(queue, "select lease_until from pgqueue.workers")[0][0] > before)
        other.rollback()
        settling.join()
    assert queue.job(job_id).state is JobState.SUCCEEDED


@pytest.fixture
def strict(queue: PgQueue, dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A database with settings under which no wait for a lock is allowed; a connection without them."""
    good(queue)
    with psycopg.connect(dsn, autocommit=True) as own:
        (name,) = own.execute("select current_database()").fetchone() or ("",)
        for theirs in ("statement_timeout = '5ms'", "lock_timeout = '1ms'", "search_path = public"):
            own.execute(f'alter database "{name}" set {theirs}'.encode())
        yield own
        own.execute(f'alter database "{name}" reset all'.encode())


def waits(own: psycopg.Connection[Any]) -> bool:
    return own.execute("select count(*) > 0 from pg_locks where not granted").fetchone() == (True,)


@pytest.mark.parametrize("awaited", [False, True])
def test_timeouts_of_the_role_or_the_database_do_not_end_a_take(
    queue: PgQueue, strict: psycopg.Connection[Any], *, awaited: bool
) -> None:
    with ThreadPoolExecutor(1) as threads:
        with strict.transaction():
            strict.execute("lock table pgqueue.workers")
            taking = threads.submit(taken, queue, 2, awaited=awaited)
            wait_until(lambda: taking.done() or waits(strict))
            strict.execute("select pg_sleep(0.02)")  # longer than their timeouts
            assert not taking.done()
        assert len(taking.result()) == 2


def test_timeouts_of_the_role_or_the_database_do_not_end_its_heartbeat(
    queue: PgQueue, strict: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with queue.take(1, lease=SHORT), strict.transaction():
        strict.execute("select from pgqueue.workers for update")
        wait_until(lambda: caplog.messages or waits(strict))
        strict.execute("select pg_sleep(0.02)")  # longer than their timeouts
    assert caplog.messages == []


# Connections that are open and answer nothing


@pytest.fixture
def way(dsn: str) -> Iterator[Way]:
    with way_to(dsn) as found:
        yield found


@pytest.fixture
def distant(way: Way) -> Iterator[PgQueue]:
    opened = PgQueue(way.dsn)
    yield opened
    opened.close()


def test_a_beat_without_an_answer_ends_and_the_next_one_uses_a_new_connection(
    queue: PgQueue, distant: PgQueue, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    def lease() -> Any:
        return ask(queue, "select lease_until from pgqueue.workers")[0][0]

    good(queue)
    with distant.take(2, lease=3) as jobs:
        first = lease()
        wait_until(lambda: lease() > first)  # the heartbeat's connection is open
        opened, second = way.opened, lease()
        way.silence(last=True)
        wait_until(lambda: lease() > second)
        assert way.opened > opened
        assert not jobs[0].lost
    assert "the next beat uses a new connection" in caplog.text


def settle_in_silence(take: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(base, "SHORTEST_ANSWER_LIMIT", 1.0)
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match="whether the last step was recorded is not known"):
        take()
    return time.monotonic() - began


def test_a_settling_without_an_answer_ends_and_what_is_left_goes_back(
    queue: PgQueue, distant: PgQueue, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take() -> None:
        with distant.take(2, lease=1) as jobs:
            way.silence()
            jobs[0].complete()

    ids = good(queue)
    settle_in_silence(take, monkeypatch)
    assert [(job_id, attempts) for job_id, _, attempts in live(queue)] == [(ids[0], 1), (ids[1], 1)]
    assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]


def test_an_awaited_settling_without_an_answer_ends_too(
    queue: PgQueue, distant: PgQueue, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take() -> None:
        async with distant.atake(2, lease=1) as jobs:
            way.silence()
            await jobs[0].acomplete()

    ids = good(queue)
    settle_in_silence(lambda: asyncio.run(take()), monkeypatch)
    assert [(job_id, attempts) for job_id, _, attempts in live(queue)] == [(ids[0], 1), (ids[1], 1)]
    assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]


def test_jobs_are_settled_from_several_threads(queue: PgQueue) -> None:
    for number in range(20):
        enqueue_raw(queue, str(number))
    with queue.take(20) as jobs:
        threads = [threading.Thread(target=job.complete) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert live(queue) == []


def test_a_taken_job_shows_what_it_is(queue: PgQueue) -> None:
    (job_id, _) = good(queue)
    with queue.take(1) as jobs:
        assert repr(jobs[0]) == f"<TakenJob {job_id} note attempt 1>"


def test_stop_after_attempt_ends_a_job_of_a_take(queue: PgQueue) -> None:
    @queue.task(name="note", retry=Retry(stop=stop_after_attempt(1)))
    def note(number: int) -> None: ...

    handle = note.enqueue(1)
    leave(queue, ValueError("mine"), awaited=False)
    assert queue.job(handle.id).state is JobState.DEAD
