"""A framework's connection is cut at each statement of a job's transaction: the task hears an error, or all is committed.

Hooks of a Django project's queue and of a Flask app's: registered and called as those of any queue.
Callers in Django and Flask projects are told of the ends of their jobs, as elsewhere.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from cutter import Cutter, tell_the_truth
from django.db import connections, transaction
from flask import Flask, current_app
from looking import GUARD, ask, until, wait_until
from neighbours.conftest import point_django_at
from neighbours.flask_shop import Order as FlaskOrder
from neighbours.flask_shop import Shop, opened
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, confirm
from running import Running

from pgqueue import Context, Event, JobState
from pgqueue.django import DjangoQueue
from pgqueue.django import queue as project_queue
from pgqueue.errors import JobNotDone

Ending = Callable[[psycopg.Connection[object]], None]


def _commit(_: psycopg.Connection[object]) -> None:
    pass


def _roll_back(_: psycopg.Connection[object]) -> None:
    raise psycopg.Rollback


def _roll_back_a_savepoint(connection: psycopg.Connection[object]) -> None:
    """Nothing of the block is to be lost by it, but psycopg lets this Rollback out where the connection is lost."""
    with connection.transaction():
        raise psycopg.Rollback


endings = pytest.mark.parametrize("ending", [_commit, _roll_back, _roll_back_a_savepoint])


@pytest.fixture
def django_cutter(django_dsn: str) -> Iterator[Cutter]:
    with Cutter(django_dsn).running() as cutter:
        point_django_at(cutter.dsn)
        yield cutter


@endings
async def test_djangos_block_commits_or_raises(
    django_cutter: Cutter, django_dsn: str, ending: Ending
) -> None:
    queue = DjangoQueue.from_settings()

    def work() -> None:
        with queue.database.transaction() as connection:
            Order.objects.create()
            ending(connection)

    with psycopg.connect(django_dsn, autocommit=True) as other:
        ends = await tell_the_truth(
            django_cutter,
            sync_to_async(work),
            lambda: _count(other, "select count(*) from shop_order"),
            commits=ending is not _roll_back,
        )
    assert len([end for end in ends if end]) >= 3  # BEGIN, the statement, COMMIT or ROLLBACK
    queue.close()


@endings
async def test_the_sessions_block_commits_or_raises(dsn: str, ending: Ending) -> None:
    with Cutter(dsn).running() as cutter, opened(cutter.dsn) as (shop, app):

        async def act() -> None:
            with app.app_context(), shop.queue.database.transaction() as connection:
                shop.db.session.add(FlaskOrder(note="one"))
                shop.db.session.flush()
                ending(connection)

        with psycopg.connect(dsn, autocommit=True) as other:
            ends = await tell_the_truth(
                cutter,
                act,
                lambda: _count(other, "select count(*) from orders"),
                commits=ending is not _roll_back,
            )
    assert len([end for end in ends if end]) >= 3  # BEGIN, the statement, COMMIT or ROLLBACK


@pytest.mark.usefixtures("django_dsn")
async def test_a_block_that_django_rolls_back_does_not_leave_its_job_as_completed(running: Running) -> None:
    """An inner ``atomic(savepoint=False)`` that fails makes Django roll back the whole, even if its error is caught."""
    queue = DjangoQueue.from_settings()

    @queue.task(max_attempts=1)
    def careless(ctx: Context) -> None:
        with ctx.transaction():
            Order.objects.create()
            with suppress(ValueError), transaction.atomic(savepoint=False):
                raise ValueError("caught")

    async with running(queue):
        handle = await careless.aenqueue()
        async with asyncio.timeout(20):
            while not (await queue.ajob(handle.id)).state.ended:  # noqa: ASYNC110 - the database raises no events
                await asyncio.sleep(0.02)
    job = await queue.ajob(handle.id)
    assert job.state is JobState.DEAD
    assert "atomic()" in job.errors[0].message
    queue.close()


def _count(connection: psycopg.Connection[tuple[int]], query: str) -> int:
    ((found,),) = connection.execute(query.encode()).fetchall()
    return found


@pytest.fixture
def listened() -> Iterator[list[tuple[str, int]]]:
    """Events of the project's queue, which other tests use, too: its hooks are forgotten at the end."""
    told: list[tuple[str, int]] = []

    @project_queue.on("enqueued")
    @project_queue.on("succeeded")
    def note(event: Event) -> None:
        """Use the ORM: the thread has a connection of its own, which is closed with it."""
        told.append((event.name, Order.objects.count()))

    yield told
    hooks: Any = project_queue.hooks
    for name in ("enqueued", "succeeded"):
        hooks._hooks[name] = hooks._hooks[name][:-1]  # noqa: SLF001 - hooks are for the life of a process


