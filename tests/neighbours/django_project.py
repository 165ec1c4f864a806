"""Running a Django project's ``manage.py`` as users do: once to its end, or for as long as a test needs it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.commands import Process
from programs import Program, ran

LIBRARIES = ("django.core.management", "django.db.backends.postgresql.base", "django.forms", "django.http")
MANAGE = Path(__file__).parent / "project" / "manage.py"


def manage(*words: str, dsn: str, manage_py: Path = MANAGE, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run ``manage.py`` to its end.

    Args:
        words: its arguments.
        dsn: the project's database, as SHOP_DSN.
        manage_py: whose project.
        env: more of the environment.
    """
    return ran([str(manage_py), *words], env=_environment(dsn, env), cwd="/", timeout=60, libraries=LIBRARIES)


@contextmanager
def managed(*words: str, dsn: str, manage_py: Path = MANAGE, **env: str) -> Iterator[Process]:
    """Run ``manage.py`` for the length of the block; arguments as for :func:`manage`."""
    environment, pipe = _environment(dsn, env), subprocess.PIPE
    with Program(
        [str(manage_py), *words], libraries=LIBRARIES, env=environment, cwd="/", stderr=pipe
    ) as popen:
        try:
            yield Process(popen)
        finally:
            popen.kill()


def _environment(dsn: str, more: dict[str, str]) -> dict[str, str]:
    """The environment, without what a user of the queue alone would set."""
    theirs = {"PGQUEUE_DSN", "DATABASE_URL", "PGQUEUE_APP", "DJANGO_SETTINGS_MODULE"}
    return (
        {name: value for name, value in os.environ.items() if name not in theirs} | {"SHOP_DSN": dsn} | more
    )
