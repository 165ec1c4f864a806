"""A user's file, which type checkers read and no program runs.

Each ignored line is wrong on purpose. With the comments, a checker finds nothing; without them, it must find an error at each of
these lines and nowhere else.
"""

from datetime import timedelta
from typing import assert_type

from pgqueue import Context, JobHandle, PgQueue

queue = PgQueue()


@queue.task(queue="mail", timeout=30)
def send_receipt(order_id: int, *, copies: int = 1) -> str:
    """Send it."""
    return f"receipt for order {order_id}, {copies} times"


@queue.task
async def bill(ctx: Context, order_id: int) -> float:
    """Bill it."""
    return float(ctx.attempt + order_id)


assert_type(send_receipt.enqueue(42), JobHandle[str])
assert_type(send_receipt.enqueue(42, copies=2).result(timeout=10), str)
assert_type(bill.using(delay=timedelta(minutes=5)).enqueue(42).result(), float)
queue.enqueue_many(send_receipt.call(number) for number in range(3))

send_receipt.enqueue("42")  # type: ignore[arg-type]
send_receipt.enqueue()  # type: ignore[call-arg]
send_receipt.enqueue(42, copy=2)  # type: ignore[call-arg]
bill.using(prority=3)  # type: ignore[call-arg]
bill.call(order_id=None)  # type: ignore[arg-type]
length: int = send_receipt.enqueue(42).result()  # type: ignore[assignment]
