"""Testing in a Django project: the project's queue, in memory and in the transaction of a test case."""

import unittest
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import TestCase
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, bill, confirm, refuse

from pgqueue.django import queue
from pgqueue.testing import adrain, assert_enqueued, drain, eager, failing, in_memory
from pgqueue.values.job import JobState


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


@pytest.mark.usefixtures("django_dsn")
@pytest.mark.parametrize("name", [name for name in vars(InATestCase) if name.startswith("test_")])
def test_a_test_case(name: str) -> None:
    outcome = unittest.TestResult()
    unittest.TestSuite([InATestCase(name)]).run(outcome)
    assert [*outcome.errors, *outcome.failures] == []
    assert outcome.testsRun == 1
    assert queue.jobs() == []


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
    assert queue.jobs() == []
