"""Hooks are called with events of jobs and workers; a hook that blocks, raises or never returns affects no job, worker or other hook.

Hooks where workers are killed, and hooks of batch tasks: no job is lost, and each job of a batch has its own events.
"""

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from ciphers import Secret
from documents import A_MINUTE, Document
from looking import ask, until, wait_until
from promises.processes import live_jobs, processes
from promises.workshop import Workshop
from running import Running
from tenacity import wait_fixed, wait_none
from worker.helping import FOR_EVER, claimed, ended, register

from pgqueue import Batch, Dead, Event, JobState, PgQueue, Retry, Snooze, Unique, Worker, WorkerEvent, chain
from pgqueue.app.hooks import hook as hook_module
from pgqueue.app.hooks import hooks as hooks_module
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.event import NAMES, JobEventName, WorkerEventName

OF_JOBS: tuple[JobEventName, ...] = (
    "enqueued",
    "claimed",
    "started",
    "succeeded",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "reclaimed",
)
OF_WORKERS: tuple[WorkerEventName, ...] = ("worker_started", "worker_stopped")
BOTH = pytest.mark.parametrize("plain", [True, False], ids=["plain hook", "async hook"])


def listen(queue: PgQueue, *, plain: bool = True) -> list[Event]:
    told: list[Event] = []

    async def note(event: Event) -> None:
        told.append(event)

    for name in OF_JOBS:
        queue.on(name)(told.append if plain else note)
    return told


def named(told: list[Event], job: int) -> list[str]:
    """The events of one job, in the order of its life; hooks of different events do not wait for one another."""
    return sorted((one.name for one in told if one.job == job), key=OF_JOBS.index)


@BOTH
async def test_each_event_of_a_job_is_told_once(queue: PgQueue, running: Running, *, plain: bool) -> None:
    told = listen(queue, plain=plain)

    @queue.task(name="work", queue="mail")
    async def work(number: int) -> None: ...

    async with running(queue, concurrency=3):
        jobs = [await work.aenqueue(number) for number in range(20)]
        await ended(queue, *jobs)
    for number, job in enumerate(jobs):
        assert named(told, job.id) == ["enqueued", "claimed", "started", "succeeded"]
        of_this = [one for one in told if one.job == job.id]
        assert {(one.task, one.queue) for one in of_this} == {("work", "mail")}
        assert all(one.args == {"number": number} for one in of_this)
        assert {one.name: one.attempt for one in of_this} == {
            "enqueued": 0,
            "claimed": 1,
            "started": 1,
            "succeeded": 1,
        }
        assert [one.seconds is not None for one in of_this if one.name == "succeeded"] == [True]


