"""The pipeline's steps as jobs: in order, one chain at a time, and each hands over to the next as it completes."""

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue
from looking import ask, until
from promises.processes import do, listed
from running import Running
from tenacity import stop_after_attempt, wait_none

from pgqueue import PgQueue, Retry
from pgqueue.app.context import Context
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError, DuplicateTask, NotGranted, NotVerified, Superseded
from pgqueue.spark import pipeline_jobs
from pgqueue.spark.config import Config
from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.worker.executor import Executor

Tasks = Mapping[str, Task[[], None]]
AT_ONCE = Retry(wait=wait_none(), stop=stop_after_attempt(3), retry=pipeline_jobs.SLOW_RETRY.retry)
NAMES = ["export", "verify", "rollup", "report", "prune"]


def _register(queue: PgQueue, works: Mapping[str, Callable[[], object]], **more: Any) -> Tasks:
    """Steps that do no more than this."""

    def step(name: str) -> pipeline_jobs.Work:
        return lambda _: str(works[name]())

    work = {name: step(name) for name in works}
    return pipeline_jobs.register(queue, Config(), lake="/nowhere", work=work, retry=AT_ONCE, **more)


def _live(queue: PgQueue) -> list[tuple[str, str]]:
    found = ask(queue.database.dsn, "select task, unique_key from pgqueue.jobs order by id")
    return [(task, key) for task, key in found]


async def _ended(queue: PgQueue) -> None:
    await until(lambda: not _live(queue))


async def test_the_steps_run_in_their_order_and_leave_a_history(queue: PgQueue, running: Running) -> None:
    seen: list[str] = []
    said: list[str] = []
    works = {name: lambda name=name: seen.append(name) for name in NAMES}
    tasks = _register(queue, works, tell=said.append)
    assert list(tasks) == NAMES

    pipeline_jobs.start(tasks)
    async with running(
        queue, queues=[pipeline_jobs.QUEUE], concurrency=1
    ):  # else the next step may begin before this one is told
        await _ended(queue)

    assert seen == NAMES
    done = ask(queue.database.dsn, "select task, outcome, attempts from pgqueue.job_history order by id")
    assert done == [(f"pgqueue.pipeline.{name}", "succeeded", 1) for name in NAMES]
    assert [line.split(" (")[0] for line in said] == [
        line for name in NAMES for line in (f"{name}: begun", f"{name}: None")
    ]


async def test_there_is_one_chain_at_a_time_whichever_step_it_is_at(queue: PgQueue, running: Running) -> None:
    handles = []
    tasks: Tasks = {}
    works = {
        name: lambda: handles.append(pipeline_jobs.start(tasks)) for name in ("export", "verify", "prune")
    }
    tasks = _register(queue, works)

    first = pipeline_jobs.start(tasks)
    async with running(queue):
        await _ended(queue)

    assert [handle.accepted for handle in handles] == [False] * 3
    assert handles[0].id == first.id
    assert pipeline_jobs.start(tasks).accepted


async def test_a_step_that_fails_is_run_again_and_the_chain_goes_on(queue: PgQueue, running: Running) -> None:
    attempts: list[int] = []

    def fail_once() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("the lake is away")

    said: list[str] = []
    pipeline_jobs.start(_register(queue, {"export": fail_once, "prune": lambda: None}, tell=said.append))
    async with running(queue):
        await _ended(queue)

    assert "export: failed: the lake is away" in said
    done = ask(queue.database.dsn, "select task, attempts from pgqueue.job_history order by id")
    assert done == [("pgqueue.pipeline.export", 2), ("pgqueue.pipeline.prune", 1)]


@pytest.mark.parametrize(
    "error",
    [
        NotVerified("day 2026-01-20: its files hold 5 rows"),
        NotGranted("permission denied for function drop_history_day"),
    ],
)
async def test_what_another_attempt_would_not_mend_ends_the_chain_and_the_next_one_can_start(
    queue: PgQueue, running: Running, error: Exception
) -> None:
    def differ() -> None:
        raise error

    tasks = _register(queue, {"verify": differ, "prune": lambda: None})
    pipeline_jobs.start(tasks)
    async with running(queue):
        await _ended(queue)

    (dead,) = queue.insight.search(state=JobState.DEAD).jobs
    assert (dead.task, dead.attempts, dead.reason) == ("pgqueue.pipeline.verify", 1, "refused")
    assert pipeline_jobs.start(tasks).accepted


