"""How the tests of the backend call it, blocking and awaited, and how they have a worker run what was enqueued."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

from asgiref.sync import async_to_sync
from neighbours.django_backend_names import Task, TaskResult, task_backends

from pgqueue.django import DjangoQueue
from pgqueue.worker.worker import Worker

PATIENCE = 20
Result: TypeAlias = "TaskResult[Any]"  # no generic at run time in Django's own
Meanwhile = Callable[[DjangoQueue], Awaitable[None]]


class Blocking:
    def enqueue(self, task: "Task[..., Any]", *args: Any, **kwargs: Any) -> Result:
        return task.enqueue(*args, **kwargs)

    def result(self, task: "Task[..., Any]", result_id: str) -> Result:
        return task.get_result(result_id)

    def any_result(self, result_id: str) -> Result:
        return task_backends["default"].get_result(result_id)

    def refresh(self, result: Result) -> None:
        result.refresh()


class Awaited(Blocking):
    """The awaited half, in an event loop of its own."""

    def enqueue(self, task: "Task[..., Any]", *args: Any, **kwargs: Any) -> Result:
        found: Result = async_to_sync(task.aenqueue)(*args, **kwargs)
        return found

    def result(self, task: "Task[..., Any]", result_id: str) -> Result:
        return async_to_sync(task.aget_result)(result_id)

    def any_result(self, result_id: str) -> Result:
        return async_to_sync(task_backends["default"].aget_result)(result_id)

    def refresh(self, result: Result) -> None:
        async_to_sync(result.arefresh)()


def work(*results: Result, meanwhile: Meanwhile | None = None, concurrency: int = 2) -> None:
    """Run a worker that has registered nothing, until ``meanwhile`` has returned and these have finished."""
    asyncio.run(_work(results, meanwhile, concurrency))
    for result in results:
        result.refresh()


async def _work(results: tuple[Result, ...], meanwhile: Meanwhile | None, concurrency: int) -> None:
    queue = DjangoQueue.from_settings()
    worker = Worker(queue, concurrency=concurrency, lease=timedelta(seconds=3))
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(PATIENCE):
            if meanwhile is not None:
                await meanwhile(queue)
            for result in results:
                while not (await queue.ajob(int(result.id))).state.ended:  # noqa: ASYNC110 - no program is told
                    await asyncio.sleep(0.01)
    finally:
        worker.stop()
        await running
        await queue.aclose()
