"""The example project under ``docs/examples/django``, as its users run it: a server and a worker, over HTTP."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from docs.pages import DOCS, blocks, words_in_code
from neighbours.django_project import LIBRARIES
from neighbours.serving import Process, until
from programs import Program, ran
from psycopg.conninfo import conninfo_to_dict
from servers import free_port

from pgqueue.django import conf
from pgqueue.django.management.commands.pgqueue import NO_RELOAD, RELOAD

EXAMPLE = DOCS / "examples" / "django"
PAGE = DOCS / "start" / "django.md"


def _environment(dsn: str) -> dict[str, str]:
    """The settings of libpq that lead to the database, as the example's users would have them."""
    where = conninfo_to_dict(dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    theirs = {"PGQUEUE_DSN", "DATABASE_URL", "PGQUEUE_APP", "PGQUEUE_TESTING", "DJANGO_SETTINGS_MODULE"}
    return {
        **{name: value for name, value in os.environ.items() if name not in theirs},
        **{name: str(where[key]) for key, name in names.items() if key in where},
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _managed(*words: str, dsn: str, folder: Path = EXAMPLE) -> "subprocess.CompletedProcess[str]":
    ended = ran(["manage.py", *words], cwd=folder, env=_environment(dsn), timeout=60, libraries=LIBRARIES)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.fixture
def migrated_shop(empty_dsn: str) -> str:
    """The example's database, as ``manage.py migrate`` leaves it."""
    _managed("migrate", dsn=empty_dsn)
    return empty_dsn


@pytest.fixture
def server(migrated_shop: str, tmp_path: Path) -> Iterator[httpx.Client]:
    port = free_port()
    words = ["runserver", "--noreload", f"127.0.0.1:{port}"]
    with _running(*words, dsn=migrated_shop, log=tmp_path / "server.log") as process:
        process.said("Quit the server with CONTROL-C")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            until(lambda: _answers(client))
            yield client


def _answers(client: httpx.Client) -> bool:
    try:
        client.get("/pgqueue/health/")
    except httpx.ConnectError:
        return False
    return True


class _running:  # noqa: N801 - a context manager that reads like a function
    """``manage.py …`` for the length of a block."""

    def __init__(self, *words: str, dsn: str, log: Path, folder: Path = EXAMPLE) -> None:
        self._words, self._env, self._log, self._folder = words, _environment(dsn), log, folder

    def __enter__(self) -> Process:
        words, streams = ["manage.py", *self._words], subprocess.STDOUT
        with self._log.open("wb") as output:
            self._popen = Program(
                words, libraries=LIBRARIES, cwd=self._folder, env=self._env, stdout=output, stderr=streams
            )
        return Process(self._popen, self._log)

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.wait()


def _order(client: httpx.Client, number: int) -> Any:
    return client.get(f"/orders/{number}/").json()


def _rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def test_an_order_over_http_is_confirmed_by_a_worker(
    server: httpx.Client, migrated_shop: str, tmp_path: Path
) -> None:
    taken = server.post("/orders/", json={"customer": "Ann"})
    assert taken.status_code == 201
    number = taken.json()["order"]
    assert _order(server, number) == {"customer": "Ann", "confirmed": False}
    assert _rows(migrated_shop, "select task, queue, status from pgqueue.jobs") == [
        ("shop.tasks.confirm", "mail", "ready")
    ]
    assert server.get("/pgqueue/health/").status_code == 503

    log = tmp_path / "worker.log"
    with _running("pgqueue", "worker", dsn=migrated_shop, log=log) as worker:
        until(lambda: _order(server, number)["confirmed"])
        assert server.get("/pgqueue/health/").json() == {"status": "ok"}
        until(lambda: _rows(migrated_shop, "select from pgqueue.job_history where outcome = 'succeeded'"))
        assert worker.stopped() == 0


def test_a_view_that_raises_after_it_has_enqueued_leaves_neither_row_nor_job(
    server: httpx.Client, migrated_shop: str
) -> None:
    assert server.post("/orders/", json={"customer": "Bob", "paid": False}).status_code == 500

    assert _rows(migrated_shop, "select * from shop_order") == []
    assert _rows(migrated_shop, "select * from pgqueue.all_jobs") == []


def test_the_examples_own_tests_pass(empty_dsn: str) -> None:
    ended = _managed("test", "--noinput", dsn=empty_dsn)

    assert "Ran 2 tests" in ended.stderr


def test_the_example_is_in_order(migrated_shop: str) -> None:
    checked = _managed("check", "--database", "default", "--fail-level", "WARNING", dsn=migrated_shop)
    assert "no issues" in checked.stdout
    assert (
        "No changes detected" in _managed("makemigrations", "--check", "--dry-run", dsn=migrated_shop).stdout
    )
    listed = _managed("pgqueue", "jobs", "list", "--json", dsn=migrated_shop)
    assert json.loads(listed.stdout) == []


@pytest.fixture
def first_lines(tmp_path: Path) -> Path:
    """The example without pgqueue, and then with the first lines of the page."""
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    settings, tasks = blocks(PAGE)[:2]
    before = (project / "mysite" / "settings.py").read_text().partition("PGQUEUE =")[0]
    (project / "mysite" / "settings.py").write_text(before.replace('"pgqueue.django",', "") + settings.code)
    (project / "shop" / "tasks.py").write_text(tasks.code)
    assert (settings.argument, tasks.argument) == ("mysite/settings.py", "shop/tasks.py")
    return project


def test_the_page_begins_with_all_the_lines_that_are_needed(
    first_lines: Path, empty_dsn: str, tmp_path: Path
) -> None:
    commands = [shlex.split(line)[2:] for line in blocks(PAGE)[2].code.splitlines()]
    assert commands == [["migrate"], ["pgqueue", "worker"]]

    _managed(*commands[0], dsn=empty_dsn, folder=first_lines)
    _managed(
        "pgqueue", "enqueue", "shop.tasks.confirm", '{"order_id": 42}', dsn=empty_dsn, folder=first_lines
    )
    log = tmp_path / "worker.log"
    with _running(*commands[1], dsn=empty_dsn, log=log, folder=first_lines) as worker:
        worker.said("confirmed 42")
        until(lambda: _rows(empty_dsn, "select from pgqueue.job_history where outcome = 'succeeded'"))
        assert worker.stopped() == 0


def test_everything_else_that_the_page_shows_stands_in_the_example() -> None:
    shown = [block for block in blocks(PAGE)[2:] if block.word == "file"]
    named = {block.argument for block in shown}
    assert named == {
        "mysite/settings.py",
        "mysite/urls.py",
        "shop/tasks.py",
        "shop/tests.py",
        "shop/views.py",
    }
    for block in shown:
        assert block.code in (EXAMPLE / block.argument).read_text(encoding="utf-8"), block


def test_the_reference_names_every_key_and_every_check() -> None:
    words = words_in_code(DOCS / "reference" / "django.md")

    assert {
        word for word in words if word.isupper() and word in conf.OPTIONS | conf.OURS
    } == conf.OPTIONS | conf.OURS
    assert {word for word in words if re.fullmatch(r"pgqueue\.[EW]\d{3}", word)} == {
        f"pgqueue.{number}" for number in ("E001", "E002", "E003", "E004", "E005", "E006", "W001", "W002")
    }
    assert {RELOAD, NO_RELOAD} <= words
