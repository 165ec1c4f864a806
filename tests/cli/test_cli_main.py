"""Ctrl-C ends a command, wherever Python was when it came."""

import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click
import psycopg
import pytest
from cli.commands import pgqueue
from click.testing import CliRunner

from pgqueue import PgQueue, __version__
from pgqueue.cli import app as cli_app
from pgqueue.cli.app import app_queue_of, queue_of
from pgqueue.cli.main import VERBS, command_of
from pgqueue.cli.signals import no_interrupt_lost
from pgqueue.cli.values import ABOVE_ZERO, LENGTH, names
from pgqueue.cli.verbs import CommandOptions

HEAVY = ["alembic", "rich", "sqlalchemy", "pgqueue.embedded"]


def test_version_is_the_installed_one() -> None:
    assert pgqueue("--version").stdout == f"pgqueue {__version__}\n"


def test_help_lists_every_verb() -> None:
    listed = pgqueue("--help").stdout
    for name, verb in VERBS.items():
        assert name in listed
        assert verb.summary in listed


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_where_the_table_says(name: str) -> None:
    assert pgqueue(name, "--help").stdout.startswith(f"Usage: pgqueue {name} ")


@pytest.mark.parametrize("words", [["--help"], ["worker", "--help"], ["jobs", "list", "--help"]])
def test_a_verb_imports_only_what_it_needs(words: list[str]) -> None:
    program = (
        "import sys; from pgqueue.cli.main import main; "
        f"main({words!r}, prog_name='pgqueue', standalone_mode=False); "
        f"sys.exit(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stderr == "\n"


def test_python_m_pgqueue_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pgqueue", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"pgqueue {__version__}\n"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["wroker"], "Did you mean 'worker'?"),
        (["jobs", "lst"], "Did you mean 'list'?"),
        (["worker", "--concurency", "3"], "--concurrency"),
        (["jobs", "list", "--state", "redy"], "'ready'"),
    ],
)
def test_an_unknown_word_is_refused_with_the_near_one(words: list[str], suggestion: str) -> None:
    result = pgqueue(*words)
    assert result.exit_code == 2
    assert suggestion in result.stderr


