"""A Flask app in this process, with Flask-SQLAlchemy and a queue on one database, and the ways tests look at it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from neighbours.serving import sqlalchemy_url
from running import Running
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pgqueue import Job, Task
from pgqueue.flask import OWN_CONNECTION, PgQueueFlask


class Base(DeclarativeBase):
    """Of all models."""


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(default="")


class Shop:
    """An app, its ``db`` and its ``queue``, and a task that takes an order's number."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self.db = SQLAlchemy(model_class=Base)
        self.queue = PgQueueFlask(**options)
        self.send: Task[[int], int] = self.queue.task(name="send")(_send)

    def app(self, **config: Any) -> Flask:
        app = Flask("shop")
        app.config.update({"SQLALCHEMY_DATABASE_URI": sqlalchemy_url(self.dsn)} | config)
        self.db.init_app(app)
        self.queue.init_app(app)
        return app

    def close(self, app: Flask) -> None:
        """Close what a program would close when it ends."""
        with app.app_context():
            self.db.session.remove()
            for engine in self.db.engines.values():
                engine.dispose()
        self.queue.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds on a connection of its own."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def left(self) -> tuple[int, int]:
        """How many orders and jobs are committed."""
        (counts,) = self.rows("select (select count(*) from orders), (select count(*) from pgqueue.all_jobs)")
        return counts[0], counts[1]


def _send(number: int) -> int:
    return number


@contextmanager
def opened(dsn: str, **config: Any) -> Iterator[tuple[Shop, Flask]]:
    """A shop, its app and its table for the length of a block."""
    shop = Shop(dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("create table orders (id serial primary key, note text)")
    app = shop.app(**config)
    try:
        yield shop, app
    finally:
        shop.close(app)


@pytest.fixture
def shop_and_app(dsn: str) -> Iterator[tuple[Shop, Flask]]:
    """A shop whose app is configured as most are; no app context is pushed."""
    with opened(dsn) as both:
        yield both


async def outcome(running: Running, shop: Shop, function: Callable[..., Any]) -> Job:
    """Run a function as a job with one attempt, to its end."""
    task: Task[..., Any] = shop.queue.task(name="work", max_attempts=1)(function)
    job = task.using(connection=OWN_CONNECTION).enqueue()
    async with running(shop.queue, concurrency=1), asyncio.timeout(20):
        while not shop.queue.job(job.id).state.ended:  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(0.02)
    return shop.queue.job(job.id)
