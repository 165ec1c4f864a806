"""Processes of workers that tests kill, and whether a process runs."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgqueue.worker.attempt import run_to_the_end
from pgqueue.worker.worker import Worker

TESTS = Path(__file__).parents[1]
LEASE = "0.6"


@contextmanager
def worker_process(dsn: str, module: str = "crashes.crashing") -> Iterator[subprocess.Popen[bytes]]:
    """A worker of this module's ``queue`` in a process of its own, which a test may kill."""
    words = [sys.executable, "-W", "error", "-m", "crashes.killing", module, dsn, LEASE]
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": paths}, cwd=TESTS) as process:  # noqa: S603 - our own words
        try:
            yield process
        finally:
            process.kill()


def lives(pid: int) -> bool:
    """Whether a process runs; one that its parent has not reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def work(module: str, dsn: str, lease: str) -> None:
    """Work until killed."""
    queue = importlib.import_module(module).queue
    queue.database = queue.database.but(dsn=dsn)
    run_to_the_end(Worker(queue, lease=float(lease), sweep=0.2, poll=0.1, concurrency=4).run())


if __name__ == "__main__":
    work(*sys.argv[1:])
