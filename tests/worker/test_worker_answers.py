"""The answer to a claim: never too long, and one that cannot be handled costs only the job whose fault it is."""

from typing import Any
from uuid import uuid4

import pytest
from looking import ask, until
from promises.asking import registered
from running import Running
from worker.helping import ended

from pgqueue import JobState, PgQueue
from pgqueue.store.jobs import claim
from pgqueue.store.jobs.claim import FIRST, LARGEST_ANSWER, Portions
from pgqueue.values.jobs.job import Claim
from pgqueue.worker.fetcher import LARGEST_CLAIM

LONG = LARGEST_ANSWER // 16


def claims(count: int, length: int) -> list[Claim]:
    return [
        Claim(number, uuid4(), 1, 1, 25, 0, "q", "t", "x" * length, 0.0, 0.0, 0.0) for number in range(count)
    ]


def test_after_long_arguments_the_next_answer_is_small_and_grows_again_by_doubling() -> None:
    portions = Portions()
    assert portions.most == FIRST
    portions.learn(claims(3, LONG))
    assert portions.most == LARGEST_ANSWER // LONG == 16
    sizes = []
    for _ in range(6):
        portions.learn(claims(1, 2))
        sizes.append(portions.most)
    assert sizes == [32, 64, 128, 256, 512, 1024]
    portions.learn([])
    assert portions.most == 1024
    portions.learn(claims(1, 10 * LARGEST_ANSWER))
    assert portions.most == 1, "a job longer than that still runs"


def test_a_take_has_its_number_in_parts(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgqueue.store.jobs.claim.LARGEST_ANSWER", 10_000)
    monkeypatch.setattr("pgqueue.store.jobs.claim.FIRST", 10)
    answers = _watch(monkeypatch)
    for name in ("a", "b"):
        ask(
            queue,
            "insert into pgqueue.jobs (queue, task, args) select %s, 't', json_build_object('s', repeat('x', 1000)) "
            "from generate_series(1, 30)",
            name,
        )
    for queues, size in ((["b", "a"], 40), (None, 20)):
        with queue.take(size, queues=queues, timeout=5) as jobs:
            taken = [job.queue for job in jobs]
        assert len(taken) == size
        first, second = queues or ["a", "b"]
        share = taken.count(first)
        assert taken == [first] * share + [second] * (size - share)
        assert abs(size - 2 * share) <= 6, "each part is shared equally, but for one job"
        assert max(answers) <= 10
        answers.clear()


def test_a_take_from_all_queues_names_a_hundred_at_a_time(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[int] = []
    original = claim.claim

    def noted(worker: Any, quotas: Any, **options: Any) -> Any:
        named.append(len(quotas))
        return original(worker, quotas, **options)

    monkeypatch.setattr(claim, "claim", noted)
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select 'tenant-' || n, 't' from generate_series(1, 250) as n",
    )
    with queue.take(240, timeout=5) as jobs:
        assert len({job.queue for job in jobs}) == 240
    assert max(named) <= claim.ASKED_AT_ONCE


async def test_a_job_that_breaks_whoever_claims_it_spends_its_attempts_alone(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(Claim, frozen=True):
        """A claim that cannot be made of one row."""

        def __post_init__(self) -> None:
            if self.task == "poison":
                raise ValueError("no claim can be made of this row")

    monkeypatch.setattr(claim, "Claim", Picky)

    @queue.task(name="noop")
    async def noop() -> None: ...

    before = queue.enqueue_many(noop.call() for _ in range(50))
    poison = ask(queue, "insert into pgqueue.jobs (task, max_attempts) values ('poison', 1) returning id")
    after = queue.enqueue_many(noop.call() for _ in range(50))
    async with running(queue, concurrency=20) as worker:
        found = await ended(queue, *before, *after)
        await until(
            lambda: ask(queue, "select id, reason from pgqueue.dead_jobs") == [(*poison[0], "exhausted")]
        )
        assert ask(queue, "select id from pgqueue.workers") == [(worker.id,)]
    assert {(job.state, job.attempts) for job in found} == {(JobState.SUCCEEDED, 1)}
    ((error,),) = ask(queue, "select errors->0->>'message' from pgqueue.dead_jobs")
    assert error == "no claim can be made of this row"


async def test_a_worker_that_can_handle_no_answer_waits_and_does_not_spend_the_attempts_of_every_job(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is its own, as after a driver was replaced under it: another worker may run the jobs."""

    class Broken(Claim, frozen=True):
        """A claim that cannot be made."""

        def __post_init__(self) -> None:
            if self.task:
                raise ValueError("no claim can be made of any row")

    monkeypatch.setattr(claim, "Claim", Broken)
    monkeypatch.setattr("pgqueue.worker.fetcher.FIRST_PAUSE", 600.0)
    monkeypatch.setattr("pgqueue.worker.fetcher.LONGEST_PAUSE", 600.0)
    queue.task(name="noop")(lambda: None)
    queue.enqueue_many(queue.tasks["noop"].call() for _ in range(3))
    async with running(queue) as worker:
        spent = "select count(*) from pgqueue.jobs where attempts > 0"
        await until(lambda: worker.parts.fetcher.waits and ask(queue, spent) == [(1,)])
        worker.parts.signals.look.set()  # an enqueuer's notification does not end the pause
        await until(lambda: worker.parts.fetcher.waits)
    assert ask(queue, spent) == [(1,)]


async def test_a_worker_claims_less_after_long_arguments(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.store.jobs.claim.LARGEST_ANSWER", 20_000)
    answers = _watch(monkeypatch)

    @queue.task(name="noop")
    async def noop(s: str) -> None: ...

    jobs = queue.enqueue_many(noop.call("x" * 2_000) for _ in range(300))
    async with running(queue, concurrency=200):
        await ended(queue, *jobs)
    assert max(answers[1:]) <= 10 < LARGEST_CLAIM


def _watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    answers: list[int] = []
    learn = Portions.learn

    def noted(self: Portions, found: Any) -> None:
        if found:
            answers.append(len(found))
        learn(self, found)

    monkeypatch.setattr(Portions, "learn", noted)
    return answers


def test_giving_up_leaves_what_is_known_alone(queue: PgQueue) -> None:
    ask(queue, "insert into pgqueue.jobs (task, max_attempts) values ('a', 2), ('b', 1), ('c', 2)")
    worker = registered(queue)
    first, second, third = queue.database.run(claim.claim(worker, {"default": 3}))
    ended_ids = queue.database.run(claim.give_up(worker, [third.id], ValueError("broken")))
    assert ended_ids == [first.id, second.id]
    states = [queue.job(one.id).state for one in (first, second, third)]
    assert states == [JobState.SCHEDULED, JobState.DEAD, JobState.RUNNING]
