"""``manage.py migrate`` brings the schema, by the very revisions that ``pgqueue migrate`` runs."""

import io
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import ProgrammingError, connections, migrations, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder as Migrations
from django.db.migrations.writer import OperationWriter
from django.test import override_settings
from neighbours.conftest import forget_connections
from neighbours.django_project import manage
from schema.migrating import consists_of
from sqlalchemy import text

from pgqueue.django import queue
from pgqueue.django.operations import Revision, as_sqlalchemy
from pgqueue.store.connections.drivers import psycopg_connection
from pgqueue.store.schema import schema
from pgqueue.store.schema.schema import REVISION

MIGRATIONS = Path(__file__).parents[2] / "pgqueue" / "django" / "migrations"
ONE_BY_ONE = sorted(file.stem for file in MIGRATIONS.glob("0*.py"))


def _migrate(*words: str, **options: object) -> str:
    said = io.StringIO()
    call_command("migrate", *words, stdout=said, verbosity=1, **options)
    return said.getvalue()


def _printed(*words: str, **options: object) -> str:
    return str(call_command("sqlmigrate", "pgqueue", *words, stdout=io.StringIO(), **options))


def _versions(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [
            row[0] for row in connection.execute("select version_num from pgqueue.alembic_version").fetchall()
        ]


def test_migrate_brings_what_pgqueue_migrate_brings(bare_dsn: str, dsn: str) -> None:
    _migrate("pgqueue")

    assert consists_of(bare_dsn) == consists_of(dsn)
    assert _versions(bare_dsn) == [REVISION]
    assert queue.insight.search().jobs == ()


def test_every_revision_has_its_migration() -> None:
    steps = [
        step
        for (app, _), one in sorted(_on_disk().items())
        for step in one.operations
        if app == "pgqueue" and isinstance(step, Revision)
    ]

    assert [step.revision for step in steps][-1] == REVISION
    assert [step.before for step in steps] == ["base", *(step.revision for step in steps[:-1])]


def test_migrate_accepts_a_schema_that_pgqueue_migrate_installed(bare_dsn: str) -> None:
    schema.migrate(bare_dsn)
    before = consists_of(bare_dsn)

    _migrate("pgqueue")

    assert consists_of(bare_dsn) == before


def test_pgqueue_migrate_accepts_a_schema_that_migrate_installed(django_dsn: str) -> None:
    before = consists_of(django_dsn)

    schema.migrate(django_dsn)

    assert consists_of(django_dsn) == before


def test_the_way_back_takes_the_schema_down_and_up_again(bare_dsn: str, dsn: str) -> None:
    _migrate("pgqueue")
    _migrate("pgqueue", "zero")
    assert not consists_of(bare_dsn)["functions"]
    assert _versions(bare_dsn) == []

    _migrate("pgqueue")
    assert consists_of(bare_dsn) == consists_of(dsn)


def _on_disk() -> dict[tuple[str, str], migrations.Migration]:
    return MigrationLoader(None).disk_migrations or {}


def test_a_migration_that_fails_leaves_nothing(bare_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = _on_disk()["pgqueue", "0001_initial"]
    steps = [*ours.operations, migrations.RunSQL("select no_such_column")]
    monkeypatch.setattr(type(ours), "operations", steps)

    with pytest.raises(ProgrammingError, match="no_such_column"):
        _migrate("pgqueue")

    assert consists_of(bare_dsn) == {}


def test_a_refusal_of_the_database_is_told_in_djangos_words(bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        connection.execute("create schema pgqueue; create table pgqueue.jobs (id bigint)")

    with pytest.raises(ProgrammingError, match="already exists"):
        _migrate("pgqueue")


def test_fake_touches_nothing_and_is_believed(bare_dsn: str) -> None:
    _migrate("pgqueue", fake=True)

    assert consists_of(bare_dsn) == {}
    assert "No migrations to apply" in _migrate("pgqueue")


def test_another_database_of_the_project_is_left_alone(bare_dsn: str) -> None:
    _migrate("pgqueue", database="other")
    assert consists_of(bare_dsn) == {}

    with override_settings(PGQUEUE={"DATABASE": "other"}):
        _migrate("pgqueue")
    assert consists_of(bare_dsn) == {}


def test_the_schema_has_the_name_that_the_settings_give_it(bare_dsn: str, dsn: str) -> None:
    with override_settings(PGQUEUE={"SCHEMA": "shop_jobs"}):
        _migrate("pgqueue")

    assert consists_of(bare_dsn) == {}
    assert consists_of(bare_dsn, "shop_jobs") == consists_of(dsn)


def test_what_sqlmigrate_prints_is_what_migrate_does(bare_dsn: str, dsn: str) -> None:
    for printed in (_printed(one) for one in ONE_BY_ONE):
        assert printed.count("BEGIN;") == printed.count("COMMIT;") == 1
        with psycopg.connect(bare_dsn, autocommit=True) as connection:
            connection.execute(printed.encode())
    assert consists_of(bare_dsn) == consists_of(dsn)
    assert _versions(bare_dsn) == [REVISION]

    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        for one in reversed(ONE_BY_ONE):
            connection.execute(_printed(one, backwards=True).encode())
    assert not consists_of(bare_dsn)["functions"]


@pytest.mark.usefixtures("django_dsn")
def test_printing_changes_nothing(django_dsn: str) -> None:
    before = consists_of(django_dsn)

    for one in ONE_BY_ONE:
        _printed(one, backwards=True)

    assert consists_of(django_dsn) == before


@pytest.mark.parametrize("schema_name", ["pgqueue", "shop_jobs"])
def test_makemigrations_finds_nothing_to_do(django_dsn: str, schema_name: str) -> None:
    ended = manage("makemigrations", "--check", "--dry-run", dsn=django_dsn, SHOP_SCHEMA=schema_name)

    assert ended.stdout == "No changes detected\n"


def test_the_operation_can_be_written_down_for_a_squashed_migration() -> None:
    text, imports = OperationWriter(Revision("0002", before="0001"), indentation=0).serialize()

    assert "pgqueue.django.operations.Revision(" in text
    assert "revision='0002'" in text
    assert "before='0001'" in text
    assert imports == {"import pgqueue.django.operations"}


def test_the_plan_says_what_will_be_done(bare_dsn: str) -> None:
    assert f"Bring pgqueue's schema to revision {REVISION}" in _migrate("pgqueue", plan=True)
    assert consists_of(bare_dsn) == {}


def test_whoever_is_lent_the_connection_can_neither_end_its_transaction_nor_close_it(bare_dsn: str) -> None:
    with transaction.atomic():
        driver = psycopg_connection(connections["default"])
        with as_sqlalchemy(driver) as connection:
            connection.execute(text("create table lent ()"))
            connection.commit()
            connection.execute(text("create table lent_again ()"))
            connection.rollback()
        assert {"lent", "lent_again"} <= set(connections["default"].introspection.table_names())
        transaction.set_rollback(True)

    assert not driver.closed
    with psycopg.connect(bare_dsn) as other:
        assert other.execute("select from pg_tables where tablename ~ '^lent'").fetchall() == []


@pytest.fixture
def limited(bare_dsn: str) -> Iterator[str]:
    """A role that may read and write, and make nothing."""
    Migrations(connections["default"]).ensure_schema()
    forget_connections()
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        connection.execute("create role pgqueue_limited in role pg_read_all_data, pg_write_all_data")
        yield "pgqueue_limited"
        forget_connections()
        connection.execute("drop role pgqueue_limited")


def test_a_role_that_may_not_make_schemas_is_told_so_in_djangos_words(
    limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"assume_role": limited})

    with pytest.raises(ProgrammingError, match="permission denied for database"):
        _migrate("pgqueue")
