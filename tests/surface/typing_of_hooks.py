"""What a type checker makes of hooks. Checked by mypy, never run."""

from typing import Any, assert_type

from pgqueue import Event, PgQueue, WorkerEvent

queue = PgQueue()


@queue.on("dead")
@queue.on("cancelled")
def page(event: Event) -> None:
    assert_type(event.args, dict[str, Any] | None)


@queue.on("succeeded")
async def apage(event: Event) -> int:
    return event.job


@queue.on("worker_started")
async def warm(event: WorkerEvent) -> None:
    assert_type(event.queues, tuple[str, ...] | None)


async def use(event: Event) -> None:
    page(event)
    assert_type(await apage(event), int)


queue.on("died")  # type: ignore[call-overload]
queue.on("dead")(warm)  # type: ignore[type-var]
queue.on("worker_stopped")(page)  # type: ignore[type-var]
