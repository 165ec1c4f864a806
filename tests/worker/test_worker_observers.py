"""Observers are told in batches what happens to jobs; one that raises changes nothing."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from looking import ask, until, wait_until
from running import Running
from tenacity import wait_fixed
from worker.helping import (
    FOR_EVER,
    all_ended,
    beat,
    claimed,
    dismantle,
    ended,
    hand_over,
    record_ends,
    register,
)

from pgqueue import Context, JobState, Observer, PgQueue, Retry, Superseded, Unique, Worker
from pgqueue.values.jobs.job import Claim, EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.verdict import Again, Succeeded, Verdict


class Noting(Observer):
    """Notes every call: the event, and its batch."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []

    def enqueued(self, jobs: Sequence[NewJob], results: Sequence[EnqueueAnswer]) -> None:
        self.calls.append(("enqueued", list(zip(jobs, results, strict=True))))

    def claimed(self, claims: Sequence[Claim]) -> None:
        self.calls.append(("claimed", list(claims)))

    def started(self, claims: Sequence[Claim]) -> None:
        self.calls.append(("started", list(claims)))

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        self.calls.append(("ended", list(verdicts)))

    def lost(self, claims: Sequence[Claim]) -> None:
        self.calls.append(("lost", list(claims)))

    def of(self, event: str) -> list[Any]:
        """All that this event was told, over its batches."""
        return [one for name, batch in self.calls if name == event for one in batch]

    def ids(self, event: str) -> list[int]:
        return [one.id for one in self.of(event)]


@pytest.fixture
def noting(queue: PgQueue) -> Noting:
    observer = Noting()
    queue.observe(observer)
    return observer


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_each_event_of_a_job_is_told_once_and_in_order(
    queue: PgQueue, noting: Noting, running: Running, *, plain: bool
) -> None:
    def run() -> int:
        return 7

    async def arun() -> int:
        return 7

    task = queue.task(name="note")(run if plain else arun)
    jobs = queue.enqueue_many(task.call() for _ in range(30))
    async with running(queue, concurrency=3):
        await ended(queue, *jobs)
    ids = [job.id for job in jobs]
    assert [(job.task, done.id) for job, done in noting.of("enqueued")] == [("note", one) for one in ids]
    assert sorted(noting.ids("claimed")) == sorted(noting.ids("started")) == ids
    assert sorted(verdict.claim.id for verdict in noting.of("ended")) == ids
    assert {type(verdict) for verdict in noting.of("ended")} == {Succeeded}
    assert noting.of("lost") == []
    assert len(noting.calls) < 3 * len(jobs), "batches, not jobs"
    told = {name: position for position, (name, _) in reversed([*enumerate(noting.calls)])}
    assert told["enqueued"] < told["claimed"] < told["started"] < told["ended"]


async def test_an_enqueue_in_a_callers_transaction_is_told_at_once_and_a_rollback_is_not(
    queue: PgQueue, noting: Noting, dsn: str
) -> None:
    @queue.task
    async def note() -> None: ...

    with psycopg.connect(dsn) as connection:
        handle = note.using(connection=connection).enqueue()
        assert [done.id for _, done in noting.of("enqueued")] == [handle.id]
        connection.rollback()
    assert [name for name, _ in noting.calls] == ["enqueued"]


async def test_a_rejected_enqueue_says_so(queue: PgQueue, noting: Noting) -> None:
    @queue.task(unique=Unique(by=()))
    async def note() -> None: ...

    await note.aenqueue()
    await note.aenqueue()
    assert [done.outcome for _, done in noting.of("enqueued")] == [Outcome.ADDED, Outcome.REJECTED]


