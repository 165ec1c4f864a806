"""An idle worker is notified of each change that makes a job ready; without a notification it looks by itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from running import Running
from tenacity import wait_fixed
from worker.helping import FOR_EVER, ended

from pgqueue import Job, JobHandle, JobState, PgQueue, Retry, Task, Unique
from pgqueue.store.workers import upkeep
from pgqueue.worker.worker import Worker


@pytest.fixture
def note(queue: PgQueue) -> "Task[[], None]":
    @queue.task(name="note")
    async def note() -> None: ...

    return note


@pytest.fixture
async def idle_worker(queue: PgQueue, note: "Task[[], None]", running: Running) -> AsyncIterator[Worker]:
    """A worker that sleeps, and will not look by itself."""
    async with running(queue, poll=FOR_EVER, sweep=FOR_EVER, lease=FOR_EVER) as worker:
        await is_idle(queue, note, worker)
        yield worker


async def is_idle(queue: PgQueue, note: "Task[[], None]", worker: Worker) -> None:
    """Wait until the worker listens: it has run a job, it listens, it waits, and it is idle.

    A busy worker waits, too, for some milliseconds. It is not on the list then, so that is asked last.
    """
    await ended(queue, note.enqueue())
    listening = "select 1 from pg_stat_activity where datname = current_database() and query like 'listen%%' and state = 'idle'"
    await until(lambda: ask(queue, listening))
    await until(lambda: worker.inspect().waits and ask(queue, "select 1 from pgqueue.workers where idle"))


def states(jobs: list[Job]) -> list[JobState]:
    return [job.state for job in jobs]


@contextmanager
def unheard(queue: PgQueue) -> Iterator[None]:
    """Enqueue without a notification, so that only a later one can come."""
    ask(queue, "update pgqueue.workers set idle = false")
    yield
    ask(queue, "update pgqueue.workers set idle = true")


@pytest.mark.usefixtures("idle_worker")
async def test_an_enqueue_wakes_it(queue: PgQueue, note: "Task[[], None]") -> None:
    assert states(await ended(queue, note.enqueue())) == [JobState.SUCCEEDED]


@pytest.mark.usefixtures("idle_worker")
async def test_an_enqueue_on_a_users_connection_wakes_it_at_the_commit(
    queue: PgQueue, note: "Task[[], None]", connection: psycopg.Connection[Any]
) -> None:
    job = note.using(connection=connection).enqueue()
    connection.commit()
    assert states(await ended(queue, job)) == [JobState.SUCCEEDED]


@pytest.mark.usefixtures("idle_worker")
async def test_enqueue_many_wakes_it(queue: PgQueue, note: "Task[[], None]") -> None:
    jobs = queue.enqueue_many([note.call(), note.call()])
    assert states(await ended(queue, *jobs)) == [JobState.SUCCEEDED] * 2


@pytest.mark.usefixtures("idle_worker")
async def test_the_sql_function_wakes_it(queue: PgQueue) -> None:
    ((job_id,),) = ask(queue, "select pgqueue.enqueue('note')")
    await until(lambda: queue.job(job_id).state.ended)
    assert queue.job(job_id).state is JobState.SUCCEEDED


@pytest.mark.usefixtures("idle_worker")
async def test_a_promotion_elsewhere_wakes_it(queue: PgQueue, note: "Task[[], None]") -> None:
    with unheard(queue):
        job = note.using(delay=timedelta(hours=1)).enqueue()
    now = queue.job(job.id).run_at
    assert queue.database.run(upkeep.poll(now=now)).count == 1
    await ended(queue, job)


@pytest.mark.usefixtures("idle_worker")
async def test_a_reclaim_elsewhere_wakes_it(queue: PgQueue) -> None:
    statement = """with lost as (insert into pgqueue.lost_workers values (gen_random_uuid()) returning worker_id)
                   insert into pgqueue.jobs (task, status, worker_id, attempts)
                   select 'note', 'running', worker_id, 1 from lost returning id"""
    with unheard(queue):
        ((job_id,),) = ask(queue, statement)
    queue.database.run(upkeep.reclaim())
    await until(lambda: queue.job(job_id).state.ended)
    assert (queue.job(job_id).state, queue.job(job_id).attempts) == (JobState.SUCCEEDED, 2)


@pytest.mark.usefixtures("idle_worker")
async def test_a_retry_wakes_it(queue: PgQueue, note: "Task[[], None]") -> None:
    with unheard(queue):
        later = note.using(delay=timedelta(hours=1)).enqueue()
    assert queue.control.run_now(later.id)
    await ended(queue, later)


@pytest.mark.usefixtures("idle_worker")
async def test_a_retry_of_a_dead_job_wakes_it(queue: PgQueue) -> None:
    mended = asyncio.Event()

    @queue.task(max_attempts=1)
    async def fail() -> None:
        if not mended.is_set():
            raise ValueError

    job = fail.enqueue()
    await ended(queue, job)
    mended.set()
    assert queue.control.dead(ids=[job.id]).retry().done == 1
    await until(lambda: job.status() is JobState.SUCCEEDED)


@pytest.mark.usefixtures("idle_worker")
async def test_resuming_a_queue_wakes_it(queue: PgQueue, note: "Task[[], None]") -> None:
    queue.control.pause("mail")
    with unheard(queue):
        job = note.using(queue="mail").enqueue()
    queue.control.resume("mail")
    assert states(await ended(queue, job)) == [JobState.SUCCEEDED]


@pytest.mark.usefixtures("idle_worker")
async def test_a_job_rescheduled_to_now_wakes_it(
    queue: PgQueue, note: "Task[[], None]", connection: psycopg.Connection[Any]
) -> None:
    keyed = note.using(unique_key="key", unique=Unique("reschedule"), connection=connection)
    with unheard(queue):
        job = keyed.using(delay=timedelta(hours=1)).enqueue()
        connection.commit()
    assert keyed.enqueue().id == job.id
    connection.commit()
    await ended(queue, job)


async def test_its_own_retries_come_due_though_it_never_looks(queue: PgQueue, running: Running) -> None:
    @queue.task(retry=Retry(wait=wait_fixed(0.05)), max_attempts=3)
    async def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    async with running(queue, poll=FOR_EVER):
        (found,) = await ended(queue, job)
    assert len(found.errors) == 3


async def test_a_lost_notification_costs_one_poll(
    queue: PgQueue, note: "Task[[], None]", running: Running
) -> None:
    async with running(queue, poll=timedelta(seconds=0.3)) as worker:
        await is_idle(queue, note, worker)
        ask(queue, "update pgqueue.workers set idle = false")  # so that no worker is notified
        assert states(await ended(queue, note.enqueue())) == [JobState.SUCCEEDED]


async def test_nothing_is_lost_between_enqueuing_and_going_to_sleep(
    queue: PgQueue, note: "Task[[], None]", running: Running
) -> None:
    jobs: list[JobHandle[None]] = []

    def enqueue_singly(count: int) -> None:
        jobs.extend([note.enqueue() for _ in range(count)])

    async with running(queue, concurrency=5):
        threads = [threading.Thread(target=enqueue_singly, args=(100,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await until(lambda: ask(queue, "select count(*) from pgqueue.jobs") == [(0,)])
    assert ask(queue, "select count(*) from pgqueue.job_history where attempts = 1") == [(400,)]
    assert len({job.id for job in jobs}) == 400


async def test_busy_workers_are_not_notified(queue: PgQueue, running: Running) -> None:
    over = asyncio.Event()

    @queue.task
    async def again() -> None:
        if not over.is_set():
            await again.aenqueue()

    queue.enqueue_many(again.call() for _ in range(50))
    async with running(queue, concurrency=5):
        await until(lambda: ask(queue, "select 1 from pgqueue.workers where not idle"))
        await until(lambda: ask(queue, "select count(*) > 200 from pgqueue.job_history") == [(True,)])
        assert ask(queue, "select idle from pgqueue.workers") == [(False,)]
        over.set()
        await until(lambda: ask(queue, "select 1 from pgqueue.workers where idle"))
        await until(lambda: ask(queue, "select count(*) from pgqueue.jobs") == [(0,)])
