"""Jobs that kill their workers: each is quarantined, and the others run on.

Quarantined jobs that do their worst in the process of their own: they end, nothing of them stays, and the worker serves on.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from crashes import crashing
from crashes.killing import lives, worker_process
from looking import ask, until, wait_until
from promises.processes import do, listed
from running import Running
from worker.helping import ended

from pgqueue import JobHandle, JobState, PgQueue, Task
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.verdict import Stop
from pgqueue.worker import attempt_process
from pgqueue.worker.attempt_process import AttemptProcess
from pgqueue.worker.process_messages import ProcessAnswer, frame_message

FAST = {"sweep": timedelta(milliseconds=100)}


@pytest.fixture
def app(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> PgQueue:
    monkeypatch.setattr(crashing.queue, "database", queue.database)
    return crashing.queue


def quarantined(app: PgQueue, task: Task[Any, Any], *args: Any, times: int = 3) -> JobHandle[Any]:
    """Enqueue a job, whose workers then have died a few times."""
    handle = task.enqueue(*args)
    for _ in range(times):
        worker = listed(app)
        (one,) = do(app, claim.claim(worker, {"default": 1}))
        do(app, leases.start(one))
        do(app, leases.leave(worker))
        do(app, upkeep.reclaim())
    return handle


@pytest.mark.parametrize(
    "task",
    [crashing.where, crashing.where_plain, crashing.where_together, crashing.where_together_plain],
    ids=lambda task: task.name.rpartition(".")[2],
)
async def test_a_quarantined_job_runs_in_a_process_of_its_own(
    app: PgQueue, running: Running, task: Task[Any, Any]
) -> None:
    args = (1,) if task.batching else ()
    handle = quarantined(app, task, *args)
    innocent = quarantined(app, crashing.where.using(priority=1), times=1)
    async with running(app):
        job, other = await ended(app, handle, innocent)
    assert job.state is other.state is JobState.SUCCEEDED
    assert other.result == os.getpid()
    assert isinstance(job.result, int)
    assert job.result != os.getpid()


async def test_the_tasks_own_errors_are_retried_as_ever(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.grumble)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "exhausted", 5)
    assert [(one.type, one.message) for one in job.errors[3:]] == [
        ("ValueError", "attempt 4"), ("ValueError", "attempt 5"),
    ]  # fmt: skip
    assert "grumble" in (job.errors[-1].traceback or "")


async def test_a_task_that_decides_is_obeyed(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.snooze)
    async with running(app):
        await until(lambda: handle.status() is JobState.SCHEDULED)
    assert app.job(handle.id).attempts == 3


async def test_transactions_and_notes_work_from_there(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.commit)
    async with running(app):
        (job,) = await ended(app, handle)
    assert job.state is JobState.SUCCEEDED
    assert ask(app, "select it from witness") == [(1,)]
    assert ("checkpoint",) in ask(app, "select kind from pgqueue.notes")


async def test_a_job_that_kills_its_own_process_is_dead(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.kill_me, times=2)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.state, job.reason) == (JobState.DEAD, "crashed")
    assert job.errors[-1].type == "JobCrashed"
    assert job.errors[-1].message.startswith("killed 2 workers, and its own process: signal 9 (SIGKILL)")


async def test_a_process_that_ends_without_a_word_counts_as_killed(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.leave_quickly)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.reason, "exit code 7" in job.errors[-1].message) == ("crashed", True)


async def test_what_a_job_leaves_behind_does_not_keep_its_end_from_the_worker(
    app: PgQueue, running: Running
) -> None:
    task = crashing.leave_a_child
    handles = [quarantined(app, task, None), quarantined(app, task.using(priority=1), 9)]
    async with running(app):
        returned, crashed = await ended(app, *handles)
    assert returned.result == "x" * 500_000
    assert (crashed.reason, "exit code 9" in crashed.errors[-1].message) == ("crashed", True)


async def test_memory_is_limited(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.eat, 1_000, times=2)
    async with running(app):
        (job,) = await ended(app, handle)
        modest = quarantined(app, crashing.eat, 50, times=2)
        (other,) = await ended(app, modest)
    assert (job.state, job.reason) == (JobState.DEAD, "crashed")
    said = "killed 2 workers, and used up the 200 MB of its own process; last RSS "
    assert job.errors[-1].message.startswith(said)
    assert job.errors[-1].memory is not None
    assert (other.state, other.result) == (JobState.SUCCEEDED, 50_000_000)


async def test_without_isolation_the_job_is_dead_before_it_starts(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.kill_me_twice, times=2)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.state, job.reason, job.errors[-1].message) == (JobState.DEAD, "crashed", "killed 2 workers")


async def test_a_job_that_cannot_be_isolated_is_dead_and_says_why(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_process, "place_of", lambda _: None)
    handle = quarantined(app, crashing.where)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.reason, "no module has the queue" in job.errors[-1].message) == ("crashed", True)


async def test_a_process_that_cannot_start_convicts_no_job(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_process, "place_of", lambda _: "worker.no_such_module:queue")
    handle = quarantined(app, crashing.where)
    async with running(app):
        await until(lambda: len(app.job(handle.id).errors) == 4)
        job = app.job(handle.id)
    assert (job.state, job.errors[-1].type) == (JobState.SCHEDULED, "NotIsolated")


@pytest.mark.parametrize("task", [crashing.hang, crashing.hang_plain], ids=["async", "plain"])
async def test_a_cancel_ends_the_process(
    app: PgQueue, running: Running, tmp_path: Path, task: Task[[str], None]
) -> None:
    path = tmp_path / "pid"
    handle = quarantined(app, task, str(path))
    async with running(app):
        await until(path.exists)
        pid = int(path.read_text())
        await handle.acancel()
        (job,) = await ended(app, handle)
        await until(lambda: not lives(pid))
    assert job.state is JobState.CANCELLED


async def test_a_stop_before_the_process_can_answer_ends_it(
    app: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[asyncio.subprocess.Process] = []
    connecting = asyncio.Event()
    start = asyncio.create_subprocess_exec

    async def starting(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*words, **options))
        return started[-1]

    async def connect(*_: Any) -> None:
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starting)
    monkeypatch.setattr(asyncio.get_running_loop(), "connect_read_pipe", connect)
    handle = quarantined(app, crashing.where)
    async with running(app, grace=timedelta(0)):
        await connecting.wait()
    assert [process.returncode is None for process in started] == [False]
    assert app.job(handle.id).state is JobState.READY


@pytest.mark.parametrize("task", [crashing.hang, crashing.hang_plain], ids=["async", "plain"])
async def test_a_stop_ends_the_process_and_returns_the_job(
    app: PgQueue, running: Running, tmp_path: Path, task: Task[[str], None]
) -> None:
    path = tmp_path / "pid"
    handle = quarantined(app, task, str(path))
    async with running(app, grace=timedelta(0)):
        await until(path.exists)
        pid = int(path.read_text())
    await until(lambda: not lives(pid))
    job = app.job(handle.id)
    assert (job.state, job.attempts) == (JobState.READY, 3)


@pytest.mark.parametrize("task", [crashing.hang_shortly, crashing.hang_shortly_plain], ids=["async", "plain"])
async def test_a_timeout_ends_the_process(
    app: PgQueue, running: Running, tmp_path: Path, task: Task[[str], None]
) -> None:
    path = tmp_path / "pid"
    handle = quarantined(app, task.using(max_attempts=4), str(path))
    async with running(app):
        (job,) = await ended(app, handle)
        pid = int(path.read_text())
        await until(lambda: not lives(pid))
    assert (job.state, job.errors[-1].type) == (JobState.DEAD, "pgqueue.errors.TimedOut")


@pytest.mark.parametrize("task", [crashing.hang, crashing.hang_plain], ids=["async", "plain"])
def test_the_process_dies_with_a_worker_that_is_killed(
    app: PgQueue, dsn: str, tmp_path: Path, task: Task[[str], None]
) -> None:
    path = tmp_path / "pid"
    quarantined(app, task, str(path))
    with worker_process(dsn) as worker:
        wait_until(path.exists)
        pid = int(path.read_text())
        worker.kill()
    wait_until(lambda: not lives(pid))


def test_a_job_that_kills_its_workers_ends_and_those_beside_it_succeed(app: PgQueue, dsn: str) -> None:
    """With real workers, of which each claims all jobs at once, and which the job kills with SIGKILL."""
    killer = crashing.kill_me.enqueue()
    innocent = [crashing.where.using(priority=-1).enqueue() for _ in range(100)]
    deaths = 0
    while not killer.status().ended:
        with worker_process(dsn) as worker:
            wait_until(lambda: worker.poll() is not None or killer.status().ended)
            deaths += worker.poll() == -signal.SIGKILL
    assert deaths == 2
    with worker_process(dsn):
        wait_until(lambda: all(one.status().ended for one in innocent))
    job = app.job(killer.id)
    assert (job.reason, [one.type for one in job.errors]) == (
        "crashed", ["WorkerLost", "WorkerLost", "JobCrashed"],
    )  # fmt: skip
    assert {one.status() for one in innocent} == {JobState.SUCCEEDED}
    crashes_of = [sum(error.crashed for error in app.job(one.id).errors) for one in innocent]
    assert sum(count > 1 for count in crashes_of) <= 4  # those that ran in the other slots


async def test_the_worker_serves_others_meanwhile(app: PgQueue, running: Running, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    handle = quarantined(app, crashing.hang, str(path))
    async with running(app, grace=timedelta(0)):
        await until(path.exists)
        await until(lambda: app.progress(handle.id))
        others = [await crashing.where.aenqueue() for _ in range(20)]
        assert {job.result for job in await ended(app, *others)} == {os.getpid()}
    assert app.job(handle.id).state is JobState.READY


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file for the ids of processes, all of which are gone in the end."""
    yield tmp_path / "pids"
    for pid in pids(tmp_path / "pids"):
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def pids(path: Path) -> list[int]:
    """The ids that a file holds."""
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


