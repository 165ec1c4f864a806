"""Call sites as people write them for RQ, run by pgqueue's workers."""

import html
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from running import Running

from pgqueue import JobState, PgQueue
from pgqueue.errors import (
    InvalidOption,
    JobFailed,
    JobNotFound,
    PayloadNotEncodable,
    PgQueueWarning,
    UnknownTask,
)
from pgqueue.moving.rq import REMEDIES, Job, Queue, Retry, job, register

FUTURE = datetime(2040, 1, 1, tzinfo=UTC)


def add(x: int, y: int = 1) -> int:
    return x + y


def fail() -> None:
    raise OSError("no stock")


def takes_anything(value, *, timeout=None) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as they are written
    del value, timeout


@pytest.fixture
def mail(queue: PgQueue) -> Queue:
    register(queue, add, fail, takes_anything, html.escape)
    return Queue("mail", connection=queue)


@pytest.fixture
def apart() -> Queue:
    """A queue for what is decided before any database is asked."""
    queue = PgQueue("postgresql://nowhere.invalid/none")
    register(queue, add, fail, takes_anything)
    return Queue("mail", connection=queue)


async def ended(queue: PgQueue, enqueued: Job, running: Running) -> Job:
    """The same, once a worker is through with it."""
    async with running(queue):
        with suppress(JobFailed):
            await queue.aresult(int(enqueued.id), timeout=20)
    return enqueued


async def test_enqueue_runs_functions_yours_and_a_librarys_and_their_results_can_be_had(
    mail: Queue, queue: PgQueue, running: Running
) -> None:
    found = [
        mail.enqueue(add, 2, y=3),
        mail.enqueue(f"{__name__}.add", 4),
        mail.enqueue(add, args=(5,), kwargs={"y": 6}),
        mail.enqueue_call(func=add, args=(7,)),
        mail.enqueue(html.escape, "<"),
    ]
    assert [one.is_queued for one in found] == [True] * 5

    for one in found:
        await ended(queue, one, running)

    assert [one.result for one in found] == [5, 5, 11, 8, "&lt;"]
    assert found[0].return_value() == 5
    assert (found[0].get_status(), found[0].is_finished, found[0].is_failed) == ("finished", True, False)
    assert Job.fetch(found[0].id, connection=queue).result == 5
    assert {one.queue for one in queue.insight.search().jobs} == {"mail"}


def test_enqueue_in_and_enqueue_at_say_when(mail: Queue, queue: PgQueue) -> None:
    soon, later = mail.enqueue_in(timedelta(hours=1), add, 1), mail.enqueue_at(FUTURE, add, 1, y=2)

    found = queue.job(int(soon.id))
    assert found.run_at - found.created_at == timedelta(hours=1)
    assert queue.job(int(later.id)).run_at == FUTURE
    assert soon.get_status() == later.get_status() == "scheduled"


def test_at_front_runs_before_the_others(mail: Queue, queue: PgQueue) -> None:
    mail.enqueue(add, 1)
    front = mail.enqueue(add, 2, at_front=True)
    with queue.take(1) as jobs:
        assert str(jobs[0].id) == front.id


async def test_a_job_has_one_attempt_unless_its_enqueue_gives_it_more_at_once(
    mail: Queue, queue: PgQueue, running: Running
) -> None:
    once, thrice = mail.enqueue(fail), mail.enqueue(fail, retry=Retry(max=2))
    await ended(queue, once, running)
    await ended(queue, thrice, running)

    assert [queue.job(int(one.id)).attempts for one in (once, thrice)] == [1, 3]
    assert (once.get_status(), once.is_failed, once.result) == ("failed", True, None)
    assert "OSError: no stock" in (once.exc_info or "")


def test_there_is_no_wait_between_attempts(apart: Queue) -> None:
    policy = apart.connection.tasks[f"{__name__}.fail"].retry
    assert [policy.delay(OSError(), attempt, timedelta(0)) for attempt in (1, 5)] == [timedelta(0)] * 2


def test_an_attempt_may_take_three_minutes_unless_said_otherwise(apart: Queue) -> None:
    queue = apart.connection
    assert queue.tasks[f"{__name__}.add"].timeout == timedelta(minutes=3)
    register(queue, html.escape, timeout=-1)
    register(queue, html.unescape, timeout=9, retry=Retry(max=4))
    assert queue.tasks["html.escape"].timeout is None
    assert queue.tasks["html.unescape"].timeout == timedelta(seconds=9)
    assert queue.tasks["html.unescape"].options.max_attempts == 5


