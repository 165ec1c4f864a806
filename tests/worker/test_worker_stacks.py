"""Where running jobs are in their code: asked by a program, answered by the worker that runs them."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from app.silence import way_to
from looking import ask, until
from running import Running

from pgqueue import Batch, JobHandle, PgQueue
from pgqueue.app import workers
from pgqueue.errors import ConnectionFailed, InvalidOption, JobNotFound
from pgqueue.store.connections import patience
from pgqueue.store.connections.patience import answered_by
from pgqueue.store.workers import stacks
from pgqueue.values.workers.worker import LONGEST, Stack
from pgqueue.worker import stacks as reading
from pgqueue.worker.stacks import NOT_STARTED, stack_of

SECRET = "hunter22"  # noqa: S105 - to be looked for in what is shown


@dataclass
class Item:
    """What a job of a batch is given."""

    number: int


class Gate:
    """Keeps tasks where they are until the test has seen them."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.opened = threading.Event()
        self.reached = threading.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.open.wait()

    def block(self) -> None:
        self.reached.set()
        self.opened.wait(60)

    def release(self) -> None:
        self.open.set()
        self.opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.release()


async def _asked(queue: PgQueue, running: Running, gate: Gate, job: JobHandle[Any], **options: Any) -> Stack:
    async with running(queue, **options):
        try:
            await until(gate.reached.is_set)
            return await queue.control.astack(job.id, by="ann")
        finally:
            gate.release()


async def test_a_coroutine_that_waits_is_shown_from_the_task_to_where_it_waits(
    queue: PgQueue, running: Running, gate: Gate
) -> None:
    async def inner(password: str) -> None:
        assert password
        await gate.wait()  # a comment

    @queue.task(timeout=60)
    async def outer() -> None:
        await inner(SECRET)

    found = await _asked(queue, running, gate, outer.enqueue())

    lines = (found.text or "").splitlines()
    assert [line.rpartition(" in ")[2] for line in lines if not line.startswith(" ")][:3] == [
        "outer",
        "inner",
        "wait",
    ]
    assert lines[0].startswith(f"{__file__}:")
    assert lines[1] == "    await inner(SECRET)"
    assert lines[3] == "    await gate.wait()  # a comment"
    assert SECRET not in found.said
    assert found.answered_at is not None
    assert found.worker.endswith(f":{os.getpid()}")
    assert [(one.by, one.action, one.target) for one in queue.insight.audit()] == [
        ("ann", "stack", f"job {found.job_id}")
    ]


async def test_a_plain_function_is_shown_in_its_thread(queue: PgQueue, running: Running, gate: Gate) -> None:
    @queue.task
    def plain() -> None:
        gate.block()

    found = await _asked(queue, running, gate, plain.enqueue())
    calls = [line for line in (found.text or "").splitlines() if not line.startswith(" ")]
    assert calls[0].endswith(" in plain")
    assert calls[1].endswith(" in block")


async def test_of_two_jobs_of_one_task_each_has_its_own(queue: PgQueue, running: Running, gate: Gate) -> None:
    started: list[str] = []

    @queue.task
    async def work(where: str) -> None:
        started.append(where)
        await (_here if where == "here" else _there)(gate)

    here, there = work.enqueue("here"), work.enqueue("there")
    async with running(queue):
        await until(lambda: len(started) == 2)
        assert "in _here" in (await queue.control.astack(here.id)).said
        assert "in _there" in (await queue.control.astack(there.id)).said
        gate.release()


async def _here(gate: Gate) -> None:
    await gate.wait()


async def _there(gate: Gate) -> None:
    await gate.wait()


async def test_a_blocked_loop_is_answered_for_by_the_watching_thread(
    queue: PgQueue, running: Running, gate: Gate
) -> None:
    found: list[Stack] = []

    @queue.task
    async def blocks() -> None:
        gate.block()

    def look() -> None:
        gate.reached.wait(60)
        try:
            found.append(queue.control.stack(job.id, timeout=30))
        finally:
            gate.release()

    job = blocks.enqueue()
    thread = threading.Thread(target=look)
    thread.start()
    async with running(queue, lease=timedelta(seconds=3)):
        await asyncio.to_thread(thread.join)

    assert found[0].answered_at is not None
    assert "in blocks\n    gate.block()" in found[0].said


async def test_a_job_of_a_batch_has_the_stack_of_its_call(
    queue: PgQueue, running: Running, gate: Gate
) -> None:
    @queue.batch_task(Item, size=2, wait=0.01)
    async def together(jobs: Batch[Item]) -> None:
        assert len(jobs) == 2
        await gate.wait()

    first, second = together.enqueue(1), together.enqueue(2)
    async with running(queue):
        await until(gate.reached.is_set)
        for job in (first, second):
            assert "in together" in (await queue.control.astack(job.id)).said
        gate.release()


async def test_middleware_and_a_function_that_returns_a_coroutine_are_seen_through(
    queue: PgQueue, running: Running, gate: Gate
) -> None:
    @queue.task
    def returns() -> Awaitable[None]:
        return gate.wait()

    found = await _asked(queue, running, gate, returns.enqueue())
    assert "in wait" in found.said


