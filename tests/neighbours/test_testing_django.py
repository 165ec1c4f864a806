"""Testing in a Django project: the project's queue, in memory and in the transaction of a test case."""

import sys
import unittest
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from docs.pages import DOCS, blocks
from neighbours import django_backend_tasks as tasks
from neighbours.django_backend_names import Task, TaskResultStatus
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, bill, confirm, refuse

from pgqueue.django import DjangoQueue, queue
from pgqueue.errors import ConfigurationError
from pgqueue.testing import (
    Memory,
    aassert_enqueued,
    aassert_not_enqueued,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    dying,
    eager,
    empty,
    every_queue,
    failing,
    in_memory,
    in_transaction,
)
from pgqueue.values.jobs.job import JobState

TASKS_PACKAGE = Task.__module__.removesuffix(".base")


class InATestCase(TestCase):
    """Everything is done in the test case's transaction, by the queue's own database."""

    __test__ = False  # pytest would connect before there is a database

    def test_plain_tasks_see_the_test_cases_rows(self) -> None:
        order = Order.objects.create()
        handle = confirm.enqueue(order.pk)
        assert_enqueued(confirm, args=(order.pk,), count=1)
        drain(queue)
        order.refresh_from_db()
        assert (order.note, handle.result(timeout=0)) == ("confirmed", f"confirmed {order.pk}")

    async def test_async_tasks_see_them_in_an_awaited_drain(self) -> None:
        order = await Order.objects.acreate()
        await aconfirm.aenqueue(order.pk)
        await adrain(queue)
        await order.arefresh_from_db()
        assert order.note == "confirmed"

    async def test_plain_tasks_see_them_there_too(self) -> None:
        order = await Order.objects.acreate()
        await confirm.aenqueue(order.pk)
        await adrain(queue)
        await order.arefresh_from_db()
        assert order.note == "confirmed"

    def test_a_tasks_transaction_completes_its_job(self) -> None:
        paid, unpaid = Order.objects.create(), Order.objects.create()
        handles = [bill.enqueue(paid.pk), bill.using(max_attempts=1).enqueue(unpaid.pk, fail=True)]
        drain(queue, raises=False)
        assert [handle.status() for handle in handles] == [JobState.SUCCEEDED, JobState.DEAD]
        assert list(Order.objects.filter(paid=True)) == [paid]

    def test_time_passes_as_it_is_told(self) -> None:
        handle = refuse.enqueue("no")
        with failing(refuse):
            drain(queue)
        due = queue.job(handle.id).run_at
        (ran,) = drain(queue, now=due + timedelta(seconds=1), raises=False)
        assert ran.outcome is JobState.DEAD

    def test_djangos_tasks_are_looked_for_and_run_as_the_queues_own(self) -> None:
        result = tasks.add.enqueue(1, two=2)
        assert_enqueued(tasks.add, count=1)
        (job,) = assert_enqueued(tasks.add, args=(1,), kwargs={"two": 2}, queue="default")
        assert str(job.id) == result.id
        with pytest.raises(
            AssertionError, match=r"add with args=\{'args': \[7\], 'kwargs': \{\}\}, found 0; there is"
        ):
            assert_enqueued(tasks.add, args=(7,))
        assert_not_enqueued(tasks.add, args=(1,))
        assert_not_enqueued(tasks.refuse)
        drain(queue)
        result.refresh()
        assert result.return_value == 3

    async def test_djangos_tasks_are_looked_for_by_awaited_assertions_too(self) -> None:
        await tasks.add_later.aenqueue(1)
        await aassert_enqueued(tasks.add_later, args=(1,))
        await aassert_not_enqueued(tasks.add_later, args=(2,))
        with pytest.raises(AssertionError):
            await aassert_enqueued(tasks.add_later, args=(2,))
        with pytest.raises(AssertionError):
            await aassert_not_enqueued(tasks.add_later, args=(1,))

    def test_djangos_tasks_can_be_made_to_fail_and_their_workers_to_die(self) -> None:
        failed, died = tasks.give_back.enqueue(1), tasks.add.enqueue(1)
        with failing(tasks.give_back) as failures, dying(tasks.add) as deaths:
            drain(queue)
        failed.refresh()
        died.refresh()
        assert (failures.met, failed.status) == (1, TaskResultStatus.FAILED)
        assert (deaths.met, died.status) == (1, TaskResultStatus.RUNNING)