def test_without_a_database_both_settings_are_named() -> None:
    result = pgqueue("jobs", "list")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: no database: ")
    assert "PGQUEUE_DSN" in line
    assert "DATABASE_URL" in line


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list"],
        ["migrate"],
        ["migrate", "--check"],
        ["queues", "pause", "mail"],
        ["dead", "retry", "1"],
    ],
)
def test_an_unreachable_database_is_one_line_without_the_password(words: list[str]) -> None:
    result = pgqueue("--dsn", "postgresql://shop:sekret@localhost:1/shop", *words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: cannot connect to ")
    assert "port=1" in line
    assert "sekret" not in line


def test_a_missing_schema_is_one_line_with_the_remedy(empty_dsn: str) -> None:
    result = pgqueue("jobs", "list", dsn=empty_dsn)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: ")
    assert line.endswith("run `pgqueue migrate`")


def test_what_the_server_refuses_is_one_line(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("alter table pgqueue.queues add check (name <> 'mail')")
    refused = pgqueue("--dsn", dsn, "queues", "pause", "mail")
    read_only = f"{dsn}&options=-cdefault_transaction_read_only%3Don"
    not_written = pgqueue("--dsn", read_only, "queues", "pause", "mail")
    for result, said in (
        (refused, "the database refused: "),
        (not_written, "the server takes no writes (cannot execute INSERT in a read-only transaction)"),
    ):
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"pgqueue: error: {said}")


@pytest.mark.parametrize(
    "words",
    [
        ["--dsn", "{}", "jobs", "list"],
        ["jobs", "--dsn", "{}", "list"],
        ["jobs", "list", "--dsn", "{}"],
        ["--dsn", "postgresql://nobody@localhost:1/wrong", "jobs", "list", "--dsn={}"],
        ["queues", "pause", "mail", "--dsn", "{}"],
        ["migrate", "--check", "--schema", "pgqueue", "--dsn", "{}"],
    ],
)
def test_the_options_of_every_command_may_stand_anywhere_and_the_last_one_wins(
    words: list[str], dsn: str
) -> None:
    assert pgqueue(*(word.format(dsn) for word in words)).exit_code == 0


def test_the_app_may_stand_behind_the_command(dsn: str, shop: Path) -> None:
    assert shop.exists()
    words = ["enqueue", "shop.send", '{"order_id": 1}']
    assert pgqueue(*words, "--app", "shop:queue", dsn=dsn).stdout == "job 1 added\n"
    assert pgqueue("--app", "nowhere:queue", *words, "--app", "shop:queue", dsn=dsn).stdout == "job 2 added\n"
    assert pgqueue(*words, "--app", "shop:queue", dsn=dsn, PGQUEUE_APP="nowhere:queue").exit_code == 0


@pytest.mark.parametrize("name", VERBS)
def test_every_command_says_that_it_takes_them_and_lists_only_its_own(name: str) -> None:
    shown = " ".join(pgqueue(name, "--help").stdout.split())
    assert "--behind-pooler, --direct-dsn, --replica-dsn, --embedded, --reveal can stand here, too" in shown
    assert shown.count("--dsn") == 1


def test_no_summary_in_a_list_of_commands_is_cut_short() -> None:
    for group in ("jobs", "dead", "queues", "adopt", "bench", "pipeline"):
        assert "..." not in pgqueue(group, "--help").stdout.partition("Commands:")[2], group


def test_a_frameworks_own_command_knows_its_app_and_its_help_mentions_no_option_about_it(
    dsn: str, shop: Path
) -> None:
    assert shop.exists()
    command = command_of("shop:queue", notes={"worker": "It reloads."})
    run = CliRunner().invoke(command, ["enqueue", "shop.send", '{"order_id": 1}'], env={"PGQUEUE_DSN": dsn})
    assert run.stdout == "job 1 added\n"
    for words in (["--help"], ["worker", "--help"], ["jobs", "list", "--help"]):
        assert "--dsn" not in CliRunner().invoke(command, words).stdout
    assert CliRunner().invoke(command, ["worker", "--help"]).stdout.endswith("It reloads.\n")
    assert CliRunner().invoke(command, ["--dsn", dsn, "jobs", "list"]).exit_code == 0
    assert CliRunner().invoke(command, ["jobs", "list", "--dsn", dsn]).exit_code == 0
    refused = CliRunner().invoke(command, ["jobs", "list", "--app", "shop:queue"])
    assert (refused.exit_code, "No such option '--app'" in refused.stderr) == (2, True)


def test_the_option_dsn_goes_before_the_environment(dsn: str, empty_dsn: str) -> None:
    assert pgqueue("--dsn", dsn, "jobs", "list", dsn=empty_dsn).exit_code == 0


def test_another_schema_is_looked_at_when_asked(empty_dsn: str) -> None:
    assert pgqueue("--schema", "jobs2", "migrate", dsn=empty_dsn).exit_code == 0
    assert pgqueue("--schema", "jobs2", "jobs", "list", dsn=empty_dsn).exit_code == 0
    assert pgqueue("jobs", "list", dsn=empty_dsn).exit_code == 2


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("shop", "use MODULE:ATTRIBUTE"),
        (":queue", "use MODULE:ATTRIBUTE"),
        ("shop:", "use MODULE:ATTRIBUTE"),
        ("shopp:queue", "no module 'shopp' in the current folder, /"),
        ("shopp:queue", "start in the folder that contains it, or set PYTHONPATH to that folder"),
        ("shop.jobs:queue", "no module 'shop.jobs' in the current folder"),
        ("shop/jobs.py:queue", "this is a path, and a module is named with dots: use shop.jobs:queue"),
        ("shop/jobs:queue", "use shop.jobs:queue"),
        ("shop/__init__.py:queue", "use shop:queue"),
        ("./shop.py:queue", "use shop:queue"),
        ("shop.py:queue", "use shop:queue"),
        ("../shop/jobs.py:queue", "use MODULE:ATTRIBUTE"),
        ("shop:queu", "the module has no 'queu'; the module's queues: declared, queue"),
        ("shop:not_a_queue", "'not_a_queue' is of type int, not a PgQueue"),
        ("json:dumps", "the module holds no PgQueue at all"),
        ("broken:queue", "importing it raised NameError: name 'undefined' is not defined"),
        ("exits:queue", "importing it raised SystemExit: 3 ("),
        ("garbled:queue", "importing it raised SyntaxError: '(' was never closed ("),
        ("garbled:queue", "garbled.py, line 2)"),
        ("twice:queue", "twice.py, line 3)"),
        ("needy:queue", "importing it raised ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ],
)
def test_a_bad_app_is_refused_with_the_reason(app: str, words: str, shop: Path) -> None:
    (shop / "broken.py").write_text("undefined\n")
    (shop / "garbled.py").write_text("number = 1\nprint(\n")
    (shop / "exits.py").write_text("raise SystemExit(3)\n")
    (shop / "twice.py").write_text(
        "from pgqueue import PgQueue\nqueue = PgQueue(queues=['mail'])\nqueue.task(print)\n"
    )
    (shop / "needy.py").write_text("import nowhere_to_be_found\n")
    result = pgqueue("--app", app, "enqueue", "shop.send")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"pgqueue: error: --app {app!r}: ")
    assert words in line


