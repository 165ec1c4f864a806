"""Rows that nothing of ours writes: what an older release, a restore or a superuser may have left in the tables."""

from typing import Any

import psycopg

LIFT = """
do $$
declare
    one record;
begin
    for one in select conname, contypid::regtype as domain from pg_constraint
               where contypid <> 0 and connamespace = 'pgqueue'::regnamespace
    loop
        execute format('alter domain %s drop constraint %I', one.domain, one.conname);
    end loop;
    for one in select conname, conrelid::regclass as place from pg_constraint
               where contype = 'c' and conrelid in ('pgqueue.jobs'::regclass, 'pgqueue.dead_jobs'::regclass)
    loop
        execute format('alter table %s drop constraint %I', one.place, one.conname);
    end loop;
end $$
"""


def lift_bounds(connection: psycopg.Connection[Any]) -> None:
    """Let the tables take any row, as before there were bounds."""
    connection.execute(LIFT)


HOSTILE: dict[str, dict[str, str]] = {
    "run_at -infinity": {"run_at": "'-infinity'"},
    "run_at BC": {"run_at": "'0044-03-15 12:00+00 BC'"},
    "run_at infinity": {"run_at": "'infinity'"},
    "run_at after Python": {"run_at": "'12026-01-01 00:00+00'"},
    "created_at -infinity": {"created_at": "'-infinity'"},
    "created_at infinity": {"created_at": "'infinity'"},
    "attempts at their end": {"attempts": "32767"},
    "an error of no time": {"attempts": "1", "errors": """'[{"at": "one day"}]'"""},
    "an error of all times": {"attempts": "1", "errors": """'[{"at": "infinity"}]'"""},
    "errors that are an object": {"attempts": "1", "errors": """'{"at": 1}'"""},
    "errors that are a number": {"attempts": "1", "errors": "'5'"},
    "an error that is a number": {"attempts": "1", "errors": "'[5]'"},
    "no name of a queue": {"queue": "''"},
    "no name of a task": {"task": "''"},
    "arguments of a huge number": {"args": """'{"order_id": 1e400000}'"""},
    "arguments of many digits": {"args": """('{"order_id": ' || repeat('9', 5000) || '}')::json"""},
    "arguments of many levels": {
        "args": """('{"order_id": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::json"""
    },
    "arguments that are no object": {"args": "'[1, 2]'"},
}
"""Columns of a job by what is wrong with them, as SQL."""


def put(connection: psycopg.Connection[Any], **columns: str) -> int:
    """Write a ready job past every bound; its id. Values are SQL."""
    given = {"task": "'bill'"} | columns
    row = connection.execute(
        f"insert into pgqueue.jobs ({', '.join(given)}) values ({', '.join(given.values())}) returning id".encode()
    ).fetchone()
    assert row is not None
    return int(row[0])