async def test_a_deep_stack_keeps_its_innermost_calls(queue: PgQueue, running: Running, gate: Gate) -> None:
    async def down(levels: int) -> None:
        await (down(levels - 1) if levels else gate.wait())

    @queue.task
    async def deep() -> None:
        await down(300)

    found = await _asked(queue, running, gate, deep.enqueue())
    lines = (found.text or "").splitlines()
    assert lines[0].startswith("(24")
    assert "outer calls are left out" in lines[0]
    assert any(line.endswith("in wait") for line in lines)
    assert len(found.text or "") <= LONGEST


async def test_hostile_names_of_code_are_stored_as_text(queue: PgQueue, running: Running, gate: Gate) -> None:
    names: dict[str, Any] = {"gate": gate, "__name__": "hostile"}
    source = "async def work():\n    await gate.wait()\n"
    exec(compile(source, "x\ud800\n'); drop table pgqueue.jobs; --", "exec"), names)  # noqa: S102 - hostile on purpose
    task = queue.task(name="hostile")(names["work"])

    found = await _asked(queue, running, gate, task.enqueue())

    assert "\\ud800" in found.said
    assert "in work" in found.said


async def test_what_does_not_run_has_no_stack(queue: PgQueue) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    with pytest.raises(InvalidOption, match=f"job {job.id} is ready"):
        queue.control.stack(job.id)
    for gone in (4711, 1 << 70, -1):
        with pytest.raises(JobNotFound):
            queue.control.stack(gone)
    with pytest.raises(InvalidOption, match="timeout"):
        queue.control.stack(job.id, timeout=-1)
    with queue.take(1, timeout=5), pytest.raises(InvalidOption, match="it is a take"):
        await queue.control.astack(job.id)
    assert queue.insight.audit() == []


def test_a_worker_that_does_not_answer_is_said(queue: PgQueue) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    _hold(queue, job.id)
    found = queue.control.stack(job.id, timeout=0.01)
    assert (found.answered_at, found.text) == (None, None)
    assert "web:42 has not answered" in found.said


def test_a_server_that_goes_silent_meanwhile_is_not_waited_for(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    _hold(queue, job.id)
    monkeypatch.setattr(workers, "answered_by", partial(answered_by, spare=0.2))
    with way_to(dsn) as way, closing(PgQueue(way.dsn)) as distant:
        monkeypatch.setattr(
            workers, "time", SimpleNamespace(sleep=lambda _: way.silence(), monotonic=time.monotonic)
        )
        assert distant.control.stack(job.id, timeout=0.1).answered_at is None


def test_a_server_that_is_silent_before_the_question_is_not_waited_for(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    _hold(queue, job.id)
    monkeypatch.setattr(workers, "until", partial(patience.until, spare=0.2))
    with way_to(dsn) as way, closing(PgQueue(way.dsn)) as distant:

        async def astack() -> None:
            await distant.awhy(job.id)
            way.silence()
            await distant.control.astack(job.id, timeout=0.1)

        distant.why(job.id)
        way.silence()
        with pytest.raises(ConnectionFailed, match="no answer for"):
            distant.control.stack(job.id, timeout=0.1)
        with pytest.raises(ConnectionFailed, match="no answer for"):
            asyncio.run(astack())


def test_questions_are_gone_after_ten_minutes_and_asking_again_forgets_the_answer(queue: PgQueue) -> None:
    step = queue.task(name="step")(lambda: None)
    one, two = step.enqueue(), step.enqueue()
    worker = _hold(queue, one.id, two.id)
    run = queue.database.run
    for job in (one, two):
        assert run(stacks.ask(job.id, by="ann"))
    run(stacks.answer(worker, {one.id: "here", two.id: "there", 4711: "nowhere"}))
    assert queue.insight.story(one.id).stack is not None
    ask(queue, "update pgqueue.stacks set asked_at = now() - interval '11 minutes'")
    assert queue.insight.story(one.id).stack is None

    again = run(stacks.ask(two.id, by="bob"))

    assert again is not None
    assert ask(queue, "select job_id, asked_by, stack from pgqueue.stacks") == [(two.id, "bob", None)]


def test_a_former_worker_of_a_job_does_not_answer_for_the_present_one(queue: PgQueue) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    former = _hold(queue, job.id)
    queue.database.run(stacks.ask(job.id, by="ann"))
    present = _hold(queue, job.id)
    queue.database.run(stacks.ask(job.id, by="ann"))
    queue.database.run(stacks.answer(former, {job.id: "late"}))
    found = queue.database.run(stacks.look(job.id))
    assert found is not None
    assert found.answered_at is None
    queue.database.run(stacks.answer(present, {job.id: "now"}))
    assert ask(queue, "select stack from pgqueue.stacks") == [("now",)]


def test_an_attempt_that_is_gone_or_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stack_of(None) == NOT_STARTED

    def fail(_: object) -> None:
        raise RuntimeError("changed\0 meanwhile")

    monkeypatch.setattr(reading, "_in_thread", fail)
    assert "RuntimeError: changed\\x00 meanwhile" in stack_of(_Any())  # type: ignore[arg-type]  # only its whole is asked


class _Any:
    whole = None


def _hold(queue: PgQueue, *jobs: int) -> Any:
    """A worker that holds jobs, and never answers."""
    ((worker,),) = ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, minimum, slots, version) "
        "values (gen_random_uuid(), now() + '1 h'::interval, 'web', 42, 5, 5, 5, '0.1') returning id",
    )
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = any(%s)",
        worker,
        list(jobs),
    )
    return worker