def test_a_worker_asks_for_the_app() -> None:
    result = pgqueue("worker")
    assert result.exit_code == 2
    assert "no app: give --app, or set PGQUEUE_APP" in result.stderr


OWN = "postgresql://own/shop"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> PgQueue:
    queue = PgQueue(OWN, schema="shop", behind_pooler=True, direct_dsn="postgresql://direct/shop")
    monkeypatch.setattr(cli_app, "find", lambda _: queue)
    return queue


def test_without_options_the_apps_database_is_left_alone(own: PgQueue) -> None:
    before = own.database
    assert queue_of(CommandOptions(app="shop:queue")).database is before


def test_another_dsn_leaves_the_direct_way_of_the_old_one_behind(own: PgQueue) -> None:
    database = queue_of(CommandOptions(app="shop:queue", dsn="postgresql://other/shop")).database
    assert own.database is database
    assert database.dsn == "postgresql://other/shop"
    assert database.catalogue.schema == "shop"
    assert database.behind_pooler
    assert database.listen_dsn is None


def test_another_schema_leaves_the_rest_as_the_app_has_it(own: PgQueue) -> None:
    database = queue_of(CommandOptions(app="shop:queue", schema="other")).database
    assert own.database is database
    assert database.catalogue.schema == "other"
    assert (database.dsn, database.listen_dsn) == (OWN, "postgresql://direct/shop")


def test_the_options_for_a_pooler_reach_a_queue_made_from_a_dsn() -> None:
    settings = CommandOptions(dsn=OWN, behind_pooler=True, direct_dsn="postgresql://direct/shop")
    database = queue_of(settings).database
    assert database.behind_pooler
    assert database.listen_dsn == "postgresql://direct/shop"


def test_the_app_is_found_in_the_current_directory(shop: Path) -> None:
    assert "shop.send" in app_queue_of(CommandOptions(app="shop:queue")).tasks
    assert (shop / "shop.py").exists()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30", timedelta(seconds=30)),
        ("0.5", timedelta(seconds=0.5)),
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_length_of_time_is_seconds_or_has_a_unit(text: str, length: timedelta) -> None:
    assert LENGTH.convert(text, None, None) == length


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e3", "5 m", "5y", "9" * 30, "3651d"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no length of time|is too long"):
        LENGTH.convert(text, None, None)


def test_zero_is_refused_where_it_makes_no_sense_in_the_words_of_the_shell() -> None:
    assert LENGTH.convert("0", None, None) == timedelta(0)
    with pytest.raises(
        click.BadParameter, match=r"'0' is too short; use a length above zero, such as 0.5, 30 or 5m"
    ):
        ABOVE_ZERO.convert("0", None, None)
    with pytest.raises(click.BadParameter, match="too short"):
        ABOVE_ZERO.convert("0.0000001", None, None)


def test_names_stand_between_commas() -> None:
    assert names("mail, default") == ["mail", "default"]


class Held:
    """Something with a callback at its end."""


def _raise(_: object) -> None:
    raise KeyboardInterrupt


def lose_an_interrupt() -> None:
    """Be interrupted in a callback, then wait as a command does."""
    held = Held()
    seen = weakref.ref(held, _raise)
    del held
    assert seen() is None
    threading.Event().wait(30)


@contextmanager
def handled(number: signal.Signals) -> Iterator[None]:
    """Only this signal raises KeyboardInterrupt."""
    others = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = {one: signal.signal(one, signal.SIG_IGN) for one in others}
    signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_came_in_a_callback_of_the_garbage_collector_is_raised_again(
    number: signal.Signals,
) -> None:
    with handled(number), pytest.raises(KeyboardInterrupt), no_interrupt_lost():
        lose_an_interrupt()


def test_other_errors_of_such_callbacks_are_printed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    held = Held()
    seen = weakref.ref(held, lambda _: 1 / 0)
    with no_interrupt_lost():
        del held
    assert seen() is None
    assert len(printed) == 1


def test_a_missing_extra_of_the_dashboard_is_named(monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    monkeypatch.delitem(sys.modules, "pgqueue.dashboard", raising=False)
    monkeypatch.setitem(sys.modules, "itsdangerous", None)
    for name in [one for one in sys.modules if one.startswith("pgqueue.dashboard.")]:
        monkeypatch.delitem(sys.modules, name)
    said = pgqueue("dashboard", dsn=dsn)
    assert said.exit_code == 2
    assert "pgqueue.dashboard needs the package itsdangerous" in said.stderr
    assert "pip install 'pgqueue-jobs[dashboard]'" in said.stderr
