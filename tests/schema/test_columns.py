"""A job's columns are described once: the database, the statements, the models and the values agree with it."""

import re
from typing import Any

import psycopg
import pytest
from store.sqlfiles import SQL

from pgqueue.store import columns
from pgqueue.store.pipeline.extract_where import NOT_READ, TABLES
from pgqueue.values.jobs.job import Job

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
        for name, text in SQL.items()
        for table, names in ENDS.findall(text)
    }
    assert found
    for name, table, names in found:
        assert names >= _names(TABLES_OF_JOBS[table]) - {columns.ENDED_IN.name, "result"}, name


def test_a_job_has_the_columns_of_the_view_and_the_statements_read_them_in_its_order() -> None:
    assert set(Job.__struct_fields__) == _names(columns.ALL_JOBS)
    for name in ("jobs/show", "jobs/newest"):
        select = SQL[name].partition("\nselect ")[2].partition("\nfrom ")[0]
        read = re.sub(r"pgqueue\.as_datetime\((\w+)\)|::\w+", r"\1", select)
        assert tuple(re.findall(r"\w+", read)) == Job.__struct_fields__


@pytest.mark.parametrize("table", ["history", "dead", "jobs", "ended"])
def test_sparks_statements_give_the_columns_that_spark_reads(
    table: str, connection: psycopg.Connection[Any]
) -> None:
    cursor = connection.execute(SQL[f"pipeline/extract_{table}"].encode())
    assert cursor.description is not None
    given = {column.name for column in cursor.description} - {"part", "place", "source"}
    assert given == TABLES[table].columns.keys()


def test_spark_reads_every_column_of_jobs_but_those_that_only_workers_need() -> None:
    assert _names(columns.JOBS) >= NOT_READ
    assert TABLES["jobs"].columns.keys() == _names(columns.JOBS) - NOT_READ
