"""No job stays in the name of a worker that does not know of it, and no verdict is lost that the database may take later."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from unittest.mock import AsyncMock

import msgspec
import pytest
from looking import ask, until
from running import Running
from worker.helping import (
    FOR_EVER,
    all_ended,
    claimed,
    claims_of,
    compare_held,
    dismantle,
    ended,
    hand_over,
    known,
    record_ends,
    register,
)

from pgqueue import JobState, Observer, PgQueue, Superseded
from pgqueue.errors import JobError
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Succeeded, Verdict
from pgqueue.worker import completer as completing
from pgqueue.worker import recorder
from pgqueue.worker.worker import Worker

REFUSE = """
create function public.refuse() returns trigger language plpgsql as $$
begin raise exception 'not in this table'; end $$
"""
REFUSE_ENDING = """
create trigger refuse before update or delete on pgqueue.jobs
for each row when (old.status = 'running') execute function public.refuse()
"""
REFUSE_HISTORY = """
create trigger refuse before insert on pgqueue.job_history for each row execute function public.refuse()
"""


async def test_a_success_that_no_history_takes_spends_its_attempt_and_the_job_ends(
    queue: PgQueue, running: Running
) -> None:
    """H3: the job was running for ever in the name of a live worker that knew nothing of it."""
    ask(queue, REFUSE)
    ask(queue, REFUSE_HISTORY)

    @queue.task(max_attempts=1)
    async def note() -> str:
        return "done"

    job = note.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.attempts) == (JobState.DEAD, 1)
    assert "not in this table" in found.errors[0].message


async def test_a_verdict_that_is_refused_in_any_words_is_kept_and_recorded_when_it_is_taken(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "REFUSED_FOR", 0.05)
    ask(queue, REFUSE)
    runs: list[None] = []

    @queue.task
    async def note() -> str:
        runs.append(None)
        return "done"

    other = note.using(queue="other").enqueue()
    async with running(queue) as worker:
        await ended(queue, other)
        ask(queue, REFUSE_ENDING)
        job = note.enqueue()
        await until(lambda: any("outcome not recorded" in message for message in caplog.messages))
        assert known(worker) == [job.id]
        ask(queue, "drop trigger refuse on pgqueue.jobs")
        (found,) = await ended(queue, job)
    assert (found.state, found.attempts, len(runs)) == (JobState.SUCCEEDED, 1, 2)


async def test_a_worker_that_leaves_with_a_verdict_that_is_refused_leaves_its_job_to_a_sweep_spent(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ask(queue, REFUSE)

    @queue.task(max_attempts=1)
    async def note() -> None: ...

    async with running(queue, grace=timedelta(seconds=0.1)) as worker:
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
        ask(queue, REFUSE_ENDING)
        job = note.enqueue()
        await until(lambda: any("outcome not recorded" in message for message in caplog.messages))
    assert (job.status(), claims_of(queue, worker)) == (JobState.RUNNING, [job.id])
    ask(queue, "drop trigger refuse on pgqueue.jobs")
    assert queue.database.run(upkeep.reclaim()) == {job.id: JobState.DEAD}
    assert queue.job(job.id).attempts == 1


async def test_a_superseded_that_is_not_the_attempts_own_is_an_error_like_any_other(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    async def let_out() -> None:
        raise Superseded("of a take inside the task")

    job = let_out.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.state, found.errors[0].type) == (JobState.DEAD, "pgqueue.errors.Superseded")


@pytest.mark.parametrize("most", [1, 2])
async def test_a_job_whose_verdict_changed_nothing_is_found_by_the_next_comparison_and_is_spent(
    most: int, queue: PgQueue
) -> None:
    @queue.task(max_attempts=most)
    async def note() -> None: ...

    job = note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    ask(queue, "update pgqueue.jobs set fence = fence + 1")
    await record_ends(worker)
    assert claims_of(queue, worker) == [job.id]
    await worker.parts.reconciler.run_once()
    await record_ends(worker)
    await dismantle(worker)
    found = queue.job(job.id)
    assert (found.state, found.attempts) == (JobState.DEAD if most == 1 else JobState.READY, 1)
    assert [error.type for error in found.errors] == ["WorkerLost"]


async def test_without_a_doubt_nothing_is_compared(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the jobs from end to end."""

    @queue.task
    async def note() -> None: ...

    note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    hand_over(worker, claimed(queue, worker))
    await all_ended(worker)
    await record_ends(worker)
    compare = AsyncMock()
    monkeypatch.setattr(worker.parts.reconciler, "compare", compare)
    await worker.parts.reconciler.run_once()
    await dismantle(worker)
    assert compare.await_count == 0