async def test_the_decorator_gives_a_function_delay_and_leaves_it_a_function(
    queue: PgQueue, running: Running
) -> None:
    @job("sums", connection=queue, timeout=60, retry=Retry(max=1))
    def double(x: int) -> int:
        """Doubles."""
        return 2 * x

    assert (double(2), double.__name__, double.__doc__) == (4, "double", "Doubles.")
    assert (double.task.timeout, double.task.options.max_attempts) == (timedelta(minutes=1), 2)
    first, second = double.delay(3), Queue("other", connection=queue).enqueue(double, 4)
    await ended(queue, first, running)
    assert (await ended(queue, second, running)).result == 8
    assert first.result == 6
    assert [one.queue for one in queue.insight.search().jobs] == ["other", "sums"]


def test_the_decorator_takes_a_queue_too(apart: Queue) -> None:
    assert job(apart)(html.escape)("<") == "&lt;"


@pytest.mark.parametrize("name", sorted(REMEDIES))
def test_an_option_that_is_not_honoured_is_refused_by_name(name: str, apart: Queue) -> None:
    option: dict[str, Any] = {name: 1}
    for enqueue in (apart.enqueue, apart.enqueue_call):
        with pytest.raises(InvalidOption, match=f"^{name}=1: "):
            enqueue(add, **option)
    with pytest.raises(InvalidOption, match=f"^{name}=1: "):
        apart.enqueue_in(timedelta(1), add, **option)
    if name != "timeout":
        with pytest.raises(InvalidOption, match=f"^{name}=1: "):
            job(apart, **option)


def test_a_wait_between_retries_belongs_to_the_function() -> None:
    with pytest.raises(InvalidOption, match=r"interval=\[10, 30\]"):
        Retry(max=2, interval=[10, 30])
    with pytest.raises(InvalidOption, match="max=0"):
        Retry(max=0)


def test_a_retry_of_another_kind_is_refused(apart: Queue) -> None:
    with pytest.raises(InvalidOption, match="retry='often'"):
        apart.enqueue(add, 1, retry="often")


def test_positional_arguments_are_given_in_one_way(apart: Queue) -> None:
    with pytest.raises(InvalidOption, match="in one of the two ways"):
        apart.enqueue(add, 1, args=(2,))


def test_a_function_that_no_worker_would_know_is_refused_when_it_is_enqueued(apart: Queue) -> None:
    for function in (html.escape, "html.escape"):
        with pytest.raises(UnknownTask, match=r"register\(queue, function\)"):
            apart.enqueue(function, "<")


@pytest.mark.parametrize("value", [datetime.now(UTC), {1, 2}, b"bytes", {1: 2}])
def test_what_was_pickled_and_would_arrive_as_something_else_is_refused(value: object, apart: Queue) -> None:
    with pytest.raises(PayloadNotEncodable, match="would arrive as"):
        apart.enqueue(takes_anything, value)


def test_a_connection_that_is_not_a_queue_of_ours_is_refused() -> None:
    with pytest.raises(InvalidOption, match="give your PgQueue"):
        Queue("mail")
    with pytest.raises(InvalidOption, match="give your PgQueue"):
        job("mail", connection="redis://")  # type: ignore[arg-type]  # on purpose


def test_cancel_ends_what_waits_and_leaves_alone_what_runs(mail: Queue, queue: PgQueue) -> None:
    first, second = mail.enqueue(add, 1), mail.enqueue(add, 2)
    with queue.take(1), queue.database.pooled() as connection:
        assert first.is_started
        first.cancel()
        assert connection.execute("select cancel_requested from pgqueue.jobs where id = 1").fetchone() == (
            False,
        )
        second.cancel()
    assert second.get_status() == "canceled"
    assert queue.job(int(first.id)).state is JobState.SUCCEEDED


def test_a_job_that_is_not_there_or_was_rqs_is_told_apart(queue: PgQueue) -> None:
    with pytest.raises(JobNotFound):
        Job.fetch("123456", connection=queue)
    with pytest.raises(InvalidOption, match="RQ's jobs are in Redis"):
        Job.fetch("2a3f-11", connection=queue)


def test_the_registered_task_goes_on_to_warn_of_arguments_that_would_arrive_changed(
    mail: Queue, queue: PgQueue
) -> None:
    own = queue.find_task(f"{__name__}.takes_anything")
    mail.enqueue(takes_anything, 1)
    with pytest.warns(PgQueueWarning):
        own.enqueue((1, 2))
