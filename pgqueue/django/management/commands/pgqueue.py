"""``manage.py pgqueue …``: the verbs of the command ``pgqueue``, on the project's queue.

The words after ``pgqueue`` go unchanged to that command, which has its own ``--help`` and exit codes.

For development, a worker starts again when the code changes. Django's reloader ends a process from inside, between any two
lines; a worker needs time to stop. So this process watches the files, with Django's own watcher, and the worker is a child
process that gets a signal to stop. A worker that cannot start, for example after a typing error, is started again at the next
change.
"""

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
import sysconfig
from argparse import REMAINDER
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import Error, connections
from django.utils import autoreload

from pgqueue.django.checks import TAG

APP = "pgqueue.django:queue"
PROGRAM = "manage.py pgqueue"
RELOAD, NO_RELOAD = "--autoreload", "--no-autoreload"
RELOADING = f"{RELOAD}, {NO_RELOAD}: whether the worker starts again when the code changes; by default it does under DEBUG."
Write = Callable[[str], object]

GRACE = "5"
"""Seconds that a job may continue after the code has changed; then it goes back to its queue."""
DJANGOS = {"--settings": 1, "--pythonpath": 1, "--traceback": 0, "--no-color": 0, "--force-color": 0}
"""Django's own options, which Django has already read, and how many words follow each."""


class Command(BaseCommand):
    """See the module."""

    help = "Run and control the project's jobs: worker, jobs, dead, queues, enqueue, migrate, bench."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take all words unchanged; for ``call_command``."""
        parser.add_argument("arguments", nargs=REMAINDER, help="The arguments of the command pgqueue.")

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a verb from the command line; the process ends with its exit code."""
        words = without_djangos(argv[2:])
        reloads, words = split_off_reloading(words)
        try:
            if _verb(words) == "worker" and not {"--help", "-h"} & set(words):
                _set_python_path_of_children()
                if reloads:
                    run_and_reload(words, write=self.stdout.write)
                    return
                self._check()
            _main()(words, prog_name=PROGRAM)
        except Error as error:
            self.stderr.write(f"pgqueue: error: the database refused: {' '.join(str(error).split())}")
            sys.exit(2)
        finally:
            connections.close_all()

    def handle(self, *_: str, arguments: Sequence[str], **_options: Any) -> None:  # noqa: ANN401 - Django's own
        """Run a verb for ``call_command``, which raises ``CommandError`` for an exit code other than 0."""
        printed = io.TextIOWrapper(
            io.BytesIO(), encoding="utf-8", write_through=True
        )  # JSON is written in bytes
        try:
            with contextlib.redirect_stdout(printed):
                code = _main()(list(arguments), prog_name=PROGRAM, standalone_mode=False)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        except click.Abort as error:
            raise CommandError("aborted") from error
        finally:
            printed.seek(0)
            self.stdout.write(printed.read(), ending="")
        if code:
            raise CommandError(
                f"{PROGRAM} {' '.join(arguments)} ended with exit code {code}; its output says why",
                returncode=code,
            )

    def _check(self) -> None:
        try:
            self.check(tags=[TAG])
        except SystemCheckError as error:
            self.stderr.write(str(error), lambda words: words)
            sys.exit(error.returncode)


def without_djangos(words: Sequence[str]) -> list[str]:
    """The words that are not Django's own options."""
    kept = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name not in DJANGOS:
            kept.append(word)
        elif not equals:
            for _ in range(DJANGOS[name]):
                next(rest, None)
    return kept


def split_off_reloading(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether a worker starts again when the code changes, by default if DEBUG is on; and the other words."""
    given = [word == RELOAD for word in words if word in {RELOAD, NO_RELOAD}]
    return (given[-1] if given else settings.DEBUG), [
        word for word in words if word not in {RELOAD, NO_RELOAD}
    ]


def run_and_reload(words: Sequence[str], *, write: Write) -> None:
    """Run ``manage.py pgqueue`` with these words until Ctrl-C or SIGTERM; start it again after every change.

    Args:
        words: the worker's command line.
        write: prints a line for the user.
    """
    command = _worker_command(words)
    write("Watching for file changes; quit with CONTROL-C.")
    with _until_a_signal():
        while True:
            with _child(command) as child:
                changed = _first_change(child, write)
                write(f"{changed} has changed; starting again.")


def _main() -> click.Command:
    # The command line is a floor above this one, so it is imported by its name.
    main: click.Command = importlib.import_module("pgqueue.cli.main").command_of(
        APP, notes={"worker": RELOADING}
    )
    return main


def _verb(words: Sequence[str]) -> str | None:
    """Return the verb among the words; None: they cannot be parsed, and the command itself will raise the error."""
    main = _main()
    try:
        with click.Context(main) as context:
            _, rest, _ = main.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return None
    return rest[0] if rest else None


def _set_python_path_of_children() -> None:
    """Put the folder of ``manage.py`` on the Python path of worker processes, which are not started by it.

    The entries before the standard library on the path are those that this process got in addition to it.
    """
    given = sys.path[: sys.path.index(sysconfig.get_path("stdlib"))]
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in given)  # noqa: PTH100 - strings


def _worker_command(words: Sequence[str]) -> list[str]:
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
