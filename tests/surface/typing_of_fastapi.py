"""What a type checker makes of the dependencies on the FastAPI page. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from collections.abc import AsyncIterator
from typing import Annotated, ParamSpec, TypeVar, assert_type

from fastapi import Depends, FastAPI
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from pgqueue import Context, JobHandle, PgQueue, Task

P = ParamSpec("P")
R = TypeVar("R")

engine = create_async_engine("postgresql+psycopg://")
queue = PgQueue()
app = FastAPI()


@queue.task
async def send_receipt(ctx: Context, order_id: int, *, copies: int = 1) -> str:
    return f"{order_id} {copies} {ctx.attempt}"


async def begin() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


Transaction = Annotated[AsyncSession, Depends(begin, scope="function")]


class RequestJobs:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def enqueue(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        return await task.using(connection=self._transaction).aenqueue(*args, **kwargs)


Jobs = Annotated[RequestJobs, Depends(scope="function")]


@app.post("/orders")
async def place(transaction: Transaction, jobs: Jobs) -> None:
    assert_type(transaction, AsyncSession)
    assert_type(await send_receipt.using(connection=transaction).aenqueue(1), JobHandle[str])
    assert_type(await jobs.enqueue(send_receipt, 1), JobHandle[str])
    assert_type(await jobs.enqueue(send_receipt, 1, copies=2), JobHandle[str])
    assert_type(await (await jobs.enqueue(send_receipt, 1)).aresult(timeout=1), str)

    await jobs.enqueue(send_receipt, "1")  # type: ignore[arg-type]
    await jobs.enqueue(send_receipt)  # type: ignore[call-arg]
    await jobs.enqueue(send_receipt, 1, copy=2)  # type: ignore[call-arg]
    await jobs.enqueue(place, 1)  # type: ignore[arg-type]
    await send_receipt.using(connection=transaction).aenqueue("1")  # type: ignore[arg-type]
