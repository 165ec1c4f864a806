"""What each role can do with SQL of its own: what the page of roles says, and at worst what SECURITY.md says."""

import re
from typing import Any

import psycopg
import pytest
from docs.pages import DOCS
from psycopg.errors import InsufficientPrivilege
from schema.logins import login

TRIES = {
    "Reads": "select from pgqueue.{table}",
    "Inserts into": "insert into pgqueue.{table} default values",
    "Updates, and locks rows of": "update pgqueue.{table} set {column} = default where false",
    "Deletes from": "delete from pgqueue.{table} where false",
    "locks rows": "select from pgqueue.{table} where false for no key update",
    "locks the table": "lock table pgqueue.{table} in share mode nowait",
    "empties": "truncate pgqueue.{table}",
    "changes": "alter table pgqueue.{table} add column of_mine text",
}
"""What a login can try with a table, by the heads of the table on the page of roles, and by other names what is not on it."""
COLUMNS = """
select relname::text, relkind = 'v', array_agg(attname::text order by attnum)
from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = 'pgqueue'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition and attnum > 0 group by 1, 2
"""


@pytest.mark.parametrize("role", ["worker", "operator", "reader", "monitor", "producer", "producer by SQL"])
def test_by_sql_of_its_own_a_login_does_what_the_page_says_and_no_more(dsn: str, role: str) -> None:
    with psycopg.connect(dsn) as own:
        tables = {name: (is_view, columns) for name, is_view, columns in own.execute(COLUMNS)}
    on_page = {name: _of_page(role, name, set(tables)) for name in list(TRIES)[:4]}
    may: dict[str, set[str]] = {name: set() for name in TRIES}
    with psycopg.connect(login(dsn, role), autocommit=True) as theirs:
        for table, (is_view, columns) in tables.items():
            for name, attempt in TRIES.items():
                if is_view and name != "Reads":
                    continue
                tried = columns if "{column}" in attempt else columns[:1]
                if any(_is_allowed(theirs, attempt.format(table=table, column=one)) for one in tried):
                    may[name].add(table)
        sequences = {
            f"{name} {one}"
            for name in ("idle_workers", "jobs_id_seq", "nodes_id_seq", "audit_id_seq")
            for one in ("select nextval('pgqueue.{}')", "select setval('pgqueue.{}', 1)")
            if _is_allowed(theirs, one.format(name))
        }
    views = {name for name, (is_view, _) in tables.items() if is_view}
    assert may["Reads"] == on_page["Reads"]
    for name in list(TRIES)[1:4]:
        assert may[name] == on_page[name] - views, name
    assert may["locks rows"] == on_page["Updates, and locks rows of"] - views
    assert may["locks the table"] <= on_page["Updates, and locks rows of"]
    assert may["empties"] == may["changes"] == set()
    taken = {one for one in sequences if "nextval" in one}
    assert len(taken) == (4 if role in {"worker", "operator"} else 0)
    assert len(sequences - taken) == (1 if role in {"worker", "operator"} else 0)


def _of_page(role: str, head: str, tables: set[str]) -> set[str]:
    """What a cell of the table on the page of roles says: names of tables, or all but these."""
    rows = re.search(r"<!-- rights -->\n((?:\|.*\n)+)", (DOCS / "guides" / "roles.md").read_text())
    assert rows is not None
    heads, _, *found = [
        line.strip("|").split("|") for line in rows[1].replace("--sql-only", "by SQL").splitlines()
    ]
    (cells,) = [one for one in found if one[0].strip() == f"`{role}`"]
    said = cells[[one.strip() for one in heads].index(head)].strip()
    named = set(re.findall("`([^`]+)`", said))
    assert named <= tables
    return tables - named if said.startswith("all but") else named


def _is_allowed(connection: psycopg.Connection[Any], attempt: str) -> bool:
    """Whether the right is there; what else is wrong with a statement does not matter."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(attempt.encode())
    except InsufficientPrivilege:
        return False
    except psycopg.Error:
        return True
    return True
