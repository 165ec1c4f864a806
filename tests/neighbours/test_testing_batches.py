"""Batch tasks in tests: a drain runs what is due in batches, in memory as on PostgreSQL."""

from collections.abc import Callable
from typing import Any

import pytest
from documents import Document
from neighbours.places import MINUTE, a_clock, a_database, every_place, one_database
from tenacity import wait_fixed

from pgqueue import Batch, JobState, PgQueue, Retry
from pgqueue.errors import JobError
from pgqueue.testing import Clock, adrain, drain, dying, eager, failing

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def calls() -> list[list[int]]:
    """The numbers of the documents of each call."""
    return []


@pytest.fixture
def index(queue: PgQueue, calls: list[list[int]]) -> Any:
    @queue.batch_task(Document, name="index", size=3, by="tenant", retry=Retry(wait=wait_fixed(60)))
    def index(jobs: Batch[Document]) -> list[int]:
        calls.append([job.args.number for job in jobs])
        for job in jobs:
            if job.args.number < 0:
                job.fail(ValueError(job.args.number))
        return [job.args.number for job in jobs]

    return index


def test_what_is_due_runs_in_batches_and_others_run_in_their_order(
    queue: PgQueue, index: Any, calls: list[list[int]]
) -> None:
    @queue.task(name="other")
    def other(number: int) -> None: ...

    for number in range(5):
        index.enqueue(number)
        other.enqueue(number)
    index.enqueue(5, "two")
    index.using(delay=60).enqueue(6)
    ran = drain(queue)
    assert calls == [[0, 1, 2], [3, 4], [5]]
    order = [(one.task, one.args["number"]) for one in ran]
    assert order[:4] == [("index", 0), ("index", 1), ("index", 2), ("other", 0)]
    assert [number for task, number in order if task == "other"] == [0, 1, 2, 3, 4]
    assert {one.attempt for one in ran} == {1}


async def test_an_awaited_drain_runs_batches_too(queue: PgQueue, calls: list[list[int]]) -> None:
    @queue.batch_task(Document, name="index", size=2)
    async def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    for number in range(3):
        await index.aenqueue(number)
    assert [one.outcome for one in await adrain(queue)] == [JobState.SUCCEEDED] * 3
    assert calls == [[0, 1], [2]]
    await queue.aclose()


def test_each_job_of_a_batch_ends_by_itself(
    queue: PgQueue, clock: Clock, index: Any, calls: list[list[int]]
) -> None:
    jobs = [index.enqueue(1), index.enqueue(-2), index.enqueue(3)]
    with pytest.raises(ValueError, match="-2"):
        drain(queue)
    assert [job.status() for job in jobs] == [JobState.SUCCEEDED, JobState.SCHEDULED, JobState.SUCCEEDED]
    assert jobs[2].result() == 3
    ran = drain(queue, now=clock.now + MINUTE, raises=False)
    assert [(one.attempt, one.outcome) for one in ran] == [(2, JobState.SCHEDULED)]
    assert calls == [[1, -2, 3], [-2]]


def test_a_limit_counts_the_jobs_of_batches(queue: PgQueue, index: Any, calls: list[list[int]]) -> None:
    for number in range(7):
        index.enqueue(number)
    with pytest.raises(JobError, match="drain ran 5 jobs"):
        drain(queue, limit=5)
    assert calls == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("trouble", [failing, dying])
def test_trouble_meets_whole_calls(
    trouble: Callable[..., Any], queue: PgQueue, clock: Clock, index: Any, calls: list[list[int]]
) -> None:
    jobs = [index.enqueue(number) for number in range(3)]
    with trouble(index):
        drain(queue)
    assert all(job.status() is not JobState.SUCCEEDED for job in jobs)
    assert {one.attempt for one in drain(queue, now=clock.now + MINUTE)} == {2}
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}
    assert calls[-1] == [0, 1, 2]


def test_eager_runs_a_batch_of_one(calls: list[list[int]]) -> None:
    queue = PgQueue("postgresql://nowhere")

    @queue.batch_task(Document, name="index")
    def index(jobs: Batch[Document]) -> None:
        calls.append([job.args.number for job in jobs])

    with eager(queue):
        index.enqueue(1)
        queue.enqueue_many([index.call(2), index.call(3)])
    assert calls == [[1], [2, 3]]
