"""The queue, its tasks, and the dependency that enqueues them in the request's transaction."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends

from pgqueue import Context, JobHandle, PgQueue, Task
from pgqueue.worker.worker import Worker
from shop.database import Transaction

P = ParamSpec("P")
R = TypeVar("R")

queue = PgQueue()  # finds DATABASE_URL


@queue.task(queue="mail")
async def send_receipt(ctx: Context, order_id: int) -> None:
    """Write an order's receipt. It is committed together with the job's completion."""
    async with ctx.transaction() as connection:
        await connection.execute(
            "update orders set receipt = format('%%s pieces, %%s pence', pieces, pence) where id = %s",
            [order_id],
        )


class RequestJobs:
    """Enqueues in the transaction of the request."""

    def __init__(self, transaction: Transaction) -> None:
        """Made by FastAPI, for each request."""
        self._transaction = transaction

    async def enqueue(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a call of a task, with the task's own arguments."""
        return await task.using(connection=self._transaction).aenqueue(*args, **kwargs)


Jobs = Annotated[RequestJobs, Depends(scope="function")]


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    """Run jobs in this process for the length of a block: for development."""
    worker = Worker(queue, concurrency=5)
    running = asyncio.create_task(worker.run())
    running.add_done_callback(_tell)
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait([running])


def _tell(running: "asyncio.Task[None]") -> None:
    """Say at once why a worker has ended by itself."""
    if not running.cancelled() and (error := running.exception()):
        logging.getLogger(__name__).error("the worker has ended", exc_info=error)
