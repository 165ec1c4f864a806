"""An app that keeps the log of attempts; processes of tests import it."""

import logging
import signal
import threading
import time
from pathlib import Path

from pgqueue import PgQueue
from pgqueue.middleware import KeepLogs

queue = PgQueue(middleware=[KeepLogs()])
log = logging.getLogger("shop.process")


@queue.task(process=True, max_attempts=1)
def alone(go_on: str) -> None:
    """Log, wait until a file is there, and log again."""
    log.warning("in a process")
    wait_for(go_on)
    log.warning("at its end")


@queue.task
def logs_and_waits() -> None:
    """Log, and never end."""
    log.warning("before the kill")
    threading.Event().wait(60)


def wait_for(path: str) -> None:
    """Wait until a file is there."""
    until = time.monotonic() + 60
    while not Path(path).exists() and time.monotonic() < until:
        signal.sigtimedwait([], 0.01)
