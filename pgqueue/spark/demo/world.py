"""The shop whose history is made up: its queues and tasks, their run times, failures and busy hours.

The figures are chosen, not measured: every question of the report has an answer, and no two tasks look alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DAYTIME = (
    0.30, 0.22, 0.17, 0.15, 0.16, 0.22, 0.38, 0.62, 0.95, 1.25, 1.45, 1.50,
    1.40, 1.42, 1.48, 1.45, 1.35, 1.22, 1.15, 1.18, 1.10, 0.90, 0.66, 0.45,
)  # fmt: skip
NIGHTLY = (
    0.40, 1.00, 7.00, 9.00, 4.00, 1.00, 0.30, 0.10, 0.05, 0.05, 0.05, 0.05,
    0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.10, 0.30,
)  # fmt: skip
STEADY = (1.0,) * 24
"""The load of each hour of a day (UTC), as a multiple of the day's average."""

WORKDAYS = (1.08, 1.12, 1.10, 1.06, 1.00, 0.62, 0.52)
"""The load of each day from Monday on, as a multiple of the average."""

BUSIEST = "webhooks"
"""The queue whose share a skew sets."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A way to fail.

    Attributes:
        type: the exception, as it is kept with a job.
        message: for PostgreSQL's ``format``: 1 is a number below 1000, 2 eight hexadecimal digits, 3 a large number.
        raised_in: the line of code in the traceback.
    """

    type: str
    message: str
    raised_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopTask:
    """A task of the shop.

    Attributes:
        name: the task's name.
        queue: its jobs' queue.
        share: its share of all jobs; the shares add up to 1.
        run: the median run time, in seconds. Run times are log-normal.
        spread: the standard deviation of the logarithm of run times.
        fails: the probability that an attempt fails.
        rhythm: its load in each hour of the day.
        ticks: how many times in an hour a schedule enqueues its jobs, all together; 0: they come one by one.
        max_attempts: the number of attempts after which a job is dead.
        priority: its jobs' priority.
        number: the name of its second argument, beside the tenant.
        key: the beginning of its unique keys; None: it has none.
        later: the share of jobs that are enqueued for later.
        result: whether it returns a value.
        failures: how it fails.
    """

    name: str
    queue: str
    share: float
    run: float
    spread: float
    fails: float
    number: str
    failures: Sequence[Failure]
    rhythm: Sequence[float] = DAYTIME
    ticks: int = 0
    max_attempts: int = 5
    priority: int = 0
    key: str | None = None
    later: float = 0.0
    result: bool = False


SMTP = (
    Failure(
        "smtplib.SMTPServerDisconnected", "Connection unexpectedly closed after %1$s ms", "deliver(message)"
    ),
    Failure(
        "smtplib.SMTPRecipientsRefused",
        "{'customer%3$s@example.org': (550, b'5.1.1 mailbox unavailable, id %2$s')}",
        "deliver(message)",
    ),
    Failure("TimeoutError", "the mail server said nothing for %1$s s", "deliver(message)"),
)
HTTP = (
    Failure(
        "httpx.ConnectTimeout",
        "no connection to hooks.example.net after %1$s ms (request %2$s)",
        "client.post(url, json=event)",
    ),
    Failure(
        "httpx.HTTPStatusError",
        "Client error '429 Too Many Requests' for url 'https://hooks.example.net/in/%3$s', retry after %1$s s",
        "response.raise_for_status()",
    ),
    Failure(
        "httpx.HTTPStatusError",
        "Server error '500 Internal Server Error' for url 'https://hooks.example.net/in/%3$s'",
        "response.raise_for_status()",
    ),
)
PAYMENTS = (
    Failure(
        "shop.payments.CardDeclined",
        "card ending in %1$s was declined for order %3$s",
        "gateway.charge(order)",
    ),
    Failure(
        "shop.payments.GatewayBusy",
        "gateway is busy, reference %2$s, %1$s calls ahead",
        "gateway.charge(order)",
    ),
    Failure(
        "psycopg.errors.SerializationFailure",
        "could not serialize access due to concurrent update of order %3$s",
        "session.commit()",
    ),
)
FILES = (
    Failure("OSError", "[Errno 28] No space left on device: '/var/tmp/upload-%2$s'", "target.write(chunk)"),
    Failure(
        "shop.media.BrokenFile", 'upload %3$s: "frame-%1$s.dat" cannot be decoded', "decoder.read(frame)"
    ),
    Failure("MemoryError", "cannot allocate %3$s bytes for upload %2$s", "frame.resize(size)"),
)
DATABASE = (
    Failure(
        "psycopg.errors.DeadlockDetected",
        "deadlock detected: process %1$s waits for ShareLock on transaction %3$s",
        "session.flush()",
    ),
    Failure(
        "psycopg.errors.QueryCanceled",
        "canceling statement due to statement timeout after %1$s ms",
        "rows.all()",
    ),
)
FAILURES: Mapping[str, Sequence[Failure]] = {
    "storm": (
        Failure(
            "httpx.HTTPStatusError",
            "Server error '503 Service Unavailable' for url 'https://hooks.example.net/in/%3$s' (request %2$s)",
            "response.raise_for_status()",
        ),
    ),
    "refused": (
        Failure("ValueError", "order %3$s has no lines, though its total is %1$s", "totals = add_up(order)"),
        Failure("KeyError", "'address_%1$s'", "address = order.addresses[name]"),
    ),
    "asked": (Failure("pgqueue.errors.Dead", "customer %3$s has closed the account", "raise Dead(reason)"),),
    "undecodable": (
        Failure(
            "pgqueue.errors.PayloadNotDecodable",
            "Expected `int`, got `str` '%2$s' - at `$.number`",
            "arguments = decoder.decode(payload)",
        ),
    ),
}
"""Failures for other reasons than the task's own, by reason."""

