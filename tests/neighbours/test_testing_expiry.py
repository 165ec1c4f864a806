"""Jobs that have to be started in time: in memory, on PostgreSQL, and in one open transaction of it."""

from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, every_place, one_database
from tenacity import wait_fixed

from pgqueue import Context, JobState, PgQueue, Retry, Snooze, Task, Unique, chain
from pgqueue.errors import InvalidOption, JobFailed
from pgqueue.testing import Clock, drain
from pgqueue.values.flows.record import FlowState

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


def _set(clock: Clock, after_noon: timedelta) -> None:
    clock.travel(NOON + after_noon - clock.now)


@pytest.fixture
def note(queue: PgQueue) -> Task[[int], int]:
    @queue.task(name="note")
    def note(what: int) -> int:
        return what

    return note


def test_a_job_that_is_not_started_in_time_is_dead_and_a_caller_is_told(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    late, in_time = note.using(expires_in=60).enqueue(1), note.using(expires_in=61).enqueue(2)
    _set(clock, MINUTE)
    assert [ran.id for ran in drain(queue)] == [in_time.id]
    job = queue.job(late.id)
    assert (job.state, job.reason, job.attempts, job.started_at) == (JobState.DEAD, "expired", 0, None)
    with pytest.raises(JobFailed, match=r"is dead: Expired: it was to be started by 2031-05-04 12:01"):
        late.result(timeout=0)


def test_a_job_that_is_started_a_moment_before_its_end_runs(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    note.using(expires_at=NOON + MINUTE).enqueue(1)
    _set(clock, 59 * SECOND)
    assert [ran.outcome for ran in drain(queue)] == [JobState.SUCCEEDED]


def test_the_length_is_counted_from_when_the_job_may_run(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    note.using(delay=MINUTE, expires_in=30).enqueue(1)
    note.using(run_at=NOON + MINUTE, expires_in=30).enqueue(2)
    _set(clock, 89 * SECOND)
    assert len(drain(queue)) == 2


def test_a_retry_is_not_started_after_the_end_and_the_errors_stay(queue: PgQueue, clock: Clock) -> None:
    @queue.task(retry=Retry(wait=wait_fixed(120)), expires_in=60)
    def fail() -> None:
        raise ConnectionError("no mail server")

    handle = fail.enqueue()
    (ran,) = drain(queue, raises=False)
    assert ran.outcome is JobState.SCHEDULED
    _set(clock, MINUTE)
    assert drain(queue) == []
    job = queue.job(handle.id)
    assert (job.reason, job.attempts) == ("expired", 1)
    assert [error.type for error in job.errors] == ["ConnectionError", "Expired"]


def test_a_task_says_for_how_long_and_a_call_says_otherwise(queue: PgQueue, clock: Clock) -> None:
    @queue.task(expires_in=HOUR)
    def work() -> None:
        pass

    shorter, until, as_said = work.using(expires_in=60), work.using(expires_at=NOON + MINUTE), work
    handles = [one.enqueue() for one in (shorter, until, as_said)]
    _set(clock, MINUTE)
    assert [ran.id for ran in drain(queue)] == [handles[2].id]


def test_many_jobs_and_jobs_with_keys_expire_as_one_does(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    late = note.using(expires_in=60)
    handles = queue.enqueue_many(
        [late.call(1), late.using(unique_key="a").call(2), note.using(expires_at=NOON + MINUTE).call(3)]
    )
    handles.append(late.using(unique_key="b").enqueue(4))
    handles.append(late.using(unique_key="c", unique=Unique(period=5)).enqueue(5))
    handles.append(late.using(unique_key="c", unique=Unique(collision="replace")).enqueue(6))
    _set(clock, MINUTE)
    assert drain(queue) == []
    assert {queue.job(one.id).reason for one in handles} == {"expired"}


def test_a_replaced_job_has_the_end_of_the_enqueue_that_replaced_it(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    replacing = note.using(unique_key="a", unique=Unique(collision="replace"))
    replacing.using(expires_in=60).enqueue(1)
    _set(clock, 30 * SECOND)
    replacing.enqueue(2)
    _set(clock, HOUR)
    assert [ran.args for ran in drain(queue)] == [{"what": 2}]


def test_a_paused_queue_keeps_no_job_beyond_its_end(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    handle = note.using(expires_in=60).enqueue(1)
    queue.control.pause("default")
    _set(clock, MINUTE)
    drain(queue)
    assert handle.status() is JobState.DEAD


def test_in_a_chain_a_job_that_has_expired_counts_as_failed(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    flow = chain(note.using(expires_in=60).call(1), note.call(2)).enqueue()
    _set(clock, MINUTE)
    assert drain(queue) == []
    assert flow.status() is FlowState.FAILED
    assert {job.state for job in queue.insight.search().jobs} == {JobState.DEAD, JobState.CANCELLED}


def test_a_job_that_waits_for_others_in_its_flow_expires(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    flow = chain(note.using(delay=HOUR).call(1), note.using(expires_in=60).call(2)).enqueue()
    _set(clock, MINUTE)
    assert drain(queue) == []
    assert queue.insight.search(state=JobState.DEAD).jobs[0].reason == "expired"
    _set(clock, 2 * HOUR)
    assert [ran.args for ran in drain(queue)] == [{"what": 1}]
    assert flow.status() is FlowState.FAILED


def test_a_job_that_has_started_and_waits_for_a_signal_does_not_expire(queue: PgQueue, clock: Clock) -> None:
    @queue.task(expires_in=60)
    def approve(ctx: Context) -> Any:
        return ctx.wait_for("approved")

    handle = approve.enqueue()
    drain(queue)
    _set(clock, HOUR)
    drain(queue)
    assert handle.status() is JobState.BLOCKED
    queue.signal(handle, "approved", 1)
    drain(queue)
    assert handle.result(timeout=0) == 1


def test_a_snoozed_job_is_not_started_again_after_its_end(queue: PgQueue, clock: Clock) -> None:
    @queue.task(expires_in=60)
    def later() -> None:
        raise Snooze(timedelta(seconds=90))

    handle = later.enqueue()
    drain(queue)
    _set(clock, 90 * SECOND)
    assert drain(queue) == []
    assert queue.job(handle.id).reason == "expired"


def test_a_dead_job_that_is_retried_does_not_expire_again(
    queue: PgQueue, note: Task[[int], int], clock: Clock
) -> None:
    handle = note.using(expires_in=60).enqueue(7)
    _set(clock, HOUR)
    drain(queue)
    queue.retry(handle.id)
    drain(queue)
    assert handle.result(timeout=0) == 7


def test_a_scheduled_job_has_the_length_of_its_task(queue: PgQueue, clock: Clock) -> None:
    @queue.schedule(every=HOUR, anchor=NOON)
    @queue.task(expires_in=60)
    def work() -> None:
        pass

    queue.schedules.apply()
    _set(clock, HOUR)
    queue.control.pause("default")
    drain(queue)
    _set(clock, HOUR + MINUTE)
    drain(queue)
    assert [job.reason for job in queue.insight.search().jobs] == ["expired"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires_in": 0}, "expires_in=0"),
        ({"expires_in": -1}, "expires_in=-1"),
        ({"expires_in": float("nan")}, "expires_in=nan"),
        ({"expires_in": "soon"}, "expires_in='soon'"),
        ({"expires_at": NOON.replace(tzinfo=None)}, "no time zone"),
        ({"expires_at": 5}, "expires_at=5"),
        ({"expires_at": NOON, "expires_in": 5}, "contradict"),
        ({"expires_at": NOON, "run_at": NOON}, "would never run"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    queue: PgQueue, note: Task[[int], int], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOption, match=words):
        note.using(**options)
    assert queue.insight.search().jobs == ()


def test_a_schedule_has_no_instant_after_which_its_jobs_expire(
    queue: PgQueue, note: Task[[int], int]
) -> None:
    with pytest.raises(InvalidOption, match="use expires_in="):
        queue.schedules.add("hourly", note.using(expires_at=NOON).call(1), every=HOUR)
