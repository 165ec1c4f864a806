"""Call sites as people write them for Procrastinate, run by pgqueue's workers; and its own strategies beside ours."""

from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
import psycopg
import pytest
from procrastinate.jobs import Job as TheirJob
from procrastinate.retry import get_retry_strategy
from running import Running

from pgqueue import Context, JobState, PgQueue
from pgqueue.errors import InvalidOption, UnknownTask
from pgqueue.moving.procrastinate import (
    JOB_REMEDIES,
    TASK_REMEDIES,
    AlreadyEnqueued,
    App,
    RetryStrategy,
    policy_of,
)

FUTURE = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(queue: PgQueue) -> App:
    return App(queue)


@pytest.fixture
def apart() -> App:
    """An app for what is decided before any database is asked."""
    return App(PgQueue("postgresql://nowhere.invalid/none"))


def add(x: int, y: int = 1) -> int:
    return x + y


async def test_defer_runs_and_returns_the_jobs_id(app: App, queue: PgQueue, running: Running) -> None:
    @app.task(queue="sums", priority=3)
    async def double(ctx: Context, x: int) -> int:
        assert ctx.attempt == 1
        return 2 * x

    ids = [app.task(add).defer(x=1, y=2), await double.defer_async(x=4)]

    async with running(queue):
        assert [await queue.aresult(one, timeout=20) for one in ids] == [3, 8]
    job = queue.job(ids[1])
    assert (job.task, job.queue, job.priority) == (f"{__name__}.double", "sums", 3)
    assert app.task(name="again")(add)(2) == 3


def test_configure_says_how_a_job_is_queued(app: App, queue: PgQueue) -> None:
    task = app.task(name="add")(add)
    at = task.configure(queue="mail", priority=-5, schedule_at=FUTURE, task_kwargs={"x": 1}).defer(y=2)
    soon = app.configure_task("add", schedule_in={"minutes": 5}).defer(x=1)

    found = queue.job(at)
    assert (found.queue, found.priority, found.run_at, found.args) == ("mail", -5, FUTURE, {"x": 1, "y": 2})
    later = queue.job(soon)
    assert later.run_at - later.created_at == timedelta(minutes=5)


