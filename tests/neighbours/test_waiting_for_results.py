"""Callers in Django and Flask projects are told of the ends of their jobs, as elsewhere."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction
from looking import GUARD, ask, until, wait_until
from neighbours.flask_shop import opened
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, confirm
from running import Running

from pgqueue.django import queue as project_queue
from pgqueue.errors import JobNotDone

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
    results = asyncio.gather(*(job.aresult(timeout=GUARD) for job in jobs))
    await until(lambda: marked(django_dsn) == 2)
    async with running(project_queue):
        assert await results == [f"confirmed {order.pk}"] * 2


async def test_a_call_inside_of_atomic_is_committed_at_once(django_dsn: str, running: Running) -> None:
    order = await Order.objects.acreate()
    call = project_queue.call(aconfirm)

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
        found = threads.submit(job.result, GUARD)
        wait_until(lambda: marked(dsn))
        with shop.queue.take(1, timeout=20):
            pass
        assert found.result(GUARD) is None
