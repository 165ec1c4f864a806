"""Promise 11: whatever one job is or does (its row, its arguments, its code, its length), other jobs are claimed,
promoted, reclaimed and recorded as before, and the worker stays.

A task that blocks the event loop is shown by real processes; the parts of that by ``tests/worker/test_worker_blocked.py``.
"""

from looking import ask, wait_until
from promises.processes import GUARD, closed_gate, processes
from promises.workshop import Workshop

from pgqueue import JobState, PgQueue

LEASE = 3.0
LEASES = 4


def test_a_task_that_blocks_the_loop_for_leases_on_end_costs_no_job_an_attempt(
    queue: PgQueue, dsn: str
) -> None:
    """Each runs once: the one that blocks, those that wait beside it, and the plain function that returns meanwhile."""
    workshop = Workshop(queue)
    with processes(dsn) as start:
        with closed_gate(dsn) as open_gate:
            naps = [workshop.nap.enqueue(seconds=2 * LEASE) for _ in range(3)]
            confirm = workshop.confirm.enqueue()
            blocked = start(lease=LEASE, concurrency=5)
            wait_until(lambda: len(ask(dsn, "select id from marks")) >= 4)
            block = workshop.block.enqueue(seconds=LEASES * LEASE)
            wait_until(lambda: len(ask(dsn, "select id from marks")) >= 5)
            start(lease=LEASE, concurrency=5)  # has nothing to do but to take over what is lost
            open_gate()
        wait_until(lambda: confirm.status() is JobState.SUCCEEDED)
        assert block.status() is JobState.RUNNING
        for handle in (block, *naps):
            handle.result(timeout=GUARD)
        log = blocked.log()
    jobs = [queue.job(handle.id) for handle in (block, *naps, confirm)]
    assert [(job.state, job.attempts, job.errors) for job in jobs] == [(JobState.SUCCEEDED, 1, ())] * 5
    assert ask(dsn, "select job, count(*) from marks group by job having count(*) > 1") == []
    assert ask(dsn, "select count(distinct worker_id) from pgqueue.job_history") == [(1,)]
    assert "event loop is blocked" in log
    assert "superseded" not in log


def test_jobs_that_a_blocked_worker_cannot_start_are_run_by_others(queue: PgQueue, dsn: str) -> None:
    workshop = Workshop(queue)
    with processes(dsn) as start:
        block = workshop.block.enqueue(seconds=3600.0)
        start(concurrency=5)
        wait_until(lambda: len(ask(dsn, "select id from marks")) == 1)
        waiting = [workshop.succeed.enqueue() for _ in range(10)]
        start(concurrency=5)
        for handle in waiting:
            handle.result(timeout=GUARD)
        assert block.status() is JobState.RUNNING
    assert {queue.job(handle.id).attempts for handle in waiting} == {1}
