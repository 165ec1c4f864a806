"""Tasks of Django's, as an app would write them; each leaves a mark of its run in ``ran``."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

from neighbours.django_backend_names import TaskContext, task
from neighbours.project.shop.models import Order

from pgqueue.errors import Snooze

ran: list[Any] = []
contexts: list[TaskContext] = []
entered, leave = threading.Event(), threading.Event()


class Refused(Exception):
    pass


def reset() -> None:
    ran.clear()
    contexts.clear()
    entered.clear()
    leave.clear()


@task()
def add(one: int, two: int = 0) -> int:
    ran.append((one, two))
    return one + two


@task()
async def add_later(one: int, two: int = 0) -> int:
    await asyncio.sleep(0)
    ran.append((one, two))
    return one + two


@task()
def give_back(value: Any) -> Any:
    ran.append(value)
    return value


@task()
def return_object() -> object:
    return object()


@task()
def return_bytes() -> Any:
    return {"words": (b"bytes", "text")}


@task()
def refuse(reason: str) -> None:
    ran.append(reason)
    raise Refused(reason)


@task()
async def refuse_later(reason: str) -> None:
    ran.append(reason)
    raise Refused(reason)


@task()
def exit_early() -> None:
    raise SystemExit(3)


@task()
def divide() -> float:
    return 1 / len([])


@task(takes_context=True)
def see(context: TaskContext, mark: str) -> str:
    contexts.append(context)
    return f"{mark} {context.attempt}"


@task(takes_context=True)
async def see_later(context: TaskContext, mark: str) -> str:
    contexts.append(context)
    return f"{mark} {context.attempt}"


@task(backend="patient", takes_context=True)
def second_time(context: TaskContext) -> int:
    contexts.append(context)
    if context.attempt == 1:
        raise Refused("once")
    return context.attempt


@task(backend="patient", takes_context=True)
async def second_time_later(context: TaskContext) -> int:
    contexts.append(context)
    if context.attempt == 1:
        raise Refused("once")
    return context.attempt


@task(backend="patient")
def never() -> None:
    ran.append("never")
    raise Refused("always")


@task(backend="patient", takes_context=True)
def asks_again(context: TaskContext) -> int:
    ran.append(context.attempt)
    if len(ran) == 1:
        raise Snooze(timedelta(0))
    return len(ran)


@task()
def waits() -> str:
    entered.set()
    assert leave.wait(20)
    return "let go"


@task(queue_name="mail", priority=7)
def mail(to: str) -> str:
    ran.append(to)
    return to


@task()
def pay(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(paid=True)


@task()
async def passes_on(number: int) -> str:
    result = await add.aenqueue(number)
    ran.append(result.id)
    await result.arefresh()
    return str(result.status)


@task()
async def asleep() -> None:
    entered.set()
    await asyncio.sleep(60)