async def test_what_a_crashed_job_has_started_ends_with_it(
    app: PgQueue, running: Running, path: Path
) -> None:
    handle = quarantined(app, crashing.multiply, str(path), 9)
    async with running(app):
        (job,) = await ended(app, handle)
        assert len(pids(path)) == 16
        await until(lambda: not any(map(lives, pids(path))))
    assert (job.reason, "exit code 9" in job.errors[-1].message) == ("crashed", True)


async def test_a_process_that_is_stopped_is_killed_after_the_timeout(
    app: PgQueue, running: Running, path: Path
) -> None:
    handle = quarantined(app, crashing.freeze_shortly.using(max_attempts=4), str(path))
    async with running(app):
        (job,) = await ended(app, handle)
        await until(lambda: not any(map(lives, pids(path))))
    assert (job.state, job.errors[-1].type) == (JobState.DEAD, "pgqueue.errors.TimedOut")


async def test_a_worker_that_stops_while_it_ends_a_process_kills_it(
    app: PgQueue, running: Running, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    stop = AttemptProcess._stop  # noqa: SLF001 - the moment that no one sees from outside

    def stopping(process: AttemptProcess, why: Stop | None) -> None:
        stop(process, why)
        asked.set()

    monkeypatch.setattr(AttemptProcess, "_stop", stopping)
    handle = quarantined(app, crashing.freeze, str(path))
    async with running(app, grace=timedelta(0)):
        await until(path.exists)
        await handle.acancel()
        await asyncio.wait_for(asked.wait(), 20)
    await until(lambda: not any(map(lives, pids(path))))
    assert app.job(handle.id).state is JobState.CANCELLED


async def test_a_process_is_reaped_however_often_its_end_is_cancelled() -> None:
    """The event loop may close as soon as the attempt has ended: a process that still runs then is never reaped."""

    class Killed:
        pid, returncode, stdin, killed = 2**31 - 1, None, None, asyncio.Event()

        async def wait(self) -> None:
            await self.killed.wait()
            self.returncode = -9

    child, process = AttemptProcess(), Killed()
    child.process = cast("Any", process)
    ending = asyncio.create_task(child.end())
    for _ in range(3):
        await asyncio.sleep(0)
        ending.cancel()
    await asyncio.sleep(0)
    assert not ending.done()
    process.killed.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert process.returncode == -9


async def test_output_that_is_no_text_is_let_through(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.shout)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.state, job.result) == (JobState.SUCCEEDED, "done\n")


