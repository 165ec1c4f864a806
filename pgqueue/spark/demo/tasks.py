"""The app of ``pgqueue pipeline demo``: a queue with two short tasks, which fail in planned cases.

The worker loads it with ``--app pgqueue.spark.demo.tasks:queue``.
"""

import asyncio
import hashlib
from datetime import timedelta

from tenacity import stop_after_attempt, wait_fixed

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import Dead
from pgqueue.values.jobs.retry import Retry

FLAKY_EVERY = 20
"""One letter in this number is delivered only at the second attempt."""
DEAD_EVERY = 250
"""One letter in this number cannot be delivered."""
TENANTS = 12

queue = PgQueue(history=timedelta(days=3_650))


@queue.task(name="hash_upload", queue="uploads")
def hash_upload(tenant: str, upload_id: int) -> str:
    """Hash some bytes."""
    return hashlib.sha256(f"{tenant} {upload_id}".encode() * 10_000).hexdigest()


@queue.task(
    name="send_letter", queue="letters", retry=Retry(wait=wait_fixed(0.2), stop=stop_after_attempt(3))
)
async def send_letter(ctx: Context, tenant: str, order_id: int) -> str:
    """Wait as if for a mail server."""
    await asyncio.sleep(0.002)
    if order_id % DEAD_EVERY == 0:
        raise Dead(f"customer {order_id} of {tenant} is unknown")
    if order_id % FLAKY_EVERY == 0 and ctx.attempt == 1:
        raise TimeoutError(f"the mail server said nothing for {order_id} ms")
    return f"letter {order_id}"


def enqueue(jobs: int) -> dict[int, str]:
    """Enqueue this many jobs in one call.

    Returns:
        How each should end, by its id.
    """
    calls = [
        (send_letter if number % 2 else hash_upload).call(f"tenant-{number % TENANTS}", number // 2)
        for number in range(jobs)
    ]
    return {handle.id: _end(number) for number, handle in enumerate(queue.enqueue_many(calls))}


def _end(number: int) -> str:
    return "dead" if number % 2 and number // 2 % DEAD_EVERY == 0 else "succeeded"
