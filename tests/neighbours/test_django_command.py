"""``manage.py pgqueue``: the verbs of the command, on the project's queue, in the project's surroundings.

``manage.py pgqueue worker --reload``: a worker that starts again when the code changes.
"""

import io
import json
import os
import signal
import sys
import time
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from neighbours.django_project import MANAGE, manage, managed
from neighbours.project.shop.tasks import confirm

from pgqueue.cli.main import main
from pgqueue.django.management.commands.pgqueue import split_off_reloading, without_djangos

CONFIRM = "neighbours.project.shop.tasks.confirm"


def _called(*words: str) -> str:
    said = io.StringIO()
    call_command("pgqueue", *words, stdout=said)
    return said.getvalue()


def _states(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [
            row[0] for row in connection.execute("select state from pgqueue.all_jobs order by id").fetchall()
        ]


def _until_done(dsn: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while _states(dsn) != ["succeeded"] * count:
        assert time.monotonic() < deadline, _states(dsn)
        time.sleep(0.05)


def test_a_job_is_enqueued_listed_and_shown(django_dsn: str) -> None:
    enqueued = manage("pgqueue", "enqueue", CONFIRM, '{"order_id": 7}', dsn=django_dsn)
    assert enqueued.returncode == 0, enqueued.stderr

    listed = manage("pgqueue", "jobs", "list", "--json", dsn=django_dsn)

    (job,) = json.loads(listed.stdout)
    assert job["args"] == {"order_id": 7}


@pytest.mark.parametrize("verb", sorted(main.list_commands(None)))  # type: ignore[arg-type]  # not looked at
def test_every_verb_is_there(verb: str) -> None:
    said = io.StringIO()
    with pytest.raises(CommandError) as refused:
        call_command("pgqueue", verb, "--no-such-option", stdout=said)

    assert "--no-such-option" in str(refused.value)
    assert refused.value.returncode == 2


def test_help_and_exit_codes_are_the_commands_own(django_dsn: str) -> None:
    helped = manage("pgqueue", "worker", "--help", dsn=django_dsn)
    assert helped.returncode == 0
    assert helped.stdout.startswith("Usage: manage.py pgqueue worker")
    assert "--concurrency" in helped.stdout
    assert "--reload, --no-reload: Django's own watcher looks at the project" in " ".join(
        helped.stdout.split()
    )
    assert "--app" not in helped.stdout + manage("pgqueue", "--help", dsn=django_dsn).stdout

    refused = manage("pgqueue", "enqueue", "no.such.task", dsn=django_dsn)
    assert refused.returncode == 2
    assert refused.stderr.startswith("pgqueue: error: no task 'no.such.task'")

    misspelt = manage("pgqueue", "workr", dsn=django_dsn)
    assert misspelt.returncode == 2
    assert "Did you mean 'worker'?" in misspelt.stderr


def test_a_failing_check_of_the_schema_has_its_exit_code(bare_dsn: str) -> None:
    ended = manage("pgqueue", "migrate", "--check", dsn=bare_dsn)

    assert ended.returncode == 1


def test_a_database_that_is_away_is_told_in_one_line() -> None:
    ended = manage("pgqueue", "jobs", "list", dsn="host=127.0.0.1 port=1 user=nobody dbname=shop")

    assert ended.returncode == 2
    assert ended.stderr.startswith("pgqueue: error: cannot connect to DATABASES['default']")
    assert "Traceback" not in ended.stderr


def test_a_statement_that_the_database_refuses_is_told_in_one_line(django_dsn: str) -> None:
    ended = manage("pgqueue", "jobs", "list", dsn=django_dsn, PGOPTIONS="-c role=pg_monitor")

    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "pgqueue: error: the database refused: permission denied for schema pgqueue"
    )
    assert ended.stderr.count("\n") == 1


@pytest.mark.usefixtures("django_dsn")
def test_call_command_gives_its_output_and_raises_for_its_exit_code() -> None:
    handle = confirm.enqueue(1)

    assert [job["id"] for job in json.loads(_called("jobs", "list", "--json"))] == [handle.id]
    with pytest.raises(CommandError, match="no task"):
        _called("enqueue", "no.such.task")
    with pytest.raises(CommandError) as failed:
        call_command("pgqueue", "jobs", "cancel", "999999", stdout=io.StringIO())
    assert failed.value.returncode == 1


def test_a_worker_runs_jobs_and_stops_when_told(django_dsn: str) -> None:
    confirm.enqueue(1)

    with managed("pgqueue", "worker", dsn=django_dsn) as worker:
        worker.until("worker started")
        _until_done(django_dsn, 1)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_worker_processes_find_the_project_from_wherever_they_are_started(django_dsn: str) -> None:
    confirm.enqueue(1)

    with managed("pgqueue", "worker", "--processes", "2", dsn=django_dsn) as supervisor:
        _until_done(django_dsn, 1)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0


def test_the_command_pgqueue_finds_the_queue_without_manage_py(django_dsn: str) -> None:
    tests = str(MANAGE.parents[2])
    env = {"DJANGO_SETTINGS_MODULE": "neighbours.project.settings", "PYTHONPATH": tests}
    words = ["--app", "pgqueue.django:queue", "enqueue", CONFIRM, '{"order_id": 1}']

    ended = manage(*words, dsn=django_dsn, manage_py=_pgqueue(), **env)

    assert ended.returncode == 0, ended.stderr
    assert _states(django_dsn) == ["ready"]


def _pgqueue() -> Path:
    return Path(sys.executable).with_name("pgqueue")


@pytest.mark.parametrize(
    ("env", "words"),
    [({}, "DJANGO_SETTINGS_MODULE"), ({"DJANGO_SETTINGS_MODULE": "no.such.settings"}, "no.such.settings")],
)
def test_the_command_pgqueue_says_where_django_has_no_settings(env: dict[str, str], words: str) -> None:
    ended = manage("--app", "pgqueue.django:queue", "jobs", "list", dsn="", manage_py=_pgqueue(), **env)

    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_djangos_checks_come_before_the_worker(django_dsn: str) -> None:
    ended = manage("pgqueue", "worker", dsn=django_dsn, SHOP_SCHEMA="Not A Schema")

    assert ended.returncode == 1
    assert "pgqueue.E005" in ended.stderr


def test_djangos_own_options_are_heeded_and_not_handed_on() -> None:
    words = ["worker", "--settings", "shop.live", "--pythonpath=src", "--traceback", "--queues", "mail"]

    assert without_djangos(words) == ["worker", "--queues", "mail"]


def test_settings_and_pythonpath_of_manage_py_reach_worker_processes(django_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("from neighbours.project.settings import *\n")
    confirm.enqueue(1)
    options = ("--settings=elsewhere", "--pythonpath", str(tmp_path))

    with managed("pgqueue", "worker", "--processes", "2", *options, dsn=django_dsn) as supervisor:
        _until_done(django_dsn, 1)
        supervisor.signal(signal.SIGINT)
        assert supervisor.ended() == 0


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
    command = ("pgqueue", "worker", "--reload")
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
        (True, ["worker", "--no-reload"], False),
        (False, ["worker", "--reload"], True),
    ],
)
def test_reloading_is_the_default_under_debug(debug: bool, words: list[str], reloads: bool) -> None:  # noqa: FBT001 - a table
    with override_settings(DEBUG=debug):
        assert split_off_reloading(words) == (reloads, ["worker"])


@pytest.mark.parametrize(
    "words", [["worker", "--until-empty"], ["worker", "--max-jobs=3"], ["worker", "--max-time", "5m"]]
)
def test_a_worker_that_ends_by_itself_is_not_started_again(words: list[str]) -> None:
    with override_settings(DEBUG=True):
        assert split_off_reloading(words) == (False, words)
