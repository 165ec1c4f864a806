"""What the shop does later. Django finds the ``tasks.py`` of each app by itself."""

from django.utils import timezone

from pgqueue import Context
from pgqueue.django import queue
from shop.models import Order


@queue.task(queue="mail", timeout=60)
def confirm(ctx: Context, order_id: int) -> None:
    """Confirm an order: the order and the job's completion are committed together."""
    with ctx.transaction():
        order = Order.objects.select_for_update().get(pk=order_id)
        order.confirmed_at = timezone.now()
        order.save()
