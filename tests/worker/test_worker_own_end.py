"""A worker ends by itself when nothing is left to run, after a number of attempts, or after a time."""

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from looking import GUARD, ask

from pgqueue import JobState, Limit, PgQueue, Rate, chain
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import marks
from pgqueue.store.limits import served_lanes
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.worker.worker import Worker


async def run(queue: PgQueue, **options: object) -> Worker:
    """Run a worker until it ends by itself."""
    worker = Worker(queue, **options)  # type: ignore[arg-type]  # each test gives what it needs
    async with asyncio.timeout(GUARD):
        await worker.run()
    return worker


async def test_until_empty_runs_all_that_is_due_and_what_follows_from_it(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="step")
    async def step(more: int = 0) -> None:
        if more:
            await step.aenqueue(more - 1)

    @queue.task(name="limited", limit=Limit(1))
    async def limited() -> None: ...

    @queue.task(name="spaced", limit=Rate(every=0.3))
    async def spaced() -> None: ...

    caplog.set_level(logging.INFO)
    queue.enqueue_many(step.call(1) for _ in range(60))
    queue.enqueue_many([limited.call()] * 3 + [spaced.call()] * 3)
    chain(step.call(), step.call(), step.call()).enqueue()
    later = step.using(delay=timedelta(hours=1)).enqueue()
    worker = await run(queue, until_empty=True)
    assert (worker.own_end, worker.died) == ("no job is left", 0)
    assert ask(queue, "select id from pgqueue.jobs") == [(later.id,)]
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(60 * 2 + 3 + 3 + 3,)]
    assert "worker stopping: no job is left" in caplog.text


async def test_until_empty_waits_for_a_rate_while_the_worker_looks_again_and_again(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a look it is not known yet that a job may start later."""
    real = ServedLanes.claim
    wakers: list[Any] = []

    def claim(lanes: ServedLanes, *args: Any) -> Any:
        for wake in wakers:
            wake()
        return real(lanes, *args)

    monkeypatch.setattr(ServedLanes, "claim", claim)

    @queue.task(name="spaced", limit=Rate(every=0.5))
    async def spaced() -> None: ...

    queue.enqueue_many([spaced.call()] * 3)
    worker = Worker(queue, until_empty=True)
    wakers.append(worker.parts.signals.look.set)
    async with asyncio.timeout(GUARD):
        await worker.run()
    assert (worker.own_end, ask(queue, "select count(*) from pgqueue.jobs")) == ("no job is left", [(0,)])


async def test_until_empty_finds_a_job_that_became_ready_before_the_mark_of_its_queue(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks behind a mark found nothing, and the next look from the head was a second away."""
    monkeypatch.setattr(marks, "SLOW_LOOK", -1.0)
    monkeypatch.setattr(marks, "not_before", lambda _: 1.0)
    later = asyncio.Event()

    @queue.task(name="first")
    async def first() -> None:
        await later.wait()

    @queue.task(name="second")
    async def second() -> None: ...

    @queue.task(name="later")
    async def after() -> None:
        later.set()

    flow = chain(first.call(), second.call()).enqueue()
    after.enqueue()
    await run(queue, until_empty=True)
    assert {job.status() for job in flow.jobs} == {JobState.SUCCEEDED}


async def test_until_empty_waits_for_a_job_that_runs_and_counts_those_that_die(queue: PgQueue) -> None:
    @queue.task(name="fail")
    async def fail() -> None:
        await asyncio.sleep(0.5)
        raise ValueError

    fail.using(max_attempts=1).enqueue()
    worker = await run(queue, until_empty=True)
    assert worker.died == 1


async def test_until_empty_leaves_jobs_that_the_worker_does_not_run(queue: PgQueue) -> None:
    @queue.task(name="mine")
    async def mine() -> None: ...

    @queue.task(name="other")
    async def other() -> None: ...

    mine.enqueue()
    other.enqueue()
    other.using(queue="elsewhere").enqueue()
    paused = mine.using(queue="paused").enqueue()
    queue.control.pause("paused")
    await run(queue, until_empty=True, tasks=["mine"])
    assert ask(queue, "select task, id = %s from pgqueue.jobs order by 1, 2", paused.id) == [
        ("mine", True),
        ("other", False),
        ("other", False),
    ]


async def test_until_empty_looks_at_all_lanes_though_many_give_nothing(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_lanes, "AT_ONCE", 5)

    @queue.task(name="full", limit=[Limit(1, name="a"), Limit(1, by="number")])
    async def full(number: int) -> None: ...

    @queue.task(name="free", queue="z", limit=Limit(1))
    async def free() -> None: ...

    queue.enqueue_many(full.call(number) for number in range(60))
    queue.control.pause("default")
    free.enqueue()
    await run(queue, until_empty=True)
    assert ask(queue, "select count(*) from pgqueue.job_history where task = 'free'") == [(1,)]


@pytest.mark.parametrize("jobs", [1, 7, 40])
async def test_a_worker_runs_no_more_attempts_than_it_was_told(queue: PgQueue, jobs: int) -> None:
    @queue.task(name="count")
    async def count(_number: int) -> None: ...

    queue.enqueue_many(count.call(number) for number in range(40))
    worker = await run(queue, max_jobs=jobs, concurrency=5)
    assert worker.own_end == f"it has run {jobs} jobs"
    assert ask(queue, "select count(*), max(attempts) from pgqueue.job_history") == [(jobs, 1)]
    assert ask(queue, "select coalesce(sum(attempts), 0) from pgqueue.jobs") == [(0,)]


async def test_after_its_time_a_worker_claims_no_more_and_finishes_what_runs(queue: PgQueue) -> None:
    @queue.task(name="slow")
    async def slow() -> None:
        await asyncio.sleep(1.0)

    queue.enqueue_many(slow.call() for _ in range(9))
    worker = await run(queue, max_time=0.5, concurrency=2)
    assert worker.own_end == "its time of 0:00:00.500000 is over"
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(2,)]
    assert ask(queue, "select status, sum(attempts) from pgqueue.jobs group by 1") == [("ready", 0)]


