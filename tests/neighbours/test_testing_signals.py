"""Signals, times and callbacks in tests: in memory as on PostgreSQL, at any instant."""

from typing import Any

import pytest
from neighbours.places import HOUR, MINUTE, NOON, a_clock, a_database, every_place, one_database

from pgqueue import Context, JobState, PgQueue, Task, Unique, WaitTimedOut
from pgqueue.errors import InvalidCallback, InvalidOption, PayloadNotEncodable, SignalRefused
from pgqueue.testing import Clock, drain, eager

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def ask(queue: PgQueue) -> Task[[float | None, str | None], Any]:
    @queue.task(name="ask", max_attempts=2)
    def ask(ctx: Context, timeout: float | None = None, key: str | None = None) -> Any:
        return ctx.wait_for("answer", timeout=timeout, key=key)

    return ask


def test_a_job_waits_until_its_signal_and_each_run_is_seen(queue: PgQueue, ask: Any) -> None:
    job = ask.enqueue()
    (ran,) = drain(queue)
    assert (ran.outcome, ran.attempt, queue.job(job.id).attempts) == (JobState.BLOCKED, 1, 0)
    assert drain(queue, now=NOON + HOUR) == []
    assert queue.job(job.id).state is JobState.BLOCKED
    assert queue.signal(job, "answer", [1, {"a": None}])
    assert not queue.signal(job.id, "answer", 2)
    (ran,) = drain(queue)
    assert (ran.outcome, ran.attempt) == (JobState.SUCCEEDED, 1)
    assert job.result(timeout=0) == [1, {"a": None}]
    with pytest.raises(SignalRefused, match="the job has ended, or never was"):
        queue.signal(job, "other")


def test_a_signal_may_come_early_and_a_key_is_any_text(queue: PgQueue, ask: Any) -> None:
    assert queue.signal("order: 42", "answer", "early")
    waiting, known = ask.enqueue(key="later"), ask.enqueue(key="order: 42")
    assert [ran.outcome for ran in drain(queue)] == [JobState.BLOCKED, JobState.SUCCEEDED]
    assert known.result(timeout=0) == "early"
    assert queue.signal("later", "answer")
    drain(queue)
    assert waiting.result(timeout=0) is None


def test_a_deadline_passes_at_its_instant_and_the_job_is_dead_without_another_attempt(
    queue: PgQueue, ask: Any
) -> None:
    job = ask.enqueue(timeout=60)
    drain(queue)
    assert drain(queue, now=NOON + MINUTE * 0.99) == []
    with pytest.raises(WaitTimedOut, match="signal 'answer' did not come before its deadline"):
        drain(queue, now=NOON + MINUTE)
    assert (queue.job(job.id).state, queue.job(job.id).reason) == (JobState.DEAD, "deadline")
    with pytest.raises(SignalRefused):
        queue.signal(job, "answer")


def test_a_dead_job_that_is_retried_waits_again(queue: PgQueue, ask: Any, clock: Clock) -> None:
    job = ask.enqueue(timeout=60)
    drain(queue)
    drain(queue, now=NOON + MINUTE, raises=False)
    clock.travel(HOUR)
    assert queue.retry(job.id)
    (ran,) = drain(queue)
    assert ran.outcome is JobState.BLOCKED
    assert queue.signal(job, "answer", "late")
    drain(queue)
    assert job.result(timeout=0) == "late"


def test_what_was_decided_stays_so(queue: PgQueue) -> None:
    seen: list[str] = []

    @queue.task(name="twice", max_attempts=2)
    def twice(ctx: Context) -> None:
        try:
            ctx.wait_for("answer", timeout=MINUTE)
        except WaitTimedOut:
            seen.append("timed out")
            queue.signal(ctx.job.id, "answer")
        if len(seen) == 1:
            raise ConnectionError("once more")

    twice.enqueue()
    drain(queue)
    drain(queue, now=NOON + MINUTE, raises=False)
    drain(queue, now=NOON + HOUR)
    assert seen == ["timed out"] * 2


def test_a_pause_passes_with_the_clock(queue: PgQueue) -> None:
    steps: list[str] = []

    @queue.task(name="cool")
    def cool(ctx: Context) -> None:
        steps.append("begin")
        ctx.pause("first", MINUTE)
        ctx.pause("second", HOUR)
        steps.append("end")

    cool.enqueue()
    assert [ran.outcome for ran in drain(queue)] == [JobState.BLOCKED]
    assert [ran.outcome for ran in drain(queue, now=NOON + MINUTE)] == [JobState.BLOCKED]
    assert drain(queue, now=NOON + HOUR) == []
    assert [ran.outcome for ran in drain(queue, now=NOON + HOUR + MINUTE)] == [JobState.SUCCEEDED]
    assert steps == ["begin", "begin", "begin", "end"]


def test_a_callback_is_resolved_once_and_expires(queue: PgQueue, clock: Clock) -> None:
    tokens: list[str] = []

    @queue.task(name="pay")
    def pay(ctx: Context) -> Any:
        tokens.append(ctx.callback("payment", timeout=MINUTE))
        return ctx.wait_for("payment")

    job, late = pay.enqueue(), pay.enqueue()
    drain(queue)
    assert queue.resolve(tokens[0], {"paid": 30})
    assert not queue.resolve(tokens[0], {"paid": 0})
    with pytest.raises(InvalidCallback):
        queue.resolve(tokens[0][:-1])
    drain(queue)
    assert job.result(timeout=0) == {"paid": 30}
    assert tokens[0] == tokens[2] != tokens[1]
    clock.travel(MINUTE * 2)
    with pytest.raises(SignalRefused, match="the token has expired"):
        queue.resolve(tokens[1])
    drain(queue, raises=False)
    assert late.status() is JobState.DEAD


def test_a_job_that_waits_is_cancelled(queue: PgQueue, ask: Any) -> None:
    job = ask.enqueue(timeout=60)
    drain(queue)
    assert not queue.retry(job.id)
    assert job.cancel() is JobState.CANCELLED
    assert drain(queue, now=NOON + HOUR) == []


def test_a_job_that_waits_keeps_its_unique_key_and_is_not_made_ready_by_another_enqueue(
    queue: PgQueue, ask: Any
) -> None:
    job = ask.using(unique_key="k").enqueue()
    drain(queue)
    for collision in ("reject", "reschedule", "replace"):
        unique = Unique(collision=collision)
        assert ask.using(unique_key="k", unique=unique).enqueue().id == job.id
        assert job.status() is JobState.BLOCKED
    queue.signal(job, "answer", 1)
    drain(queue)
    assert job.result(timeout=0) == 1


def test_bad_input_is_refused_at_the_door(queue: PgQueue) -> None:
    for target, name in (("", "x"), ("k", "a b"), (None, "x"), (0, "x"), (True, "x")):
        with pytest.raises(InvalidOption):
            queue.signal(target, name)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(PayloadNotEncodable):
        queue.signal("k", "x", "a\0")
    with pytest.raises(SignalRefused):
        queue.signal(10**9, "x")
    with pytest.raises(InvalidCallback):
        queue.resolve("nonsense")


def test_eagerly_a_signal_runs_what_waits_for_it() -> None:
    app = PgQueue("")

    @app.task(name="ask")
    def ask(ctx: Context) -> Any:
        return ctx.wait_for("answer", timeout=HOUR)

    with eager(app):
        job = ask.enqueue()
        assert job.status() is JobState.BLOCKED
        app.signal(job, "answer", 7)
        assert job.result(timeout=0) == 7
