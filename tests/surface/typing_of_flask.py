"""What a type checker makes of a queue in a Flask app. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from datetime import timedelta
from typing import assert_type

from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgqueue import Call, Context, Job, JobHandle, PgQueue
from pgqueue.flask import OWN_CONNECTION, PgQueueFlask

app = Flask(__name__)
queue = PgQueueFlask()
at_once = PgQueueFlask(app, dsn="postgresql://", queues=["mail"], history=timedelta(days=1), session=False)
sessions = scoped_session(sessionmaker(create_engine("postgresql+psycopg://")))


@queue.task
def plain(order_id: int, note: str = "") -> str:
    return f"{order_id} {note}"


@queue.task(queue="mail", timeout=30)
async def awaited(ctx: Context, order_id: int) -> list[int]:
    return [ctx.attempt, order_id]


def make() -> None:
    assert_type(queue.init_app(app), None)
    assert_type(queue.of(app), PgQueueFlask)
    PgQueueFlask(session=sessions)
    PgQueueFlask(session=Session)

    as_any_other: PgQueue = queue
    assert_type(as_any_other.max_payload, int)

    PgQueueFlask("postgresql://")  # type: ignore[arg-type]
    PgQueueFlask(app, "postgresql://")  # type: ignore[call-arg]
    PgQueueFlask(session="sqlalchemy")  # type: ignore[arg-type]
    PgQueueFlask(histroy=timedelta(days=1))  # type: ignore[call-arg]
    queue.of("shop")  # type: ignore[arg-type]


def enqueue() -> None:
    assert_type(plain.enqueue(1), JobHandle[str])
    assert_type(plain.using(connection=OWN_CONNECTION).enqueue(1, note="soon"), JobHandle[str])
    assert_type(awaited.call(1), Call[list[int]])
    assert_type(queue.enqueue_many([awaited.call(1)], connection=OWN_CONNECTION), list[JobHandle[list[int]]])
    assert_type(queue.insight.search().jobs, tuple[Job, ...])

    plain.enqueue("1")  # type: ignore[arg-type]
    plain.enqueue(1, nota="soon")  # type: ignore[call-arg]
    awaited.using(connection=OWN_CONNECTION).enqueue()  # type: ignore[call-arg]


async def aenqueue() -> None:
    assert_type(await awaited.aenqueue(1), JobHandle[list[int]])
    assert_type(await queue.aenqueue_many([plain.call(1)]), list[JobHandle[str]])

    await awaited.aenqueue("1")  # type: ignore[arg-type]
