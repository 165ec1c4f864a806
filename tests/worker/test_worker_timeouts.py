"""An attempt that outlives its task's timeout has failed. A function that goes on keeps its slot, and its job's place in limits.

Threads that cannot be started: other jobs run, and no slot is lost.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from looking import ask, until
from running import Running
from tenacity import stop_after_attempt, wait_fixed
from worker.helping import beat, claimed, ended, hand_over

from pgqueue import Context, JobState, Limit, PgQueue, Retry
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import control
from pgqueue.values.jobs.options import AfterTimeout
from pgqueue.values.workers.health import not_ready
from pgqueue.worker import runners
from pgqueue.worker.pace import Pace
from pgqueue.worker.threads import Threads, Work

LATER = Retry(wait=wait_fixed(3600))


async def test_an_async_task_is_cancelled(queue: PgQueue, running: Running) -> None:
    cancelled = asyncio.Event()

    @queue.task(timeout=0.01, retry=LATER)
    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = linger.enqueue()
    async with running(queue):
        await until(lambda: job.status() is JobState.SCHEDULED)
    assert cancelled.is_set()
    (error,) = queue.job(job.id).errors
    assert error.type == "pgqueue.errors.TimedOut"
    assert "0:00:00.010000" in error.message


async def test_a_task_in_time_is_left_alone(queue: PgQueue, running: Running) -> None:
    @queue.task(timeout=timedelta(seconds=60))
    async def swift() -> str:
        await asyncio.sleep(0)
        return "done"

    job = swift.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert (found.result, found.errors) == ("done", ())


async def test_a_timeout_error_of_the_tasks_own_is_not_taken_for_ours(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(timeout=60, max_attempts=1)
    async def impatient() -> None:
        raise TimeoutError("theirs")

    job = impatient.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert [(error.type, error.message) for error in found.errors] == [("TimeoutError", "theirs")]


class Hanging:
    """A plain function that goes on after its timeout, until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.inside = 0
        self.most = 0
        self.told: list[bool] = []
        self._lock = threading.Lock()

    def hang(self, ctx: Context, _: int = 0) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.release.wait(20)
        self.told.append(ctx.cancelled)
        with self._lock:
            self.inside -= 1
        return "late"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.release.set()


async def test_a_plain_functions_late_word_is_not_heard_and_it_keeps_its_slot(
    queue: PgQueue, running: Running, hanging: Hanging
) -> None:
    linger = queue.task(name="linger", timeout=0.05, retry=LATER)(hanging.hang)

    @queue.task
    def swift() -> None: ...

    late = linger.enqueue()
    async with running(queue, concurrency=2) as worker:
        await until(lambda: late.status() is JobState.SCHEDULED)
        await ended(queue, *(swift.enqueue() for _ in range(3)))
        now = worker.inspect()
        assert (now.slots_taken, now.not_returned, now.running) == (1, 1, ())
        assert worker.parts.claims.room(0) == 1
        hanging.release.set()
        await until(lambda: not worker.inspect().slots_taken)
        assert not worker.inspect().not_returned
        await ended(queue, swift.enqueue(), swift.enqueue())
    assert hanging.told == [True]
    found = queue.job(late.id)
    assert (found.state, found.attempts) == (JobState.SCHEDULED, 1)
    assert [(error.type, "its function goes on" in error.message) for error in found.errors] == [
        ("pgqueue.errors.TimedOut", True)
    ]


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_promise_5_a_limit_holds_for_functions_that_go_on_after_their_timeout(
    queue: PgQueue, running: Running, hanging: Hanging, *, concurrency: int
) -> None:
    """Two jobs with two attempts each, under a limit of one: their functions ran at once, since the jobs were retried."""
    at_once = Retry(wait=wait_fixed(0), stop=stop_after_attempt(2))
    linger = queue.task(name="linger", timeout=0.05, retry=at_once, limit=Limit(1))(hanging.hang)
    jobs = [linger.enqueue(), linger.enqueue()]
    async with running(queue, concurrency=concurrency) as worker:
        await until(lambda: worker.inspect().not_returned)
        await beat(worker)
        assert (worker.inspect().slots_taken, len(worker.inspect().running)) == (1, 1)
        (held,) = [job for job in jobs if job.status() is JobState.RUNNING]
        assert "passed its timeout, and keeps its slot and its places" in str(queue.why(held.id))
        (one,) = queue.workers.list()
        assert one.not_returned == 1
        hanging.release.set()
        found = await ended(queue, *jobs)
    assert hanging.most == 1
    assert {one.state for one in found} <= {JobState.DEAD, JobState.SUCCEEDED}
    (timed_out,) = [one for one in found if one.id == held.id]
    assert timed_out.errors[0].type == "pgqueue.errors.TimedOut"
    assert timed_out.attempts == 2