def test_a_connection_brings_its_transaction(
    app: App, queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    task = app.task(add)
    with connection.transaction(force_rollback=True):
        task.configure(connection=connection).defer(x=1)
        task.configure(connection=connection).batch_defer({"x": 2}, {"x": 3})
        task.configure(connection=connection, queueing_lock="add").defer(x=4)
        assert connection.execute("select count(*) from pgqueue.jobs").fetchone() == (4,)
    assert queue.insight.search().jobs == ()


async def test_a_batch_is_enqueued_at_once(app: App, queue: PgQueue) -> None:
    task = app.task(add)
    first = task.batch_defer({"x": 1}, {"x": 2})
    second = await task.configure(task_kwargs={"y": 9}).batch_defer_async({"x": 3}, {"x": 4})
    assert [queue.job(one).args for one in (*first, *second)] == [
        {"x": 1},
        {"x": 2},
        {"x": 3, "y": 9},
        {"x": 4, "y": 9},
    ]
    assert await task.batch_defer_async() == []
    await queue.aclose()


async def test_a_queueing_lock_lets_one_job_wait_and_is_free_when_that_starts(
    app: App, queue: PgQueue
) -> None:
    task = app.task(queueing_lock="add")(add)
    task.defer(x=1)

    with pytest.raises(AlreadyEnqueued, match="queueing_lock='add': job 1 already waits with this lock"):
        task.defer(x=2)
    with pytest.raises(AlreadyEnqueued):
        await task.defer_async(x=2)
    task.configure(queueing_lock="another").defer(x=3)
    with queue.take(2):
        assert task.batch_defer({"x": 4}) == [await _only_ready(queue)]
    assert [job.args["x"] for job in queue.insight.search().jobs] == [4, 3, 1]
    await queue.aclose()


async def _only_ready(queue: PgQueue) -> int:
    (job,) = (await queue.insight.asearch(state=JobState.READY)).jobs
    return job.id


async def test_a_batch_that_shares_a_queueing_lock_could_not_wait_and_enqueues_nothing(apart: App) -> None:
    deferrer = apart.task(add).configure(queueing_lock="add")
    with pytest.raises(AlreadyEnqueued, match="2 jobs cannot wait"):
        deferrer.batch_defer({"x": 1}, {"x": 2})
    with pytest.raises(AlreadyEnqueued, match="2 jobs cannot wait"):
        await deferrer.batch_defer_async({"x": 1}, {"x": 2})


async def test_without_retry_a_failed_job_is_dead_and_with_it_so_many_more_attempts_are_made(
    app: App, queue: PgQueue, running: Running
) -> None:
    @app.task(name="once")
    def once() -> None:
        raise OSError

    @app.task(name="thrice", retry=2)
    async def thrice() -> None:
        raise OSError

    ids = [once.defer(), thrice.defer()]
    async with running(queue):
        for one in ids:
            with pytest.raises(Exception, match="OSError"):
                await queue.aresult(one, timeout=20)
    assert [queue.job(one).attempts for one in ids] == [1, 3]


STRATEGIES: list[Any] = [
    {"wait": 5},
    {"max_attempts": 0, "wait": 1},
    {"max_attempts": 3, "linear_wait": 10},
    {"exponential_wait": 3},
    {"max_attempts": 5, "wait": 2, "linear_wait": 3, "exponential_wait": 2, "retry_exceptions": (OSError,)},
]


@pytest.mark.parametrize("error", [OSError(), ValueError()])
@pytest.mark.parametrize(
    "retry", [False, True, 2, *(procrastinate.RetryStrategy(**words) for words in STRATEGIES)], ids=str
)
def test_a_retry_means_what_procrastinate_itself_makes_of_it(retry: Any, error: Exception) -> None:
    strategy, policy = get_retry_strategy(retry), policy_of(retry)
    for attempt in range(1, 8):
        job = TheirJob(queue="q", lock=None, queueing_lock=None, task_name="t", attempts=attempt - 1)
        now = datetime.now(UTC)
        decision = None if strategy is None else strategy.get_retry_decision(exception=error, job=job)
        again = attempt < (policy.max_attempts or 25) and policy.wants_again(error, attempt, timedelta(0))
        assert again == (decision is not None)
        if decision is not None:
            assert decision.retry_at is not None
            wait = policy.delay(error, attempt, timedelta(0))
            assert timedelta(0) <= decision.retry_at - now - wait < timedelta(seconds=1)


@pytest.mark.parametrize("words", STRATEGIES)
def test_our_retry_strategy_is_procrastinates(words: dict[str, Any]) -> None:
    ours, theirs = policy_of(RetryStrategy(**words)), policy_of(procrastinate.RetryStrategy(**words))
    assert ours.max_attempts == theirs.max_attempts
    waits = [[one.delay(OSError(), n, timedelta(0)) for n in range(1, 6)] for one in (ours, theirs)]
    assert waits[0] == waits[1]


def test_a_strategy_of_ones_own_is_refused() -> None:
    class Own(procrastinate.BaseRetryStrategy):
        pass

    with pytest.raises(InvalidOption, match="a custom strategy"):
        policy_of(Own())


def test_an_alias_is_a_name_under_which_jobs_run_too(apart: App) -> None:
    apart.task(name="add", aliases=["plus", "sum"])(add)
    assert {name: task.function for name, task in apart.queue.tasks.items()} == dict.fromkeys(
        ["add", "plus", "sum"], add
    )


@pytest.mark.parametrize("name", sorted(TASK_REMEDIES))
def test_an_option_of_a_task_that_is_not_honoured_is_refused_by_name(name: str, apart: App) -> None:
    option: dict[str, Any] = {name: "x"}
    with pytest.raises(InvalidOption, match=f"^{name}='x': "):
        apart.task(**option)


@pytest.mark.parametrize("name", sorted(JOB_REMEDIES))
def test_an_option_of_a_job_that_is_not_honoured_is_refused_by_name(name: str, apart: App) -> None:
    with pytest.raises(InvalidOption, match=f"^{name}='x': "):
        apart.task(add).configure(**{name: "x"})


def test_what_procrastinate_does_not_know_either_is_refused_with_the_nearest(apart: App) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'schedule_in'"):
        apart.task(add).configure(shedule_in={"minutes": 5})
    with pytest.raises(UnknownTask):
        apart.configure_task("nobody's")


def test_periodic_tasks_name_what_to_use_in_their_place(apart: App) -> None:
    with pytest.raises(InvalidOption, match=r"use @queue\.schedule"):
        apart.periodic(cron="* * * * *")
