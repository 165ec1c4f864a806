"""A job's columns are described once: the database, the statements, the models and the values agree with it."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from store.sqlfiles import SQL, WRITTEN

from pgqueue.store import columns
from pgqueue.store.column_lists import LISTS, PROJECTIONS, with_lists
from pgqueue.store.pipeline.extract_where import TABLES
from pgqueue.values.jobs.job import Job, NewJob

TABLES_OF_JOBS = {
    "jobs": columns.JOBS,
    "job_history": columns.HISTORY,
    "dead_jobs": columns.DEAD,
    "all_jobs": columns.ALL_JOBS,
}
REAL = """
select attname, format_type(coalesce(nullif(typbasetype, 0), atttypid), null), not attnotnull
from pg_attribute join pg_type on pg_type.oid = atttypid
where attrelid = %s::regclass and attnum > 0 and not attisdropped
"""
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for package in ("pgqueue", "pgqueue.sql", "pgqueue.migrations")
    for path in Path(str(files(package))).rglob("*.*")
    if path.suffix in {".py", ".sql", ".html"}
}
MOST_FILES = {"collisions": 20} | dict.fromkeys(
    ["expires_at", "unique_until_started", "cancel_requested", "claimed_at", "place_at"], 30
)
"""In how many files a column may be named: one that only passes through once its value is there, and those that workers use.
Other columns have words for names, which say other things, too; and users give ``meta`` a meaning."""
SCHEMA = {
    file.name: file.read_text(encoding="utf-8")
    for file in files("pgqueue.sql").joinpath("schema").iterdir()
    if file.name.endswith(".up.sql")
}
WRITES = re.compile(r"(?:insert into|copy) pgqueue\.(?:jobs|job_history|dead_jobs) \((.*?)\)", re.DOTALL)
SEND_NOTHING = {"jobs/enqueue_now"}
"""Statements for jobs with which nothing is sent along."""
ENDS = re.compile(r"insert into pgqueue\.(job_history|dead_jobs) \((.*?)\)", re.DOTALL)


def _names(described: columns.Columns) -> set[str]:
    return {column.name for column in described}


@pytest.mark.parametrize("table", TABLES_OF_JOBS)
def test_a_table_has_the_columns_that_are_described(table: str, connection: psycopg.Connection[Any]) -> None:
    real = set(connection.execute(REAL, [f"pgqueue.{table}"]).fetchall())
    is_view = table == "all_jobs"  # PostgreSQL does not say of a view what may be null
    described = {(name, str(kind), nullable or is_view) for name, kind, nullable in TABLES_OF_JOBS[table]}
    assert described == real


def test_every_statement_that_ends_jobs_names_all_their_columns() -> None:
    found = {
        (name, table, frozenset(re.findall(r"\w+", names)))
        for name, text in (SQL | SCHEMA).items()
        for table, names in ENDS.findall(text)
    }
    assert len(found) > 3
    for name, table, names in found:
        assert names >= _names(TABLES_OF_JOBS[table]) - {columns.ENDED_IN.name, "result"}, name


def test_what_passes_through_is_in_every_statement_that_writes_jobs_by_the_name_of_a_list() -> None:
    for name, text in SQL.items():
        for names, written in zip(WRITES.findall(text), WRITES.findall(WRITTEN[name]), strict=True):
            found = set(re.findall(r"\w+", names)) & _names(columns.SENT)
            assert found == (set() if name in SEND_NOTHING else _names(columns.SENT)), name
            assert not found & set(re.findall(r"\w+", written)), name


def test_a_job_has_the_columns_of_the_view() -> None:
    assert set(Job.__struct_fields__) == _names(columns.ALL_JOBS)


def test_what_passes_through_is_what_an_enqueuer_says_and_is_in_every_table() -> None:
    assert set(NewJob.__struct_fields__) >= _names(columns.SENT)
    for described in TABLES_OF_JOBS.values():
        assert _names(described) >= _names(columns.CARRIED)


def test_a_statement_names_a_list_and_a_pattern_for_each_of_its_columns() -> None:
    assert with_lists("({kept}) '{}'") == "(flags, lane, cost) '{}'"
    assert with_lists("{limited: %(NAME)s::TYPE[]}") == "%(lane)s::text[], %(cost)s::integer[]"
    with pytest.raises(KeyError, match="no such list"):
        with_lists("select {no such list}")
    with pytest.raises(KeyError, match="shown"):  # a select list is text already
        with_lists("{shown: NAME}")


def test_every_list_is_named_by_a_statement() -> None:
    named = {name for text in WRITTEN.values() for name in re.findall(r"\{([a-z ]+)[:}]", text)}
    assert named == LISTS.keys() | PROJECTIONS.keys()


@pytest.mark.parametrize("column", MOST_FILES)
def test_a_column_is_named_in_few_files(column: str) -> None:
    found = [path for path, text in SOURCES.items() if re.search(rf"\b{column}\b", text)]
    assert len(found) <= MOST_FILES[column], sorted(found)


@pytest.mark.parametrize("table", ["history", "dead", "jobs", "ended"])
def test_sparks_statements_give_the_columns_that_spark_reads(
    table: str, connection: psycopg.Connection[Any]
) -> None:
    cursor = connection.execute(SQL[f"pipeline/extract_{table}"].encode())
    assert cursor.description is not None
    given = {column.name for column in cursor.description} - {"part", "place", "source"}
    assert given == TABLES[table].columns.keys()
