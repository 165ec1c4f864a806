"""Which losses of an attempt count as crashes, and what is recorded of them."""

from uuid import UUID

import pytest
from looking import ask
from promises.processes import claimed, do, listed

from pgqueue import JobHandle, JobState, PgQueue, Task
from pgqueue.store.jobs import claim
from pgqueue.store.workers import crashes, leases, upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.workers.crashes import CrashCount
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
        assert do(queue, crashes.start(one)) is not None
    do(queue, leases.leave(worker))
    assert do(queue, upkeep.reclaim()) == {one.id: JobState.READY}
    return one


def begun(queue: PgQueue) -> CrashCount | None:
    """What a worker is told that starts the job now; then that worker returns it."""
    worker = listed(queue)
    said = do(queue, crashes.start(claimed(queue, worker)))
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
    do(queue, crashes.start(claimed(queue, worker)))
    do(queue, claim.give_up(worker, (), ValueError("raised")))
    ask(queue, "update pgqueue.jobs set status = 'ready'")
    lose(queue, starts=True)
    assert begun(queue) == CrashCount(2)


def test_the_count_begins_again_when_the_job_is_revived(queue: PgQueue, work: Task[[], None]) -> None:
    handle = work.using(max_attempts=3).enqueue()
    lose(queue, starts=True)
    lose(queue, starts=True)
    worker = listed(queue)
    do(queue, crashes.start(claimed(queue, worker)))
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
    assert do(queue, crashes.start(lose(queue, starts=False))) is None


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