@pytest.mark.parametrize(
    ("choice", "limited", "after"),
    [
        ("wait", False, JobState.RUNNING),
        ("retry", True, JobState.SCHEDULED),
        (None, False, JobState.SCHEDULED),
        (None, True, JobState.RUNNING),
    ],
)
async def test_a_task_says_whether_its_retry_waits_for_the_function(
    queue: PgQueue,
    running: Running,
    hanging: Hanging,
    *,
    choice: AfterTimeout | None,
    limited: bool,
    after: JobState,
) -> None:
    limit = Limit(5) if limited else None
    linger = queue.task(name="linger", timeout=0.05, retry=LATER, limit=limit, after_timeout=choice)(
        hanging.hang
    )
    job = linger.enqueue()
    async with running(queue, concurrency=2) as worker:
        await until(lambda: worker.inspect().not_returned and not worker.inspect().backlog)
        assert job.status() is after
        hanging.release.set()
        await until(lambda: job.status() is JobState.SCHEDULED)
    assert [error.type for error in queue.job(job.id).errors] == ["pgqueue.errors.TimedOut"]


def test_a_choice_that_does_not_exist_is_refused(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="after_timeout='later': use one of 'wait', 'retry'"):
        queue.task(name="linger", after_timeout="later")(print)  # type: ignore[call-overload]  # what is tested


async def test_a_job_that_is_cancelled_while_its_function_goes_on_is_not_retried(
    queue: PgQueue, running: Running, hanging: Hanging
) -> None:
    linger = queue.task(name="linger", timeout=0.05, retry=LATER, limit=Limit(1))(hanging.hang)
    job = linger.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: worker.inspect().not_returned)
        assert job.cancel() is JobState.RUNNING
        hanging.release.set()
        (found,) = await ended(queue, job)
    assert found.state is JobState.CANCELLED


async def test_a_job_whose_transaction_committed_after_the_timeout_has_succeeded(
    queue: PgQueue, running: Running
) -> None:
    late = threading.Event()

    @queue.task(timeout=0.05, retry=LATER, limit=Limit(1))
    def linger(ctx: Context) -> None:
        late.wait(20)
        with ctx.transaction():
            pass

    job = linger.enqueue()
    async with running(queue, concurrency=1) as worker:
        await until(lambda: worker.inspect().not_returned)
        late.set()
        (found,) = await ended(queue, job)
        await until(lambda: not worker.inspect().slots_taken)
    assert (found.state, found.errors) == (JobState.SUCCEEDED, ())


async def test_a_worker_that_stops_waits_for_such_a_function_within_its_grace_and_then_records_the_timeout(
    queue: PgQueue, running: Running, hanging: Hanging
) -> None:
    linger = queue.task(name="linger", timeout=0.05, retry=LATER, limit=Limit(1))(hanging.hang)
    job = linger.enqueue()
    async with running(queue, concurrency=1, grace=timedelta(seconds=0.2)) as worker:
        await until(lambda: worker.inspect().not_returned)
    found = queue.job(job.id)
    assert (found.state, found.attempts) == (JobState.SCHEDULED, 1)
    assert [error.type for error in found.errors] == ["pgqueue.errors.TimedOut"]


