"""The tasks of the app: found by themselves when Django starts."""

from pgqueue import Context
from pgqueue.django import queue

from .models import Order


@queue.task
def confirm(order_id: int) -> str:
    """Write through the ORM."""
    Order.objects.filter(pk=order_id).update(note="confirmed")
    return f"confirmed {order_id}"


@queue.task
async def aconfirm(order_id: int) -> str:
    """Write through the ORM, from the event loop."""
    await Order.objects.filter(pk=order_id).aupdate(note="confirmed")
    return f"confirmed {order_id}"


@queue.task(queue="mail", max_attempts=2)
def refuse(reason: str) -> None:
    """Fail."""
    raise ValueError(reason)


@queue.task
def bill(ctx: Context, order_id: int, *, fail: bool = False) -> None:
    """Write through the ORM, in the transaction that completes the job."""
    with ctx.transaction():
        Order.objects.filter(pk=order_id).update(paid=True)
        if fail:
            raise ValueError("no money")
