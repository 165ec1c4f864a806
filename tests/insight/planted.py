"""Workers, jobs and figures as a live queue leaves them in its tables, so that a test can plant a trouble."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from looking import ask

from pgqueue import PgQueue

MINUTE = timedelta(minutes=1)


def whole(text: str) -> str:
    """A text in which minutes and hours are whole, and many seconds: on a busy machine some time passes between planting and looking."""
    return re.sub(r"(\d\d)\.\d+ s\b", r"\1 s", re.sub(r"(\d)\.\d+ (min|h)\b", r"\1 \2", text))


def worker(
    queue: PgQueue, *queues: str, host: str = "vm", pid: int = 1, lease: str = "1 day", **more: Any
) -> None:
    """A worker's row, as a live worker leaves it."""
    fields = {
        "started_at": datetime.now(UTC) - 60 * MINUTE,
        "looked_at": datetime.now(UTC),
        "look_within": 1e6,
        **more,
    }
    ask(
        queue,
        f"""insert into pgqueue.workers (id, host, pid, concurrency, minimum, slots, version, queues, lease_until,
                {', '.join(fields)})
            values (%s, %s, %s, 4, 4, 4, '0.1.0', %s, now() + %s::interval, {', '.join(['%s'] * len(fields))})
            returning id""",
        uuid4(), host, pid, list(queues) or None, lease, *fields.values(),
    )  # fmt: skip


def enqueue(queue: PgQueue, *queues: str, minutes: int = 0) -> None:
    task = queue.tasks.get("send") or queue.task(name="send")(_nothing)
    at = datetime.now(UTC) - minutes * MINUTE
    for name in queues:
        task.using(queue=name, run_at=at).enqueue()


def run_first(queue: PgQueue) -> None:
    ask(
        queue,
        """update pgqueue.jobs set status = 'running', in_lane = null, attempts = 1, claimed_at = now(),
                  worker_id = (select id from pgqueue.workers)
           where id = (select min(id) from pgqueue.jobs) returning id""",
    )


def measured(queue: PgQueue, task: str, minutes: int, *, succeeded: int, failed: int) -> None:
    """What a worker has measured of a task in one minute, which was ``minutes`` ago."""
    ask(
        queue,
        """insert into pgqueue.series_written (at, queue, task, enqueued, started, succeeded, failed, retried, dead, wait_bins,
                                               wait_counts, run_bins, run_counts)
           values (date_trunc('minute', now()) - %s::interval, 'mail', %s, %s, %s, %s, %s, 0, 0, '{}', '{}', '{}', '{}')
           returning at""",
        minutes * MINUTE, task, succeeded + failed, succeeded + failed, succeeded, failed,
    )  # fmt: skip


def _nothing(**_: Any) -> None: ...
