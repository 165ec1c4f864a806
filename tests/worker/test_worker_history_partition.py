"""A job that ends while the history gets the partition of its day: it ends as it ended, and runs once."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
from looking import ask, until, wait_until
from worker.helping import claimed, dismantle

from pgqueue import PgQueue
from pgqueue.store.jobs import finish
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.worker import Worker

WAITS = "select 1 from pg_locks where not granted and relation = 'pgqueue.job_history_default'::regclass"


@pytest.fixture
def partitioning(queue: PgQueue, dsn: str) -> Iterator[psycopg.Connection]:
    """A transaction that has made today's partition, as a worker does that starts after all made ones have passed."""
    today = datetime.now(UTC).date()
    ask(queue, f"drop table pgqueue.job_history_{today:%Y%m%d}")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select pgqueue.make_history_day(%s)", [today]).fetchall() == [("made",)]
        yield connection


async def test_a_worker_records_a_success_and_not_the_refusal_of_its_row(
    queue: PgQueue, partitioning: psycopg.Connection
) -> None:
    """It was recorded as a failure with a CheckViolation: the job ran again."""

    @queue.task
    def note() -> None: ...

    worker = Worker(queue)
    await worker.parts.heartbeat.start()
    job = note.enqueue()
    (claim,) = claimed(queue, worker)
    link = WorkerConnection("test", queue.database)
    recording = asyncio.create_task(link.run(finish.finish(worker.id, [Succeeded(claim, 0.1)], keep=True)))
    await until(lambda: ask(queue, WAITS))
    partitioning.commit()
    assert await recording == {job.id: "succeeded"}
    await link.close()
    await dismantle(worker)


def test_a_take_records_a_success_and_not_the_refusal_of_its_row(
    queue: PgQueue, partitioning: psycopg.Connection
) -> None:
    job = queue.task(name="note")(lambda: None).enqueue()

    def take() -> None:
        with queue.take(1):
            pass

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take)
        wait_until(lambda: ask(queue, WAITS))
        partitioning.commit()
        taking.result()
    assert job.status() == "succeeded"