TASKS = (
    ShopTask(name="send_receipt", queue="mail", share=0.170, run=0.12, spread=0.5, fails=0.012, number="order_id",
         priority=10, key="receipt", failures=SMTP),
    ShopTask(name="send_newsletter", queue="mail", share=0.110, run=0.08, spread=0.4, fails=0.020, number="issue_id", ticks=2,
         priority=-20, later=0.6, failures=SMTP),
    ShopTask(name="send_reminder", queue="mail", share=0.040, run=0.11, spread=0.5, fails=0.012, number="cart_id",
         later=0.95, failures=SMTP),
    ShopTask(name="deliver_webhook", queue=BUSIEST, share=0.190, run=0.25, spread=0.9, fails=0.060, number="event_id",
         max_attempts=8, rhythm=STEADY, failures=HTTP),
    ShopTask(name="sync_contact", queue=BUSIEST, share=0.050, run=0.9, spread=0.7, fails=0.035, number="contact_id",
         max_attempts=8, failures=HTTP),
    ShopTask(name="charge_card", queue="billing", share=0.065, run=0.8, spread=0.5, fails=0.025, number="order_id",
         priority=50, key="charge", result=True, failures=PAYMENTS),
    ShopTask(name="issue_invoice", queue="billing", share=0.050, run=0.35, spread=0.4, fails=0.008, number="order_id",
         priority=20, result=True, failures=DATABASE),
    ShopTask(name="settle_account", queue="billing", share=0.012, run=4.5, spread=0.6, fails=0.010, number="account_id",
         rhythm=NIGHTLY, ticks=4, key="settle", failures=DATABASE),
    ShopTask(name="make_thumbnail", queue="media", share=0.110, run=0.35, spread=0.45, fails=0.006, number="upload_id",
         failures=FILES),
    ShopTask(name="scan_upload", queue="media", share=0.060, run=0.5, spread=0.6, fails=0.004, number="upload_id",
         priority=5, failures=FILES),
    ShopTask(name="transcode_video", queue="media", share=0.008, run=14.0, spread=0.8, fails=0.030, number="upload_id",
         max_attempts=3, priority=-10, failures=FILES),
    ShopTask(name="build_report", queue="reports", share=0.010, run=6.0, spread=0.7, fails=0.015, number="report_id",
         rhythm=NIGHTLY, ticks=4, max_attempts=3, later=0.8, result=True, failures=DATABASE),
    ShopTask(name="export_rows", queue="reports", share=0.020, run=2.5, spread=0.9, fails=0.012, number="export_id", ticks=4,
         max_attempts=3, result=True, failures=DATABASE),
    ShopTask(name="refresh_search", queue="default", share=0.080, run=0.05, spread=0.5, fails=0.003, number="product_id",
         rhythm=STEADY, failures=DATABASE),
    ShopTask(name="expire_session", queue="default", share=0.025, run=0.02, spread=0.4, fails=0.001, number="session_id",
         rhythm=STEADY, later=1.0, failures=DATABASE),
)  # fmt: skip


def shares(skew: float | None) -> dict[str, float]:
    """Each task's share of all jobs.

    Args:
        skew: the busiest queue's share; None: its usual share.
    """
    found = {task.name: task.share for task in TASKS}
    if skew is None:
        return found
    busiest = sum(task.share for task in TASKS if task.queue == BUSIEST)
    return {
        task.name: task.share * (skew / busiest if task.queue == BUSIEST else (1 - skew) / (1 - busiest))
        for task in TASKS
    }
