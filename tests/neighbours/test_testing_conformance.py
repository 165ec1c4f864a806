"""Conformance: what a queue does in memory it does on PostgreSQL, and the other way round."""

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.json.provider import DefaultJSONProvider
from neighbours.places import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_clock,
    a_database,
    every_place,
    not_in_memory,
    one_database,
)
from tenacity import retry_if_exception_type, stop_after_delay, wait_exponential, wait_fixed, wait_none

from pgqueue import (
    Cancelled,
    Context,
    Crashes,
    Dead,
    JobState,
    Outcome,
    PgQueue,
    Retry,
    RetryLater,
    Snooze,
    Task,
    Unique,
)
from pgqueue.errors import (
    InvalidOption,
    JobError,
    JobFailed,
    JobNotDone,
    JobNotFound,
    PayloadNotEncodable,
    PayloadTooLarge,
    PgQueueWarning,
    ResultNotKept,
    TimedOut,
    UnknownQueue,
    UnknownTask,
)
from pgqueue.store.jobs.enqueue import ROWS_PER_BLOCK
from pgqueue.testing import Clock, drain, dying, failing
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.jobs.job import QueueCount

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def noted() -> list[Any]:
    return []


@pytest.fixture
def note(queue: PgQueue, noted: list[Any]) -> Task[[Any], Any]:
    """A task that notes its argument, and returns it."""

    @queue.task(name="note")
    def note(what: Any) -> Any:
        noted.append(what)
        return what

    return note


def _failing_task(queue: PgQueue, **options: Any) -> Task[[], None]:
    @queue.task(name="fail", **options)
    def fail() -> None:
        raise ConnectionError("no mail server")

    return fail


# Handles


def test_a_handle_follows_its_job_from_ready_to_its_result(queue: PgQueue, note: Task[[Any], Any]) -> None:
    handle = note.enqueue({"n": [1, 2.5, None, "é"]})
    assert (handle.status(), handle.accepted) == (JobState.READY, True)
    (ran,) = drain(queue)
    assert (ran.id, ran.task, ran.args, ran.attempt) == (
        handle.id,
        "note",
        {"what": {"n": [1, 2.5, None, "é"]}},
        1,
    )
    assert (ran.outcome, ran.error) == (JobState.SUCCEEDED, None)
    assert (handle.status(), handle.result(timeout=0)) == (JobState.SUCCEEDED, {"n": [1, 2.5, None, "é"]})


def test_a_job_that_has_not_run_has_no_result_yet(note: Task[[Any], Any]) -> None:
    with pytest.raises(JobNotDone):
        note.enqueue(1).result(timeout=0)


def test_a_cancelled_job_never_runs(queue: PgQueue, note: Task[[Any], Any]) -> None:
    ready, later = note.enqueue(1), note.using(delay=HOUR).enqueue(2)
    assert (ready.cancel(), later.cancel()) == (JobState.CANCELLED, JobState.CANCELLED)
    assert ready.cancel() is None
    assert drain(queue, now=NOON + HOUR) == []
    job = queue.job(ready.id)
    assert (job.state, job.ended_at, job.started_at) == (JobState.CANCELLED, NOON, None)
    with pytest.raises(JobFailed, match="is cancelled"):
        ready.result(timeout=0)


def test_what_was_never_enqueued_is_not_found(queue: PgQueue) -> None:
    assert queue.cancel(10**9) is None
    assert not queue.retry(10**9)
    with pytest.raises(JobNotFound):
        queue.job(10**9)


def test_a_job_that_is_cancelled_while_it_runs_ends_as_cancelled_if_it_fails(queue: PgQueue) -> None:
    @queue.task
    def cancel_myself(ctx: Context, *, fails: bool) -> None:
        assert queue.cancel(ctx.job.id) is JobState.RUNNING
        if fails:
            raise ValueError("stopped")

    failed, succeeded = cancel_myself.enqueue(fails=True), cancel_myself.enqueue(fails=False)
    outcomes = [ran.outcome for ran in drain(queue, raises=False)]
    assert outcomes == [JobState.CANCELLED, JobState.SUCCEEDED]
    assert [error.message for error in queue.job(failed.id).errors] == ["stopped"]
    assert queue.job(succeeded.id).state is JobState.SUCCEEDED


