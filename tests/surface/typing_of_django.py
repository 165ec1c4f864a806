"""What a type checker makes of a Django project's tasks. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from typing import assert_type

from django.http import HttpRequest, JsonResponse
from django.urls import path

from pgqueue import Call, Context, JobHandle
from pgqueue.django import DjangoQueue, queue
from pgqueue.django.views import health

urlpatterns = [path("pgqueue/health/", health)]


@queue.task
def confirm(order_id: int, note: str = "") -> str:
    return f"{order_id} {note}"


@queue.task(queue="mail", timeout=30)
async def send(ctx: Context, order_id: int) -> float:
    async with ctx.transaction():
        return float(order_id)


@queue.task
def bill(ctx: Context, order_id: int) -> None:
    with ctx.transaction() as connection:
        connection.execute("update shop_order set paid = true where id = %s", [order_id])


def enqueue() -> None:
    assert_type(queue, DjangoQueue)
    assert_type(confirm.enqueue(1, note="soon"), JobHandle[str])
    assert_type(confirm.using(priority=5).enqueue(1), JobHandle[str])
    assert_type(send.enqueue(1), JobHandle[float])
    assert_type(bill.enqueue(1), JobHandle[None])
    assert_type(confirm.call(1), Call[str])
    assert_type(queue.enqueue_many(confirm.call(n) for n in range(3)), list[JobHandle[str]])
    assert_type(confirm.enqueue(1).result(), str)

    confirm.enqueue("1")  # type: ignore[arg-type]
    confirm.enqueue(1, nota="soon")  # type: ignore[call-arg]
    send.enqueue(1, 2)  # type: ignore[call-arg]
    bill.enqueue()  # type: ignore[call-arg]
    queue.enque(1)  # type: ignore[attr-defined]


async def aenqueue() -> None:
    assert_type(await confirm.aenqueue(1), JobHandle[str])
    assert_type(await (await send.aenqueue(1)).aresult(timeout=5), float)

    await send.aenqueue("1")  # type: ignore[arg-type]


def answers(request: HttpRequest) -> None:
    assert_type(health(request), JsonResponse)