@pytest.mark.usefixtures("django_dsn")
@pytest.mark.parametrize("name", [name for name in vars(InATestCase) if name.startswith("test_")])
def test_a_test_case(name: str) -> None:
    outcome = unittest.TestResult()
    unittest.TestSuite([InATestCase(name)]).run(outcome)
    assert [*outcome.errors, *outcome.failures] == []
    assert outcome.testsRun == 1
    assert queue.insight.search().jobs == ()


class InACommittingTestCase(TransactionTestCase):
    """Its jobs are committed, and deleted after each test."""

    __test__ = False  # pytest would connect before there is a database

    def setUp(self) -> None:
        self.addCleanup(empty, queue)

    def test_one(self) -> None:
        confirm.enqueue(1)
        assert_enqueued(confirm, count=1)

    test_another = test_one


def test_jobs_of_a_test_case_that_commits_are_not_seen_by_the_next_one(django_dsn: str) -> None:
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(InACommittingTestCase).run(outcome)
    assert ([*outcome.errors, *outcome.failures], outcome.testsRun) == ([], 2)
    with psycopg.connect(django_dsn) as connection:
        others = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgqueue'"
        ).fetchone()
    assert others == (0,)  # with one open, Django cannot drop its database at the end of the tests


@pytest.mark.usefixtures("django_dsn")
def test_a_project_is_tested_in_memory_too() -> None:
    with in_memory(queue), transaction.atomic():
        confirm.enqueue(1)
        drain(queue)
        assert_enqueued(confirm, args=(1,))
    with eager(queue):
        order = Order.objects.create()
        confirm.enqueue(order.pk)
        order.refresh_from_db()
        assert order.note == "confirmed"
    assert queue.insight.search().jobs == ()


async def test_awaited_enqueues_of_a_project_run_on_the_tests_own_connection(django_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(django_dsn) as connection:
        with in_transaction(queue, connection):
            await confirm.aenqueue(1)
            await queue.aenqueue_many([confirm.call(2)])
            await aassert_enqueued(confirm, count=2)
        await connection.rollback()
    assert (await queue.insight.asearch()).jobs == ()


def test_djangos_tasks_are_tested_in_memory_too() -> None:
    with in_memory(queue):
        tasks.add.enqueue(1)
        assert_enqueued(tasks.add, args=(1,), kwargs={})
        drain(queue)
        assert tasks.ran == [(1, 0)]


@pytest.mark.usefixtures("django_dsn")
def test_the_guides_test_of_djangos_tasks_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = TASKS_PACKAGE
    for page, file in (("django-tasks", "shop/tasks.py"), ("testing", "shop/tests.py")):
        code = next(one.code for one in blocks(DOCS / "guides" / f"{page}.md") if one.argument == file)
        (tmp_path / "shop").mkdir(exist_ok=True)
        (tmp_path / file).write_text(code.replace("django.tasks", here), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromName("shop.tests").run(outcome)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    assert ([*outcome.errors, *outcome.failures], outcome.testsRun) == ([], 1)


def test_a_task_of_another_backend_is_refused_with_what_to_do() -> None:
    dummy = {"default": {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend"}}
    with (
        override_settings(TASKS=dummy),
        pytest.raises(ConfigurationError, match=r"DummyBackend: name .*TaskBackend in TASKS"),
    ):
        assert_enqueued(tasks.add)


def test_every_queue_keeps_the_jobs_of_a_project_in_memory_too() -> None:
    every_queue("memory")
    try:
        made = DjangoQueue.from_settings()
    finally:
        every_queue(None)
    assert isinstance(made.database, Memory)
    made.task(name="send")(lambda: None).enqueue()
    assert [job.task for job in made.insight.search().jobs] == ["send"]


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    tasks.reset()