@BOTH
async def test_a_hook_is_called_in_the_order_of_its_events(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    told: list[int] = []

    async def note(event: Event) -> None:
        await asyncio.sleep(0)
        told.append(event.job)

    queue.on("started")((lambda event: told.append(event.job)) if plain else note)

    @queue.task
    async def work() -> None: ...

    jobs = queue.enqueue_many(work.call() for _ in range(50))
    async with running(queue, concurrency=1):
        await ended(queue, *jobs)
    assert told == [job.id for job in jobs]


async def test_failures_say_what_happened_and_what_follows(queue: PgQueue, running: Running) -> None:
    told = listen(queue)

    @queue.task(retry=Retry(wait=wait_fixed(0.01)), max_attempts=2)
    async def fail() -> None:
        raise LookupError("no such page")

    @queue.task
    async def give_up() -> None:
        raise Dead("never")

    async with running(queue):
        failing, given_up = await fail.aenqueue(), await give_up.aenqueue()
        await ended(queue, failing, given_up)
    assert named(told, failing.id)[-4:] == ["failed", "failed", "retried", "dead"]
    first, last = (one for one in told if one.job == failing.id and one.name == "failed")
    (retried,) = (one for one in told if one.job == failing.id and one.name == "retried")
    (dead,) = (one for one in told if one.job == failing.id and one.name == "dead")
    assert (first.attempt, first.retry_in, first.reason) == (1, timedelta(seconds=0.01), None)
    assert (retried.attempt, retried.retry_in) == (1, timedelta(seconds=0.01))
    assert (last.attempt, last.retry_in, last.reason) == (2, None, "exhausted")
    assert dead.attempt == 2
    assert dead.reason == "exhausted"
    assert dead.seconds is not None
    for one in (first, retried, last, dead):
        assert one.error is not None
        assert (one.error.type, one.error.message) == ("LookupError", "no such page")
    assert [one.reason for one in told if one.job == given_up.id and one.name == "dead"] == ["asked"]


async def test_an_attempt_that_does_not_count_is_no_failure(queue: PgQueue, running: Running) -> None:
    told = listen(queue)

    @queue.task
    async def snooze() -> None:
        raise Snooze(3600)

    job = await snooze.aenqueue()
    async with running(queue):
        await until(lambda: queue.job(job.id).state is JobState.SCHEDULED)
    assert named(told, job.id) == ["enqueued", "claimed", "started"]


async def test_a_job_that_was_cancelled_while_it_failed_is_cancelled_and_not_retried(
    queue: PgQueue, running: Running
) -> None:
    told = listen(queue)
    begun, go = threading.Event(), threading.Event()

    @queue.task(retry=Retry(wait=wait_fixed(3600)))
    def fail() -> None:
        begun.set()
        go.wait(20)
        raise ValueError

    job = await fail.aenqueue()
    async with running(queue, poll=FOR_EVER):
        await until(begun.is_set)
        ask(queue, "update pgqueue.jobs set cancel_requested = true where id = %s", job.id)
        go.set()
        (found,) = await ended(queue, job)
    assert found.state is JobState.CANCELLED
    assert named(told, job.id) == ["enqueued", "claimed", "started", "cancelled"]


async def test_a_rejected_enqueue_is_no_event(queue: PgQueue) -> None:
    told = listen(queue)

    @queue.task(unique=Unique(by=()))
    async def work() -> None: ...

    job = await work.aenqueue()
    await work.aenqueue()
    await until(lambda: told)
    assert [(one.name, one.job) for one in told] == [("enqueued", job.id)]


@pytest.mark.parametrize(
    ("attempts", "follows"), [(1, ["failed", "dead"]), (2, ["failed", "retried"])], ids=["last", "first"]
)
async def test_a_lost_workers_job_is_reclaimed_and_what_follows_is_told(
    queue: PgQueue, running: Running, attempts: int, follows: list[str]
) -> None:
    @queue.task(max_attempts=attempts)
    async def work() -> None: ...

    job = await work.aenqueue()
    lost = Worker(queue, poll=FOR_EVER)
    await register(lost)
    claimed(queue, lost)
    ask(queue, "update pgqueue.workers set lease_until = now() - interval '1 s'")
    told = listen(queue)
    queue.control.pause("default")
    async with running(queue, sweep=0.1, poll=0.1):
        await until(lambda: any(one.name == follows[-1] for one in told))
    await lost.parts.close()
    assert named(told, job.id) == sorted(["reclaimed", *follows], key=OF_JOBS.index)
    assert all(one.args is None and one.attempt == 1 for one in told)
    assert {one.error.type for one in told if one.error} == {"WorkerLost"}


async def test_a_take_tells_of_the_jobs_that_it_reclaims(queue: PgQueue) -> None:
    @queue.task
    async def work() -> None: ...

    job = await work.aenqueue()
    lost = Worker(queue, poll=FOR_EVER)
    await register(lost)
    claimed(queue, lost)
    ask(queue, "update pgqueue.workers set lease_until = now() - interval '1 s'")
    told = listen(queue)
    async with queue.atake(timeout=5) as taken:
        assert [one.id for one in taken] == [job.id]
    await lost.parts.close()
    await until(lambda: len(told) == 6)
    assert named(told, job.id) == ["claimed", "started", "succeeded", "failed", "retried", "reclaimed"]


@BOTH
async def test_no_job_starts_before_the_hooks_of_the_workers_start_have_returned(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    order: list[object] = []
    go, begun = threading.Event(), threading.Event()

    def warm(event: WorkerEvent) -> None:
        begun.set()
        go.wait(20)
        order.append(event)

    async def awarm(event: WorkerEvent) -> None:
        begun.set()
        await until(go.is_set)
        order.append(event)

    queue.on("worker_started")(warm if plain else awarm)
    queue.on("worker_stopped")(order.append)

    @queue.task
    async def work() -> None:
        order.append("job")

    job = await work.aenqueue()
    async with running(queue, queues=["default"], concurrency=3) as worker:
        await until(begun.is_set)
        assert queue.job(job.id).state is JobState.READY
        go.set()
        await ended(queue, job)
    about = {"worker": worker.id, "queues": ("default",), "concurrency": 3}
    started, stopped = (WorkerEvent(name=name, **about) for name in OF_WORKERS)  # type: ignore[arg-type]  # the values have several types
    assert order == [started, "job", stopped]


@BOTH
async def test_a_start_hook_that_never_returns_holds_the_worker_up_for_a_while_only(
    queue: PgQueue,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    plain: bool,
) -> None:
    monkeypatch.setattr(hooks_module, "START_TIMEOUT", 0.05)
    monkeypatch.setattr(hooks_module, "STOP_TIMEOUT", 0.05)
    release = threading.Event()

    async def stay(_: WorkerEvent) -> None:
        await asyncio.sleep(3600)

    queue.on("worker_started")((lambda _: release.wait(60)) if plain else stay)

    @queue.task
    async def work() -> None: ...

    job = await work.aenqueue()
    async with running(queue):
        await ended(queue, job)
    said = [record.message for record in caplog.records if record.name == "pgqueue.hooks"]
    assert "the worker starts before the hooks of its start have returned" in said
    assert "a hook had not returned, or not been called with all events, when its worker stopped" in said
    release.set()


async def test_a_worker_that_is_stopped_while_its_start_hook_runs_stops_at_once(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "STOP_TIMEOUT", 0.05)
    begun = asyncio.Event()

    @queue.on("worker_started")
    async def stay(_: WorkerEvent) -> None:
        begun.set()
        await asyncio.sleep(3600)

    worker = Worker(queue)
    run = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    done, _ = await asyncio.wait([run], timeout=hooks_module.START_TIMEOUT / 2)
    assert done == {run}
    run.result()


@pytest.mark.parametrize(
    "error", [RuntimeError, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]
)
@BOTH
async def test_a_hook_that_raises_is_logged_counted_and_loses_nothing(
    queue: PgQueue,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
    *,
    plain: bool,
) -> None:
    def refuse(event: Any) -> None:
        raise error(event.name)

    async def arefuse(event: Any) -> None:
        await asyncio.sleep(0)
        raise error(event.name)

    for name in NAMES:
        queue.on(name)(refuse if plain else arefuse)  # type: ignore[call-overload]  # any of them
    other = listen(queue)

    @queue.task
    async def work() -> None: ...

    jobs = [await work.aenqueue() for _ in range(3)]
    async with running(queue) as worker:
        assert {job.state for job in await ended(queue, *jobs)} == {JobState.SUCCEEDED}
    assert len(other) == 4 * len(jobs)
    refused = [one for one in worker.inspect().hooks if "refuse" in one.hook]
    calls = dict.fromkeys(("enqueued", "claimed", "started", "succeeded"), 3) | dict.fromkeys(OF_WORKERS, 1)
    assert [(one.event, one.called, one.failed, one.waiting, one.dropped) for one in refused] == [
        (name, calls.get(name, 0), calls.get(name, 0), 0, 0) for name in NAMES
    ]
    records = [vars(one) for one in caplog.records if one.message == "a hook failed; no job is affected"]
    assert len(records) == 4 * len(jobs) + 2
    about_jobs = [one for one in records if "job" in one]
    assert {one["job"] for one in about_jobs} == {job.id for job in jobs}
    assert all(one["hook"].endswith("refuse") and one["exc_info"] for one in records)


async def test_a_hook_that_cancels_its_own_task_is_called_again(queue: PgQueue, running: Running) -> None:
    called: list[int] = []

    @queue.on("succeeded")
    async def cancel(event: Event) -> None:
        called.append(event.job)
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        await asyncio.sleep(3600)

    @queue.task
    async def work() -> None: ...

    jobs = [await work.aenqueue() for _ in range(3)]
    async with running(queue):
        await ended(queue, *jobs)
    assert called == [job.id for job in jobs]


async def test_a_hook_that_never_returns_delays_no_job_and_no_other_hook(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_module, "STOP_TIMEOUT", 0.05)
    monkeypatch.setattr(hook_module, "LEAVE_TIMEOUT", 0.05)
    release = threading.Event()
    stubborn = asyncio.Event()

    @queue.on("succeeded")
    def stay(_: Event) -> None:
        release.wait(60)

    @queue.on("succeeded")
    async def refuse_to_end(_: Event) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    told = listen(queue)

    @queue.task
    async def work() -> None: ...

    jobs = [await work.aenqueue() for _ in range(20)]
    async with running(queue) as worker:
        await ended(queue, *jobs)
        await until(lambda: len(told) == 80)
    states = {one.hook.rpartition(".")[2]: one for one in worker.inspect().hooks}
    assert (states["stay"].called, states["stay"].dropped) == (0, 19)
    assert (states["refuse_to_end"].called, states["refuse_to_end"].dropped) == (0, 19)
    said = [vars(one) for one in caplog.records if one.name == "pgqueue.hooks"]
    assert {one["hook"].rpartition(".")[2] for one in said} == {"stay", "refuse_to_end"}
    release.set()
    stubborn.set()


async def test_events_beyond_the_bound_are_dropped_counted_and_logged(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_module, "MOST_WAITING", 5)
    release = threading.Event()
    called: list[int] = []

    @queue.on("succeeded")
    def slow(event: Event) -> None:
        release.wait(60)
        called.append(event.job)

    @queue.task
    async def work() -> None: ...

    jobs = queue.enqueue_many(work.call() for _ in range(30))
    async with running(queue) as worker:
        await ended(queue, *jobs)
        await until(lambda: worker.inspect().hooks[0].dropped >= 24)
        release.set()
        await until(lambda: not worker.inspect().hooks[0].waiting)
    (state,) = worker.inspect().hooks
    assert state.called == len(called)
    assert state.called + state.dropped == 30
    assert called == sorted(called)
    warned = [one for one in caplog.records if "events are dropped" in one.message]
    assert len(warned) == 1, "not for each event"


async def test_long_arguments_that_wait_for_a_hook_are_bounded(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "MOST_BYTES", 20_000)
    begun, release = threading.Event(), threading.Event()
    called: list[int] = []

    @queue.on("enqueued")
    def slow(event: Event) -> None:
        begun.set()
        release.wait(60)
        called.append(event.job)

    @queue.task
    async def work(text: str) -> None: ...

    first = await work.aenqueue("")
    await until(begun.is_set)
    jobs = [await work.aenqueue("x" * 9_000) for _ in range(5)]
    release.set()
    await until(lambda: queue.hooks.states[0].called == 4)
    assert called == [first.id, *(job.id for job in jobs[:3])]
    assert queue.hooks.states[0].dropped == 2
    last = await work.aenqueue("x" * 30_000)
    await until(lambda: called[-1] == last.id)


@BOTH
async def test_a_worker_that_stops_leaves_hooks_to_the_others_of_its_process(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    """A hook is being called when the first worker stops; its events are not dropped."""
    monkeypatch.setattr(hooks_module, "STOP_TIMEOUT", 0.05)
    begun, release = threading.Event(), threading.Event()
    called: list[int] = []

    def hold(event: Event) -> None:
        begun.set()
        release.wait(60)
        called.append(event.job)

    async def ahold(event: Event) -> None:
        begun.set()
        await until(release.is_set)
        called.append(event.job)

    queue.on("succeeded")(hold if plain else ahold)

    @queue.task
    async def work() -> None: ...

    jobs = [await work.aenqueue() for _ in range(3)]
    async with running(queue):
        async with running(queue):
            await ended(queue, *jobs)
            await until(begun.is_set)
        release.set()
        await until(lambda: len(called) == 3)
    assert [one.dropped for one in queue.hooks.states] == [0]


@BOTH
def test_hooks_are_called_by_one_worker_after_the_other(dsn: str, *, plain: bool) -> None:
    """Each has an event loop of its own; a call that never returned in the first does not stop those of the second."""
    queue = PgQueue(dsn)
    told: list[int] = []

    async def note(event: Event) -> None:
        told.append(event.job)

    queue.on("succeeded")((lambda event: told.append(event.job)) if plain else note)

    @queue.on("started")
    async def stay(_: Event) -> None:
        await asyncio.sleep(3600)

    @queue.task
    async def work() -> None: ...

    async def serve() -> None:
        worker = Worker(queue)
        run = asyncio.create_task(worker.run())
        job = await work.aenqueue()
        await until(lambda: job.id in told)
        worker.stop()
        await run
        await queue.aclose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks_module, "STOP_TIMEOUT", 0.05)
        asyncio.run(serve())
        asyncio.run(serve())
    assert len(told) == 2
    assert not any(one.waiting for one in queue.hooks.states)


async def test_a_call_that_takes_long_is_logged(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_module, "LONG_CALL", 0.0)
    begun, release = threading.Event(), threading.Event()

    @queue.on("enqueued")
    def slow(_: Event) -> None:
        begun.set()
        release.wait(60)

    @queue.task
    async def work() -> None: ...

    await work.aenqueue()
    await until(begun.is_set)
    await work.aenqueue()
    (record,) = (one for one in caplog.records if one.name == "pgqueue.hooks")
    assert record.message == "a hook has not returned for a long time"
    assert vars(record)["hook"].endswith("slow")
    release.set()
    await until(lambda: queue.hooks.states[0].called == 2)


async def test_a_blocked_event_loop_does_not_hold_up_plain_hooks(queue: PgQueue, running: Running) -> None:
    told = threading.Event()
    heard: list[bool] = []

    @queue.on("succeeded")
    def tell(event: Event) -> None:
        if event.task == "plain":
            told.set()

    @queue.task(name="plain")
    def plain() -> None: ...

    @queue.task
    async def block() -> None:
        heard.append(told.wait(20))

    async with running(queue, concurrency=2, blocked_after=0.1):
        jobs = [await block.aenqueue(), await plain.aenqueue()]
        await ended(queue, *jobs)
    assert heard == [True]


async def test_a_hook_that_is_registered_while_the_worker_runs_is_called_from_then_on(
    queue: PgQueue, running: Running
) -> None:
    """The runner is in the middle of a streak of jobs: it tells of starts from the next one on."""
    told: list[Event] = []

    @queue.task
    async def work(number: int) -> None:
        if number == 0:
            for name in OF_JOBS:
                queue.on(name)(told.append)

    jobs = queue.enqueue_many(work.call(number) for number in range(3))
    async with running(queue, concurrency=1):
        await ended(queue, *jobs)
    told = [one for one in told if one.name != "claimed"]  # when, depends on how long the first job took
    assert [named(told, job.id) for job in jobs] == [
        ["succeeded"],
        ["started", "succeeded"],
        ["started", "succeeded"],
    ]


async def test_an_async_hook_runs_on_the_workers_loop_without_the_variables_of_a_job(
    queue: PgQueue, running: Running
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[tuple[object, str]] = []

    @queue.on("enqueued")
    async def look(_: Event) -> None:
        seen.append((asyncio.get_running_loop(), variable.get()))

    @queue.task
    async def inner() -> None: ...

    @queue.task
    async def outer() -> None:
        variable.set("of a job")
        await inner.aenqueue()

    async with running(queue):
        await ended(queue, await inner.aenqueue())
        seen.clear()
        await outer.aenqueue()
        await until(lambda: len(seen) == 2)
    assert seen == [(asyncio.get_running_loop(), "unset")] * 2


def test_without_a_worker_hooks_of_both_kinds_run_in_threads(queue: PgQueue) -> None:
    threads: list[str] = []

    @queue.on("enqueued")
    def plain(_: Event) -> None:
        threads.append(threading.current_thread().name)

    @queue.on("enqueued")
    async def awaited(_: Event) -> None:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)

    @queue.task
    def work() -> None: ...

    work.enqueue()
    wait_until(lambda: len(threads) == 2)
    assert {one.rpartition(".")[2] for one in threads} == {"plain", "awaited"}
    assert {one.partition(" ")[0] for one in threads} == {"pgqueue"}


def test_a_plain_hook_that_returns_a_coroutine_is_told_to_be_async(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    async def page() -> None: ...

    queue.on("enqueued")(lambda _: page())

    @queue.task
    def work() -> None: ...

    work.enqueue()
    wait_until(lambda: queue.hooks.states[0].called)
    assert "write it as `async def`" in caplog.text


async def test_arguments_are_decoded_when_they_are_looked_at(dsn: str, running: Running) -> None:
    queue = PgQueue(dsn, codec=Secret("key"))
    told = listen(queue)

    @queue.task
    async def work(secret: str) -> None: ...

    job = await work.aenqueue("a secret")
    async with running(queue):
        await ended(queue, job)
    assert [one.args for one in told] == [{"secret": "a secret"}] * 4
    assert "secret" not in repr(told), "a hook's error is logged, and may show its event"
    await queue.aclose()


def test_a_queue_without_hooks_tells_nobody(queue: PgQueue) -> None:
    events = queue.observers
    assert not any((events.enqueued, events.claimed, events.started, events.ended, events.reclaimed))
    queue.on("dead")(print)
    assert (bool(events.ended), bool(events.reclaimed)) == (True, True)
    assert not any((events.enqueued, events.claimed, events.started))
    queue.on("started")(print)
    queue.on("started")(print)
    assert len(events.started.told) == 1


def test_only_known_events_and_functions_are_taken(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match=r"'died'.*reclaimed.*worker_stopped"):
        queue.on("died")  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="did you mean 'started'"):
        queue.on("start")  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="is no function"):
        queue.on("dead")("page")  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match="is no function"):
        queue.on("dead")(Event)  # type: ignore[type-var]