@pytest.mark.parametrize("options", [{"max_jobs": 0}, {"max_jobs": "3"}, {"max_time": 0}, {"max_time": -1}])
def test_bounds_that_make_no_sense_are_refused(queue: PgQueue, options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        Worker(queue, **options)  # type: ignore[arg-type]  # they are wrong on purpose


@pytest.mark.parametrize("options", [{"until_empty": True}, {"max_jobs": 1}], ids=str)
async def test_a_limited_job_whose_function_goes_on_is_given_the_grace_and_no_more(
    queue: PgQueue, options: dict[str, object]
) -> None:
    """Its job stays running until the function returns: the worker waited for ever."""
    release = threading.Event()

    @queue.task(name="hang", timeout=0.05, limit=Limit(1), max_attempts=1)
    def hang() -> None:
        release.wait(60)

    job = hang.enqueue()
    worker = await run(queue, grace=0.2, **options)
    release.set()
    assert worker.own_end is not None
    assert (queue.job(job.id).state, worker.died) == (JobState.DEAD, 1)


async def test_a_worker_whose_slots_are_all_kept_by_functions_ends_though_jobs_are_left(
    queue: PgQueue,
) -> None:
    release = threading.Event()

    @queue.task(name="hang", timeout=0.05, max_attempts=1)
    def hang() -> None:
        release.wait(60)

    jobs = [hang.enqueue() for _ in range(3)]
    worker = await run(queue, until_empty=True, concurrency=2, grace=0.2)
    release.set()
    assert worker.own_end == "each of its slots is kept by a function that does not return"
    assert [job.status() for job in jobs] == [JobState.DEAD, JobState.DEAD, JobState.READY]
