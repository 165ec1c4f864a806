"""What a type checker makes of tests that use ``pgqueue.testing``. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from pgqueue import Job, JobState, PgQueue
from pgqueue.testing import (
    Clock,
    Memory,
    Ran,
    aassert_enqueued,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    dying,
    eager,
    failing,
    in_database,
    in_memory,
    in_transaction,
)

queue = PgQueue()


@queue.task
def send(order_id: int) -> str:
    return f"{order_id}"


@queue.task
async def asend(order_id: int) -> str:
    return f"{order_id}"


def modes() -> None:
    with in_memory(queue, clock=Clock()) as memory, eager(queue) as eagerly:
        assert_type(memory, Memory)
        assert_type(eagerly, Memory)
        assert_type(memory.clock.travel(timedelta(1)), datetime)
        assert_type(memory.clock.travel(60), datetime)
        memory.clock.travel("60")  # type: ignore[arg-type]
    with in_database(queue, "postgresql://"), in_transaction(queue, object(), clock=Clock()) as same:
        assert_type(same, PgQueue)
    in_memory("queue")  # type: ignore[arg-type]


async def quiet() -> None:
    ran = drain(queue, now=datetime.now(UTC), queues=["mail"], raises=False, allow_real=True)
    assert_type(ran, list[Ran])
    assert_type(await adrain(queue), list[Ran])
    assert_type(ran[0].outcome, JobState)
    assert_type(ran[0].error, BaseException | None)
    drain(send)  # type: ignore[arg-type]


async def assertions() -> None:
    assert_type(assert_enqueued(send, args=(1,), queue="mail", delay=timedelta(1), count=1), list[Job])
    assert_type(await aassert_enqueued(asend, kwargs={"order_id": 1}, connection=object()), list[Job])
    assert_not_enqueued(send, run_at=datetime.now(UTC), unique_key="key")
    assert_enqueued(send, arg=(1,))  # type: ignore[call-arg]
    assert_enqueued(send, priority="high")  # type: ignore[arg-type]
    assert_not_enqueued(send, count=1)  # type: ignore[call-arg]
    assert_enqueued(send.function)  # type: ignore[arg-type]


def trouble() -> None:
    with failing(send, times=2, error=ConnectionError()) as failures, dying(asend) as deaths:
        assert_type(failures.met + deaths.met, int)
    failing(send, error="no")  # type: ignore[arg-type]