SCRIPT = r"""
import os, sys, threading
from pgqueue import PgQueue
queue = PgQueue(sys.argv[1])

@queue.task(name="work")
def work(): ...

@queue.on("enqueued")
def say(event):
    print("plain\n", end="", flush=True)

@queue.on("enqueued")
async def asay(event):
    print("async\n", end="", flush=True)

"""
FORKS = r"""
busy, go = threading.Event(), threading.Event()

@queue.on("enqueued")
def hold(event):
    busy.set()
    go.wait(60)
    print("held\n", end="", flush=True)

work.enqueue()
busy.wait()
queue.close()
child = os.fork()
if child == 0:
    go.set()
    work.enqueue()
    queue.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
go.set()
print(f"status {status}\n", end="", flush=True)
"""


def test_a_program_that_ends_waits_for_its_hooks(dsn: str) -> None:
    """The last hook returns only after the main thread has come to its end."""
    late = """
@queue.on("enqueued")
def last(event):
    threading.main_thread().join(20)
    print("last\\n", end="", flush=True)

work.enqueue()
"""
    assert _printed(SCRIPT + late, dsn) == ["async", "last", "plain"]


def test_a_forked_process_has_hooks_of_its_own(dsn: str) -> None:
    """The parent's threads are busy when it forks, and are not there in the child."""
    assert _printed(SCRIPT + FORKS, dsn) == ["async"] * 2 + ["held"] * 2 + ["plain"] * 2 + ["status 0"]


