"""Tasks with ``process=True`` run in processes that the worker keeps, and ends when an attempt is over."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from crashes.killing import lives, worker_process
from looking import ask, until, wait_until
from running import Running
from worker import in_processes
from worker.helping import ended

from pgqueue import JobState, PgQueue, chain
from pgqueue.app.context import Context
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.replica import ReplicatedDatabase
from pgqueue.values.jobs.job import Claim
from pgqueue.worker import attempt_process, kept_processes
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.executor import Executor
from pgqueue.worker.kept_processes import KeptProcesses
from pgqueue.worker.process_messages import ProcessOrder

CLAIM = Claim(1, UUID(int=1), 1, 1, 25, 0, "default", "where", "{}", 0.0, 0.0, 0.0)


@pytest.fixture
def app(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> PgQueue:
    monkeypatch.setattr(in_processes.queue, "database", queue.database)
    return in_processes.queue


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file for the ids of processes, all of which are gone in the end."""
    yield tmp_path / "pids"
    for pid in pids(tmp_path / "pids"):
        assert not lives(pid)


def said(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def pids(path: Path) -> list[int]:
    return [int(word) for word in said(path).split() if word.isdigit()]


async def test_attempts_run_in_a_process_that_is_kept_and_ends_with_the_worker(
    app: PgQueue, running: Running
) -> None:
    async with running(app, concurrency=4):
        ran = [(await ended(app, in_processes.where.enqueue()))[0].result for _ in range(3)]
    assert len(set(ran)) == 1
    assert ran[0] != os.getpid()
    assert not lives(ran[0])


async def test_several_run_at_once(app: PgQueue, running: Running, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    jobs = [in_processes.wait.enqueue(str(path)) for path in paths]
    async with running(app, concurrency=3, grace=timedelta(0)):
        await until(lambda: all(map(said, paths)))
        assert len(set(map(said, paths))) == 3
    assert {app.job(job.id).state for job in jobs} == {JobState.READY}


async def test_results_errors_and_decisions_are_as_in_the_worker(app: PgQueue, running: Running) -> None:
    long = "x" * 500_000
    async with running(app, concurrency=2):
        snoozed = in_processes.snooze.enqueue()
        failed, awaited, echoed, ran = await ended(
            app,
            in_processes.grumble.enqueue(),
            in_processes.later.enqueue(),
            in_processes.echo.enqueue(long),
            in_processes.commit.enqueue(),
        )
        await until(lambda: snoozed.status() is JobState.SCHEDULED)
        (where,) = app.insight.search(task=in_processes.where.name).jobs
        await until(lambda: app.job(where.id).state is JobState.SUCCEEDED)
        chained = chain(in_processes.one.call(), in_processes.add.call(2)).enqueue()
        (last,) = await ended(app, chained.jobs[-1])
    assert (failed.state, failed.attempts) == (JobState.DEAD, 2)
    assert [one.message for one in failed.errors] == ["attempt 1", "attempt 2"]
    assert "in grumble" in (failed.errors[0].traceback or "")
    assert (awaited.result, echoed.result, last.result) == (8, long, 3)
    assert (ran.state, ask(app, "select it from witness")) == (JobState.SUCCEEDED, [(1,)])


async def test_a_function_is_told_of_its_timeout_and_its_process_ends(
    app: PgQueue, running: Running, path: Path
) -> None:
    async with running(app, concurrency=1):
        (job,) = await ended(app, in_processes.linger.enqueue(str(path)))
        assert not lives(*pids(path))
        (next_one,) = await ended(app, in_processes.where.enqueue())
    assert [error.type for error in job.errors] == ["pgqueue.errors.TimedOut"]
    assert "the task's timeout of 0:00:00.300000" in said(path)
    assert pids(path)[0] != next_one.result


async def test_promise_5_a_limit_holds_for_functions_that_heed_no_timeout(
    app: PgQueue, running: Running, path: Path
) -> None:
    """Each is killed at its timeout: two jobs of two attempts each never run at once under a limit of one."""
    jobs = [in_processes.hang.enqueue(str(path)) for _ in range(2)]
    async with running(app, concurrency=4):
        found = await ended(app, *jobs)
    assert {job.reason for job in found} == {"exhausted"}
    assert {error.type for job in found for error in job.errors} == {"pgqueue.errors.TimedOut"}
    assert len(set(pids(path))) == 4
    assert not said(Path(f"{path}.beside"))


async def test_a_cancel_ends_the_function_which_has_told_of_its_progress_and_may_clean_up(
    app: PgQueue, running: Running, path: Path
) -> None:
    job = in_processes.wait.enqueue(str(path))
    async with running(app, concurrency=1):
        await until(lambda: pids(path) and app.progress(job.id))
        await job.acancel()
        (found,) = await ended(app, job)
        assert found.state is JobState.CANCELLED
        assert said(path).endswith("cleaned up")


async def test_a_task_there_ends_its_job_as_cancelled(app: PgQueue, running: Running) -> None:
    async with running(app, concurrency=1):
        (found,) = await ended(app, in_processes.end_as_cancelled.enqueue())
    assert (found.state, [one.message for one in found.errors]) == (JobState.CANCELLED, ["no such order"])


async def test_an_error_there_after_a_cancel_is_not_said_to_run_again(
    app: PgQueue, running: Running, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = in_processes.fail_when_stopped.enqueue(str(path))
    async with running(app, concurrency=1):
        await until(lambda: pids(path))
        await job.acancel()
        (found,) = await ended(app, job)
    assert found.state is JobState.CANCELLED
    assert "goes back" not in capfd.readouterr().err


async def test_a_stop_returns_the_job_unspent(app: PgQueue, running: Running, path: Path) -> None:
    job = in_processes.wait.enqueue(str(path))
    async with running(app, concurrency=1, grace=timedelta(0)):
        await until(lambda: pids(path))
    found = app.job(job.id)
    assert (found.state, found.attempts) == (JobState.READY, 0)
    assert said(path).endswith("cleaned up")


async def test_a_process_that_dies_fails_its_attempt_only(app: PgQueue, running: Running) -> None:
    async with running(app, concurrency=2):
        killed, left, well = await ended(
            app,
            in_processes.die.enqueue(signal.SIGSEGV),
            in_processes.leave.enqueue(),
            in_processes.where.enqueue(),
        )
    assert [(one.type, one.message) for one in killed.errors] == [
        ("ChildProcessError", "the process of this attempt died: signal 11 (SIGSEGV)")
    ] * 2
    assert left.errors[0].message == "the process of this attempt died: exit code 7"
    assert well.state is JobState.SUCCEEDED


async def test_a_process_that_died_while_it_was_free_costs_no_attempt(app: PgQueue, running: Running) -> None:
    async with running(app, concurrency=1):
        (first,) = await ended(app, in_processes.where.enqueue())
        os.kill(first.result, signal.SIGKILL)
        (second,) = await ended(app, in_processes.where.enqueue())
    assert (second.attempts, second.errors) == (1, ())
    assert second.result != first.result


async def test_a_free_process_ends_after_a_while(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_processes, "KEPT_FOR", 0.05)
    async with running(app, concurrency=1):
        (job,) = await ended(app, in_processes.where.enqueue())
        await until(lambda: not lives(job.result))


async def test_what_a_task_starts_reads_no_orders(app: PgQueue, running: Running) -> None:
    async with running(app, concurrency=1):
        read, after = await ended(app, in_processes.read_input.enqueue(), in_processes.where.enqueue())
    assert (read.result, after.state) == ("''", JobState.SUCCEEDED)


async def test_an_app_that_cannot_be_imported_fails_the_attempt_and_says_so(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptProcesses, "_place", lambda _: "worker.no_such_module:queue")
    job = in_processes.where.enqueue()
    async with running(app, concurrency=1):
        await until(lambda: app.job(job.id).errors)
    (error,) = app.job(job.id).errors
    assert error.type == "NotIsolated"
    assert error.message.startswith("its own process did not start: --app 'worker.no_such_module:queue': ")


@pytest.mark.usefixtures("app")
def test_a_process_dies_with_a_worker_that_is_killed(dsn: str, path: Path) -> None:
    in_processes.wait.enqueue(str(path))
    with worker_process(dsn, "worker.in_processes") as worker:
        wait_until(lambda: bool(pids(path)))
        worker.kill()
    wait_until(lambda: not any(map(lives, pids(path))))


async def test_a_worker_that_no_process_can_find_does_not_start(queue: PgQueue, running: Running) -> None:
    queue.task(process=True, name="where")(os.getpid)
    with pytest.raises(ConfigurationError, match=r"give --app, or set worker\.app"):
        async with running(queue):
            await asyncio.sleep(0)


def test_only_plain_functions_run_in_processes(queue: PgQueue) -> None:
    async def waiting() -> None: ...

    with pytest.raises(InvalidOption, match="process=True is for plain functions"):
        queue.task(process=True)(waiting)


def test_a_test_runs_the_function_in_its_own_process(app: PgQueue) -> None:
    from pgqueue.testing import drain, in_memory  # noqa: PLC0415

    with in_memory(app):
        job: Any = in_processes.where.enqueue()
        drain(app)
        assert app.job(job.id).result == os.getpid()


@pytest.mark.parametrize("how", in_processes.LEFTOVERS)
async def test_promise_5_what_a_function_has_started_ends_with_its_timeout(
    app: PgQueue, running: Running, path: Path, how: str
) -> None:
    """The function itself ends in time: what it waited for went on, beside that of the next job."""
    jobs = [in_processes.start_and_wait.enqueue(how, str(path)) for _ in range(2)]
    async with running(app, concurrency=4):
        found = await ended(app, *jobs)
    assert {error.type for job in found for error in job.errors} == {"pgqueue.errors.TimedOut"}
    assert len(set(pids(path))) == 2
    assert not said(Path(f"{path}.beside"))
    await until(lambda: not any(map(lives, pids(path))))


async def test_a_blocked_event_loop_takes_no_answer_for_late(app: PgQueue, running: Running) -> None:
    job = in_processes.half_a_second.enqueue()
    blocker = in_processes.block.using(delay=0.2).enqueue()
    async with running(app, concurrency=2):
        found, _ = await ended(app, job, blocker)
    assert (found.state, found.errors) == (JobState.SUCCEEDED, ())


async def test_a_process_that_hangs_while_it_is_free_is_replaced(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_process, "GOES_ON_IN", 0.2)
    async with running(app, concurrency=1):
        (first,) = await ended(app, in_processes.where.enqueue())
        os.kill(first.result, signal.SIGSTOP)
        (second,) = await ended(app, in_processes.where.enqueue())
        assert not lives(first.result)
    assert (second.attempts, second.errors) == (1, ())


async def test_sigterm_to_all_processes_of_a_service_leaves_the_grace_to_the_attempt(
    app: PgQueue, running: Running, path: Path
) -> None:
    job = in_processes.wait_shortly.enqueue(str(path))
    async with running(app, concurrency=1):
        await until(lambda: pids(path))
        os.kill(pids(path)[0], signal.SIGTERM)
        (found,) = await ended(app, job)
    assert (found.state, found.attempts, found.errors) == (JobState.SUCCEEDED, 1, ())


@pytest.mark.parametrize("how", ["own alarm", "default alarm", "mask"])
async def test_a_function_spoils_no_signal_of_the_next_one(
    app: PgQueue, running: Running, path: Path, how: str
) -> None:
    async with running(app, concurrency=1):
        spoilt, late = await ended(
            app, in_processes.spoil.enqueue(how), in_processes.linger.enqueue(str(path))
        )
    assert spoilt.result == pids(path)[0]
    assert "the task's timeout of" in said(path)
    assert [error.type for error in late.errors] == ["pgqueue.errors.TimedOut"]


async def test_a_job_that_its_transaction_completed_is_no_lost_one_when_it_is_stopped(
    app: PgQueue, running: Running, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = in_processes.commit_and_wait.enqueue(str(path))
    async with running(app, concurrency=1, grace=timedelta(0)):
        await until(lambda: pids(path))
    assert app.job(job.id).state is JobState.SUCCEEDED
    assert "superseded" not in caplog.text


async def test_a_task_of_a_module_that_the_app_does_not_import_runs(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptProcesses, "_place", lambda _: "worker.in_processes_queue:queue")
    async with running(app, concurrency=1):
        (job,) = await ended(app, in_processes.where.enqueue())
    assert job.state is JobState.SUCCEEDED


async def test_a_task_that_the_process_does_not_have_fails_with_words(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = queue.task(process=True, name="elsewhere")(os.getpid)
    monkeypatch.setattr(KeptProcesses, "_place", lambda _: "worker.in_processes:queue")
    job = task.enqueue()
    async with running(queue, concurrency=1):
        await until(lambda: queue.job(job.id).errors)
    (error,) = queue.job(job.id).errors
    assert "worker.in_processes:queue in its process has no task 'elsewhere'; give --app" in error.message


async def test_the_environment_is_that_of_the_worker_and_modules_are_found_where_it_finds_them(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    async with running(app, concurrency=1):
        (job,) = await ended(app, in_processes.environment.enqueue())
    assert job.result == [None, str(tmp_path)]


async def test_a_process_connects_as_the_worker_does(app: PgQueue, dsn: str) -> None:
    attempt = Attempt(
        msgspec.structs.replace(CLAIM, task=in_processes.where.name), in_processes.where, cast("Any", None)
    )
    pooled = Executor(app)
    pooled.database = Database(dsn, behind_pooler=True, direct_dsn="dbname=direct")
    replicated = Executor(app)
    replicated.database = ReplicatedDatabase(dsn, replica="dbname=replica")
    orders = []
    for host in (pooled, replicated):
        attempt.context = Context(attempt.claim, host)
        orders.append(ProcessOrder.of(host, attempt))
    assert [(one.dsn, one.behind_pooler) for one in orders] == [(dsn, True), (dsn, False)]
    assert "dbname=direct" in (orders[0].direct_dsn or "")
