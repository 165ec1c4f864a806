"""What ``app.config`` says of the queue."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import make_url

from pgqueue import PgQueue
from pgqueue.app.database_for_tests import replace_databases
from pgqueue.errors import ConfigurationError, InvalidOption, UnknownQueue
from pgqueue.flask import PgQueueFlask
from pgqueue.store.connections.database import Database

DSN = "postgresql://me@localhost/shop"


def initialised(config: Mapping[str, Any], **given: Any) -> PgQueueFlask:
    app = Flask("shop")
    app.config.update(config)
    return PgQueueFlask(app, **given)


def test_every_setting_arrives() -> None:
    queue = initialised(
        {
            "PGQUEUE_DSN": DSN,
            "PGQUEUE_SCHEMA": "line",
            "PGQUEUE_QUEUES": ["mail"],
            "PGQUEUE_HISTORY": timedelta(days=2),
            "PGQUEUE_MAX_PAYLOAD": 10,
            "PGQUEUE_HISTORY_ARGS": 20,
            "PGQUEUE_BEHIND_POOLER": True,
            "PGQUEUE_DIRECT_DSN": "postgresql://me@direct/shop",
            "PGQUEUE_POOL_SIZE": 3,
            "PGQUEUE_REDACT": ["pin"],
        }
    )

    database = queue.database
    assert (database.dsn, database.catalogue.schema, database.behind_pooler) == (DSN, "line", True)
    assert (database.listen_dsn, database.pools.size) == ("postgresql://me@direct/shop", 3)
    assert (queue.queues, queue.history, queue.max_payload) == (frozenset({"mail"}), timedelta(days=2), 10)
    assert queue.history_args == 20
    assert queue.redaction.value({"pin": 1, "password": 2}) == {"pin": "•••", "password": 2}


def test_an_app_makes_no_second_queue() -> None:
    """A test's hook would put a queue of its own into memory for each."""
    made: list[object] = []

    def note(queue: object, database: Database) -> Database:
        made.append(queue)
        return database

    before = replace_databases(note)
    try:
        queue = initialised({"PGQUEUE_DSN": DSN})
    finally:
        replace_databases(before)
    assert {id(one) for one in made} == {id(queue)}


@pytest.mark.parametrize(
    "config", [{"PGQUEUE_POOL_SIZE": 0}, {"PGQUEUE_SCHEMA": "No"}, {"PGQUEUE_MAX_PAYLOAD": 0}]
)
def test_an_app_with_a_value_out_of_range_leaves_the_queue_as_it_was(config: Mapping[str, Any]) -> None:
    queue, bad, good = PgQueueFlask(), Flask("bad"), Flask("good")
    bad.config.update({"PGQUEUE_DSN": DSN, "PGQUEUE_QUEUES": ["mail"]} | dict(config))
    good.config["PGQUEUE_DSN"] = DSN
    with pytest.raises(InvalidOption, match=f"(?i){next(iter(config)).removeprefix('PGQUEUE_')}"):
        queue.init_app(bad)
    queue.init_app(good)
    assert (queue.queues, queue.database.dsn) == (None, DSN)
    with pytest.raises(ConfigurationError, match="was not initialised for the Flask app 'bad'"):
        queue.of(bad)


def test_what_is_given_in_code_wins() -> None:
    queue = initialised(
        {
            "PGQUEUE_DSN": "postgresql://other/one",
            "PGQUEUE_HISTORY": timedelta(days=3),
            "PGQUEUE_QUEUES": ["default"],
            "PGQUEUE_BEHIND_POOLER": True,
        },
        dsn=DSN,
        history=timedelta(0),
        queues=["mail"],
        behind_pooler=False,
    )

    assert (queue.database.dsn, queue.database.behind_pooler) == (DSN, False)
    assert (queue.history, queue.queues) == (timedelta(0), frozenset({"mail"}))


def test_unset_everything_is_as_for_any_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", DSN)
    plain = PgQueue()

    queue = initialised({})

    assert queue.database.dsn == plain.database.dsn
    assert queue.database.catalogue.schema == plain.database.catalogue.schema
    assert (queue.queues, queue.history, queue.max_payload, queue.database.pools.size) == (
        plain.queues,
        plain.history,
        plain.max_payload,
        plain.database.pools.size,
    )


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql+psycopg://me:secret@localhost/shop",
        make_url("postgresql+psycopg://me:secret@localhost/shop"),
    ],
)
def test_where_no_dsn_is_set_sqlalchemys_serves_before_the_environments(
    monkeypatch: pytest.MonkeyPatch, uri: object
) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", "postgresql://environment/shop")

    queue = initialised({"SQLALCHEMY_DATABASE_URI": uri})

    assert queue.database.dsn == "postgresql://me:secret@localhost/shop"


