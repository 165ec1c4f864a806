"""A worker that starts again when the code changes, for development.

Django's reloader ends a process from within, between two lines of whatever runs. A worker is better told to stop:
so this process watches, with Django's own watcher, and the worker is a child of its own that is asked to end. One
that cannot even start, say after a typing error, is started again with the next change.
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

Say = Callable[[str], object]

GRACE = "5"
"""So many seconds may a job go on when the code has changed; then it goes back to the queue."""


def run(words: Sequence[str], *, say: Say) -> None:
    """Run ``manage.py pgqueue`` with these words until Ctrl-C or SIGTERM, anew after every change.

    Args:
        words: the worker's.
        say: what to tell the user with.
    """
    command = _command(words)
    say("Watching for file changes; quit with CONTROL-C.")
    with _signals_end_it():
        while True:
            with _child(command) as child:
                changed = _first_change(child, say)
                say(f"{changed} has changed; starting again.")


def _command(words: Sequence[str]) -> list[str]:
    """The worker's command line: this process's own up to its arguments, and the words."""
    own = autoreload.get_child_arguments()
    program = [str(word) for word in own[: len(own) - len(sys.argv) + 1]]
    grace = [] if any(word.startswith("--grace") for word in words) else ["--grace", GRACE]
    return [*program, "pgqueue", *words, *grace, "--no-autoreload", "--supervisor", str(os.getpid())]


@contextmanager
def _child(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """The worker, in a session of its own so that Ctrl-C reaches only us; asked to end with the block."""
    child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - our own words
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


def _first_change(child: "subprocess.Popen[bytes]", say: Say) -> Path:
    """Wait for the first file to change from now on."""
    found: list[Path] = []

    def note(*, file_path: Path, **_: object) -> bool:
        found.append(file_path)
        return True  # else Django would end this process

    autoreload.file_changed.connect(note)
    told = False
    for _ in _watcher().tick():
        if found:
            break
        if not told and child.poll() is not None:
            told = True
            say(f"The worker ended with {child.returncode}; a change starts it again.")
    return found[0]


def _watcher() -> autoreload.BaseReloader:
    """Django's watcher of every module that is loaded, and of whatever else is in the project's apps."""
    watcher = autoreload.get_reloader()
    for config in apps.get_app_configs():
        if "site-packages" not in config.path:
            watcher.watch_dir(config.path, "**/*.py")
    autoreload.autoreload_started.send(sender=watcher)
    return watcher


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """SIGTERM and Ctrl-C leave the block, quietly."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
