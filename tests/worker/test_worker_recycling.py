"""A worker's process is replaced after a number of attempts, with much memory, or when no slot comes free again."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from looking import GUARD, ask
from worker.helping import ended

from pgqueue import Context, JobState, PgQueue, Worker
from pgqueue.errors import InvalidOption
from pgqueue.worker import recycling


async def run(worker: Worker) -> None:
    async with asyncio.timeout(GUARD):
        await worker.run()


async def test_a_worker_ends_to_be_replaced_after_about_as_many_attempts_and_spends_none(
    queue: PgQueue,
) -> None:
    said: list[str | None] = []

    @queue.task(name="slow")
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(0.03)
        return ctx.attempt

    @queue.task(name="last")
    async def last() -> None:
        while not said:
            said.extend([one.answer for one in queue.workers.list() if one.answer])
            await asyncio.sleep(0.01)

    ran = [last.enqueue(), *queue.enqueue_many(slow.call() for _ in range(300))]
    worker = Worker(queue, max_jobs_per_process=50, concurrency=4)
    await run(worker)
    assert (worker.asked_to_end, worker.own_end) == ("restart", None)
    assert said[0] is not None
    assert said[0].startswith("replaced: it has run ")
    history = ask(queue, "select count(*), max(attempts) from pgqueue.job_history")
    assert 45 <= history[0][0] < 300
    assert history[0][1] == 1
    second = Worker(queue, until_empty=True)
    await run(second)
    assert {job.state for job in await ended(queue, *ran)} == {JobState.SUCCEEDED}


async def test_a_worker_with_much_memory_ends_to_be_replaced(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    @queue.task(name="run")
    async def once() -> None: ...

    job = once.enqueue()
    worker = Worker(queue, max_memory="2 GB")
    monkeypatch.setattr(recycling, "resident_memory", lambda: 3_000_000_000)
    await run(worker)
    assert job.status() is JobState.SUCCEEDED
    assert worker.asked_to_end == "restart"
    assert "worker process is to be replaced" in caplog.messages


@pytest.fixture
def release() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


async def test_a_supervised_worker_whose_slots_never_come_free_ends_to_be_replaced(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(recycling, "STUCK_FOR", 0.2)

    @queue.task(name="hang", timeout=0.05, max_attempts=1)
    def hang() -> None:
        release.wait(60)

    for _ in range(3):
        hang.enqueue()
    worker = Worker(queue, concurrency=2, grace=0.1)
    worker.supervised = True
    await run(worker)
    assert worker.asked_to_end == "restart"
    assert queue.insight.search(state="ready").jobs[0].attempts == 0


@pytest.mark.parametrize(
    "options", [{"max_jobs_per_process": 0}, {"max_memory": "much"}, {"max_memory": 5}], ids=str
)
def test_bounds_that_make_no_sense_are_refused(queue: PgQueue, options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match="max_"):
        Worker(queue, **options)  # type: ignore[arg-type]  # what is tested


def test_processes_that_start_together_are_not_replaced_together(queue: PgQueue) -> None:
    wanted = recycling.Recycling(jobs=1000)
    made = [
        recycling.RecycleWatch(wanted, claims=one.claims, slots=one.slots, supervised=bool)
        for one in [Worker(queue).parts] * 20
    ]
    bounds = {one._jobs for one in made}  # noqa: SLF001 - what is random
    assert len(bounds) > 5
    assert all(bound is not None and 900 <= bound <= 1000 for bound in bounds)