async def test_a_failed_attempt_ends_as_again_when_it_is_recorded(
    queue: PgQueue, noting: Noting, running: Running
) -> None:
    @queue.task(retry=Retry(wait=wait_fixed(3600)))
    async def fail() -> None:
        raise ValueError

    fail.enqueue()
    async with running(queue):
        await until(lambda: noting.of("ended"))
    assert [type(verdict) for verdict in noting.of("ended")] == [Again]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_job_that_its_own_transaction_completes_ends_once(
    queue: PgQueue, noting: Noting, running: Running, *, plain: bool
) -> None:
    def run(ctx: Context) -> None:
        with ctx.transaction():
            pass

    async def arun(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    job = queue.task(name="note")(run if plain else arun).enqueue()
    async with running(queue):
        await ended(queue, job)
        await until(lambda: noting.of("ended"))
    assert [verdict.claim.id for verdict in noting.of("ended")] == [job.id]


async def test_a_lost_lease_loses_what_waits_runs_and_is_not_recorded(queue: PgQueue, noting: Noting) -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    @queue.task
    async def hold() -> None:
        begun.set()
        await release.wait()

    @queue.task
    async def quick() -> None: ...

    jobs = [quick.enqueue(), hold.enqueue(), hold.enqueue()]
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await begun.wait()
    await until(lambda: worker.inspect().backlog == 1)
    ask(queue, "delete from pgqueue.workers")
    await beat(worker)
    assert sorted(noting.ids("lost")) == [job.id for job in jobs]
    assert noting.of("ended") == []
    release.set()
    await dismantle(worker)


async def test_while_the_loop_is_blocked_every_start_is_told_before_the_end_of_its_job(
    queue: PgQueue,
) -> None:
    """The second job starts and ends while the heartbeat's thread, which stands in, tells of the first."""
    begun, told = threading.Event(), threading.Event()
    events: list[tuple[str, int]] = []

    class Slow(Observer):
        """Lets the first job end when its start is told, and returns when all jobs have ended."""

        def started(self, claims: Sequence[Claim]) -> None:
            events.extend(("started", one.id) for one in claims)
            told.set()
            wait_until(lambda: not worker.inspect().running and not worker.inspect().waiting)

        def ended(self, verdicts: Sequence[Verdict]) -> None:
            events.extend(("ended", one.claim.id) for one in verdicts)

    @queue.task
    def first() -> None:
        begun.set()
        told.wait(20)

    @queue.task
    def second() -> None: ...

    queue.observe(Slow())
    one, other = first.enqueue().id, second.enqueue().id
    worker = Worker(queue, concurrency=1, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    assert begun.wait(20)
    standing_in = worker.parts.runners.while_blocked(worker.parts.connections.stand_in)
    thread = threading.Thread(target=asyncio.run, args=(standing_in,))
    thread.start()
    thread.join()  # so the loop is blocked
    assert events == [("started", one), ("started", other), ("ended", one), ("ended", other)]
    await dismantle(worker)


async def test_a_superseded_verdict_is_lost_and_not_ended(queue: PgQueue, noting: Noting) -> None:
    @queue.task
    async def quick() -> None: ...

    jobs = [quick.enqueue(), quick.enqueue()]
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    ask(queue, "update pgqueue.jobs set fence = fence + 1 where id = %s", jobs[0].id)
    await record_ends(worker)
    await dismantle(worker)
    assert noting.ids("lost") == [jobs[0].id]
    assert [verdict.claim.id for verdict in noting.of("ended")] == [jobs[1].id]


async def test_a_transaction_that_finds_its_attempt_superseded_is_lost(
    queue: PgQueue, noting: Noting, running: Running
) -> None:
    @queue.task
    def note(ctx: Context) -> None:
        with ctx.transaction():
            ask(queue, "update pgqueue.jobs set fence = fence + 1 where id = %s", ctx.job.id)

    job = note.enqueue()
    async with running(queue, poll=FOR_EVER):
        await until(lambda: noting.of("lost"))
        assert noting.of("ended") == []
    assert noting.ids("lost") == [job.id]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_an_observer_that_raises_is_logged_and_changes_nothing(
    queue: PgQueue,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
    *,
    plain: bool,
) -> None:
    class Raising(Observer):
        """Raises, of each event."""

    def refuse(*batch: object) -> None:
        raise error(f"told of {len(batch)}")

    for event in ("enqueued", "claimed", "started", "ended", "lost"):
        setattr(Raising, event, refuse)
    queue.observe(Raising())
    other = Noting()
    queue.observe(other)

    def run() -> None: ...

    async def arun() -> None: ...

    note = queue.task(name="note")(run if plain else arun)
    job = note.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
        await until(lambda: other.of("ended"))
    assert found.state is JobState.SUCCEEDED
    failed = {vars(record)["event"] for record in caplog.records if record.name == "pgqueue.observer"}
    assert failed == {"enqueued", "claimed", "started", "ended"}
    assert {name for name, _ in other.calls} == {"enqueued", "claimed", "started", "ended"}


async def test_what_ends_while_the_loop_is_blocked_has_started_before(
    queue: PgQueue, noting: Noting, running: Running
) -> None:
    release = threading.Event()

    @queue.task
    def plain() -> None: ...

    @queue.task
    async def block() -> None:
        release.wait(20)

    async with running(queue, concurrency=2, blocked_after=0.1):
        block.enqueue()
        job = plain.enqueue()
        threading.Thread(target=_release_after, args=(queue, job.id, release)).start()
        await ended(queue, job)
    order = [name for name, batch in noting.calls for one in batch if _job_of(one) == job.id]
    assert order.index("started") < order.index("ended")


def _release_after(queue: PgQueue, job_id: int, release: threading.Event) -> None:
    """Release the loop when the job has ended; the guard is for a job that cannot end while the loop is blocked."""
    for _ in range(400):
        if not ask(queue, "select id from pgqueue.jobs where id = %s", job_id):
            break
        threading.Event().wait(0.01)
    release.set()


def _job_of(one: Any) -> int:
    if isinstance(one, tuple):
        return int(one[1].id)
    return int(one.id if isinstance(one, Claim) else one.claim.id)


async def test_a_take_tells_what_it_claims_starts_and_ends(queue: PgQueue, noting: Noting) -> None:
    @queue.task
    async def note() -> None: ...

    jobs = [await note.aenqueue(), await note.aenqueue()]
    async with queue.atake(2, timeout=5) as taken:
        assert [name for name, _ in noting.calls[-2:]] == ["claimed", "started"]
        await taken[0].acomplete()
    assert noting.ids("claimed") == noting.ids("started") == [job.id for job in jobs]
    assert [verdict.claim.id for verdict in noting.of("ended")] == [job.id for job in jobs]


async def test_a_take_whose_job_was_superseded_tells_that_it_is_lost(queue: PgQueue, noting: Noting) -> None:
    @queue.task
    async def note() -> None: ...

    job = await note.aenqueue()
    with pytest.raises(Superseded):
        async with queue.atake(timeout=5):
            ask(queue, "update pgqueue.jobs set fence = fence + 1 where id = %s", job.id)
    assert noting.ids("lost") == [job.id]
    assert noting.of("ended") == []


def test_a_take_that_loses_its_lease_tells_that_its_jobs_are_lost(queue: PgQueue, noting: Noting) -> None:
    @queue.task
    async def note() -> None: ...

    job = note.enqueue()
    take = queue.take(timeout=5, lease=1)
    (taken,) = take.__enter__()
    ask(queue, "delete from pgqueue.workers")
    while not taken.lost:
        threading.Event().wait(0.01)
    with pytest.raises(Superseded):
        take.__exit__(None, None, None)
    assert noting.ids("lost") == [job.id]


async def test_jobs_of_schedules_are_told_of_from_their_claim_on(queue: PgQueue, running: Running) -> None:
    """The database adds them: no NewJob passes through Python, whichever worker fires the tick."""
    noting = Noting()
    queue.observe(noting)

    @queue.task(name="look")
    def look() -> None: ...

    queue.schedules.add("each second", look.call(), every=1)
    async with running(queue):
        await until(lambda: any(event == "ended" for event, _ in noting.calls))
    queue.schedules.fire("each second")
    events = {event for event, _ in noting.calls}
    assert events == {"claimed", "started", "ended"}
