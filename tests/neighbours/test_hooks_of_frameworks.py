"""Hooks of a Django project's queue and of a Flask app's: registered and called as those of any queue."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, current_app
from looking import until
from neighbours.flask_shop import Shop, opened
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import confirm
from running import Running

from pgqueue import Event
from pgqueue.django import DjangoQueue
from pgqueue.django import queue as project_queue


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
