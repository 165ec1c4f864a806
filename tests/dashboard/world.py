"""A made-up shop with jobs in each state, dead ones of several errors, and workers: what tests and pictures look at."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from looking import ask, wait_until

from pgqueue import OldestReady, PgQueue
from pgqueue.store.alerts import alerts
from pgqueue.values.alerts.state import NewAlert, Terms

SECRET = "hunter22-secret"  # noqa: S105 - to be looked for in what is shown
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e"


class World(NamedTuple):
    """Jobs of the shop, by what is to be seen at them."""

    ready: int
    scheduled: int
    dead: int
    running: int
    succeeded: int
    hostile: int


@contextmanager
def shop(queue: PgQueue) -> Iterator[World]:
    """The shop, while a take runs some of its jobs."""
    receipt = queue.task(name="shop.mail.send_receipt", queue="mail", max_attempts=3)(_receipt)
    charge = queue.task(name="shop.billing.charge", queue="billing", max_attempts=1)(_charge)
    thumbs = queue.task(name="shop.media.thumbnails", queue="media")(_thumbnails)
    index = queue.task(name="shop.search.reindex", queue="default")(_index)
    for number in range(8):
        charge.enqueue(order_id=9100 + number, card_number="4111111111111111", amount=1999 + number)
    with queue.take(8, queues=["billing"], timeout=5) as jobs:
        for number, job in enumerate(jobs):
            job.fail(_error(number))
    dead = jobs[-1].id
    for number in range(12):
        thumbs.enqueue(image=f"products/{4000 + number}.jpg", sizes=[128, 512])
    with queue.take(6, queues=["media"], timeout=5) as jobs:
        succeeded = jobs[0].id
    for number in range(20):
        receipt.enqueue(order_id=9000 + number, to=f"customer{number}@example.com", password=SECRET)
    hostile = index.enqueue(what=HOSTILE, big=2**63 + 1, nested={"api-key": SECRET}).id
    scheduled = index.using(delay=3600, unique_key="nightly").enqueue(what="all").id
    ready = index.enqueue(what="products").id
    with ExitStack() as stack:
        held = stack.enter_context(queue.take(3, queues=["mail"], timeout=5))
        held[0].progress(3, 12, "3 of 12 pages rendered")
        _retried(queue, held[1].id)
        wait_until(lambda: queue.progress(held[0].id))
        yield World(ready, scheduled, dead, held[0].id, succeeded, hostile)


def _receipt(order_id: int, to: str, password: str) -> None: ...


def _charge(order_id: int, card_number: str, amount: int) -> None: ...


def _thumbnails(image: str, sizes: list[int]) -> None: ...


def _index(what: str, big: int = 0, nested: dict[str, str] | None = None) -> None: ...


def _error(number: int) -> Exception:
    """Caught, so that it has a traceback."""
    try:
        _connect(number)
    except (ConnectionError, ValueError) as error:
        return error
    raise AssertionError


def _connect(number: int) -> None:
    if number % 4:
        raise ConnectionError(f"payments.example: no answer after {number + 3} s")
    raise ValueError(f"order {9100 + number} has no address")


def _retried(queue: PgQueue, job_id: int) -> None:
    """Give a running job the errors of former attempts."""
    error = (
        '[{"attempt": 1, "type": "smtplib.SMTPServerDisconnected", "message": "Connection unexpectedly closed", '
        '"traceback": "Traceback (most recent call last):\\n  File \\"shop/mail.py\\", line 31, in send_receipt\\n'
        'smtplib.SMTPServerDisconnected: Connection unexpectedly closed"}]'
    )
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb, attempts = 2 where id = %s", error, job_id)


def worker_row(queue: PgQueue, **given: Any) -> None:
    """A worker of another host, as its row shows it."""
    fields = {"host": "web-2", "pid": 4711, "concurrency": 20, "minimum": 20, "slots": 20, **given}
    ask(
        queue,
        "insert into pgqueue.workers (id, host, pid, concurrency, minimum, slots, version, queues, lease_until, supervised)"
        " values (gen_random_uuid(), %(host)s, %(pid)s, %(concurrency)s, %(minimum)s, %(slots)s, '0.1.0', %(queues)s,"
        " now() + interval '1 hour', true)",
        **{"queues": None, **fields},
    )


def stored_alert(queue: PgQueue, *, silenced: bool = False) -> str:
    """The name of an alert that is stored, as a worker of the shop stores it."""
    name = "slow mail"
    terms = Terms.checked(0, 300, None, resolved=False)
    new = NewAlert(
        name, "shop.ops", OldestReady(queue="mail", over=300), terms, "shop.ops.page", "alert",
        "default", 0, 3, None,
    )  # fmt: skip
    queue.database.run(alerts.apply([new], ["shop.ops"]))
    queue.database.run(alerts.silence(name, timedelta(hours=1) if silenced else None, by="bob"))
    return name


if __name__ == "__main__":
    import sys

    from werkzeug.serving import make_server

    from pgqueue.dashboard import Dashboard, on_this_machine

    made = PgQueue(sys.argv[1])
    worker_row(made)
    worker_row(made, pid=4712, queues=["mail", "billing"])
    with shop(made) as world:
        print(world, os.getpid(), flush=True)  # noqa: T201
        make_server(
            "127.0.0.1", int(sys.argv[2]), Dashboard(made, login=on_this_machine, actions=True), threaded=True
        ).serve_forever()
