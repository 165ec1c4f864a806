"""In tests hooks are called at once: when an enqueue or a drain returns, every hook has returned."""

import asyncio
import threading
from typing import Any

import pytest
from neighbours.places import HOUR, a_clock, a_database, every_place, one_database
from tenacity import wait_fixed

from pgqueue import Event, Observer, PgQueue, Retry
from pgqueue.testing import Clock, adrain, drain, dying, eager
from pgqueue.values.jobs.event import JobEventName

queue, clock, emptied, database = every_place, a_clock, a_database, one_database
BOTH = pytest.mark.parametrize("plain", [True, False], ids=["plain hook", "async hook"])
EVENTS: tuple[JobEventName, ...] = (
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


def listen(queue: PgQueue, *, plain: bool) -> list[tuple[str, int]]:
    told: list[tuple[str, int]] = []

    def note(event: Event) -> None:
        told.append((event.name, event.attempt))

    async def anote(event: Event) -> None:
        await asyncio.sleep(0)
        note(event)

    for name in EVENTS:
        queue.on(name)(note if plain else anote)
    return told


@BOTH
def test_each_step_of_a_drain_has_called_its_hooks(queue: PgQueue, clock: Clock, *, plain: bool) -> None:
    told = listen(queue, plain=plain)
    seen: list[tuple[str, int]] = []

    @queue.task(retry=Retry(wait=wait_fixed(60)), max_attempts=2)
    def fail() -> None:
        seen.extend(told)
        raise ValueError

    fail.enqueue()
    assert told == [("enqueued", 0)]
    drain(queue, raises=False)
    assert seen == [("enqueued", 0), ("claimed", 1), ("started", 1)]
    assert told == [*seen, ("failed", 1), ("retried", 1)]
    clock.travel(HOUR)
    drain(queue, raises=False)
    assert told[5:] == [("claimed", 2), ("started", 2), ("failed", 2), ("dead", 2)]


@BOTH
async def test_an_awaited_drain_calls_them_in_the_loop_of_the_test(queue: PgQueue, *, plain: bool) -> None:
    told = listen(queue, plain=plain)
    loops: list[object] = []

    @queue.on("succeeded")
    async def note_loop(_: Event) -> None:
        loops.append(asyncio.get_running_loop())

    @queue.task
    async def work() -> None: ...

    await work.aenqueue()
    assert told == [("enqueued", 0)]
    await adrain(queue)
    assert [name for name, _ in told] == ["enqueued", "claimed", "started", "succeeded"]
    assert loops == [asyncio.get_running_loop()]


def test_plain_hooks_are_called_in_the_thread_of_the_test(queue: PgQueue) -> None:
    threads: list[object] = []

    @queue.on("succeeded")
    def note(_: Event) -> None:
        threads.append(threading.current_thread())

    @queue.task
    def work() -> None: ...

    work.enqueue()
    drain(queue)
    assert threads == [threading.current_thread()]


@BOTH
def test_a_hook_that_raises_costs_the_drain_nothing(
    queue: PgQueue, caplog: pytest.LogCaptureFixture, *, plain: bool
) -> None:
    def refuse(event: Event) -> None:
        raise SystemExit(event.name)

    async def arefuse(event: Event) -> None:
        raise SystemExit(event.name)

    queue.on("started")(refuse if plain else arefuse)

    @queue.task
    def work() -> int:
        return 7

    handle = work.enqueue()
    assert [one.outcome for one in drain(queue)] == ["succeeded"]
    assert handle.result(timeout=0) == 7
    assert "a hook failed; no job is affected" in caplog.text
    assert [(one.called, one.failed) for one in queue.hooks.states] == [(1, 1)]


@BOTH
def test_a_hook_may_enqueue_what_the_same_drain_runs(queue: PgQueue, *, plain: bool) -> None:
    @queue.task(name="follow")
    def follow() -> None: ...

    @queue.task(name="work")
    def work() -> None: ...

    def go_on(event: Event) -> None:
        if event.task == "work":
            follow.enqueue()

    async def ago_on(event: Event) -> None:
        if event.task == "work":
            await follow.aenqueue()

    queue.on("succeeded")(go_on if plain else ago_on)
    work.enqueue()
    assert [one.task for one in drain(queue)] == ["work", "follow"]


@BOTH
def test_a_worker_that_died_leaves_its_job_to_be_reclaimed(
    queue: PgQueue, clock: Clock, *, plain: bool
) -> None:
    told = listen(queue, plain=plain)

    @queue.task(max_attempts=1)
    def work() -> None: ...

    work.enqueue()
    with dying(work):
        drain(queue)
    del told[:]
    clock.travel(HOUR)
    drain(queue)
    assert told == [("reclaimed", 1), ("failed", 1), ("dead", 1)]


def test_observers_are_told_in_a_drain_as_in_a_worker(queue: PgQueue) -> None:
    told: list[str] = []

    class Noting(Observer):
        def enqueued(self, jobs: Any, results: Any) -> None:  # noqa: ARG002 - as it is called
            told.append("enqueued")

        def claimed(self, claims: Any) -> None:  # noqa: ARG002 - as it is called
            told.append("claimed")

        def started(self, claims: Any) -> None:  # noqa: ARG002 - as it is called
            told.append("started")

        def ended(self, verdicts: Any) -> None:  # noqa: ARG002 - as it is called
            told.append("ended")

    queue.observe(Noting())

    @queue.task
    def work() -> None: ...

    work.enqueue()
    drain(queue)
    assert told == ["enqueued", "claimed", "started", "ended"]


@BOTH
def test_an_eager_enqueue_has_called_all_hooks_when_it_returns(*, plain: bool) -> None:
    queue = PgQueue("")
    told = listen(queue, plain=plain)

    @queue.task
    def work() -> None: ...

    with eager(queue):
        work.enqueue()
    assert {name for name, _ in told} == {"enqueued", "claimed", "started", "succeeded"}