@pytest.mark.usefixtures("django_dsn")
async def test_hooks_of_a_django_project_may_use_the_orm(
    running: Running, listened: list[tuple[str, int]]
) -> None:
    assert isinstance(project_queue, DjangoQueue)
    order = await Order.objects.acreate()
    async with running(project_queue):
        job = await confirm.aenqueue(order.pk)
        await job.aresult(timeout=20)
        await until(lambda: len(listened) == 2)
    assert sorted(listened) == [("enqueued", 1), ("succeeded", 1)]


@pytest.fixture
def both(dsn: str) -> Iterator[tuple[Shop, Flask]]:
    with opened(dsn) as both:
        yield both


async def test_hooks_of_a_flask_app(both: tuple[Shop, Flask], running: Running) -> None:
    shop, app = both
    told: list[str] = []
    threads: set[threading.Thread] = set()

    @shop.queue.on("enqueued")
    @shop.queue.on("succeeded")
    def note(event: Event) -> None:
        threads.add(threading.current_thread())
        assert current_app.name == app.name
        told.append(event.name)

    @shop.queue.task(name="work")
    def work() -> None: ...

    with app.app_context():
        job = work.enqueue()
        shop.db.session.commit()
    async with running(shop.queue):
        await job.aresult(timeout=20)
        await until(lambda: len(told) == 2)
    assert sorted(told) == ["enqueued", "succeeded"]
    assert threading.main_thread() not in threads


HOUR = 3600.0


def marked(dsn: str) -> int:
    """How many jobs have an end that is notified."""
    return int(ask(dsn, "select count(*) from pgqueue.jobs where flags = 1")[0][0])


async def test_callers_are_told_on_a_connection_by_djangos_settings(
    django_dsn: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_queue.database.ends, "poll", HOUR)
    order = await Order.objects.acreate()
    jobs = [await confirm.aenqueue(order.pk), await aconfirm.aenqueue(order.pk)]
    results = asyncio.gather(*(job.aresult(timeout=2 * GUARD) for job in jobs))
    await until(lambda: marked(django_dsn) == 2)
    async with running(project_queue):
        assert await asyncio.wait_for(results, GUARD) == [f"confirmed {order.pk}"] * 2


async def test_a_call_inside_of_atomic_is_committed_at_once(django_dsn: str, running: Running) -> None:
    order = await Order.objects.acreate()
    call = project_queue.remote(aconfirm)

    def within() -> str:
        try:
            with transaction.atomic():
                return asyncio.run(bounded())
        finally:
            connections.close_all()

    async def bounded() -> str:
        try:
            async with asyncio.timeout(GUARD):
                return await call(order.pk)
        finally:
            await project_queue.aclose()

    async with running(project_queue):
        assert await asyncio.to_thread(within) == f"confirmed {order.pk}"
    assert ask(django_dsn, "select count(*) from pgqueue.job_history") == [(1,)]


def test_a_job_that_only_the_callers_transaction_sees_is_waited_for_and_found(django_dsn: str) -> None:
    with transaction.atomic():
        job = confirm.enqueue(1)
        with pytest.raises(JobNotDone, match="it is ready"):
            job.result(timeout=0.2)
        job.cancel()
        assert job.status() == "cancelled"
    assert marked(django_dsn) == 0
    project_queue.close()


def test_callers_in_a_flask_app_are_told(dsn: str) -> None:
    with opened(dsn) as (shop, app), ThreadPoolExecutor(1) as threads:
        shop.queue.database.ends.poll = HOUR

        @shop.queue.task(name="note")
        def note() -> None: ...

        with app.app_context():
            job = note.enqueue()
            shop.db.session.commit()
        found = threads.submit(job.result, 2 * GUARD)
        wait_until(lambda: marked(dsn))
        with shop.queue.take(1, timeout=20):
            pass
        assert found.result(GUARD) is None
