"""A flow that was just added has no statistics yet: its edges and nodes are found by their indexes all the same.

On a connection without the planner settings of a worker, PostgreSQL may join by reading a table from end to end. In a
recursive query it does so for each node: a chain of 50,000 nodes, to which a job added, was read for 350 s.
"""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from store.test_sql_files import plan_of

LARGE = frozenset({"edges", "nodes"})
FILLED = """
alter table pgqueue.edges set (autovacuum_enabled = off);
alter table pgqueue.nodes set (autovacuum_enabled = off);
insert into pgqueue.flows (kind, name) values ('chain', 'chain');
insert into pgqueue.nodes (flow_id, parent_id, place, kind, job_id)
select 1, 1, n, case n when 1 then 'workflow' else 'job' end, n from generate_series(1, 20000) as n;
insert into pgqueue.edges (from_id, to_id, rule) select n, n + 1, 'cancel' from generate_series(2, 19999) as n;
"""


@pytest.fixture
def filled(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A database of which PostgreSQL knows no statistics, with a flow of 20,000 nodes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILLED)
        yield connection


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize(
    "name",
    [
        "closed",
        "doom",
        "enter",
        "facts",
        "follow",
        "free",
        "kinds",
        "lock",
        "members",
        "note_ended",
        "note_members",
        "put_edges",
        "put_nodes",
        "reaches",
        "release",
        "show_edges",
    ],
)
def test_no_edges_and_nodes_are_read_from_end_to_end(
    filled: psycopg.Connection[Any], name: str, mode: str
) -> None:
    given = {"nodes": f"'{{{','.join(map(str, range(100)))}}}'", "limit": "2000"} if mode == "custom" else {}
    plan = plan_of(filled, f"flows/{name}", [f"plan_cache_mode = force_{mode}_plan"], given)
    assert [*_read_whole(plan)] == [], json.dumps(plan, indent=1)


def test_a_list_of_flows_reads_no_nodes_of_others_where_statistics_know_large_flows_only(
    filled: psycopg.Connection[Any],
) -> None:
    filled.execute(
        "insert into pgqueue.flows (kind, name) select 'chain', 'empty' from generate_series(1, 1000)"
    )
    filled.execute("analyze pgqueue.flows, pgqueue.nodes")
    given = {"limit": "100", "most": "10000", "before": str(1 << 62)}
    plan = plan_of(filled, "flows/list", ["plan_cache_mode = force_custom_plan"], given)
    assert [*_read_whole(plan)] == [], json.dumps(plan, indent=1)


def _read_whole(plan: dict[str, Any]) -> Iterator[str]:
    """The large tables that a plan reads without a condition on an index."""
    scans = plan["Node Type"] in {"Seq Scan", "Index Scan", "Index Only Scan"}
    if scans and plan["Relation Name"] in LARGE and "Index Cond" not in plan:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from _read_whole(part)
