import re
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from cli.commands import pgqueue

from pgqueue.store.schema.schema import REVISION

DESCRIPTIONS = (
    """select table_name, column_name, data_type, column_default, is_nullable
       from information_schema.columns where table_schema = 'pgqueue'""",
    "select indexname, indexdef from pg_indexes where schemaname = 'pgqueue'",
    """select conname, conrelid::regclass::text, pg_get_constraintdef(oid)
       from pg_constraint where connamespace = 'pgqueue'::regnamespace""",
    """select proname, case when prokind <> 'a' then pg_get_functiondef(oid) end, obj_description(oid)
       from pg_proc where pronamespace = 'pgqueue'::regnamespace""",
    """select tgname, pg_get_triggerdef(pg_trigger.oid) from pg_trigger
       join pg_class on pg_class.oid = tgrelid
       where relnamespace = 'pgqueue'::regnamespace and not tgisinternal""",
    """select relname, relkind, reloptions, obj_description(oid, 'pg_class')
       from pg_class where relnamespace = 'pgqueue'::regnamespace""",
    "select pg_get_viewdef('pgqueue.all_jobs'::regclass)",
    "select version_num from pgqueue.alembic_version",
    "select oldest_code from pgqueue.compatibility",
)


def described(dsn: str) -> list[list[str]]:
    """Everything that the schema is; the days of the history's partitions are left out."""
    with psycopg.connect(dsn) as connection:
        found: list[list[tuple[Any, ...]]] = [
            connection.execute(one.encode()).fetchall() for one in DESCRIPTIONS
        ]
    return [sorted(re.sub(r"\d{8}|\d{4}-\d\d-\d\d", "DAY", repr(row)) for row in rows) for rows in found]


def test_migrate_installs_the_schema_and_once_more_changes_nothing(empty_dsn: str) -> None:
    first = pgqueue("migrate", dsn=empty_dsn)
    assert (first.exit_code, first.stdout) == (0, f'schema "pgqueue" is at revision {REVISION}\n')
    before = described(empty_dsn)
    assert pgqueue("migrate", dsn=empty_dsn).exit_code == 0
    assert described(empty_dsn) == before


def test_the_printed_sql_makes_what_migrate_makes(dsn: str, empty_dsn: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "pgqueue", "migrate", "--sql"], capture_output=True, text=True, check=True
    ).stdout
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(script.encode())
    assert described(empty_dsn) == described(dsn)
    assert pgqueue("migrate", "--check", dsn=empty_dsn).exit_code == 0


def test_check_prints_the_revision_of_a_schema_that_can_be_worked_with(dsn: str) -> None:
    result = pgqueue("migrate", "--check", dsn=dsn)
    assert (result.exit_code, result.stdout) == (0, f'schema "pgqueue" is at revision {REVISION}\n')


def test_check_says_that_a_schema_is_missing(empty_dsn: str) -> None:
    result = pgqueue("migrate", "--check", dsn=empty_dsn)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "run `pgqueue migrate`" in result.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("update pgqueue.alembic_version set version_num = '0000'", "is at revision 0000, this code needs"),
        ("update pgqueue.compatibility set oldest_code = '9999'", "upgrade pgqueue"),
    ],
    ids=["older", "newer"],
)
def test_check_says_why_a_schema_cannot_be_worked_with(
    change: str, words: str, dsn: str, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(change.encode())
    connection.commit()
    result = pgqueue("migrate", "--check", dsn=dsn)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


def test_to_base_takes_the_schema_away(dsn: str) -> None:
    assert pgqueue("migrate", "--to", "base", dsn=dsn).exit_code == 0
    assert pgqueue("migrate", "--check", dsn=dsn).exit_code == 1


@pytest.mark.parametrize("words", [[], ["--sql"]])
def test_an_unknown_revision_is_one_line(words: list[str], dsn: str) -> None:
    result = pgqueue("migrate", "--to", "9999", *words, dsn=dsn)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: revision '9999': ")


def test_check_stands_alone() -> None:
    assert pgqueue("migrate", "--check", "--sql").exit_code == 2
    assert pgqueue("migrate", "--check", "--to", "0001").exit_code == 2


def test_what_the_server_refuses_to_migrate_is_one_line(empty_dsn: str) -> None:
    result = pgqueue("--dsn", f"{empty_dsn}&options=-cdefault_transaction_read_only%3Don", "migrate")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("pgqueue: error: the database refused: ")
    assert "read-only" in line