# Arguments and results


@pytest.mark.parametrize(
    "wrong", [object(), "\0", float("nan"), {1, object()}], ids=["object", "nul", "nan", "set"]
)
def test_arguments_without_a_json_form_are_refused_when_enqueuing(
    queue: PgQueue, note: Task[[Any], Any], wrong: object
) -> None:
    with pytest.raises(PayloadNotEncodable):
        note.enqueue(wrong)
    assert queue.insight.search().jobs == ()


def test_arguments_arrive_as_json_has_them_and_not_as_they_were(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    given = {"pair": (1, 2)}
    with pytest.warns(PgQueueWarning, match="arrives as a list"):
        note.enqueue(given)
    drain(queue)
    assert noted == [{"pair": [1, 2]}]
    assert noted[0] is not given


def test_arguments_over_the_limit_are_refused(queue: PgQueue, note: Task[[Any], Any]) -> None:
    queue.max_payload = 30
    with pytest.raises(PayloadTooLarge):
        note.enqueue("x" * 30)


def test_stored_arguments_that_fit_the_task_no_more_are_dead(queue: PgQueue) -> None:
    @queue.task(name="bill")
    def bill(number: int) -> int:
        return number

    handle = bill.enqueue(1)

    def changed(number: str, to: str) -> None: ...

    del bill.signature
    bill.function = changed
    (ran,) = drain(queue, raises=False)
    assert (ran.outcome, queue.job(handle.id).reason) == (JobState.DEAD, "undecodable")


def test_a_result_without_a_json_form_is_not_kept_and_the_job_succeeds(queue: PgQueue) -> None:
    @queue.task
    def give() -> object:
        return object()

    handle = give.enqueue()
    drain(queue)
    with pytest.raises(ResultNotKept, match=r"a builtins\.object has no JSON form"):
        handle.result(timeout=0)
    assert queue.job(handle.id).state is JobState.SUCCEEDED


# Order


def test_jobs_run_by_priority_then_time_then_in_the_order_in_which_they_were_enqueued(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    note.enqueue("third")
    note.enqueue("fourth")
    note.using(run_at=NOON - HOUR).enqueue("second")
    note.using(priority=-1).enqueue("last")
    note.using(priority=1).enqueue("first")
    drain(queue)
    assert noted == ["first", "second", "third", "fourth", "last"]


def test_queues_are_drained_by_name_or_in_the_order_given(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    for name in ("mail", "default", "audit"):
        note.using(queue=name).enqueue(name)
    drain(queue, queues=["mail"])
    assert noted == ["mail"]
    drain(queue)
    assert noted == ["mail", "audit", "default"]
    for name in ("audit", "mail"):
        note.using(queue=name).enqueue(name)
    drain(queue, queues=["mail", "audit"])
    assert noted[3:] == ["mail", "audit"]


def test_what_a_job_enqueues_runs_in_the_same_drain(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    @queue.task
    def first() -> None:
        note.enqueue("second")
        note.using(delay=MINUTE).enqueue("later")
        noted.append("first")

    first.enqueue()
    drain(queue)
    assert noted == ["first", "second"]
    drain(queue, now=NOON + MINUTE)
    assert noted == ["first", "second", "later"]


def test_a_paused_queue_is_drained_once_it_is_resumed(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    note.using(queue="mail").enqueue(1)
    queue.control.pause("mail")
    queue.control.pause("mail")
    assert drain(queue) == drain(queue, queues=["mail"]) == []
    assert (queue.control.resume("mail"), queue.control.resume("mail")) == (True, False)
    drain(queue)
    assert noted == [1]


# Time


def test_a_delayed_job_is_due_when_its_time_has_come_and_not_before(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any]
) -> None:
    handle = note.using(delay=MINUTE).enqueue(1)
    assert (handle.status(), queue.job(handle.id).run_at) == (JobState.SCHEDULED, NOON + MINUTE)
    assert drain(queue, now=NOON + MINUTE - SECOND) == []
    clock.travel(MINUTE)
    assert [ran.id for ran in drain(queue)] == [handle.id]


def test_a_job_with_a_time_of_its_own_is_due_then(queue: PgQueue, note: Task[[Any], Any]) -> None:
    handle = note.using(run_at=NOON + HOUR).enqueue(1)
    past = note.using(run_at=NOON - HOUR).enqueue(2)
    assert (handle.status(), past.status()) == (JobState.SCHEDULED, JobState.READY)
    assert [ran.id for ran in drain(queue, now=NOON + HOUR)] == [past.id, handle.id]


def test_a_scheduled_job_can_be_made_ready_before_its_time(queue: PgQueue, note: Task[[Any], Any]) -> None:
    handle = note.using(delay=HOUR).enqueue(1)
    assert queue.retry(handle.id) == Retried(not_dead=(handle.id,))
    assert queue.control.run_now(handle.id)
    assert (queue.job(handle.id).state, queue.job(handle.id).run_at) == (JobState.READY, NOON)
    assert not queue.control.run_now(handle.id)


def test_a_drain_at_an_instant_leaves_the_clock_where_it_was(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any]
) -> None:
    handle = note.enqueue(1)
    drain(queue, now=NOON + HOUR)
    assert clock.now == NOON
    job = queue.job(handle.id)
    assert job.ended_at == NOON + HOUR


# Failures


def test_a_failed_job_is_retried_when_the_policys_time_has_come(queue: PgQueue, clock: Clock) -> None:
    fail = _failing_task(queue, retry=Retry(wait=wait_exponential(multiplier=10)), max_attempts=3)
    handle = fail.enqueue()
    (first,) = drain(queue, raises=False)
    assert (first.attempt, first.outcome, str(first.error)) == (1, JobState.SCHEDULED, "no mail server")
    waiting = queue.job(handle.id)
    assert (waiting.run_at, waiting.worker_id, waiting.started_at) == (NOON + 10 * SECOND, None, None)
    assert drain(queue, raises=False) == []
    clock.travel(10 * SECOND)
    (second,) = drain(queue, raises=False)
    assert (second.attempt, queue.job(handle.id).run_at) == (2, NOON + 30 * SECOND)
    (third,) = drain(queue, now=NOON + 30 * SECOND, raises=False)
    job = queue.job(handle.id)
    assert (third.outcome, job.state, job.reason, job.attempts) == (
        JobState.DEAD,
        JobState.DEAD,
        "exhausted",
        3,
    )
    assert [(error.attempt, error.type, error.message, error.at) for error in job.errors] == [
        (1, "ConnectionError", "no mail server", NOON),
        (2, "ConnectionError", "no mail server", NOON + 10 * SECOND),
        (3, "ConnectionError", "no mail server", NOON + 30 * SECOND),
    ]


def test_retries_without_a_wait_all_happen_in_one_drain(queue: PgQueue) -> None:
    _failing_task(queue, retry=Retry(wait=wait_none()), max_attempts=3).enqueue()
    ran = drain(queue, raises=False)
    assert [(one.attempt, one.outcome) for one in ran] == [
        (1, JobState.READY),
        (2, JobState.READY),
        (3, JobState.DEAD),
    ]


def test_a_policy_that_stops_after_a_time_counts_from_the_first_failure(queue: PgQueue, clock: Clock) -> None:
    fail = _failing_task(queue, retry=Retry(wait=wait_fixed(40), stop=stop_after_delay(60)))
    handle = fail.enqueue()
    clock.travel(HOUR)
    for expected in (JobState.SCHEDULED, JobState.SCHEDULED, JobState.DEAD):
        (ran,) = drain(queue, raises=False)
        assert ran.outcome is expected
        clock.travel(40 * SECOND)
    assert queue.job(handle.id).reason == "refused"


def test_an_error_that_the_policy_does_not_name_is_the_end(queue: PgQueue) -> None:
    fail = _failing_task(queue, retry=Retry(retry=retry_if_exception_type(ValueError)))
    handle = fail.enqueue()
    (ran,) = drain(queue, raises=False)
    assert (ran.outcome, queue.job(handle.id).reason) == (JobState.DEAD, "refused")


def test_a_snooze_spends_no_attempt(queue: PgQueue, clock: Clock, noted: list[Any]) -> None:
    @queue.task
    def sleepy(ctx: Context) -> None:
        noted.append(ctx.attempt)
        if len(noted) == 1:
            raise Snooze(MINUTE)

    handle = sleepy.enqueue()
    (ran,) = drain(queue)
    assert (ran.outcome, queue.job(handle.id).attempts) == (JobState.SCHEDULED, 0)
    clock.travel(MINUTE)
    drain(queue)
    assert (noted, handle.status(), queue.job(handle.id).errors) == ([1, 1], JobState.SUCCEEDED, ())


def test_a_task_ends_its_job_as_cancelled(queue: PgQueue) -> None:
    @queue.task
    def decides() -> None:
        raise Cancelled("the order is gone")

    handle = decides.enqueue()
    (ran,) = drain(queue)
    assert (ran.outcome, queue.job(handle.id).attempts) == (JobState.CANCELLED, 1)
    assert [error.message for error in queue.job(handle.id).errors] == ["the order is gone"]


def test_a_task_decides_when_it_is_retried_and_that_it_is_dead(queue: PgQueue) -> None:
    @queue.task
    def decides(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RetryLater(HOUR, "busy")
        raise Dead("no such order")

    handle = decides.enqueue()
    drain(queue)
    assert queue.job(handle.id).run_at == NOON + HOUR
    drain(queue, now=NOON + HOUR)
    job = queue.job(handle.id)
    assert (job.state, job.reason) == (JobState.DEAD, "asked")
    assert [error.message for error in job.errors] == ["busy", "no such order"]


def test_dead_jobs_are_retried_with_all_their_attempts(queue: PgQueue, clock: Clock) -> None:
    handle = _failing_task(queue, max_attempts=1).enqueue()
    drain(queue, raises=False)
    clock.travel(HOUR)
    assert queue.retry(handle.id)
    job = queue.job(handle.id)
    assert (job.state, job.attempts, job.run_at, job.ended_at, job.reason) == (
        JobState.READY,
        0,
        NOON + HOUR,
        None,
        None,
    )
    assert len(job.errors) == 1
    (ran,) = drain(queue, raises=False)
    assert (ran.attempt, ran.outcome, len(queue.job(handle.id).errors)) == (1, JobState.DEAD, 2)


def test_a_plain_function_that_takes_too_long_fails_though_it_returns(queue: PgQueue) -> None:
    told = threading.Event()

    @queue.task(timeout=0.01, max_attempts=1)
    def slow(ctx: Context) -> None:
        while not ctx.cancelled:
            told.wait(0.001)

    slow.enqueue()
    (ran,) = drain(queue, raises=False)
    assert (ran.outcome, type(ran.error)) == (JobState.DEAD, TimedOut)


def test_an_async_task_that_takes_too_long_is_stopped(queue: PgQueue) -> None:
    @queue.task(timeout=0.01, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    slow.enqueue()
    (ran,) = drain(queue, raises=False)
    assert (ran.outcome, type(ran.error)) == (JobState.DEAD, TimedOut)


# Unique keys


def test_a_taken_key_rejects_and_is_counted(queue: PgQueue, note: Task[[Any], Any], noted: list[Any]) -> None:
    keyed = note.using(unique_key="key")
    first, second = keyed.enqueue("first"), keyed.enqueue("second")
    assert (second.id, second.outcome, second.accepted) == (first.id, Outcome.REJECTED, False)
    assert queue.job(first.id).collisions == 1
    drain(queue)
    assert noted == ["first"]
    assert keyed.enqueue("third").accepted


def test_a_key_is_held_while_the_job_runs_unless_until_it_started(queue: PgQueue, noted: list[Any]) -> None:
    @queue.task
    def again(until: str) -> None:
        more = tasks[until].enqueue(until) if len(noted) < 2 else None
        noted.append(None if more is None else more.accepted)

    tasks = {
        "ended": again.using(unique_key="a"),
        "started": again.using(unique_key="b", unique=Unique(until="started")),
    }
    tasks["ended"].enqueue("ended")
    drain(queue)
    assert noted == [False]
    tasks["started"].enqueue("started")
    drain(queue)
    assert noted == [False, True, None]


def test_replacing_changes_all_of_a_waiting_job(queue: PgQueue, note: Task[[Any], Any]) -> None:
    first = note.using(unique_key="key").enqueue("first")
    other = note.using(
        unique_key="key", unique=Unique("replace"), delay=HOUR, priority=3, queue="mail", max_attempts=2
    ).enqueue("second")
    job = queue.job(first.id)
    assert (other.id, other.outcome) == (first.id, Outcome.REPLACED)
    assert (job.args, job.state, job.run_at, job.priority, job.queue, job.max_attempts, job.collisions) == (
        {"what": "second"},
        JobState.SCHEDULED,
        NOON + HOUR,
        3,
        "mail",
        2,
        1,
    )


def test_rescheduling_changes_the_time_and_nothing_else(queue: PgQueue, note: Task[[Any], Any]) -> None:
    first = note.using(unique_key="key").enqueue("first")
    other = note.using(unique_key="key", unique=Unique("reschedule"), delay=HOUR, priority=3).enqueue(
        "second"
    )
    job = queue.job(first.id)
    assert (other.id, other.outcome) == (first.id, Outcome.RESCHEDULED)
    assert (job.args, job.state, job.run_at, job.priority, job.collisions) == (
        {"what": "first"},
        JobState.SCHEDULED,
        NOON + HOUR,
        0,
        1,
    )


@pytest.mark.parametrize("collision", ["replace", "reschedule"])
def test_a_running_job_is_neither_replaced_nor_rescheduled(
    queue: PgQueue, noted: list[Any], collision: Any
) -> None:
    @queue.task
    def again() -> None:
        noted.append(keyed.enqueue().outcome)

    keyed = again.using(unique_key="key", unique=Unique(collision))
    keyed.enqueue()
    drain(queue)
    assert noted == [Outcome.REJECTED]


def test_a_period_outlasts_the_job(queue: PgQueue, clock: Clock, note: Task[[Any], Any]) -> None:
    hourly = note.using(unique_key="key", unique=Unique(period=HOUR))
    first = hourly.enqueue(1)
    drain(queue)
    second = hourly.enqueue(2)
    assert (second.id, second.outcome) == (first.id, Outcome.REJECTED)
    clock.travel(HOUR - SECOND)
    assert not hourly.enqueue(3).accepted
    assert note.using(unique_key="key").enqueue(4).accepted
    drain(queue)
    clock.travel(SECOND)
    assert hourly.enqueue(5).accepted


def test_a_live_job_keeps_its_key_past_the_period(clock: Clock, note: Task[[Any], Any]) -> None:
    hourly = note.using(unique_key="key", unique=Unique(period=HOUR), delay=3 * HOUR)
    hourly.enqueue(1)
    clock.travel(2 * HOUR)
    assert not hourly.enqueue(2).accepted


def test_a_dead_job_whose_key_is_taken_stays_dead(queue: PgQueue) -> None:
    fail = _failing_task(queue, max_attempts=1).using(unique_key="key")
    dead = fail.enqueue()
    drain(queue, raises=False)
    twin = fail.enqueue()
    held = Retried(held=(BlockedRetry(dead.id, twin.id, "key"),))
    assert json.loads(DefaultJSONProvider(Flask("shop")).dumps(queue.retry(dead.id))) == {
        "ids": [],
        "held": [{"id": dead.id, "twin": twin.id, "unique_key": "key"}],
        "not_dead": [],
        "out_of_turn": [],
    }
    assert queue.retry(dead.id) == held
    assert not held
    assert dead.status() is JobState.DEAD


def test_a_dead_job_whose_key_is_taken_can_be_retried_without_it(queue: PgQueue) -> None:
    fail = _failing_task(queue, max_attempts=1).using(unique_key="key")
    dead = fail.enqueue()
    drain(queue, raises=False)
    twin = fail.enqueue()
    assert queue.retry(dead.id, without_key=True) == Retried((dead.id,))
    assert queue.job(dead.id).unique_key is None
    assert queue.job(twin.id).unique_key == "key"


# Many, lists, counts


def test_many_are_enqueued_in_order_or_not_at_all(queue: PgQueue, note: Task[[Any], Any]) -> None:
    keyed = note.using(unique_key="key")
    calls = [note.call(1), keyed.call(2), keyed.call(3), note.using(delay=HOUR).call(4)]
    handles = queue.enqueue_many(calls)
    assert [handle.accepted for handle in handles] == [True, True, False, True]
    assert handles[2].id == handles[1].id
    assert [queue.job(handles[i].id).args["what"] for i in (0, 1, 3)] == [1, 2, 4]

    def breaks() -> Any:
        yield from (note.call(number) for number in range(ROWS_PER_BLOCK + 1))
        raise KeyError("the last")

    with pytest.raises(KeyError, match="the last"):
        queue.enqueue_many(breaks())
    assert len(queue.insight.search().jobs) == 3
    assert queue.enqueue_many([]) == []


def test_jobs_are_listed_newest_first_by_every_filter(queue: PgQueue, note: Task[[Any], Any]) -> None:
    dead = _failing_task(queue, max_attempts=1).enqueue().id
    done = note.enqueue(1).id
    drain(queue, raises=False)
    ready, keyed = note.enqueue(2).id, note.using(unique_key="key").enqueue(3).id
    later = note.using(queue="mail", delay=HOUR).enqueue(4).id

    def ids(**filters: Any) -> list[int]:
        return [job.id for job in queue.insight.search(**filters).jobs]

    assert ids() == [later, keyed, ready, done, dead]
    assert ids(state="dead") == [dead]
    assert ids(state=["ready", "succeeded"], task="note") == [keyed, ready, done]
    assert (ids(queue="mail"), ids(unique_key="key"), ids(task="fail")) == ([later], [keyed], [dead])
    assert ids(before=keyed, limit=2) == [ready, done]
    with pytest.raises(InvalidOption):
        ids(state="asleep")


def test_counts_are_by_queue_and_state(queue: PgQueue, note: Task[[Any], Any]) -> None:
    _failing_task(queue, max_attempts=1).enqueue()
    note.enqueue(0)
    drain(queue, raises=False)
    note.enqueue(1)
    note.enqueue(2)
    note.using(delay=HOUR).enqueue(3)
    note.using(queue="mail").enqueue(4)
    queue.control.pause("mail")
    queue.control.pause("empty")
    counts, paused = queue.insight.counts()
    assert counts == [
        QueueCount("default", JobState.DEAD, 1),
        QueueCount("default", JobState.READY, 2),
        QueueCount("default", JobState.SCHEDULED, 1),
        QueueCount("mail", JobState.READY, 1),
    ]
    assert paused == ["empty", "mail"]


def test_without_history_nothing_is_left_of_a_success(queue: PgQueue, note: Task[[Any], Any]) -> None:
    queue.history = timedelta(0)
    handle = note.enqueue(1)
    (ran,) = drain(queue)
    assert ran.outcome is JobState.SUCCEEDED
    with pytest.raises(JobNotFound):
        handle.status()


@not_in_memory
def test_insight_tells_why_jobs_died_and_how_late_schedules_are(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="bill")
    def bill(order: int) -> None:
        raise Dead(f"no order {order}")

    queue.schedules.add("hourly", bill.call(1), "0 * * * *")
    for order in (7, 12):
        bill.enqueue(order)
    drain(queue)
    due = queue.schedules.get("hourly").next
    assert due is not None
    clock.travel(due + 5 * MINUTE - clock.now)

    (group,) = queue.insight.errors().groups
    assert (group.task, group.message, group.jobs, group.reason) == ("bill", "no order 12", 2, "asked")
    (late,) = queue.insight.schedules()
    assert (late.name, late.state, late.lag, late.last_at) == ("hourly", "active", 300.0, None)
    assert queue.insight.running().jobs == ()


# Context


def test_a_task_sees_its_context(queue: PgQueue, noted: list[Any]) -> None:
    @queue.task(name="look", priority=2, max_attempts=7)
    def look(ctx: Context, text: str) -> None:
        job = ctx.job
        noted.append((job.task, job.queue, job.priority, job.attempt, job.max_attempts, job.run_at, text))
        assert not ctx.cancelled
        assert ctx.seconds >= 0

    look.enqueue("text")
    drain(queue)
    assert noted == [("look", "default", 2, 1, 7, NOON, "text")]


def test_an_async_task_runs_and_what_a_plain_one_hands_out_is_awaited(
    queue: PgQueue, noted: list[Any]
) -> None:
    async def wait(word: str) -> str:
        await asyncio.sleep(0)
        noted.append(word)
        return word

    @queue.task
    async def waits() -> str:
        return await wait("async")

    @queue.task
    def hands_out() -> Any:
        return wait("handed out")

    handles = [waits.enqueue(), hands_out.enqueue()]
    drain(queue)
    assert noted == ["async", "handed out"]
    assert [handle.result(timeout=0) for handle in handles] == ["async", "handed out"]


# What draining does


def test_an_error_is_raised_once_it_is_recorded_and_the_next_drain_goes_on(
    queue: PgQueue, note: Task[[Any], Any], noted: list[Any]
) -> None:
    handle = _failing_task(queue).enqueue()
    note.enqueue(1)
    with pytest.raises(ConnectionError, match="no mail server"):
        drain(queue)
    assert [error.message for error in queue.job(handle.id).errors] == ["no mail server"]
    assert (handle.status(), noted) == (JobState.SCHEDULED, [])
    drain(queue)
    assert noted == [1]


def test_a_job_that_enqueues_itself_is_given_up(queue: PgQueue) -> None:
    @queue.task(name="again")
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(JobError, match="5 jobs, the last of again"):
        drain(queue, limit=5)
    assert len(queue.insight.search(state="succeeded").jobs) == 5
    with pytest.raises(InvalidOption, match="limit=0"):
        drain(queue, limit=0)


def test_a_task_that_nobody_registered_is_an_error_and_its_job_waits(queue: PgQueue) -> None:
    @queue.task(name="gone")
    def gone() -> None: ...

    handle = gone.enqueue()
    del queue._tasks["gone"]  # noqa: SLF001 - there is no public way, and should be none
    with pytest.raises(UnknownTask, match="'gone'"):
        drain(queue)
    assert (queue.job(handle.id).attempts, handle.status()) == (0, JobState.READY)


def test_only_declared_queues_are_drained(queue: PgQueue) -> None:
    queue.queues = frozenset({"default"})
    with pytest.raises(UnknownQueue):
        drain(queue, queues=["mail"])


# Trouble


def test_a_task_fails_as_often_as_it_is_told_and_drain_does_not_raise_that(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any], noted: list[Any]
) -> None:
    handle = note.enqueue(1)
    with failing(note, times=2, error=ConnectionError("gone")) as trouble:
        while not handle.status().ended:
            drain(queue)
            clock.travel(HOUR)
    assert (trouble.met, noted, handle.status()) == (2, [1], JobState.SUCCEEDED)
    assert [error.message for error in queue.job(handle.id).errors] == ["gone", "gone"]
    note.enqueue(2)
    drain(queue)
    assert noted == [1, 2]


def test_trouble_ends_with_its_block(queue: PgQueue, note: Task[[Any], Any], noted: list[Any]) -> None:
    note.using(max_attempts=1).enqueue(1)
    with failing(note, times=9) as failures, dying(note, times=9) as deaths:
        drain(queue)
    note.enqueue(2)
    drain(queue)
    assert (noted, failures.met, deaths.met) == ([2], 1, 0)


def test_an_async_task_fails_as_it_is_told_even_through_a_copy(queue: PgQueue) -> None:
    @queue.task(max_attempts=1)
    async def waits() -> None: ...

    waits.enqueue()
    with failing(waits.using(priority=1), error=KeyError):
        (ran,) = drain(queue)
    assert (ran.outcome, type(ran.error)) == (JobState.DEAD, KeyError)


def test_the_job_of_a_dead_worker_runs_again_when_its_lease_has_passed(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any], noted: list[Any]
) -> None:
    handle, other = note.enqueue("first"), note.enqueue("second")
    with dying(note):
        ran = drain(queue)
    assert [one.outcome for one in ran] == [JobState.RUNNING, JobState.SUCCEEDED]
    assert (noted, other.status()) == (["first", "second"], JobState.SUCCEEDED)
    assert handle.status() is JobState.RUNNING
    clock.travel(timedelta(seconds=30))
    assert drain(queue) == []
    clock.travel(SECOND)
    (again,) = drain(queue)
    job = queue.job(handle.id)
    assert (again.attempt, noted, job.attempts) == (2, ["first", "second", "first"], 2)
    assert [(error.attempt, error.type) for error in job.errors] == [(1, "WorkerLost")]


@pytest.mark.parametrize(
    ("then", "attempts", "said"),
    [("isolate", 3, "killed 2 workers, and its own process"), ("dead", 3, "killed 2 workers")],
)
def test_a_job_that_kills_its_workers_is_quarantined(
    queue: PgQueue, clock: Clock, then: Any, attempts: int, said: str
) -> None:
    @queue.task(name="explode", crashes=Crashes(2, then=then))
    def explode() -> None: ...

    handle = explode.enqueue()
    with dying(explode, times=9) as deaths:
        for _ in range(4):
            drain(queue)
            clock.travel(MINUTE)
    job = queue.job(handle.id)
    assert (job.state, job.reason, job.attempts) == (JobState.DEAD, "crashed", attempts)
    assert [error.type for error in job.errors] == ["WorkerLost", "WorkerLost", "JobCrashed"]
    assert job.errors[-1].message == said
    assert deaths.met == (3 if then == "isolate" else 2)


def test_a_job_that_was_quarantined_may_succeed_and_one_that_is_retried_begins_again(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any], noted: list[Any]
) -> None:
    handle = note.enqueue(1)
    with dying(note, times=4):
        for _ in range(4):
            drain(queue)
            clock.travel(MINUTE)
    assert (handle.status(), noted) == (JobState.DEAD, [1, 1, 1, 1])
    queue.retry(handle.id)
    with dying(note, times=1):
        drain(queue)
    clock.travel(MINUTE)
    (ran,) = drain(queue)
    assert (ran.outcome, handle.status()) == (JobState.SUCCEEDED, JobState.SUCCEEDED)


def test_an_attempt_whose_job_is_somebody_elses_by_now_changes_nothing(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="slow")
    def slow(ctx: Context) -> int:
        if ctx.attempt == 1:
            clock.travel(MINUTE)  # the lease passes; another worker takes the job, and dies of it
            with dying(slow):
                drain(queue)
        return ctx.attempt

    handle = slow.enqueue()
    drain(queue)
    assert (handle.status(), queue.job(handle.id).attempts) == (JobState.RUNNING, 2)
    other = slow.using(run_at=NOON + HOUR).enqueue()
    clock.travel(MINUTE)
    drain(queue)
    assert handle.result(timeout=0) == 3
    assert other.status() is JobState.SCHEDULED


def test_a_drain_goes_on_when_its_own_lease_has_passed(
    queue: PgQueue, clock: Clock, note: Task[[Any], Any], noted: list[Any]
) -> None:
    @queue.task(priority=1)
    def long() -> None:
        clock.travel(HOUR)
        assert drain(queue, queues=["other"]) == []

    long.enqueue()
    note.enqueue("after it")
    drain(queue)
    assert noted == ["after it"]


def test_the_last_attempt_of_a_dead_worker_is_the_jobs_end(queue: PgQueue, note: Task[[Any], Any]) -> None:
    handle = note.using(max_attempts=1).enqueue(1)
    asked = note.using(max_attempts=1).enqueue(2)
    with dying(note, times=2):
        drain(queue)
    asked.cancel()
    assert drain(queue, now=NOON + MINUTE) == []
    assert (queue.job(handle.id).state, queue.job(handle.id).reason) == (JobState.DEAD, "exhausted")
    assert asked.status() is JobState.CANCELLED
