"""The demo's app, written like a user's: a queue, a task, and a table that the task writes to.

Workers load it with ``--app pgqueue.cli.demo.tasks:queue``. :mod:`pgqueue.cli.demo.stage` makes the table, and
:mod:`pgqueue.cli.demo.verdict` decides what its rows must contain at the end.
"""

import hashlib
from pathlib import Path

from tenacity import stop_after_attempt, wait_fixed

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.demo.verdict import Measure
from pgqueue.values.retry import Retry

SCHEMA = "pgqueue_demo"
CHUNK = 1 << 18

queue = PgQueue(schema=SCHEMA)


@queue.task(name="measure", retry=Retry(wait=wait_fixed(0.5), stop=stop_after_attempt(5)))
def measure(ctx: Context, path: str) -> None:
    """Hash and measure a file. The result and the job's completion commit in one transaction."""
    found = measured(Path(path))
    with ctx.transaction() as connection:
        connection.execute(
            f"update {SCHEMA}.files set sha256 = %s, bytes = %s, lines = %s, times = times + 1 where job_id = %s",
            [found.sha256, found.bytes, found.lines, ctx.job.id],
        )


def measured(path: Path) -> Measure:
    """Read a file from end to end.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    size = lines = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
    return Measure(digest.hexdigest(), size, lines)