def _printed(script: str, dsn: str) -> list[str]:
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", script, dsn],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return sorted(ran.stdout.splitlines())


@pytest.mark.parametrize(
    ("event", "plain"), [("claimed", False), ("started", True), ("succeeded", False), ("dead", True)]
)
def test_a_worker_that_is_killed_in_a_hook_loses_no_job(
    queue: PgQueue, dsn: str, event: str, *, plain: bool
) -> None:
    shop = Workshop(queue)
    good = queue.enqueue_many(shop.succeed.call() for _ in range(30))
    bad = queue.enqueue_many(shop.fail.call() for _ in range(10))
    with processes(dsn) as start:
        assert start("work_until_a_hook", event=event, plain=plain).ended() == -signal.SIGKILL
        start(lease=1.0)
        wait_until(lambda: not live_jobs(dsn))
    assert {queue.job(job.id).state for job in good} == {JobState.SUCCEEDED}
    assert {queue.job(job.id).state for job in bad} == {JobState.DEAD}
    ended_once = "select count(*), count(distinct id) from (select id from pgqueue.job_history union all select id from pgqueue.dead_jobs) as one"
    assert ask(dsn, ended_once) == [(40, 40)]


async def test_each_job_of_a_batch_has_its_own_events(queue: PgQueue, running: Running) -> None:
    told: list[Event] = []
    for name in NAMES:
        if not name.startswith("worker"):
            queue.on(name)(told.append)  # type: ignore[call-overload]  # any of them

    @queue.batch_task(Document, name="index", size=4, wait=A_MINUTE, max_attempts=1, retry=Retry())
    async def index(jobs: Batch[Document]) -> list[int]:
        jobs[1].fail(ValueError("this one"))
        return [job.args.number for job in jobs]

    jobs = queue.enqueue_many(index.call(number) for number in range(4))
    async with running(queue, concurrency=2):
        await ended(queue, *jobs)
        await until(lambda: sum(one.name in {"succeeded", "dead"} for one in told) == 4)
    names = {job.id: Counter(one.name for one in told if one.job == job.id) for job in jobs}
    begun = dict.fromkeys(("enqueued", "claimed", "started"), 1)
    assert names[jobs[1].id] == {**begun, "failed": 1, "dead": 1}
    assert all(names[jobs[at].id] == {**begun, "succeeded": 1} for at in (0, 2, 3))
    (dead,) = [one for one in told if one.name == "dead"]
    assert (dead.task, dead.args, dead.error and dead.error.message) == ("index", {"number": 1}, "this one")


