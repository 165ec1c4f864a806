"""``manage.py pgqueue …``: the verbs of the command ``pgqueue``, on the project's queue.

The words after ``pgqueue`` go unchanged to that command, which has its own ``--help`` and exit codes.

For development, a worker starts again when the code changes. Django's reloader ends a process from inside, between any two
lines; a worker needs time to stop. So Django's own watcher only tells of changes, and the worker is a child process, as for
``pgqueue worker --reload``.
"""

import contextlib
import importlib
import io
import os
import sys
import sysconfig
from argparse import REMAINDER
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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
RELOAD, NO_RELOAD = "--reload", "--no-reload"
ENDS = {"--until-empty", "--max-jobs", "--max-time"}
"""Options of a worker that ends by itself."""
RELOADING = f"{RELOAD}, {NO_RELOAD}: Django's own watcher looks at the project; by default, under DEBUG, the worker starts again."
Write = Callable[[str], object]

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
    """Whether a worker starts again when the code changes, by default if DEBUG is on and it has no end; and the other words."""
    given = [word == RELOAD for word in words if word in {RELOAD, NO_RELOAD}]
    ends = any(word.partition("=")[0] in ENDS for word in words)
    return (given[-1] if given else settings.DEBUG and not ends), [
        word for word in words if word not in {RELOAD, NO_RELOAD}
    ]


def run_and_reload(words: Sequence[str], *, write: Write) -> None:
    """Run ``manage.py pgqueue`` with these words until Ctrl-C or SIGTERM; start it again after every change.

    Args:
        words: the worker's command line.
        write: prints a line for the user.
    """
    own = autoreload.get_child_arguments()
    program = [str(word) for word in own[: len(own) - len(sys.argv) + 1]]
    reloading = importlib.import_module("pgqueue.cli.reloading")  # a floor above this one
    command = reloading.child_command([*program, "pgqueue", *words, NO_RELOAD])
    reloading.run_and_reload(command, _looks(), write)


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


def _looks() -> Iterator[Path | None]:
    """Look at the project's files, as Django's own server does: one that has changed; None: none has."""
    found: list[Path] = []

    def note(*, file_path: Path, **_: object) -> bool:
        found.append(file_path)
        return True  # else Django would end this process

    autoreload.file_changed.connect(note)
    for _ in _watcher().tick():
        yield found[0] if found else None
        found.clear()


def _watcher() -> autoreload.BaseReloader:
    watcher = autoreload.get_reloader()
    for config in apps.get_app_configs():
        if "site-packages" not in config.path:
            watcher.watch_dir(config.path, "**/*.py")
    autoreload.autoreload_started.send(sender=watcher)
    return watcher
