"""Promise 1, for jobs that wait: no kill loses a signal, or a job that waits for one."""

import signal
from functools import partial

import pytest
from looking import ask, wait_until
from promises.processes import at_the_gate, closed_gate, gate_inserts, live_jobs, processes
from promises.workshop import Workshop

from pgqueue import JobState, PgQueue
from pgqueue.app.handle import JobHandle


def _blocked(queue: PgQueue) -> int:
    return len(queue.insight.search(state="blocked").jobs)


def _waiting(dsn: str, count: int = 1) -> tuple[PgQueue, list[JobHandle[int]]]:
    workshop = Workshop(PgQueue(dsn))
    return workshop.queue, [workshop.wait.enqueue(key="k") for _ in range(count)]


@pytest.mark.parametrize("killed", [True, False])
def test_a_signal_that_is_committed_while_a_worker_blocks_its_job_is_not_lost(
    dsn: str, *, killed: bool
) -> None:
    with processes(dsn) as start, closed_gate(dsn) as open_gate:
        gate_inserts(dsn, "after", "pgqueue.waits")  # a worker that blocks a job stops before its commit
        queue, (job,) = _waiting(dsn)
        worker = start(lease=2.0)
        wait_until(partial(at_the_gate, dsn))

        assert queue.signal("k", "go", 7)  # it does not see that the job waits; nor did the worker see it
        if killed:
            worker.signal(signal.SIGKILL)
            start(lease=2.0)
        open_gate()

        assert job.result(timeout=60) == 7
        queue.close()


@pytest.mark.parametrize("commits", [True, False])
def test_a_sender_that_is_killed_has_sent_all_or_nothing(dsn: str, *, commits: bool) -> None:
    with processes(dsn) as start:
        queue, jobs = _waiting(dsn, 5)
        worker = start()
        wait_until(lambda: _blocked(queue) == 5)
        worker.kill()

        assert start("signal_and_die", key="k", commits=commits).ended() == -signal.SIGKILL
        state = JobState.READY if commits else JobState.BLOCKED
        assert {job.status() for job in jobs} == {state}
        assert queue.signal("k", "go", 7) is not commits
        start()
        assert [job.result(timeout=60) for job in jobs] == [7] * 5
        queue.close()


def test_jobs_that_wait_all_end_once_while_workers_are_killed_and_signals_arrive(dsn: str) -> None:
    workshop = Workshop(PgQueue(dsn))
    with processes(dsn) as start:
        jobs = [workshop.wait.enqueue(key=f"k{number % 20}") for number in range(200)]
        for number in range(20):
            if number % 5 == 0:
                worker = start(lease=2.0)
                wait_until(partial(_has_blocked, dsn))
            assert workshop.queue.signal(f"k{number}", "go", number)
            if number % 5 == 3:
                worker.kill()
        start(lease=2.0)
        assert [job.result(timeout=60) for job in jobs] == [number % 20 for number in range(200)]
        assert ask(dsn, "select count(*), count(distinct id) from pgqueue.job_history") == [(200, 200)]
        assert live_jobs(dsn) == 0
        workshop.queue.close()


def _has_blocked(dsn: str) -> bool:
    return bool(ask(dsn, "select 1 from pgqueue.waits limit 1")) or live_jobs(dsn) == 0