async def test_a_claim_that_is_answered_during_a_comparison_is_not_taken_for_unknown(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.task
    async def note() -> None: ...

    job = note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    answer = claimed(queue, worker)

    async def settled() -> None:
        hand_over(worker, answer)
        await all_ended(worker)
        await record_ends(worker)

    monkeypatch.setattr(worker.parts.connections.claiming, "settled", settled)
    await compare_held(worker)
    assert worker.inspect().verdicts == ()
    await dismantle(worker)
    assert job.status() is JobState.SUCCEEDED


async def test_two_comparisons_at_a_time_come_one_after_the_other(queue: PgQueue) -> None:
    """As when a worker leaves while it compares."""

    @queue.task
    async def note() -> None: ...

    job = note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    claimed(queue, worker)
    await asyncio.gather(compare_held(worker), compare_held(worker))
    assert [verdict.claim.id for verdict in worker.inspect().verdicts] == [job.id]
    await record_ends(worker)
    await dismantle(worker)
    assert (job.status(), queue.job(job.id).attempts) == (JobState.READY, 0)


async def test_a_stop_in_good_order_finds_what_the_worker_does_not_know_of(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    async def note() -> None: ...

    async with running(queue, queues=["none"]) as worker:
        await until(lambda: ask(queue, "select id from pgqueue.workers"))
        job = note.enqueue()
        assert [one.id for one in claimed(queue, worker)] == [job.id]
    found = queue.job(job.id)
    assert (found.state, found.attempts) == (JobState.READY, 0)


async def test_what_ended_the_worker_spends_the_attempts_of_what_it_could_not_read(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose row breaks the worker would else be claimed for ever, unspent each time."""

    @queue.task(max_attempts=1)
    async def note() -> None: ...

    job = note.enqueue()
    worker = Worker(queue, poll=FOR_EVER)

    def unreadable(*_: object) -> None:
        raise JobError("this row cannot be read")

    monkeypatch.setattr(worker.parts.runners, "add", unreadable)
    with pytest.raises(JobError, match="this row"):
        await asyncio.wait_for(worker.run(), 30)
    found = queue.job(job.id)
    assert (found.state, found.attempts, found.errors[0].message) == (
        JobState.DEAD,
        1,
        "this row cannot be read",
    )


async def test_a_table_that_is_locked_holds_up_verdicts_and_ends_nothing(
    queue: PgQueue, running: Running
) -> None:
    """As by a migration. The completer let the lock's timeout out, and the worker ended."""
    started, release = asyncio.Event(), asyncio.Event()

    @queue.task
    async def note() -> None:
        started.set()
        await release.wait()

    job = note.enqueue()
    async with running(queue) as worker:
        await asyncio.wait_for(started.wait(), 20)
        with queue.database.pooled() as other, other.transaction():
            other.execute("lock table pgqueue.jobs in share mode")
            release.set()
            await until(lambda: len(worker.inspect().put_off) == 1)
        await ended(queue, job)
    assert queue.job(job.id).attempts == 1


async def test_a_batch_is_bounded_by_its_bytes(queue: PgQueue) -> None:
    """1,000 results of 1 MB were one message, which the server refused for ever."""

    @queue.task
    async def note() -> None: ...

    queue.enqueue_many(note.call() for _ in range(20))
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    claims = claimed(queue, worker)
    result = b'"' + b"x" * 1_000_000 + b'"'
    worker.parts.completer.add(
        [*(Succeeded(one, 0.0, result) for one in claims[:12]), *map(Returned, claims[12:])]
    )
    sizes = []
    while worker.inspect().backlog:
        before = worker.inspect().backlog
        await record_ends(worker)
        sizes.append(before - worker.inspect().backlog)
    await dismantle(worker)
    assert sizes == [7, 13]


@pytest.mark.parametrize("newer_first", [True, False])
async def test_of_two_verdicts_on_a_job_whose_first_claim_a_crash_forgot_one_is_recorded_and_told(
    queue: PgQueue, *, newer_first: bool
) -> None:
    """In one batch, both were told as recorded, or the newer one was refused and the job ran once more."""
    told: dict[str, list[int]] = {"ended": [], "lost": []}

    class Seen(Observer):
        def ended(self, verdicts: Sequence[Verdict]) -> None:
            told["ended"] += [one.claim.fence for one in verdicts]

        def lost(self, claims: Sequence[Claim]) -> None:
            told["lost"] += [one.fence for one in claims]

    @queue.task
    async def note() -> None: ...

    queue.observe(Seen())
    job = await note.aenqueue()
    worker = Worker(queue, poll=FOR_EVER)
    await register(worker)
    (first,) = claimed(queue, worker)
    ask(queue, "update pgqueue.jobs set status = 'ready', worker_id = null, attempts = 0")
    second = msgspec.structs.replace(claimed(queue, worker)[0], fence=first.fence + 1)
    ask(queue, "update pgqueue.jobs set fence = %s", second.fence)
    verdicts = [Succeeded(one, 0.0) for one in ((second, first) if newer_first else (first, second))]
    worker.parts.completer.add(verdicts)
    while worker.inspect().backlog:
        await record_ends(worker)
    await dismantle(worker)
    assert told == {"ended": [second.fence], "lost": [first.fence]}
    assert await job.astatus() == JobState.SUCCEEDED


async def test_one_result_that_is_larger_than_a_batch_may_be_is_a_batch(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "MOST_BYTES", 10)

    @queue.task
    async def note() -> str:
        return "longer than that"

    jobs = [note.enqueue() for _ in range(3)]
    worker = Worker(queue, poll=timedelta(seconds=0.1))
    runner = asyncio.create_task(worker.run())
    found = await ended(queue, *jobs)
    worker.stop()
    await runner
    assert [job.result for job in found] == ["longer than that"] * 3