async def test_a_job_that_its_flow_cancels_before_it_runs_is_told_to_no_hook(
    queue: PgQueue, running: Running
) -> None:
    told: list[Event] = []
    for name in NAMES:
        if not name.startswith("worker"):
            queue.on(name)(told.append)  # type: ignore[call-overload]  # any of them

    @queue.task(name="first", max_attempts=1)
    async def first() -> None:
        raise ValueError("no")

    @queue.task(name="second")
    async def second() -> None: ...

    flow = await chain(first.call(), second.call()).aenqueue()
    async with running(queue):
        await until(lambda: flow.status() == "failed")
        await until(lambda: any(one.name == "dead" for one in told))
    assert ask(queue, "select task from pgqueue.job_history where outcome = 'cancelled'") == [("second",)]
    assert {one.name for one in told if one.task == "second"} <= {"enqueued"}


async def test_a_batch_that_raises_is_told_of_each_of_its_jobs_and_runs_again(
    queue: PgQueue, running: Running
) -> None:
    retried: list[int] = []
    calls = 0

    @queue.on("retried")
    async def note(event: Event) -> None:
        await asyncio.sleep(0)
        retried.append(event.job)

    @queue.batch_task(
        Document, name="index", size=3, wait=A_MINUTE, max_attempts=2, retry=Retry(wait=wait_none())
    )
    async def index(_: Batch[Document]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("the whole batch")

    jobs = queue.enqueue_many(index.call(number) for number in range(3))
    async with running(queue, concurrency=2):
        found = await ended(queue, *jobs)
        await until(lambda: len(retried) >= 3)
    assert sorted(retried) == sorted(job.id for job in jobs)
    assert {(job.state, job.attempts) for job in found} == {(JobState.SUCCEEDED, 2)}
