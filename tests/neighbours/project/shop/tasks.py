"""The tasks of the app: found by themselves when Django starts."""

import os
import signal
import sys
from pathlib import Path

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


@queue.task(crashes=2)
def kill_me() -> None:
    """Die as the kernel kills what takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task(crashes=2)
def where(order_id: int) -> tuple[str, str]:
    """The program that runs it, and what the ORM reads there."""
    return Path(sys.argv[0]).name, Order.objects.get(pk=order_id).note