async def test_a_step_that_cannot_hand_over_has_not_completed(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = queue.find_task
    broken = [True]

    def find(name: str) -> Task[..., Any]:
        if broken:
            broken.clear()
            raise OSError("killed before the next step was enqueued")
        return found(name)

    monkeypatch.setattr(queue, "find_task", find)
    worked: list[str] = []
    works = {name: lambda name=name: worked.append(name) for name in ("export", "prune")}
    pipeline_jobs.start(_register(queue, works))
    async with running(queue):
        await _ended(queue)

    assert worked == ["export", "export", "prune"]
    done = ask(queue.database.dsn, "select task, attempts from pgqueue.job_history order by id")
    assert done == [("pgqueue.pipeline.export", 2), ("pgqueue.pipeline.prune", 1)]


def test_a_step_whose_job_is_somebody_elses_hands_nothing_over(queue: PgQueue) -> None:
    tasks = _register(queue, {"export": lambda: None, "prune": lambda: None})
    pipeline_jobs.start(tasks)
    former = listed(queue)
    (held,) = do(queue, claim.claim(former, {pipeline_jobs.QUEUE: 1}))
    do(queue, leases.leave(former))
    do(queue, upkeep.reclaim())
    context = Context(held, Executor(queue))

    with pytest.raises(Superseded):
        tasks["export"].function(context)
    assert _live(queue) == [("pgqueue.pipeline.export", pipeline_jobs.KEY)]


async def test_a_step_may_take_longer_than_the_lease(queue: PgQueue, running: Running) -> None:
    leave = threading.Event()
    pipeline_jobs.start(_register(queue, {"export": lambda: leave.wait(60)}))
    lease = timedelta(seconds=3)

    def renewals() -> set[object]:
        seen.update(row[0] for row in ask(queue.database.dsn, "select lease_until from pgqueue.workers"))
        return seen

    seen: set[object] = set()
    async with running(queue, lease=lease):
        await until(lambda: len(renewals()) > 4)  # each is a third of the lease after the one before
        leave.set()
        await _ended(queue)
    done = ask(
        queue.database.dsn, "select attempts, finished_at - started_at > %s from pgqueue.job_history", lease
    )
    assert done == [(1, True)]


def test_a_chain_needs_a_lake_and_a_name_of_its_own(queue: PgQueue) -> None:
    with pytest.raises(ConfigurationError, match="no lake"):
        pipeline_jobs.register(queue, Config())
    pipeline_jobs.register(queue, Config(lake="/lake"))
    with pytest.raises(DuplicateTask):
        pipeline_jobs.register(queue, Config(lake="/lake"))


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command's steps do nothing but note that they ran."""
    seen: list[str] = []

    def step(name: str) -> pipeline_jobs.Work:
        def work(given: pipeline_jobs.Surroundings) -> str:
            seen.append(f"{name} {given.lake.uri} {given.keep.days}")
            return "done"

        return work

    monkeypatch.setattr(pipeline_jobs, "WORK", {name: step(name) for name in ("export", "prune")})
    return seen


def test_the_command_takes_up_a_chain_that_a_killed_process_has_left(
    queue: PgQueue, dsn: str, stand_ins: list[str]
) -> None:
    assert pgqueue("pipeline", "run", "--lake", "/lake", "--enqueue-only", dsn=dsn).stdout == "1\n"
    former = listed(queue)
    do(queue, claim.claim(former, {pipeline_jobs.QUEUE: 1}))
    ask(dsn, "update pgqueue.workers set lease_until = now() - interval '1 second'")

    result = pgqueue("pipeline", "run", "--lake", "/lake", "--keep", "3d", dsn=dsn)

    assert result.exit_code == 0, result.stderr
    assert stand_ins == ["export file:///lake 3", "prune file:///lake 3"]
    said = result.stderr.splitlines()
    assert said[:2] == ["a chain is running already, as job 1", "export: begun, attempt 2"]
    assert said[-1].startswith("prune: done")


def test_the_command_fails_when_a_step_fails_for_good_and_leaves_retention_alone(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: pipeline_jobs.Surroundings) -> str:
        raise ConfigurationError("no such thing")

    monkeypatch.setattr(pipeline_jobs, "WORK", {"export": refuse})
    ask(dsn, "select pgqueue.ensure_history_days('2026-01-20', '2026-01-20')")
    result = pgqueue("pipeline", "run", "--lake", str(tmp_path), dsn=dsn)

    assert result.exit_code == 1
    assert "export: failed: no such thing" in result.stderr
    assert "pgqueue.pipeline.export failed for good; `pgqueue jobs show 1` has its errors" in result.stderr
    assert ask(dsn, "select to_regclass('pgqueue.job_history_20260120') is not null") == [(True,)]