async def test_a_timeout_after_the_transaction_leaves_the_job_completed(
    queue: PgQueue, running: Running, connection: psycopg.Connection[object]
) -> None:
    connection.execute("create table effects (attempt integer)")
    connection.commit()
    cancelled = asyncio.Event()

    @queue.task(timeout=1)  # longer than the transaction takes on a machine that is busy with other things
    async def tail(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("insert into effects values (1)")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    job = tail.enqueue()
    async with running(queue):
        async with asyncio.timeout(20):
            await cancelled.wait()
        (found,) = await ended(queue, job)
    assert (found.state, found.attempts, found.errors) == (JobState.SUCCEEDED, 1, ())


async def test_a_poll_takes_no_queues_timeout_away_from_an_attempt_that_starts_in_another_thread(
    queue: PgQueue, running: Running
) -> None:
    """Such a thread reads the timeouts at any moment of a poll: what it reads is never emptied."""
    queue.control.declare("default", timeout=30)
    async with running(queue) as worker:
        executor = worker.parts.executor
        await until(lambda: "default" in executor.timeouts)
        read = executor.timeouts
        queue.control.declare("default", timeout=40, existing="replace")
        await worker.parts.upkeep.poll()
        assert executor.timeouts["default"] == timedelta(seconds=40)
        assert read["default"] == timedelta(seconds=30)


async def test_when_no_thread_can_be_started_plain_jobs_go_back_and_the_others_run(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M8: after one "can't start new thread" no job of any kind started again."""
    monkeypatch.setattr(runners, "NO_THREAD_DELAY", timedelta(seconds=0.2))

    @queue.task
    def plain() -> None: ...

    @queue.task
    async def awaited() -> None: ...

    refusing = threading.Event()
    refusing.set()
    async with running(queue, concurrency=2, poll=timedelta(seconds=0.1)):
        start = Threads.start

        def start_none(threads: Threads, work: Work) -> None:
            if refusing.is_set():
                raise RuntimeError("can't start new thread")
            start(threads, work)

        monkeypatch.setattr(Threads, "start", start_none)
        plain_job, others = plain.enqueue(), [awaited.enqueue() for _ in range(5)]
        await ended(queue, *others)
        await until(
            lambda: any("cannot start more plain functions" in message for message in caplog.messages)
        )
        refusing.clear()
        (found,) = await ended(queue, plain_job)
    assert (found.state, found.attempts) == (JobState.SUCCEEDED, 1)


async def test_functions_that_go_on_take_no_more_slots_than_there_are_and_the_worker_says_so(
    queue: PgQueue, running: Running, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8: a function that hangs left a thread behind at each timeout, without limit."""
    hang = queue.task(name="hang", timeout=0.05, retry=LATER)(hanging.hang)

    @queue.task
    async def awaited() -> None: ...

    queue.enqueue_many(hang.call() for _ in range(20))
    async with running(queue, concurrency=2, poll=timedelta(seconds=0.1)) as worker:
        await until(lambda: worker.inspect().not_returned == 2)
        await beat(worker)
        (problem,) = queue.database.run(control.worker_problems())
        assert (problem.pid, problem.not_returned) == (os.getpid(), 2)
        assert "2 functions go on after their timeout" in str(problem)
        assert "none is free; start it again" in "".join(not_ready(worker.vitals()))
        assert hanging.inside == 2
        ask(queue, "delete from pgqueue.jobs where task = %s and status <> 'running'", hang.name)
        monkeypatch.setattr(Pace, "ahead", lambda *_: 10)  # attempts were short: claims are held ahead
        waiting = awaited.enqueue()
        await beat(worker)
        assert "no free slot" in str(queue.why(waiting.id))
        hanging.release.set()
        await ended(queue, waiting)
        await until(lambda: not worker.inspect().not_returned)
        assert not not_ready(worker.vitals())


@pytest.mark.parametrize("plain", [True, False])
async def test_no_slot_is_lost_when_a_job_is_claimed_again_while_it_runs(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    """M7: a server that crashed had forgotten the claim (simulated), and the same worker claims the job again."""
    release, released = threading.Event(), asyncio.Event()
    attempts: list[Context] = []

    def block(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            release.wait(20)

    async def ablock(ctx: Context) -> None:
        attempts.append(ctx)
        if len(attempts) == 1:
            await released.wait()

    task = queue.task(name="block")(block if plain else ablock)
    job = task.enqueue()
    async with running(queue, concurrency=2, poll=timedelta(hours=1)) as worker:
        await until(lambda: attempts)
        ask(queue, "update pgqueue.jobs set status = 'ready', worker_id = null, attempts = 0")
        again = claimed(queue, worker)
        hand_over(worker, again)
        (found,) = await ended(queue, job)
        release.set()
        released.set()
        await until(lambda: worker.inspect().slots_taken == worker.inspect().not_returned == 0)
    assert (found.state, [one.cancelled for one in attempts]) == (JobState.SUCCEEDED, [True, False])
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(1,)]
