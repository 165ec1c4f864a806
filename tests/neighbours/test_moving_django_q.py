"""Call sites as people write them for Django-Q, run by pgqueue's workers."""

import html
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from running import Running

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, JobFailed, PayloadNotEncodable, UnknownTask
from pgqueue.moving.django_q import REMEDIES, SCHEDULE_REMEDIES, Cluster

FUTURE = datetime(2040, 1, 1, tzinfo=UTC)
ADD = f"{__name__}.add"


def add(x: int, y: int = 1) -> int:
    return x + y


def fail() -> None:
    raise OSError("no stock")


def takes_anything(value) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as they are written
    del value


def cluster_of(queue: PgQueue, **settings: Any) -> Cluster:
    cluster = Cluster(queue, **settings)
    cluster.register(add, fail, takes_anything, html.escape)
    return cluster


@pytest.fixture
def cluster(queue: PgQueue) -> Cluster:
    return cluster_of(queue, retry=0, max_attempts=3)


@pytest.fixture
def apart() -> Cluster:
    """A cluster for what is decided before any database is asked."""
    return cluster_of(PgQueue("postgresql://nowhere.invalid/none"))


async def ended(queue: PgQueue, task_id: str, running: Running) -> str:
    """The same, once a worker is through with it."""
    async with running(queue):
        with suppress(JobFailed):
            await queue.aresult(int(task_id), timeout=20)
    return task_id


async def test_async_task_runs_functions_and_paths_and_result_waits_for_them(
    cluster: Cluster, queue: PgQueue, running: Running
) -> None:
    async_task, result, fetch = cluster.async_task, cluster.result, cluster.fetch
    first, second = async_task(add, 2, y=3), async_task("html.escape", "<")
    assert (result(first), result(first, wait=5), fetch(first)) == (None, None, None)

    await ended(queue, first, running)
    await ended(queue, second, running)

    assert (result(first), result(second, wait=-1)) == (5, "&lt;")
    fetched = fetch(first)
    assert fetched is not None
    assert (fetched.id, fetched.func, fetched.success, fetched.attempt_count) == (first, ADD, True, 1)
    assert fetched.started is not None
    assert fetched.stopped is not None


async def test_a_failed_task_runs_again_until_max_attempts_and_its_result_is_the_traceback(
    cluster: Cluster, queue: PgQueue, running: Running
) -> None:
    again, once = cluster.async_task(fail), cluster.async_task(fail, ack_failure=True)
    await ended(queue, once, running)
    await ended(queue, again, running)

    fetched = cluster.fetch(again)
    assert fetched is not None
    assert (fetched.success, fetched.attempt_count) == (False, 3)
    assert "OSError: no stock" in cluster.result(again)
    assert queue.job(int(once)).attempts == 1


def test_the_clusters_settings_keep_their_meaning(apart: Cluster) -> None:
    def policy(**settings: Any) -> tuple[int | None, float]:
        task = cluster_of(PgQueue(), **settings).queue.tasks[ADD]
        return task.options.max_attempts, task.retry.delay(OSError(), 1, timedelta(0)).total_seconds()

    assert policy() == (32_767, 60)
    assert policy(retry=90, max_attempts=4) == (4, 90)
    assert policy(ack_failures=True, max_attempts=4) == (1, 60)
    assert apart.queue.tasks[ADD].timeout is None
    assert cluster_of(PgQueue(), timeout=30).queue.tasks[ADD].timeout == timedelta(seconds=30)
    apart.register(html.unescape, timeout=9)
    assert apart.queue.tasks["html.unescape"].timeout == timedelta(seconds=9)


def test_options_may_stand_in_q_options_and_cluster_names_the_queue(cluster: Cluster, queue: PgQueue) -> None:
    cluster.async_task(add, 1, cluster="mail")
    cluster.async_task(add, 1, q_options={"cluster": "bulk", "hook": None})
    assert [job.queue for job in queue.insight.search().jobs] == ["bulk", "mail"]


@pytest.mark.parametrize("name", sorted(REMEDIES))
def test_an_option_that_is_not_honoured_is_refused_by_name(name: str, apart: Cluster) -> None:
    option: dict[str, Any] = {name: 1}
    for options in (option, {"q_options": option}):
        with pytest.raises(InvalidOption, match=f"^{name}=1: "):
            apart.async_task(add, 1, **options)


def test_an_option_that_django_q_does_not_have_is_an_argument_and_in_q_options_refused(
    apart: Cluster,
) -> None:
    with pytest.raises(PayloadNotEncodable, match="hok"):
        apart.async_task(add, 1, hok=1)
    with pytest.raises(InvalidOption, match="did you mean 'hook'"):
        apart.async_task(add, 1, q_options={"hok": 1})


def test_a_result_that_is_not_to_be_saved_is_the_queues_business(apart: Cluster) -> None:
    with pytest.raises(InvalidOption, match=r"PgQueue\(history="):
        apart.async_task(add, 1, save=False)


def test_a_schedule_that_is_due_once_is_a_job_that_waits(cluster: Cluster, queue: PgQueue) -> None:
    job_id = cluster.schedule(ADD, 1, y=2, next_run=FUTURE, schedule_type="O", repeats=-1, cluster="mail")
    job = queue.job(int(job_id))
    assert (job.run_at, job.args, job.queue) == (FUTURE, {"x": 1, "y": 2}, "mail")


def test_a_schedule_that_recurs_is_refused(apart: Cluster) -> None:
    with pytest.raises(
        InvalidOption, match="schedule_type='H': the compatibility module schedules once only"
    ):
        apart.schedule(ADD, 1, schedule_type="H")


@pytest.mark.parametrize("name", sorted(SCHEDULE_REMEDIES))
def test_an_option_of_a_schedule_that_is_not_honoured_is_refused_by_name(name: str, apart: Cluster) -> None:
    option: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidOption, match=f"^{name}=1: "):
        apart.schedule(ADD, 1, **option)


def test_a_function_that_no_worker_would_know_is_refused_when_it_is_enqueued(apart: Cluster) -> None:
    for function in (html.unescape, "html.unescape"):
        with pytest.raises(UnknownTask, match=r"cluster\.register"):
            apart.async_task(function, "<")


@pytest.mark.parametrize("value", [datetime.now(UTC), {1, 2}, b"bytes", {1: 2}])
def test_what_was_pickled_and_would_arrive_as_something_else_is_refused(
    value: object, apart: Cluster
) -> None:
    with pytest.raises(PayloadNotEncodable, match="would arrive as"):
        apart.async_task(takes_anything, value)


def test_a_task_that_is_not_there_has_no_result_and_an_old_id_is_refused(cluster: Cluster) -> None:
    assert cluster.fetch("123456") is None
    with pytest.raises(InvalidOption, match="Django-Q's tasks are in its own tables"):
        cluster.result("4a1c0f")
