"""System checks: what is wrong with the settings or the database, each with an id and a remedy."""

import re
from pathlib import Path

import psycopg
import pytest
from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.test import override_settings
from neighbours.conftest import point_django_at
from neighbours.django_project import manage

from pgqueue.django.checks import TAG
from pgqueue.django.djangoqueue import DjangoQueue, MisconfiguredDatabase
from pgqueue.errors import InvalidOption, UnknownQueue


def _found(**settings: object) -> list[CheckMessage]:
    with override_settings(PGQUEUE=settings):
        return run_checks(tags=[TAG])


def _of_schema() -> list[CheckMessage]:
    return [
        one for one in run_checks(tags=[checks.Tags.database], databases=["default"]) if TAG in str(one.id)
    ]


def _only(found: list[CheckMessage]) -> CheckMessage:
    (one,) = found
    assert one.hint
    return one


def test_a_project_in_order_has_nothing_to_be_said_of() -> None:
    assert _found() == []
    assert _found(QUEUES=["mail"]) == []


def test_e001_an_alias_that_is_not_among_the_databases() -> None:
    one = _only(_found(DATABASE="nowhere"))

    assert one.id == "pgqueue.E001"
    assert "'nowhere'" in one.msg
    assert "'default'" in one.msg


def test_e002_a_database_that_is_not_postgresql() -> None:
    one = _only(_found(DATABASE="other"))

    assert one.id == "pgqueue.E002"
    assert "sqlite" in one.msg


def test_e003_a_database_that_is_used_through_psycopg2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.db.backends.postgresql.psycopg_any.is_psycopg3", False)

    one = _only(_found())

    assert one.id == "pgqueue.E003"
    assert "psycopg" in str(one.hint)


def test_e004_every_key_that_is_unknown() -> None:
    found = _found(SHEMA="jobs", QUEUS=["mail"])

    assert [one.id for one in found] == ["pgqueue.E004"] * 2
    assert "did you mean 'SCHEMA'" in found[0].msg
    assert "did you mean 'QUEUES'" in found[1].msg


def test_w002_tasks_are_set_and_the_package_that_django_lacks_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgqueue.django.checks.find_spec", lambda _: None)
    one = _only(_found())
    assert one.id == "pgqueue.W002"
    assert "pip install django-tasks" in str(one.hint)
    with override_settings(TASKS={"default": {"BACKEND": "other.Backend"}}):
        assert _found() == []


def test_no_model_needs_another_of_djangos_apps() -> None:
    fields = [field for model in apps.get_app_config("pgqueue").get_models() for field in model._meta.fields]  # noqa: SLF001 - Django's way to ask
    assert {type(field).__module__.partition(".contrib.")[2] for field in fields} == {""}


@pytest.mark.parametrize(
    "settings", [{"POOL_SIZE": 0}, {"HISTORY": 7}, {"SCHEMA": "Jobs"}, {"HEALTH_MIN_WORKERS": -1}]
)
def test_e005_a_value_out_of_its_range(settings: dict[str, object]) -> None:
    assert _only(_found(**settings)).id == "pgqueue.E005"


def test_e005_settings_that_are_no_dict() -> None:
    with override_settings(PGQUEUE=["SCHEMA"]):
        assert _only(run_checks(tags=[TAG])).id == "pgqueue.E005"


@pytest.mark.usefixtures("django_dsn")
def test_a_schema_that_is_there_is_not_mentioned() -> None:
    assert _of_schema() == []


@pytest.mark.usefixtures("bare_dsn")
def test_w001_a_schema_that_is_not_there() -> None:
    one = _only(_of_schema())

    assert one.id == "pgqueue.W001"
    assert one.level == checks.WARNING  # else `migrate`, which checks first, could not put it there
    assert "run `manage.py migrate`" in one.msg
    assert "pgqueue migrate" not in f"{one.msg} {one.hint}"


@pytest.mark.usefixtures("bare_dsn")
def test_w001_is_silent_while_migrate_itself_runs(bare_dsn: str) -> None:
    assert "W001" in manage("check", "--database", "default", dsn=bare_dsn).stderr
    migrated = manage("migrate", dsn=bare_dsn)
    assert (migrated.returncode, migrated.stderr) == (0, "")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"QUEUES": "mail"}, "use a list of names"),
        ({"HISTORY": 7}, r"use a timedelta, such as timedelta\(days=7\)"),
        ({"POOL_SIZE": "ten"}, "use a whole number"),
        ({"BEHIND_POOLER": "no"}, "use True or False"),
    ],
)
def test_e005_says_what_to_write_and_on_which_page_it_stands(settings: dict[str, object], says: str) -> None:
    one = _only(_found(**settings))
    assert re.search(says, one.msg)
    assert "docs/reference/django.md" in str(one.hint)
    assert (Path(__file__).parents[2] / "docs/reference/django.md").exists()


