"""Which losses of an attempt count as crashes, and what is recorded of them.

The policy for jobs that kill their workers: its bounds, and what is recorded.
"""

from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from looking import ask
from promises.processes import claimed, do, listed

from pgqueue import Crashes, JobHandle, JobState, PgQueue, Task
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.workers.crashes import CrashCount, as_crashes, crash_verdict
from pgqueue.values.workers.health import WorkerHealth
from pgqueue.values.workers.lease import LEASE


@pytest.fixture
def work(queue: PgQueue) -> Task[[], None]:
    @queue.task
    def work() -> None: ...

    return work


def lose(queue: PgQueue, *, starts: bool, worker: UUID | None = None) -> Claim:
    """Claim the one ready job, note its start if it starts, and lose the worker."""
    worker = worker or listed(queue)
    one = claimed(queue, worker)
    if starts:
        assert do(queue, leases.start(one)) is not None
    do(queue, leases.leave(worker))
    assert do(queue, upkeep.reclaim()) == {one.id: JobState.READY}
    return one


def begun(queue: PgQueue) -> CrashCount | None:
    """What a worker is told that starts the job now; then that worker returns it."""
    worker = listed(queue)
    said = do(queue, leases.start(claimed(queue, worker)))
    do(queue, claim.return_unknown(worker, ()))
    return said


def crashed(queue: PgQueue, handle: JobHandle[None]) -> list[bool]:
    return [error.crashed for error in queue.job(handle.id).errors]


def test_claims_that_never_start_count_once_however_often_their_workers_die(
    queue: PgQueue, work: Task[[], None]
) -> None:
    handle = work.enqueue()
    for _ in range(4):
        lose(queue, starts=False)
    assert crashed(queue, handle) == [True, False, False, False]
    assert begun(queue) == CrashCount(1)


def test_attempts_that_had_started_count_each(queue: PgQueue, work: Task[[], None]) -> None:
    handle = work.enqueue()
    lose(queue, starts=False)
    lose(queue, starts=True)
    lose(queue, starts=False)  # a former start of the same job is another fence
    lose(queue, starts=True)
    assert crashed(queue, handle) == [True, True, False, True]
    assert begun(queue) == CrashCount(3)


def test_an_attempt_that_raised_is_no_crash(queue: PgQueue, work: Task[[], None]) -> None:
    work.enqueue()
    lose(queue, starts=False)
    worker = listed(queue)
    do(queue, leases.start(claimed(queue, worker)))
    do(queue, claim.give_up(worker, (), ValueError("raised")))
    ask(queue, "update pgqueue.jobs set status = 'ready'")
    lose(queue, starts=True)
    assert begun(queue) == CrashCount(2)


