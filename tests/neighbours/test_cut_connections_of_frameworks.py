"""A framework's connection is cut at each statement of a job's transaction: the task hears an error, or all is committed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
from asgiref.sync import sync_to_async
from cutter import Cutter, tell_the_truth
from django.db import transaction
from neighbours.conftest import point_django_at
from neighbours.flask_shop import Order as FlaskOrder
from neighbours.flask_shop import opened
from neighbours.project.shop.models import Order
from running import Running

from pgqueue import Context, JobState
from pgqueue.django import DjangoQueue

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
async def test_a_block_that_django_rolls_back_does_not_leave_its_job_as_completed(
    running: Running,
) -> None:
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