@pytest.mark.parametrize(
    ("alias", "says"),
    [
        ("jobs", "name one of 'default', 'other' in PGQUEUE"),
        ("other", "is sqlite, and jobs are kept in PostgreSQL"),
    ],
)
@pytest.mark.parametrize("words", [("jobs", "list"), ("worker",), ("queues", "pause", "mail")], ids=" ".join)
def test_a_database_that_cannot_be_is_told_in_one_line(
    django_dsn: str, tmp_path: Path, alias: str, says: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "elsewhere.py").write_text(
        f"from neighbours.project.settings import *\nPGQUEUE = {{'DATABASE': {alias!r}}}\n", encoding="utf-8"
    )
    ended = manage(
        "pgqueue",
        *words,
        dsn=django_dsn,
        DJANGO_SETTINGS_MODULE="elsewhere",
        PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[1]}",
    )
    assert ended.returncode in {1, 2}
    assert "Traceback" not in ended.stderr
    assert says in ended.stderr or "pgqueue.E00" in ended.stderr


def test_a_schema_that_is_missing_is_told_with_what_runs_here(bare_dsn: str) -> None:
    for words in (
        ("jobs", "list"),
        ("enqueue", "neighbours.project.shop.tasks.confirm", '{"order_id": 1}'),
        ("worker",),
    ):
        ended = manage("pgqueue", *words, dsn=bare_dsn)
        assert "run `manage.py migrate`" in ended.stderr, ended.stderr
        assert "run `pgqueue migrate`" not in ended.stderr


def test_a_queue_that_is_not_declared_is_refused_with_the_setting() -> None:
    with (
        override_settings(PGQUEUE={"QUEUES": ["mail"]}),
        pytest.raises(UnknownQueue, match=r"declared in PGQUEUE\['QUEUES'\] of the settings: mail"),
    ):
        DjangoQueue.from_settings().task(name="send")(print)


def test_w001_a_schema_that_is_older_than_the_code(django_dsn: str) -> None:
    _say(django_dsn, "update pgqueue.alembic_version set version_num = '0000'")

    assert _only(_of_schema()).id == "pgqueue.W001"


def test_e006_a_schema_that_is_newer_than_the_code_can_work_with(django_dsn: str) -> None:
    _say(django_dsn, "update pgqueue.compatibility set oldest_code = '9999'")

    assert _only(_of_schema()).id == "pgqueue.E006"


def _say(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())


def test_the_schema_is_looked_at_only_where_djangos_command_asks_for_that_database(bare_dsn: str) -> None:
    assert bare_dsn
    assert not [one for one in run_checks(databases=["other"]) if TAG in str(one.id)]
    assert connections["default"].connection is None
    assert not [one for one in run_checks() if TAG in str(one.id)]
    assert connections["default"].connection is None


def test_a_server_that_is_away_is_not_the_checks_business(django_dsn: str) -> None:
    point_django_at("dbname=shop host=127.0.0.1 port=1 user=nobody")
    assert _of_schema() == []
    point_django_at(django_dsn)


def test_manage_py_check_tells_of_settings_that_cannot_be_read(django_dsn: str) -> None:
    ended = manage("check", dsn=django_dsn, SHOP_SCHEMA="Not A Schema")

    assert ended.returncode == 1
    assert "(pgqueue.E005)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_queue_whose_settings_cannot_be_read_answers_with_why() -> None:
    database = MisconfiguredDatabase(InvalidOption("POOL_SIZE=0: keep one"))

    with pytest.raises(InvalidOption, match="POOL_SIZE=0"):
        database.joined()
    with pytest.raises(InvalidOption, match="POOL_SIZE=0"):
        _ = database.dsn


@pytest.mark.usefixtures("bare_dsn")
def test_migrate_runs_though_the_schema_is_missing(bare_dsn: str) -> None:
    ended = manage("migrate", "pgqueue", dsn=bare_dsn)

    assert ended.returncode == 0, ended.stderr
    assert _of_schema() == []
