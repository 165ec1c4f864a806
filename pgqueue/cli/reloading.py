"""``pgqueue worker --reload``, for development: a worker that starts again when the code changes.

This process watches the files. The worker is a child process that gets a signal to stop, so that it finishes its jobs or
returns them. A worker that cannot start, for example after a typing error, is started again at the next change.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from pgqueue.values.hints import extra_for

Write: TypeAlias = Callable[[str], object]
Looks: TypeAlias = Iterator[Path | None]
"""One look at the files after the other: a file that has changed; None: none has."""
GRACE = "5"
"""Seconds that a job may continue after the code has changed; then it goes back to its queue."""


def run_and_reload(command: Sequence[str], looks: Looks, write: Write) -> None:
    """Run a worker until Ctrl-C or SIGTERM; start it again after every change.

    Args:
        command: the worker's command line.
        looks: what is seen of the files, without an end.
        write: prints a line for the user.
    """
    write("Watching for file changes; quit with CONTROL-C.")
    with _until_a_signal():
        while True:
            with _child(command) as child:
                changed = _first_change(child, looks, write)
                write(f"{changed} has changed; starting again.")


def child_command(command: Sequence[str]) -> list[str]:
    """The command line of a worker that stops when this process is gone; if no grace is given, with less than in production."""
    grace = [] if any(word.startswith("--grace") for word in command) else ["--grace", GRACE]
    return [*command, *grace, "--supervisor", str(os.getpid())]


def looks_at(folder: Path) -> Looks:
    """Look at the Python files of a folder and of those in it; environments and hidden folders are left out.

    Raises:
        ConfigurationError: the package that watches files is missing.
    """
    with extra_for("reload", "--reload", "watchfiles"):
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 - a package that not every program has
    found = watch(folder, watch_filter=PythonFilter(), yield_on_timeout=True, rust_timeout=1_000)
    return (min((Path(path) for _, path in changes), default=None) for changes in found)


@contextmanager
def _child(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the worker in a session of its own, so that Ctrl-C reaches only this process; the end of the block stops the worker."""
    child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - our own command line
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)  # a supervised worker ends at once
            child.wait()
            raise


def _first_change(child: "subprocess.Popen[bytes]", looks: Looks, write: Write) -> Path:
    reported = False
    while (found := next(looks)) is None:
        if not reported and child.poll() is not None:
            reported = True
            write(f"The worker ended with exit code {child.returncode}; the next change starts it again.")
    return found


@contextmanager
def _until_a_signal() -> Iterator[None]:
    """SIGTERM and Ctrl-C end the block, without an exception."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
