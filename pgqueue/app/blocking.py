"""A blocking enqueue within a running event loop: it works, it stops the loop meanwhile, and it is told once."""

import logging
import sys
from asyncio import _get_running_loop
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])

log = logging.getLogger("pgqueue")

_told = False


def warn_of_blocked_loop() -> None:
    """Log it, the first time in this process, with the place in the user's code. Otherwise it costs 0.05 µs."""
    global _told  # noqa: PLW0603 - once per process
    if _told or _get_running_loop() is None:
        return
    _told = True
    log.warning(
        "a blocking enqueue stops the event loop until the database answers: write `await task.aenqueue(...)` at %s; "
        "this is said once",
        _place(),
    )


def _place() -> str:
    frame = sys._getframe()  # noqa: SLF001 - inspect.stack() reads every source file on the way
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
