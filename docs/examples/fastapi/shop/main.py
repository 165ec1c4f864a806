"""The app: its lifespan and its routes."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError

from shop.database import Base, Order, Transaction, engine
from shop.jobs import Jobs, queue, send_receipt, working

MOST_PENCE = 100_000


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Nothing of the queue's needs opening. A worker runs here only if ``SHOP_WORKER`` is set."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        stack.push_async_callback(queue.aclose)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        if os.environ.get("SHOP_WORKER"):
            await stack.enter_async_context(working())
        yield


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    """What a customer says."""

    reference: str
    pieces: int
    pence: int


@app.post("/orders", status_code=201)
async def place(order: NewOrder, transaction: Transaction, jobs: Jobs) -> dict[str, int]:
    """Place an order. Raise, and neither the row nor the job has ever been."""
    row = Order(**order.model_dump())
    transaction.add(row)
    await transaction.flush()  # which gives the order its id
    await jobs.enqueue(send_receipt, row.id)
    if row.pence > MOST_PENCE:
        raise HTTPException(422, "more than we can sell")
    return {"id": row.id, "each": row.pence // row.pieces}  # an order of no pieces ends here: status 500


@app.get("/orders/{order_id}")
async def show(order_id: int, transaction: Transaction) -> dict[str, Any]:
    """Show an order, and its receipt if there is one yet."""
    order = await transaction.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"pieces": order.pieces, "pence": order.pence, "receipt": order.receipt}


@app.exception_handler(IntegrityError)
async def refuse(_: Request, error: IntegrityError) -> JSONResponse:
    """What the database refuses, at the commit at the latest, is the client's conflict."""
    return JSONResponse({"detail": str(error.orig).splitlines()[0]}, 409)