def test_the_start_that_another_worker_noted_under_the_same_number_is_not_this_workers(
    queue: PgQueue, work: Task[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker process counts its claims from 1."""
    handle = work.enqueue()
    for starts in (False, True, False):
        monkeypatch.setattr(claim, "_fences", count(1))
        assert lose(queue, starts=starts).fence == 1
    assert crashed(queue, handle) == [True, True, False]


def test_the_count_begins_again_when_the_job_is_revived(queue: PgQueue, work: Task[[], None]) -> None:
    handle = work.using(max_attempts=3).enqueue()
    lose(queue, starts=True)
    lose(queue, starts=True)
    worker = listed(queue)
    do(queue, leases.start(claimed(queue, worker)))
    do(queue, leases.leave(worker))
    assert do(queue, upkeep.reclaim()) == {handle.id: JobState.DEAD}
    queue.retry(handle.id)
    assert begun(queue) == CrashCount(0)
    lose(queue, starts=False)
    assert begun(queue) == CrashCount(0)  # a suspect from its former life on: the start was not noted


def test_the_memory_of_the_worker_at_its_last_heartbeat_is_recorded(
    queue: PgQueue, work: Task[[], None]
) -> None:
    handle = work.enqueue()
    worker = listed(queue)
    health = WorkerHealth(memory=512_000_000)
    do(queue, leases.renew(worker, LEASE, health=health))
    lose(queue, starts=True, worker=worker)
    lose(queue, starts=False)
    errors = queue.job(handle.id).errors
    assert [error.memory for error in errors] == [512_000_000, None]
    assert begun(queue) == CrashCount(1, 512_000_000)


def test_a_superseded_attempt_does_not_start(queue: PgQueue, work: Task[[], None]) -> None:
    work.enqueue()
    assert do(queue, leases.start(lose(queue, starts=False))) is None


@pytest.mark.parametrize(
    "errors",
    [
        "{}",
        "[1, null, []]",
        '[{"crashed": "true", "memory": "much"}]',
        '[{"crashed": true, "memory": "1e9999"}]',
    ],
)
def test_errors_that_another_program_wrote_do_not_keep_a_job_from_starting(
    queue: PgQueue, work: Task[[], None], errors: str
) -> None:
    work.enqueue()
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb, flags = 16, attempts = 3", errors)
    said = begun(queue)
    assert said is not None
    assert said.memory is None


def test_a_note_that_another_program_wrote_does_not_keep_a_job_from_being_taken_over(
    queue: PgQueue, work: Task[[], None]
) -> None:
    handle = work.enqueue()
    lose(queue, starts=True)
    ask(queue, "update pgqueue.notes set value = '[1]'")
    lose(queue, starts=False)
    assert crashed(queue, handle) == [True, False]


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLAIM = Claim(1, UUID(int=1), 1, 4, 25, 0, "default", "work", "{}", NOON.timestamp(), NOON.timestamp(), 0.0)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("512 MB", 512_000_000),
        ("2GiB", 2 * 2**30),
        (" 1.5 gb ", 1_500_000_000),
        (10**6, 10**6),
        ("1000000", 10**6),
    ],
)
def test_memory_is_a_number_of_bytes_or_a_text_with_a_unit(memory: int | str, size: int) -> None:
    assert Crashes(memory=memory).bytes == size


@pytest.mark.parametrize(
    "memory",
    ["", "much", "-1 GB", "512 MBs", "1e9", 0, -1, True, 1.5, 10**30, "9" * 400, "0.5 MB", "٣ GB MB", float("nan"), b"1 GB"],
    ids=repr,
)  # fmt: skip
def test_nonsense_of_memory_is_refused_with_an_example(memory: Any) -> None:
    with pytest.raises(InvalidOption, match=r"Crashes\(memory=.*'512 MB'"):
        Crashes(memory=memory)


@pytest.mark.parametrize("limit", [0, -1, 10, True, 2.5, "3"], ids=repr)
def test_the_limit_is_a_whole_number_from_1_to_9(limit: Any, queue_of_nothing: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="9"):
        Crashes(limit)
    with pytest.raises(InvalidOption, match="crashes"):
        as_crashes(limit)
    with pytest.raises(InvalidOption):
        queue_of_nothing.task(crashes=limit)
    assert not queue_of_nothing.tasks


@pytest.fixture
def queue_of_nothing() -> PgQueue:
    return PgQueue("postgresql://nowhere")


def test_what_then_is_one_of_two_words() -> None:
    with pytest.raises(InvalidOption, match="'isolate', 'dead'"):
        Crashes(then="kill")  # type: ignore[arg-type]  # this is the test


def test_a_task_has_the_policy_that_it_was_given(queue_of_nothing: PgQueue) -> None:
    def work() -> None: ...

    task = queue_of_nothing.task
    assert task(name="a")(work).crashes == Crashes(3, then="isolate")
    assert task(name="b", crashes=2)(work).crashes == Crashes(2)
    assert task(name="c", crashes=Crashes(1, then="dead"))(work).crashes.then == "dead"


@pytest.mark.parametrize(
    ("begun", "how", "memory", "said"),
    [
        (CrashCount(1), "", None, "killed 1 worker"),
        (CrashCount(3, 512_000_000), "", None, "killed 3 workers; last RSS 512 MB"),
        (
            CrashCount(3, 1),
            "its own process: exit code 7",
            20_000_000_000,
            "killed 3 workers, and its own process: exit code 7; last RSS 20.0 GB",
        ),
    ],
)
def test_the_error_says_how_many_workers_died_and_of_how_much(
    begun: CrashCount, how: str, memory: int | None, said: str
) -> None:
    died = crash_verdict(CLAIM, begun, None, how, memory)
    assert (died.reason, died.error.type, died.error.message) == ("crashed", "JobCrashed", said)
