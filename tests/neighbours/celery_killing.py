"""A chain of which the middle task kills its worker."""

import os
import signal
from pathlib import Path

from pgqueue import PgQueue
from pgqueue.moving.celery import Celery

queue = PgQueue("postgresql://replaced.invalid/none")
app = Celery(queue, set_as_current=False)


@app.task
def first() -> list[int]:
    return [1, 2, 3]


@app.task(acks_late=True, max_retries=4)
def deadly(values: list[int], log: str, times: int) -> int:
    with Path(log).open("a") as file:
        file.write(f"{values}\n")
    if len(Path(log).read_text().splitlines()) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(values)


@app.task
def last(total: int) -> str:
    return f"{total} in all"
