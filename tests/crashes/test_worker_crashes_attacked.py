"""Quarantined jobs that do their worst in the process of their own: they end, nothing of them stays, and the worker serves on."""

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
from crashes.test_worker_crashes import app as app_of_crashes
from crashes.test_worker_crashes import lives, quarantined
from looking import until
from running import Running
from worker.helping import ended

from pgqueue import JobState, PgQueue
from pgqueue.worker.attempt_process import AttemptProcess, ProcessAnswer, frame_message

app = app_of_crashes


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


def asked_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is stopped."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (pending,) = (int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
    return bool(pending & 1 << signal.SIGTERM - 1)


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
    app: PgQueue, running: Running, path: Path
) -> None:
    handle = quarantined(app, crashing.freeze, str(path))
    async with running(app, grace=timedelta(0)):
        await until(path.exists)
        await handle.acancel()
        await until(lambda: asked_to_end(*pids(path)))
    await until(lambda: not any(map(lives, pids(path))))
    assert app.job(handle.id).state is JobState.CANCELLED


async def test_a_process_is_reaped_however_often_its_end_is_cancelled() -> None:
    """The event loop may close as soon as the attempt has ended: a process that still runs then is never reaped."""

    class Killed:
        pid, returncode, killed = 2**31 - 1, None, asyncio.Event()

        async def wait(self) -> None:
            await self.killed.wait()
            self.returncode = -9

    child, process = AttemptProcess(cast("Any", None)), Killed()
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
