"""What the shop answers."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from shop.models import Order
from shop.tasks import confirm


@require_POST
@transaction.atomic
def orders(request: HttpRequest) -> JsonResponse:
    """Take an order: the row and the job, or neither."""
    given = json.loads(request.body)
    order = Order.objects.create(customer=given["customer"])
    job = confirm.enqueue(order.pk)
    if not given.get("paid", True):
        raise RuntimeError("no payment, no order")
    return JsonResponse({"order": order.pk, "job": job.id}, status=201)


@require_GET
def order(_request: HttpRequest, order_id: int) -> JsonResponse:
    """Tell of an order."""
    found = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"customer": found.customer, "confirmed": found.confirmed_at is not None})