async def test_an_error_that_no_encoding_takes_is_the_tasks_own(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.grumble_in_binary.using(max_attempts=4))
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.reason, job.errors[-1].type) == ("exhausted", "ValueError")


async def test_a_job_that_closes_everything_has_killed_its_process(app: PgQueue, running: Running) -> None:
    handle = quarantined(app, crashing.close_everything)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.state, job.reason) == (JobState.DEAD, "crashed")


@pytest.mark.parametrize(
    "noise",
    [b"\0\0\0\x03abc", b"\0\0\0\0", frame_message(msgspec.msgpack.encode(ProcessAnswer("Swallowed")))],
    ids=["garbage", "empty", "no verdict"],
)
async def test_an_answer_that_makes_no_sense_counts_as_killed(
    app: PgQueue, running: Running, noise: bytes
) -> None:
    handle = quarantined(app, crashing.answer_for_itself, noise)
    async with running(app):
        (job,) = await ended(app, handle)
        other = await crashing.where.aenqueue()
        assert (await ended(app, other))[0].result == os.getpid()
    assert (job.state, job.reason) == (JobState.DEAD, "crashed")
    assert "an answer that makes no sense" in job.errors[-1].message


@pytest.mark.parametrize(
    ("how", "code"),
    [("return", 0), ("raise", 1), ("exit", 7), ("exit with words", 1), ("wait", 0), ("wait later", 0)],
)
def test_a_child_that_a_task_forks_ends_where_its_function_does(
    app: PgQueue, dsn: str, how: str, code: int
) -> None:
    """Else it would go on as a copy of the worker, and its parent would wait for it for ever."""
    with worker_process(dsn):
        jobs = [crashing.fork.enqueue(how), crashing.afork.enqueue(how)]
        assert [job.result(timeout=30) for job in jobs] == [code, code]
        assert crashing.fork_together.enqueue(1).result(timeout=30) == 0
    assert ask(app, "select count(*) from pgqueue.workers") == [(1,)]


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 7)])
def test_a_child_forked_within_a_jobs_transaction_ends_with_the_block_and_leaves_the_transaction_alone(
    app: PgQueue, dsn: str, how: str, code: int
) -> None:
    ask(app, "create table effects (code integer)")
    with worker_process(dsn):
        for task in (crashing.fork_in_transaction, crashing.afork_in_transaction):
            task.enqueue(how).result(timeout=30)
    found = ask(app, "select array_agg(code order by code) from effects group by xmin::text")
    assert found == [([-1, code],)] * 2


def test_what_a_forked_process_enqueues_does_not_join_the_jobs_transaction(app: PgQueue, dsn: str) -> None:
    with worker_process(dsn):
        crashing.fork_and_enqueue_in_transaction.enqueue().result(timeout=30)
    assert ask(app, "select status::text from pgqueue.jobs") == [("scheduled",)]


async def test_an_exit_in_a_child_task_of_a_quarantined_job_kills_nothing(
    app: PgQueue, running: Running
) -> None:
    handle = quarantined(app, crashing.exit_in_a_child_task)
    async with running(app):
        (job,) = await ended(app, handle)
    assert (job.reason, job.errors[-1].type) == ("exhausted", "SystemExit")
