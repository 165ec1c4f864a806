"""The shop's own tests: each in a transaction that is rolled back, jobs and all."""

from django.test import TestCase

from pgqueue.django import queue
from shop.models import Order


class OrderTests(TestCase):
    """Taking orders."""

    def test_an_order_enqueues_its_confirmation(self) -> None:
        """The job is there as soon as the order is."""
        answer = self.client.post("/orders/", {"customer": "Ann"}, content_type="application/json")

        order = Order.objects.get(pk=answer.json()["order"])
        (job,) = queue.insight.search(task="shop.tasks.confirm").jobs
        self.assertEqual(job.args, {"order_id": order.pk})

    def test_an_order_that_is_refused_enqueues_nothing(self) -> None:
        """The view raised after it had enqueued."""
        self.client.raise_request_exception = False
        self.client.post("/orders/", {"customer": "Ann", "paid": False}, content_type="application/json")

        self.assertFalse(queue.insight.search().jobs)


# ruff: noqa: PT009 - in the way of unittest
