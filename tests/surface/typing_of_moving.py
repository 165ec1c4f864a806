"""What a type checker makes of the stand-ins. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from typing import assert_type

from pgqueue import PgQueue
from pgqueue.moving import celery, django_q, procrastinate, rq

queue = PgQueue()
celery_app = celery.Celery(queue, broker="redis")
procrastinate_app = procrastinate.App(queue)
mail = rq.Queue("mail", connection=queue)
cluster = django_q.Cluster(queue)


@celery_app.task
def plain(order_id: int) -> str:
    return str(order_id)


@celery_app.task(bind=True, max_retries=3)
def bound(self: celery.Task[..., str], order_id: int) -> str:
    if order_id < 0:
        raise self.retry(countdown=1)
    return self.name


@celery.shared_task(queue="mail")
async def shared(order_id: int) -> float:
    return order_id / 2


class Noted(celery_app.Task):  # type: ignore[name-defined, misc]  # a setting: its class is known at run time
    pass


@rq.job(mail)
def resize(picture: str) -> int:
    return len(picture)


@procrastinate_app.task
def send(order_id: int) -> float:
    return order_id / 2


@procrastinate_app.task(queue="mail", retry=3)
def resend(order_id: int) -> float:
    return order_id / 2


def celerys() -> None:
    assert_type(plain(1), str)
    assert_type(plain.delay(1), celery.AsyncResult[str])
    assert_type(bound.apply_async((1,), countdown=5), celery.AsyncResult[str])
    assert_type(bound.delay(1).get(timeout=5), str | Exception)
    assert_type(bound(1), str)
    assert_type(shared.delay(1), celery.AsyncResult[float])
    assert_type(plain.s(1), celery.Signature[str])
    assert_type(plain.si(1).apply_async(), celery.AsyncResult[str])
    assert_type(plain.apply((1,)), celery.EagerResult[str])
    celery.chain(plain.s(1), bound.s() | shared.s())()
    celery.chord([plain.s(1), plain.s(2)])(bound.s())
    celery_app.conf.timezone = "UTC"

    plain.delay("1")  # type: ignore[arg-type]
    plain.delay()  # type: ignore[call-arg]
    bound.delay("1")  # type: ignore[arg-type]
    shared.delay(order="1")  # type: ignore[call-arg]
    celery.Celery(queue, broker=1)  # type: ignore[arg-type]


def rqs() -> None:
    assert_type(resize("cat"), int)
    assert_type(resize.delay("cat"), rq.Job)
    assert_type(mail.enqueue(resize, "cat", at_front=True), rq.Job)

    resize.delay(5)  # type: ignore[arg-type]
    rq.Queue("mail", connection="redis://")  # type: ignore[arg-type]


async def procrastinates() -> None:
    assert_type(send(1), float)
    assert_type(resend(order_id=1), float)
    assert_type(send.defer(order_id=1), int)
    assert_type(await resend.configure(queue="mail").defer_async(order_id=1), int)

    send("1")  # type: ignore[arg-type]
    resend(1, 2)  # type: ignore[call-arg]


def django_qs() -> None:
    assert_type(cluster.async_task("shop.send", 1, cluster="mail"), str)
    assert_type(cluster.fetch("1"), django_q.FetchedTask | None)
