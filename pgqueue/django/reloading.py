"""A worker that starts again when the code changes, for development.

Django's reloader ends a process from inside, between any two lines. A worker needs time to stop. So this process watches
the files, with Django's own watcher, and the worker is a child process that gets a signal to stop. A worker that cannot
start, for example after a typing error, is started again at the next change.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from django.apps import apps
from django.utils import autoreload

Write = Callable[[str], object]

GRACE = "5"
"""Seconds that a job may continue after the code has changed; then it goes back to its queue."""


def run(words: Sequence[str], *, write: Write) -> None:
    """Run ``manage.py pgqueue`` with these words until Ctrl-C or SIGTERM; start it again after every change.

    Args:
        words: the worker's command line.
        write: prints a line for the user.
    """
    command = _command(words)
    write("Watching for file changes; quit with CONTROL-C.")
    with _until_a_signal():
        while True:
            with _child(command) as child:
                changed = _first_change(child, write)
                write(f"{changed} has changed; starting again.")


def _command(words: Sequence[str]) -> list[str]:
    own = autoreload.get_child_arguments()
    program = [str(word) for word in own[: len(own) - len(sys.argv) + 1]]
    grace = [] if any(word.startswith("--grace") for word in words) else ["--grace", GRACE]
    return [*program, "pgqueue", *words, *grace, "--no-autoreload", "--supervisor", str(os.getpid())]


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


def _first_change(child: "subprocess.Popen[bytes]", write: Write) -> Path:
    found: list[Path] = []

    def note(*, file_path: Path, **_: object) -> bool:
        found.append(file_path)
        return True  # else Django would end this process

    autoreload.file_changed.connect(note)
    reported = False
    for _ in _watcher().tick():
        if found:
            break
        if not reported and child.poll() is not None:
            reported = True
            write(f"The worker ended with exit code {child.returncode}; the next change starts it again.")
    return found[0]


def _watcher() -> autoreload.BaseReloader:
    watcher = autoreload.get_reloader()
    for config in apps.get_app_configs():
        if "site-packages" not in config.path:
            watcher.watch_dir(config.path, "**/*.py")
    autoreload.autoreload_started.send(sender=watcher)
    return watcher


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
