"""For tests of the schema: SQLAlchemy connections to migrate on, and what a schema consists of."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool
from store.drivers import sqlalchemy_url

CATALOGUES = {
    "columns": """
        select table_name, column_name, data_type, is_nullable, column_default, identity_generation
        from information_schema.columns where table_schema = %(schema)s""",
    "indices": "select indexdef from pg_indexes where schemaname = %(schema)s",
    "constraints": """
        select conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        from pg_constraint where connamespace = %(schema)s::regnamespace""",
    "functions": """select proname, case when prokind = 'a' then (select aggtransfn::text from pg_aggregate where aggfnoid = pg_proc.oid)
                                          else pg_get_functiondef(oid) end
                    from pg_proc where pronamespace = %(schema)s::regnamespace""",
    "triggers": """
        select pg_get_triggerdef(pg_trigger.oid) from pg_trigger join pg_class on pg_class.oid = tgrelid
        where relnamespace = %(schema)s::regnamespace and not tgisinternal""",
    "views": "select viewname, definition from pg_views where schemaname = %(schema)s",
    "partitions": """
        select relname, pg_get_expr(relpartbound, oid), reloptions::text from pg_class
        where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p')""",
    "comments": """
        select relname, attname, description from pg_description join pg_class on pg_class.oid = objoid
        left join pg_attribute on attrelid = objoid and attnum = nullif(objsubid, 0)
        where relnamespace = %(schema)s::regnamespace and classoid = 'pg_class'::regclass""",
}

HISTORY_DAY = re.compile(r"job_history_(\d{8})")
MOST_DAYS = 30
"""Of the history in a schema that was just made."""


@contextmanager
def begun(dsn: str) -> Iterator[Connection]:
    """A SQLAlchemy connection in a transaction, committed at the end."""
    with create_engine(sqlalchemy_url(dsn), poolclass=NullPool).begin() as connection:
        yield connection


def consists_of(dsn: str, schema: str = "pgqueue") -> dict[str, list[Any]]:
    """Everything in a schema, as PostgreSQL itself describes it, under the name ``pgqueue``; empty if it is not there.

    Days of the history are counted from the first one: one of two schemas may have been made before midnight.
    """
    with psycopg.connect(dsn) as connection:
        if connection.execute("select from pg_namespace where nspname = %s", [schema]).fetchone() is None:
            return {}
        found = {
            kind: connection.execute(query, {"schema": schema}).fetchall()
            for kind, query in CATALOGUES.items()
        }
    texts = {
        kind: [str(row).replace(f"{schema}.", "pgqueue.") for row in rows] for kind, rows in found.items()
    }
    days = {day for rows in texts.values() for row in rows for day in HISTORY_DAY.findall(row)}
    first = min((datetime.strptime(day, "%Y%m%d") for day in days), default=None)  # noqa: DTZ007 - a day
    return {kind: sorted(_with_days_counted(row, first) for row in rows) for kind, rows in texts.items()}


def _with_days_counted(row: str, first: datetime | None) -> str:
    if first is None or "job_history" not in row:
        return row
    for number in range(MOST_DAYS):
        day = first + timedelta(days=number)
        row = row.replace(f"{day:%Y%m%d}", f"day {number}").replace(f"{day:%Y-%m-%d}", f"day {number}")
    return row
