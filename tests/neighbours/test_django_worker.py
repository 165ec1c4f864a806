"""A worker's jobs in a Django project: transactions that the ORM shares, and connections recycled as around requests."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase, override_settings
from neighbours.conftest import forget_connections
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, bill, confirm
from running import Running

from pgqueue import OWN_CONNECTION
from pgqueue.app.context import Context
from pgqueue.django import DjangoQueue, recycling
from pgqueue.django import queue as project_queue
from pgqueue.values.jobs.job import Job, JobState

T = TypeVar("T")


@pytest.fixture
def own(django_dsn: str) -> Iterator[DjangoQueue]:  # noqa: ARG001 - the database
    """A queue for tasks that a test makes up."""
    made = DjangoQueue.from_settings()
    yield made
    made.close()


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections outlive jobs, as with CONN_MAX_AGE=None."""
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)
    forget_connections()
    yield
    forget_connections()


async def _until(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + 20
    while (seen := await look()) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return seen


async def _ended(queue: DjangoQueue, job_id: int) -> Job:
    async def look() -> Job | None:
        job = await queue.ajob(job_id)
        return None if job.state in {JobState.READY, JobState.RUNNING, JobState.SCHEDULED} else job

    return await _until(look)


def _pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def _terminate(dsn: str, pid: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [pid])


def _backends(dsn: str, pids: list[int]) -> int:
    with psycopg.connect(dsn) as other:
        row = other.execute("select count(*) from pg_stat_activity where pid = any(%s)", [pids]).fetchone()
    assert row is not None
    return int(row[0])


async def _is_closed(dsn: str, pid: int) -> bool:
    """Whether the server process of a connection ends; waits for that."""

    async def look() -> bool | None:
        return None if _backends(dsn, [pid]) else True

    return await _until(look)


@pytest.mark.usefixtures("django_dsn")
async def test_tasks_of_both_colours_write_through_the_orm(running: Running) -> None:
    orders = [await Order.objects.acreate(), await Order.objects.acreate()]

    async with running(project_queue):
        jobs = [await confirm.aenqueue(orders[0].pk), await aconfirm.aenqueue(orders[1].pk)]
        assert [await job.aresult(timeout=20) for job in jobs] == [
            f"confirmed {order.pk}" for order in orders
        ]

    assert [note async for note in Order.objects.values_list("note", flat=True)] == ["confirmed"] * 2


@pytest.mark.usefixtures("django_dsn")
async def test_what_the_orm_writes_in_the_jobs_transaction_commits_with_its_completion(
    running: Running,
) -> None:
    order = await Order.objects.acreate()

    async with running(project_queue):
        await (await bill.aenqueue(order.pk)).aresult(timeout=20)

    assert (await Order.objects.aget()).paid


@pytest.mark.usefixtures("django_dsn")
async def test_what_the_orm_wrote_is_rolled_back_with_the_jobs_transaction(running: Running) -> None:
    order = await Order.objects.acreate()

    async with running(project_queue):
        handle = await bill.using(max_attempts=1).aenqueue(order.pk, fail=True)
        assert (await _ended(project_queue, handle.id)).state == JobState.DEAD

    assert not (await Order.objects.aget()).paid


async def test_what_an_async_task_enqueues_is_part_of_its_transaction_and_not_of_the_orms(
    own: DjangoQueue, running: Running
) -> None:
    @own.task(name="child", queue="later")
    def child(number: int) -> None: ...

    @own.task(max_attempts=1)
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            await child.aenqueue(1)
            await own.aenqueue_many([child.call(2), child.call(3)])
            assert len((await own.insight.asearch(task="child")).jobs) == 3
            await child.using(connection=OWN_CONNECTION).aenqueue(4)
            raise ValueError("halfway")

    async with running(own, queues=["default"]):
        ended = await _ended(own, (await parent.aenqueue()).id)
    assert [error.message for error in ended.errors] == ["halfway"]
    assert [job.args for job in (await own.insight.asearch(task="child")).jobs] == [{"number": 4}]


async def test_own_connection_is_not_djangos(own: DjangoQueue, running: Running) -> None:
    @own.task(name="child", queue="later")
    def child(number: int) -> None: ...

    @own.task(max_attempts=1)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(1)
            child.using(connection=OWN_CONNECTION).enqueue(2)
            own.enqueue_many([child.call(3), child.call(4)], connection=OWN_CONNECTION)
            raise ValueError("halfway")

    async with running(own, queues=["default"]):
        await _ended(own, (await parent.aenqueue()).id)
    assert sorted(job.args["number"] for job in (await own.insight.asearch(task="child")).jobs) == [2, 3, 4]


async def test_a_job_that_was_taken_away_commits_nothing_of_the_orm(
    own: DjangoQueue, running: Running
) -> None:
    order = await Order.objects.acreate()
    taken_away = threading.Event()

    @own.task
    def late(ctx: Context) -> None:
        with ctx.transaction():
            Order.objects.filter(pk=order.pk).update(paid=True)
            if not taken_away.is_set():
                taken_away.set()
                with psycopg.connect(own.database.dsn) as other:
                    other.execute("update pgqueue.jobs set fence = fence + 1 where id = %s", [ctx.job.id])

    async with running(own):
        handle = await late.aenqueue()
        await asyncio.to_thread(taken_away.wait, 20)
        await own.acancel(handle.id)

    assert not (await Order.objects.aget()).paid


async def test_a_rollback_by_hand_ends_the_jobs_transaction_quietly(
    own: DjangoQueue, running: Running
) -> None:
    order = await Order.objects.acreate()

    @own.task
    def think_again(ctx: Context) -> str:
        with ctx.transaction():
            Order.objects.filter(pk=order.pk).update(paid=True)
            raise psycopg.Rollback
        return "thought again"  # type: ignore[unreachable]  # a Rollback is swallowed, which mypy cannot know

    async with running(own):
        assert await (await think_again.aenqueue()).aresult(timeout=20) == "thought again"

    assert not (await Order.objects.aget()).paid


async def test_a_psycopg_block_first_in_the_jobs_transaction_does_not_commit_it(
    own: DjangoQueue, running: Running
) -> None:
    order = await Order.objects.acreate()

    @own.task(max_attempts=1)
    def bare(ctx: Context) -> None:
        with ctx.transaction() as raw:
            with raw.transaction():
                raw.execute("update shop_order set paid = true where id = %s", [order.pk])
            raise ValueError("after all")

    async with running(own):
        handle = await bare.aenqueue()
        assert (await _ended(own, handle.id)).state == JobState.DEAD

    assert not (await Order.objects.aget()).paid


async def test_the_jobs_transaction_within_another_is_refused(own: DjangoQueue, running: Running) -> None:
    @own.task(max_attempts=1)
    def nested(ctx: Context) -> None:
        with transaction.atomic(), ctx.transaction():
            pass

    async with running(own):
        job = await _ended(own, (await nested.aenqueue()).id)

    assert job.state == JobState.DEAD
    assert "durable" in job.errors[-1].message


async def test_a_plain_tasks_connection_is_closed_with_its_job(
    own: DjangoQueue, running: Running, django_dsn: str
) -> None:
    @own.task
    def work() -> int:
        return _pid()

    async with running(own):
        pid = await (await work.aenqueue()).aresult(timeout=20)
        assert await _is_closed(django_dsn, pid)


async def test_an_async_tasks_connection_is_closed_after_its_job(
    own: DjangoQueue, running: Running, django_dsn: str
) -> None:
    @own.task
    async def work() -> int:
        return await sync_to_async(_pid)()

    handle = await work.aenqueue()
    async with running(own):
        job = await _until(lambda: asyncio.to_thread(_result, django_dsn, handle.id))
        assert await _is_closed(django_dsn, job)


def _result(dsn: str, job_id: int) -> int | None:
    """A job's result, asked for on a connection that is none of Django's."""
    with psycopg.connect(dsn) as other:
        row = other.execute("select result from pgqueue.job_history where id = %s", [job_id]).fetchone()
    return None if row is None else int(row[0])


@pytest.mark.usefixtures("lasting")
async def test_a_lasting_connection_serves_one_job_after_the_other(
    own: DjangoQueue, running: Running
) -> None:
    @own.task
    def work(*, last: bool = False) -> int:
        pid = _pid()
        if last:
            connections.close_all()
        return pid

    async with running(own, concurrency=1):
        pids = [await (await work.aenqueue(last=last)).aresult(timeout=20) for last in (False, False, True)]

    assert len(set(pids)) == 1


@pytest.mark.usefixtures("lasting")
async def test_a_plain_job_does_not_suffer_from_a_connection_that_ended_since_the_last_one(
    own: DjangoQueue, running: Running, django_dsn: str
) -> None:
    @own.task(max_attempts=1)
    def work(*, last: bool = False) -> int:
        pid = _pid()
        if last:
            connections.close_all()
        return pid

    async with running(own, concurrency=1):
        first = await (await work.aenqueue()).aresult(timeout=20)
        await asyncio.to_thread(_terminate, django_dsn, first)
        second = await (await work.aenqueue(last=True)).aresult(timeout=20)

    assert second != first


@pytest.mark.usefixtures("lasting")
async def test_an_async_job_does_not_suffer_from_a_connection_that_ended_since_the_last_one(
    own: DjangoQueue, running: Running, django_dsn: str
) -> None:
    @own.task(max_attempts=1)
    async def work() -> int:
        return await sync_to_async(_pid)()

    first_job, second_job = await work.aenqueue(), work.using(delay=None)
    async with running(own):
        first = await first_job.aresult(timeout=20)
        await asyncio.to_thread(_terminate, django_dsn, first)
        with psycopg.connect(django_dsn) as other:
            handle = second_job.using(connection=other).enqueue()
        second = await _until(lambda: asyncio.to_thread(_result, django_dsn, handle.id))

    assert second != first


@pytest.mark.usefixtures("lasting")
async def test_a_connection_that_broke_in_one_job_does_not_break_the_next(
    own: DjangoQueue, running: Running, django_dsn: str
) -> None:
    @own.task(max_attempts=1)
    def breaks() -> None:
        _terminate(django_dsn, _pid())
        Order.objects.count()

    @own.task(max_attempts=1)
    def works() -> int:
        count = Order.objects.count()
        connections.close_all()
        return count

    async with running(own, concurrency=1):
        broken = await breaks.aenqueue()
        assert (await _ended(own, broken.id)).state == JobState.DEAD
        assert await (await works.aenqueue()).aresult(timeout=20) == 0


@pytest.mark.usefixtures("lasting")
async def test_a_job_that_leaves_autocommit_off_leaves_nothing_to_the_next(
    own: DjangoQueue, running: Running
) -> None:
    @own.task
    def careless() -> None:
        transaction.set_autocommit(False)
        Order.objects.create()

    @own.task
    def careful() -> bool:
        found = transaction.get_autocommit()
        connections.close_all()
        return found

    async with running(own, concurrency=1):
        await (await careless.aenqueue()).aresult(timeout=20)
        assert await (await careful.aenqueue()).aresult(timeout=20) is True

    assert not await Order.objects.aexists()


@override_settings(DEBUG=True)
@pytest.mark.usefixtures("lasting")
async def test_queries_that_debug_keeps_are_forgotten_with_each_job(
    own: DjangoQueue, running: Running
) -> None:
    @own.task
    def work(*, last: bool = False) -> int:
        kept = len(connection.queries)
        Order.objects.count()
        if last:
            connections.close_all()
        return kept

    async with running(own, concurrency=1):
        kept = [await (await work.aenqueue(last=last)).aresult(timeout=20) for last in (False, False, True)]

    assert kept == [0, 0, 0]


NO_ATTEMPT: Any = None  # recycling does not look at it


def looked_after(work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """An ``async def`` function as a worker calls it in a Django project."""
    return lambda: recycling.Recycling().aaround(NO_ATTEMPT, work)


@override_settings(DEBUG=True)
@pytest.mark.usefixtures("lasting", "django_dsn")
async def test_queries_of_async_tasks_that_debug_keeps_are_forgotten_too() -> None:
    @looked_after
    async def work() -> int:
        kept = await sync_to_async(lambda: len(connection.queries))()
        await Order.objects.acount()
        return kept

    assert [await work() for _ in range(3)] == [0, 0, 0]


@pytest.mark.usefixtures("lasting", "django_dsn")
async def test_an_async_job_that_leaves_nothing_to_do_takes_no_way_to_the_orms_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await Order.objects.acount()
    seen: list[str] = []
    monkeypatch.setattr(recycling, "recycle", lambda _: seen.append("recycled"))

    @looked_after
    async def work() -> None:
        await Order.objects.acount()

    await work()

    assert seen == []


@pytest.mark.usefixtures("django_dsn")
async def test_a_connection_of_another_thread_is_looked_after_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    recycle = recycling.recycle

    def noted(wrappers: Iterable[BaseDatabaseWrapper]) -> None:
        calls.append("recycled")
        recycle(wrappers)

    monkeypatch.setattr(recycling, "recycle", noted)

    @looked_after
    async def work() -> None:
        pass

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(Order.objects.count).result()
        await work()
        await _until(_nothing_under_way)
        seen = len(calls)
        await work()
        elsewhere.submit(connections.close_all).result()

    assert seen > 0
    assert len(calls) == seen


async def _nothing_under_way() -> bool | None:
    return None if recycling._recycling_tasks else True  # noqa: SLF001 - there is no public way to wait for it


@pytest.mark.usefixtures("django_dsn")
def test_a_job_run_within_a_test_case_leaves_the_tests_connection_open() -> None:
    class Case(TestCase):
        def test_runs(self) -> None:
            order = Order.objects.create()
            assert confirm.around is not None
            confirm.around(NO_ATTEMPT, [order.pk], {})
            order.refresh_from_db()
            assert order.note == "confirmed"

    Case("test_runs").debug()
