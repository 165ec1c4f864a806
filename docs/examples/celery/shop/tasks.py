"""The tasks of the shop, and the work that is made of them."""

import os
from pathlib import Path

from celery import Task, chain, chord, group

from shop.app import app

PRICES = {"kettle": 4200, "cup": 700}


def note(line: str) -> None:
    """Add a line to the journal."""
    with Path(os.environ["JOURNAL"]).open("a") as journal:
        journal.write(f"{line}\n")


class Noted(Task):
    """A task whose failures are in the journal."""

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note(f"{self.name} failed: {exc}")


@app.task
def price(item, copies=1):
    return PRICES[item] * copies


@app.task
def with_discount(cents, percent):
    return cents - cents * percent // 100


@app.task
def with_tax(cents, percent=20):
    return cents + cents * percent // 100


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def charge(self, cents, customer):
    try:
        if self.request.retries < 2:
            raise ConnectionError("the bank does not answer")
    except ConnectionError as error:
        raise self.retry(exc=error)
    return {"customer": customer, "cents": cents, "retries": self.request.retries}


@app.task
def receipt(payment):
    return f"{payment['customer']} paid {payment['cents'] / 100:.2f} after {payment['retries']} retries"


@app.task
def send_mail(text, to):
    note(f"mail to {to}: {text}")
    return len(text)


@app.task
def stock(warehouse, item):
    return {"north": 3, "south": 4}.get(warehouse, 0) * (2 if item == "cup" else 1)


@app.task
def total(counts, item):
    return {item: sum(counts)}


@app.task
def reserve(item, warehouse):
    return f"{item} in {warehouse}"


@app.task
def pack(reservations, order_id):
    return {"order": order_id, "parts": sorted(reservations)}


@app.task
def ship(parcel, address):
    return f"order {parcel['order']} of {len(parcel['parts'])} parts goes to {address}"


@app.task(base=Noted, autoretry_for=(OSError,), max_retries=1, default_retry_delay=0)
def reserve_at_supplier(item):
    raise OSError(f"no {item} at the supplier")


@app.task
def alarm(request, exc, traceback, order_id):
    note(f"order {order_id} failed in {request.task}")


@app.task
def report(day):
    return f"report of {day}"


@app.task(ignore_result=False)
def empty_carts(older_than_days):
    return older_than_days * 2


def buy(item, customer, to):
    """A chain: each task gets the result of the one before as its first argument."""
    return chain(
        price.s(item, copies=2),
        with_discount.s(10),
        with_tax.s(),
        charge.s(customer),
        receipt.s(),
        send_mail.s(to),
    ).apply_async()


def count(item, warehouses):
    """A chord: the body gets the list of the header's results."""
    return chord([stock.s(one, item) for one in warehouses])(total.s(item))


def deliver(order_id, items, address):
    """A group in a chain, which is a chord, and a task behind it."""
    reserved = group(reserve.s(item, "north") for item in items)
    return (reserved | pack.s(order_id) | ship.s(address)).delay()


def deliver_from_supplier(order_id, items):
    """A chord of which a task fails: the body does not run, its error callback does."""
    header = [reserve_at_supplier.s(items[0]), *(reserve.s(item, "south") for item in items[1:])]
    return chord(header)(pack.s(order_id).on_error(alarm.s(order_id)))


def recount(item):
    """A callback, and a task that is used in a chain and alone."""
    return price.apply_async((item,), link=with_tax.si(0), countdown=0)


def buy_now(item, customer):
    """The same at once, in this process: nothing is enqueued."""
    return chain(price.s(item), with_tax.s(), charge.s(customer), receipt.s()).apply()
