"""``flask pgqueue``: the command's verbs for the app's queue."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from neighbours.flask_shop import Shop, opened
from neighbours.serving import ran, sqlalchemy_url, started

from pgqueue.cli.main import main

APP = """
from flask import Flask
from pgqueue.flask import PgQueueFlask

queue = PgQueueFlask()

@queue.task(name="send")
def send(number: int) -> None: ...

def create_app(name="made"):
    app = Flask(name)
    queue.init_app(app)
    return app

def create_bare():
    return Flask("bare")

def create_broken():
    raise LookupError("no such secret")
"""


@pytest.fixture
def both(dsn: str) -> Iterator[tuple[Shop, Flask]]:
    with opened(dsn) as both:
        yield both


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text(APP)
    return tmp_path


def flask(app: Flask, *words: str) -> Result:
    return app.test_cli_runner().invoke(args=["pgqueue", *words])


def other(app: Flask, *words: str) -> Result:
    """What the command pgqueue does for the app's queue."""
    with app.app_context():
        return CliRunner().invoke(main, ["--app", "pgqueue.flask:queue", *words])


def test_its_help_is_that_of_the_command(both: tuple[Shop, Flask]) -> None:
    result = flask(both[1], "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: flask pgqueue [OPTIONS] COMMAND")
    assert all(verb in result.stdout for verb in ("migrate", "worker", "jobs"))
    assert "--app" not in result.stdout
    assert "--dsn" not in result.stdout


def test_a_job_that_it_enqueues_is_committed_and_listed(both: tuple[Shop, Flask]) -> None:
    shop, app = both

    added = flask(app, "enqueue", "send", '{"number": 7}')
    listed = flask(app, "jobs", "list", "--json")

    assert (added.exit_code, added.stdout) == (0, "job 1 added\n")
    assert [job["args"] for job in json.loads(listed.stdout)] == [{"number": 7}]
    assert shop.left() == (0, 1)


def test_exit_codes_are_those_of_the_command(both: tuple[Shop, Flask], empty_dsn: str) -> None:
    _, app = both

    assert "--app" not in flask(app, "--help").stdout + flask(app, "worker", "--help").stdout
    assert flask(app, "migrate", "--check").exit_code == 0
    refused = flask(app, "enqueue", "sand")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("pgqueue: error: no task 'sand' is registered here")
    assert refused.stderr.endswith("did you mean 'send'?\n")
    assert other(app, "--dsn", empty_dsn, "migrate", "--check").exit_code == 1


def test_a_database_can_be_put_in_place_of_the_apps(both: tuple[Shop, Flask], empty_dsn: str) -> None:
    shop, app = both

    moved = other(app, "--dsn", empty_dsn, "migrate")
    enqueued = other(app, "--dsn", empty_dsn, "enqueue", "send", '{"number": 1}')

    assert (moved.exit_code, enqueued.exit_code) == (0, 0)
    assert shop.left() == (0, 0)


def test_a_factory_with_arguments_reaches_the_worker_processes(
    folder: Path, dsn: str, tmp_path: Path
) -> None:
    command = ["flask", "--app", "made:create_app('other name')", "pgqueue", "worker", "--processes", "2"]
    with started(*command, folder=folder, log=tmp_path / "log", PGQUEUE_DSN=dsn) as worker:
        worker.said(r"(?s)worker started.*worker started")
        assert worker.stopped() == 0


def test_the_queue_of_an_app_is_found_without_flasks_command(folder: Path, dsn: str) -> None:
    done = ran(
        *("pgqueue", "--app", "pgqueue.flask:queue", "enqueue", "send", '{"number": 1}'),
        folder=folder,
        FLASK_APP="made",
        DATABASE_URL=sqlalchemy_url(dsn),
    )

    assert (done.returncode, done.stdout) == (0, "job 1 added\n"), done.stderr


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("made:create_bare", "the Flask app 'bare' has no queue: call queue.init_app(app)"),
        ("made:create_broken", "loading the app raised LookupError: no such secret"),
        ("nowhere", "FLASK_APP='nowhere': Could not import 'nowhere'"),
    ],
)
def test_an_app_that_cannot_be_found_is_one_line_and_exit_code_2(folder: Path, app: str, words: str) -> None:
    done = ran("pgqueue", "--app", "pgqueue.flask:queue", "jobs", "list", folder=folder, FLASK_APP=app)

    assert done.returncode == 2
    assert done.stderr.startswith("pgqueue: error: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_any_app_it_says_so(folder: Path) -> None:
    done = ran("pgqueue", "--app", "pgqueue.flask:queue", "jobs", "list", folder=folder)

    assert (done.returncode, "Could not locate a Flask application" in done.stderr) == (2, True)


def test_the_environment_of_the_suite_is_left_alone(both: tuple[Shop, Flask]) -> None:
    before = dict(os.environ)
    flask(both[1], "queues", "list")

    assert dict(os.environ) == before
