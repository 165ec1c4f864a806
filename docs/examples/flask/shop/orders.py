"""The blueprint of orders, with the task that belongs to it."""

from typing import Any

from flask import Blueprint, request

from pgqueue import Context
from shop.extensions import db, queue
from shop.models import Order

orders = Blueprint("orders", __name__, url_prefix="/orders")
MOST_PENCE = 100_000


@queue.task(queue="mail")
def send_receipt(ctx: Context, order_id: int) -> None:
    """Write an order's receipt. It is committed together with the job's completion."""
    with ctx.transaction():
        order = db.session.get_one(Order, order_id)
        order.receipt = f"{order.pieces} pieces, {order.pence} pence"


@orders.post("/")
def place() -> tuple[dict[str, Any], int]:
    """Place an order. The job joins the session's transaction: it needs no code of its own to be undone."""
    order = Order(pieces=request.json["pieces"], pence=request.json["pence"])
    db.session.add(order)
    db.session.flush()  # which gives the order its id
    send_receipt.enqueue(order.id)
    if order.pence > MOST_PENCE:
        db.session.rollback()
        return {"error": "more than we can sell"}, 422
    each = order.pence // order.pieces  # an order of no pieces ends here: status 500
    db.session.commit()
    return {"id": order.id, "each": each}, 201


@orders.get("/<int:order_id>")
def show(order_id: int) -> dict[str, Any]:
    """Show an order, and its receipt if there is one yet."""
    order = db.get_or_404(Order, order_id)
    return {"pieces": order.pieces, "pence": order.pence, "receipt": order.receipt}
