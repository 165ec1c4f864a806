"""``manage.py pgqueue worker --autoreload``: a worker that starts again when the code changes."""

import os
import signal
import time
from pathlib import Path

import psycopg
import pytest
from django.test import override_settings
from neighbours.django_project import MANAGE, managed

from pgqueue.django.management.commands.pgqueue import split_off_reloading

PROJECT = """
import os, sys
from pathlib import Path
from django.core.management import execute_from_command_line

sys.path.insert(0, {tests!r})
os.environ["DJANGO_SETTINGS_MODULE"] = "changing"
execute_from_command_line(sys.argv)
"""
SETTINGS = "from neighbours.project.settings import *\nINSTALLED_APPS = ['pgqueue.django', 'changes']\n"
TASKS = """
from pgqueue.django import queue

@queue.task(name="tell")
def tell() -> str:
    return {answer!r}
"""


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """A project of which a test may change the code."""
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "__init__.py").touch()
    (tmp_path / "manage.py").write_text(PROJECT.format(tests=str(MANAGE.parents[2])))
    (tmp_path / "changing.py").write_text(SETTINGS)
    _change(tmp_path, TASKS.format(answer="first"))
    return tmp_path


def _change(project: Path, text: str, name: str = "tasks.py") -> None:
    """Write a file again, with a time two seconds later than it had."""
    file = project / "changes" / name
    later = file.stat().st_mtime + 2 if file.exists() else time.time() - 100
    file.write_text(text)
    os.utime(file, (later, later))


def _answer(dsn: str) -> str:
    """What the task returns now."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select pgqueue.enqueue('tell')").fetchone()
        assert row is not None
        deadline = time.monotonic() + 30
        while True:
            found = connection.execute("select result from pgqueue.job_history where id = %s", row).fetchone()
            if found is not None:
                return str(found[0])
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_change_of_the_code_starts_the_worker_again(django_dsn: str, changing: Path) -> None:
    command = ("pgqueue", "worker", "--autoreload")
    with managed(*command, dsn=django_dsn, manage_py=changing / "manage.py") as reloader:
        reloader.until("worker started")
        assert _answer(django_dsn) == "first"

        _change(changing, "this is no Python")
        reloader.until("SyntaxError")
        _change(changing, TASKS.format(answer="second"))
        reloader.until("worker started")
        assert _answer(django_dsn) == "second"

        _change(changing, "answer = 'third'", "answers.py")
        _change(changing, "from changes.answers import answer\n" + TASKS.replace("{answer!r}", "answer"))
        reloader.until("worker started")
        assert _answer(django_dsn) == "third"
        _change(changing, "answer = 'fourth'", "answers.py")
        reloader.until("worker started")
        assert _answer(django_dsn) == "fourth"

        reloader.signal(signal.SIGINT)
        assert "worker stopped" in reloader.rest()
        assert reloader.ended() == 0
    with psycopg.connect(django_dsn) as connection:
        assert connection.execute("select from pgqueue.workers").fetchall() == []


@pytest.mark.parametrize(
    ("debug", "words", "reloads"),
    [
        (True, ["worker"], True),
        (False, ["worker"], False),
        (True, ["worker", "--no-autoreload"], False),
        (False, ["worker", "--autoreload"], True),
    ],
)
def test_reloading_is_the_default_under_debug(debug: bool, words: list[str], reloads: bool) -> None:  # noqa: FBT001 - a table
    with override_settings(DEBUG=debug):
        assert split_off_reloading(words) == (reloads, ["worker"])