def test_history_can_be_days_as_environment_variables_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASK_PGQUEUE_HISTORY_DAYS", "3")
    app = Flask("shop")
    app.config.from_prefixed_env()

    assert PgQueueFlask(app).history == timedelta(days=3)


@pytest.mark.parametrize(
    ("key", "hint"),
    [("PGQUEUE_QUEUE", "did you mean PGQUEUE_QUEUES?"), ("PGQUEUE_COLOUR", "there are PGQUEUE_DSN, ")],
)
def test_a_setting_that_is_none_of_ours_is_refused(key: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"app\.config\['{key}'\].*{hint.replace('?', '[?]')}"):
        initialised({key: 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PGQUEUE_DSN", 5432),
        ("PGQUEUE_QUEUES", "mail,default"),
        ("PGQUEUE_HISTORY", "7 days"),
        ("PGQUEUE_HISTORY", 7),
        ("PGQUEUE_HISTORY_DAYS", timedelta(days=7)),
        ("PGQUEUE_HISTORY_DAYS", 10**12),
        ("PGQUEUE_HISTORY_DAYS", -1),
        ("PGQUEUE_HISTORY", True),
        ("PGQUEUE_HISTORY", timedelta(days=-1)),
        ("PGQUEUE_MAX_PAYLOAD", "1000"),
        ("PGQUEUE_BEHIND_POOLER", "no"),
        ("PGQUEUE_POOL_SIZE", 0),
        ("PGQUEUE_SCHEMA", "Line"),
        ("PGQUEUE_SESSION", "sqlalchemy"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_would(key: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=r"use|keep|give"):
        initialised({key: value})


def test_a_number_of_history_says_its_unit() -> None:
    with pytest.raises(
        InvalidOption, match=r"PGQUEUE_HISTORY'\] = 7: use a timedelta; .* PGQUEUE_HISTORY_DAYS"
    ):
        initialised({"PGQUEUE_HISTORY": 7})
    with pytest.raises(InvalidOption, match="PGQUEUE_HISTORY and PGQUEUE_HISTORY_DAYS are both set"):
        initialised({"PGQUEUE_HISTORY": timedelta(days=7), "PGQUEUE_HISTORY_DAYS": 7})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, r"^no database: set app\.config\['PGQUEUE_DSN'\], or app"),
        (
            {"SQLALCHEMY_DATABASE_URI": "sqlite:///shop.db"},
            r"^no database: SQLALCHEMY_DATABASE_URI leads to sqlite, and jobs are kept in PostgreSQL; set app\.config",
        ),
        (
            {"SQLALCHEMY_DATABASE_URI": make_url("mysql+pymysql://me:secret@localhost/shop")},
            "leads to mysql, ",
        ),
    ],
)
def test_without_a_dsn_the_message_names_the_apps_own_settings(
    config: dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGQUEUE_DSN", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match=says) as refused:
        _ = initialised(config).database.dsn
    assert "secret" not in str(refused.value)


def test_another_database_of_sqlalchemys_is_no_matter_where_there_is_a_dsn() -> None:
    queue = initialised({"SQLALCHEMY_DATABASE_URI": "sqlite://", "PGQUEUE_DSN": DSN})
    again = Flask("again")
    again.config.update({"SQLALCHEMY_DATABASE_URI": "mysql://", "PGQUEUE_DSN": DSN})
    queue.init_app(again)
    assert queue.database.dsn == DSN  # one place: no doubt outside of a context


def test_a_queue_that_is_not_declared_is_refused_with_the_apps_own_setting() -> None:
    queue = initialised({"PGQUEUE_DSN": DSN, "PGQUEUE_QUEUES": ["mail"]})
    with pytest.raises(UnknownQueue, match=r"declared in app\.config\['PGQUEUE_QUEUES'\]: mail"):
        queue.require_queue("default")


def test_importing_it_loads_neither_sqlalchemy_nor_the_command() -> None:
    code = "import sys, pgqueue.flask; print({'sqlalchemy', 'flask_sqlalchemy', 'pgqueue.cli'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603

    assert done.stdout == "set()\n"
