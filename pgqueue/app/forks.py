"""A task may fork. The child is a copy of the worker, and must not go on as one."""

import os
import signal
import sys
from contextlib import suppress

from pgqueue.values.jobs.error_text import traceback_of

FLUSHED_WITHIN = 5
"""Seconds in which a forked process flushes its streams; then it is killed."""


class Process:
    """This process.

    Attributes:
        forks: how many forks lead from the process that imported this module to this one. ``os.getpid()`` would tell a child,
            too, but it is a system call: two of them for each job took 4 % of a worker's time. A fork that Python does not see, such as
            one of a C library, is not counted.
    """

    def __init__(self) -> None:
        self.forks = 0
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self.forks += 1


process = Process()


def end_if_forked(forks: int, error: object = None) -> None:
    """End this process, if a task has forked it: it is a copy of the worker, which must not go on as one.

    The exit code is 0 if the task returned, the code of ``sys.exit()``, or 1 with a traceback after another exception.

    Args:
        forks: ``process.forks`` when the task was called.
        error: what the task has raised; None: it has returned, or it waits.
    """
    if process.forks == forks:
        return
    code = 0 if error is None else 1
    signal.alarm(FLUSHED_WITHIN)  # another thread may have held the lock of a stream at the fork
    try:
        given = error.code if isinstance(error, SystemExit) else error
        if given is None or isinstance(given, int):
            code = given or 0
        else:
            said = traceback_of(given) if isinstance(given, BaseException) else f"{given}\n"
            os.write(2, said.encode(errors="backslashreplace"))
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(code & 0xFF)
