"""Call sites as people write them for Celery, run by pgqueue's workers."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from running import Running

from pgqueue import JobState, PgQueue
from pgqueue.errors import (
    ConfigurationError,
    InvalidOption,
    JobFailed,
    JobNotDone,
    PayloadNotEncodable,
    UnknownTask,
)
from pgqueue.moving.celery import AsyncResult, Celery, Task
from pgqueue.moving.celery.options import CALL_REMEDIES, CALL_SAME, RETRY_REMEDIES, TASK_REMEDIES, TASK_SAME

FUTURE = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(queue: PgQueue) -> Celery:
    return Celery(queue)


@pytest.fixture
def apart() -> Celery:
    """An app for what is decided before any database is asked."""
    return Celery(PgQueue("postgresql://nowhere.invalid/none"))


def add(x: int, y: int = 1) -> int:
    return x + y


def fail() -> None:
    raise OSError("no stock")


async def ended(queue: PgQueue, result: AsyncResult[Any], running: Running) -> AsyncResult[Any]:
    """The same, once a worker is through with it."""
    async with running(queue):
        with suppress(JobFailed):
            await queue.aresult(int(result.id), timeout=20)
    return result


async def test_delay_and_apply_async_run_and_get_returns_the_result(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    task = app.task(add)
    first, second = task.delay(2, y=3), task.apply_async((4,), {"y": 5})

    await ended(queue, second, running)

    assert (first.get(timeout=5), second.get(timeout=5)) == (5, 9)
    assert first.state == first.status == "SUCCESS"
    assert (first.result, first.successful(), first.ready(), first.failed()) == (5, True, True, False)
    made = (app.AsyncResult(first.id), AsyncResult[int](first.id, app=app), AsyncResult[int](first.id))
    assert [one.get() for one in made] == [5, 5, 5]


def test_a_task_can_still_be_called(apart: Celery) -> None:
    assert apart.task(add)(2, y=3) == 5
    assert apart.task(bind=True)(remember)("a") == "a"


def test_shared_task_is_the_apps_task(apart: Celery) -> None:
    shared_task = apart.task

    @shared_task(name="add.numbers", queue="sums")
    def numbers(x: int) -> int:
        """Adds."""
        return x

    assert (numbers.name, numbers.task.options.queue, numbers.__doc__) == ("add.numbers", "sums", "Adds.")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"queue": "sums"}, {"queue": "sums"}),
        ({"eta": FUTURE}, {"run_at": FUTURE, "state": JobState.SCHEDULED}),
        ({"countdown": 0}, {"state": JobState.READY}),
        ({"expires": None, "link": None, "ignore_result": True}, {"state": JobState.READY}),
        (
            {"retry": True, "retry_policy": {"max_retries": 3}, "serializer": "json"},
            {"state": JobState.READY},
        ),
    ],
)
def test_options_of_a_call_are_those_of_the_job(
    options: dict[str, Any], expected: dict[str, Any], app: Celery, queue: PgQueue
) -> None:
    job = queue.job(int(app.task(add).apply_async((1,), **options).id))
    assert {name: getattr(job, name) for name in expected} == expected


def test_a_countdown_is_seconds_from_now(app: Celery, queue: PgQueue) -> None:
    job = queue.job(int(app.task(add).apply_async((1,), countdown=3600).id))
    assert job.run_at - job.created_at == timedelta(hours=1)


@pytest.mark.parametrize(("broker", "expected"), [("rabbitmq", 9), ("redis", -9)])
def test_a_priority_keeps_the_direction_of_the_broker_that_it_was_written_for(
    broker: Any, expected: int, queue: PgQueue
) -> None:
    app = Celery(queue, broker=broker)
    task = app.task(priority=9)(add)
    for result in (task.delay(1), task.apply_async((1,), priority=9)):
        assert queue.job(int(result.id)).priority == expected


def test_a_priority_without_a_broker_is_refused(apart: Celery) -> None:
    with pytest.raises(InvalidOption, match="RabbitMQ higher runs sooner, on Redis lower"):
        apart.task(add).apply_async((1,), priority=9)
    with pytest.raises(InvalidOption, match="RabbitMQ higher"):
        _ = apart.task(priority=1)(fail).task


def test_a_broker_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidOption, match="'rabbitmq' or 'redis'"):
        Celery(PgQueue(), broker="sqs")


@pytest.mark.parametrize("name", sorted(CALL_REMEDIES))
def test_an_option_of_a_call_that_is_not_honoured_is_refused_by_name(name: str, apart: Celery) -> None:
    option: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidOption, match=f"^{name}=1: "):
        apart.task(add).apply_async((1,), **option)


@pytest.mark.parametrize("name", sorted(TASK_REMEDIES))
def test_an_option_of_a_task_that_is_not_honoured_is_refused_by_name(name: str, apart: Celery) -> None:
    with pytest.raises(InvalidOption, match=f"^{name}=1: "):
        apart.task(**{name: 1})


def test_an_option_that_celery_does_not_have_either_is_refused_with_the_nearest(apart: Celery) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'countdown'"):
        apart.task(add).apply_async((1,), countdwon=1)
    with pytest.raises(InvalidOption, match="did you mean 'max_retries'"):
        apart.task(max_retrys=1)
    with pytest.raises(InvalidOption, match="no such option"):
        apart.task(retry_kwargs={"jitter": 1})


def test_options_that_need_no_action_are_taken(apart: Celery) -> None:
    same: dict[str, Any] = dict.fromkeys(TASK_SAME, True) | {"serializer": "json"}
    of_calls: dict[str, Any] = dict.fromkeys(CALL_SAME, True)
    assert apart.task(**same)(add)(1) == 2
    assert apart.task(add).signature((1,), **of_calls).task.name.endswith("add")


async def test_a_task_that_does_not_retry_is_dead_after_its_first_error(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    result = await ended(queue, app.task(fail).delay(), running)

    assert (result.state, result.failed(), result.ready()) == ("FAILURE", True, True)
    with pytest.raises(JobFailed, match="OSError: no stock"):
        result.get()
    assert isinstance(result.get(propagate=False), JobFailed)
    assert isinstance(result.result, JobFailed)
    assert queue.job(int(result.id)).attempts == 1


def test_a_task_that_does_not_retry_is_never_begun_twice_even_if_its_worker_dies(apart: Celery) -> None:
    assert apart.task(name="early")(fail).task.options.max_attempts == 1
    assert apart.task(name="late", acks_late=True)(fail).task.options.max_attempts == 4
    assert apart.task(name="bound", bind=True)(remember).task.options.max_attempts == 4
    assert (
        apart.task(name="auto", autoretry_for=[OSError], max_retries=5)(fail).task.options.max_attempts == 6
    )
    forever = apart.task(name="for ever".replace(" ", "_"), bind=True, max_retries=None)(remember)
    assert forever.task.options.max_attempts == 32_767
    kwargs = {"max_retries": 7}
    assert (
        apart.task(name="kw", autoretry_for=[OSError], retry_kwargs=kwargs)(fail).task.options.max_attempts
        == 8
    )


async def test_autoretry_tries_again_after_the_errors_it_names_and_no_others(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    def refuse() -> None:
        raise ValueError("no such order")

    options: dict[str, Any] = {"autoretry_for": (OSError,), "max_retries": 2, "default_retry_delay": 0}
    again = app.task(**options)(fail).delay()
    once = app.task(**options)(refuse).delay()
    await ended(queue, once, running)
    await ended(queue, again, running)

    assert [queue.job(int(result.id)).attempts for result in (again, once)] == [3, 1]
    assert again.state == once.state == "FAILURE"


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({}, [180, 180, 180]),
        ({"default_retry_delay": 5}, [5, 5, 5]),
        ({"retry_kwargs": {"countdown": 7}}, [7, 7, 7]),
        ({"retry_backoff": True, "retry_jitter": False}, [1, 2, 4]),
        ({"retry_backoff": 10, "retry_backoff_max": 25, "retry_jitter": False}, [10, 20, 25]),
    ],
)
def test_the_waits_between_automatic_retries_are_celerys(
    options: dict[str, Any], waits: list[int], apart: Celery
) -> None:
    policy = apart.task(autoretry_for=(OSError,), **options)(fail).task.retry
    found = [policy.delay(OSError(), attempt, timedelta(0)).total_seconds() for attempt in (1, 2, 3)]
    assert found == waits


def test_jitter_spreads_the_backoff_from_zero_to_its_whole(apart: Celery) -> None:
    policy = apart.task(autoretry_for=(OSError,), retry_backoff=100)(fail).task.retry
    found = [policy.delay(OSError(), 1, timedelta(0)).total_seconds() for _ in range(200)]
    assert all(0 <= seconds <= 100 for seconds in found)
    assert max(found) - min(found) > 50


def remember(self: Task[..., Any], word: str) -> str:
    assert self.name
    return word


async def test_a_bound_task_retries_itself_until_it_may_not_and_then_ends_with_its_error(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    seen: list[Any] = []

    @app.task(bind=True, max_retries=2, default_retry_delay=0)
    def stubborn(self: Task[..., Any], order_id: int) -> None:
        seen.append((self.request.id, self.request.retries, order_id))
        try:
            fail()
        except OSError as error:
            raise self.retry(exc=error)  # noqa: B904 - as it is written in Celery's own pages

    result = await ended(queue, stubborn.delay(42), running)

    assert seen == [(result.id, retries, 42) for retries in range(3)]
    job = queue.job(int(result.id))
    assert job.state is JobState.DEAD
    assert [error.type for error in job.errors] == ["pgqueue.errors.RetryLater"] * 2 + ["OSError"]


async def test_a_retry_can_succeed_and_waits_as_long_as_it_says(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    @app.task(bind=True)
    def second_time(self: Task[..., Any]) -> str:
        if self.request.retries == 0:
            self.retry(countdown=0)
        return "done"

    @app.task(bind=True, default_retry_delay=3600)
    def in_an_hour(self: Task[..., Any]) -> None:
        self.retry()

    later = in_an_hour.delay()
    assert (await ended(queue, second_time.delay(), running)).get() == "done"
    job = queue.job(int(later.id))
    assert job.state is JobState.SCHEDULED
    assert job.run_at > datetime.now(UTC) + timedelta(minutes=50)
    assert later.state == "RETRY"


def test_a_bound_tasks_other_errors_are_not_retried(apart: Celery) -> None:
    policy = apart.task(bind=True)(remember).task.retry
    assert not policy.wants_again(OSError(), 1, timedelta(0))


@pytest.mark.parametrize("name", sorted(RETRY_REMEDIES))
def test_an_option_of_a_retry_that_is_not_honoured_is_refused_by_name(name: str, apart: Celery) -> None:
    option: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidOption, match=f"^{name}=1: "):
        apart.task(add).retry(**option)


def test_a_retry_outside_of_a_job_raises_its_reason_or_says_that_there_is_no_job(apart: Celery) -> None:
    task = apart.task(add)
    with pytest.raises(OSError, match="no stock"):
        task.retry(exc=OSError("no stock"))
    with pytest.raises(ConfigurationError, match="called directly"):
        task.retry()
    with pytest.raises(InvalidOption, match="throw=False"):
        task.retry(throw=False)
    with pytest.raises(InvalidOption, match=r"give it to the task, which has 3"):
        task.retry(max_retries=9)


async def test_a_bound_coroutine_function_is_given_its_task(
    app: Celery, queue: PgQueue, running: Running
) -> None:
    @app.task(bind=True, default_retry_delay=0)
    async def awaited(self: Task[..., Any]) -> int:
        if self.request.retries == 0:
            self.retry()
        return self.request.retries

    assert (await ended(queue, awaited.delay(), running)).get() == 1


async def test_a_time_limit_ends_the_attempt(app: Celery, queue: PgQueue, running: Running) -> None:
    @app.task(time_limit=0.05)
    async def sleepy() -> None:
        import asyncio  # noqa: PLC0415 - as tasks do

        await asyncio.Event().wait()

    with pytest.raises(JobFailed, match="TimedOut"):
        (await ended(queue, sleepy.delay(), running)).get()


def test_send_task_finds_a_task_by_name(app: Celery, queue: PgQueue) -> None:
    app.task(name="add")(add)
    assert queue.job(int(app.send_task("add", (1,), {"y": 2}, queue="sums").id)).args == {"x": 1, "y": 2}
    with pytest.raises(UnknownTask, match="did you mean 'add'"):
        app.send_task("ad")


def test_revoke_cancels_what_waits(app: Celery) -> None:
    result = app.task(add).delay(1)
    result.revoke()
    assert (result.state, result.ready()) == ("REVOKED", True)


def test_revoke_leaves_a_running_job_alone_unless_it_is_to_be_terminated(app: Celery, queue: PgQueue) -> None:
    result = app.task(add).delay(1)
    requested = "select cancel_requested from pgqueue.jobs"
    with queue.take(1), queue.database.pooled() as connection:
        assert result.state == "STARTED"
        result.revoke()
        assert connection.execute(requested).fetchone() == (False,)
        result.revoke(terminate=True)
        assert connection.execute(requested).fetchone() == (True,)


def test_a_job_that_nobody_knows_is_pending_and_an_old_id_is_refused(app: Celery) -> None:
    assert app.AsyncResult(10**9).state == "PENDING"
    with pytest.raises(InvalidOption, match="in Celery's result backend"):
        app.AsyncResult(str(uuid4()))


def test_a_result_that_is_not_there_in_time_is_a_timeout(app: Celery) -> None:
    result = app.task(add).delay(1)
    assert result.result is None
    with pytest.raises(JobNotDone):
        result.get(timeout=0.01)


@dataclass
class Order:
    id: int


@pytest.mark.parametrize(
    "value", [datetime.now(UTC), Decimal("1.5"), {1: "one"}, {"a", "b"}, b"bytes", Order(1), [FUTURE]]
)
def test_an_argument_that_would_arrive_as_something_else_is_refused(value: object, apart: Celery) -> None:
    def unannotated(value, *, note="") -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as they are written
        del value, note

    task = apart.task(unannotated)
    with pytest.raises(PayloadNotEncodable, match="would arrive as"):
        task.delay(value)


def test_arguments_that_arrive_as_what_they_are_are_taken_and_tuples_may_become_lists(
    app: Celery, queue: PgQueue
) -> None:
    def annotated(when: datetime, amount: Decimal, pair: tuple[int, int] = (1, 2)) -> None:
        del when, amount, pair

    def unannotated(value, *, note="") -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as they are written
        del value, note

    app.task(annotated).delay(FUTURE, amount=Decimal("1.5"), pair=(3, 4))
    app.task(unannotated).delay((1, ["a", {"b": None}]), note="fine")
    assert len(queue.insight.search().jobs) == 2


MODULES = ["celery", "rq", "procrastinate", "django_q"]


@pytest.mark.parametrize("module", MODULES)
def test_a_stand_in_loads_nothing_of_the_system_it_stands_in_for(module: str) -> None:
    program = (
        f"import sys, pgqueue.moving.{module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    )
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert {"celery", "rq", "procrastinate", "django_q", "django", "redis", "kombu"}.isdisjoint(
        ended.stdout.split()
    )
