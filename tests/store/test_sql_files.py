"""Every file of ``sql/``: headed, used, and served by the indices that its header names."""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from store.sqlfiles import SQL

import pgqueue.store
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.session import PLANNER
from pgqueue.store.schema.schema import statements

STORE = Path(pgqueue.store.__file__).parent
KEYS = ("index", "locks", "run by")
STEPS = {"Statement", "Copy", "some_at_a_time"}

UNPLANNED = {
    *(name for name, text in SQL.items() if re.search("^(copy|do) ", text, re.MULTILINE)),
    *(name for name in SQL if name.startswith(("adopt/procrastinate", "adopt/pgqueuer"))),
}
"""COPY and DO have no plan; and the tables of other queues are not there: ``test_cli_adopt`` brings them."""

GIVEN = {
    "pipeline/sink_writes": {"limit": "10"},
    "pipeline/sink_forget": {"keep": "'4990 hours'"},  # next to none is as old as that
}
"""Filters that may be left out, and measures: the index serves those that are given, so the plan is not a generic one."""

ORDERS = re.compile(
    r"order by ((?:[-\w.]+, )*-?[\w.]*priority(?: desc)?(?:, [\w.]+)*)|\(([^()]*\bpriority[^()]*)\) [<>] \("
)
"""Where a statement says in which order jobs are claimed, or which come before another: the columns."""


def header(name: str) -> dict[str, str]:
    lines = [
        line for line in SQL[name].splitlines() if line.startswith("-- ") and not line.startswith("--  ")
    ]
    return dict(line.removeprefix("-- ").split(": ", 1) for line in lines if ": " in line)


@pytest.mark.parametrize("name", sorted(SQL))
def test_a_file_says_what_it_does_by_what_index_and_locks_and_for_whom(name: str) -> None:
    lines = SQL[name].splitlines()
    assert re.fullmatch(rf"-- {name}: [a-z].+[.]", lines[0]), "name it, and say in a sentence what it does"
    assert [line.split(": ")[0] for line in lines[1:4]] == [f"-- {key}" for key in KEYS]
    assert all(header(name)[key] for key in KEYS)


@pytest.mark.parametrize("name", sorted(SQL))
def test_a_file_names_the_schema_only_before_a_name_in_it(name: str) -> None:
    """Where the schema has another name, ``pgqueue.`` is replaced; ``'pgqueue'::regnamespace`` would not be."""
    code = "\n".join(line.partition("--")[0] for line in SQL[name].splitlines())
    assert re.findall(r"['\"]pgqueue['\"]", code) == []


@pytest.mark.parametrize("name", sorted(name for name, text in SQL.items() if ORDERS.search(text)))
def test_a_file_that_knows_the_order_of_claims_has_it_as_the_indices_have_it(name: str) -> None:
    """The order by which claims go, or the part of it that one look needs: else that look reads all ready jobs of a queue."""
    schema = files("pgqueue.sql").joinpath("schema/0001_02_jobs.up.sql").read_text(encoding="utf-8")
    indices = dict(re.findall(r"index (jobs_ready|jobs_lanes) on \S+ \((.+)\) where", schema))
    used = [index for index in indices if index in header(name)["index"]] or [*indices]
    for by, compared in ORDERS.findall(SQL[name]):
        columns = _names_of(by or compared)
        assert any(f",{columns}," in f",{_names_of(indices[index])}," for index in used), by or compared


def _names_of(columns: str) -> str:
    """The columns without spaces, brackets and the names of tables."""
    return re.sub(r"\w+[.]|[\s()]", "", columns.replace("priority desc", "-priority"))


def test_every_file_is_sent_by_a_plan_and_every_plan_finds_its_file() -> None:
    sent = {name for module in STORE.rglob("*.py") for name in _sent_by(ast.parse(module.read_text()))}

    assert sent == set(SQL)


def _sent_by(module: ast.Module) -> Iterator[str]:
    """The names that a module's plans give to what they send, directly or through helpers that take a ``name``.

    A name in a variable is looked up in the variable's assignments.
    """
    assigned: dict[str, set[str]] = {}
    senders = set(STEPS)
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, set()).update(_words(node.value))
        if isinstance(node, ast.FunctionDef) and node.args.args and node.args.args[0].arg == "name":
            senders.add(node.name)
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in senders:
            first = node.args[0]
            yield from assigned.get(first.id, ()) if isinstance(first, ast.Name) else _words(first)


def _words(node: ast.AST) -> set[str]:
    return {
        one.value for one in _branches(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def _branches(node: ast.AST) -> list[ast.AST]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]


@pytest.fixture(scope="module")
def busy_database(migrated_server: Any) -> Iterator[psycopg.Connection[Any]]:
    """A database with enough rows in every table that reading one from end to end is never the shortest way."""
    where = {name: getattr(migrated_server, name) for name in ("host", "port", "user", "password")}
    with psycopg.connect(**where, dbname="postgres", autocommit=True) as server:
        server.execute(f'create database pgqueue_busy template "{migrated_server.template_dbname}"')
        with psycopg.connect(**where, dbname="pgqueue_busy", autocommit=True) as connection:
            connection.execute(POPULATE)
            connection.execute(POPULATE_PIPELINE)
            connection.execute(statements("shard_guard", "pgqueue").encode())
            _vacuum(connection)
            yield connection
        server.execute("drop database pgqueue_busy with (force)")


def _vacuum(connection: psycopg.Connection[Any]) -> None:
    """Vacuum until every page of the jobs is all-visible: an ANALYZE of autovacuum at the same moment prevents it, and then plans differ."""
    visible = "select relallvisible = relpages from pg_class where oid = 'pgqueue.jobs'::regclass"
    while True:
        connection.execute("vacuum analyze")
        if connection.execute(visible).fetchone() == (True,):
            return


POPULATE = """
insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version)
select gen_random_uuid(), now(), 1, 1, 'host', '0' from generate_series(1, 20);
insert into pgqueue.jobs (queue, task, status, run_at, unique_key, worker_id)
select 'queue ' || n % 5, 'task ' || n % 7, status, now() + n * interval '1 second',
       case when n % 3 = 0 then 'key ' || n end,
       case when status = 'running' then (select id from pgqueue.workers offset n % 20 limit 1) end
from generate_series(1, 20000) as n,
     lateral (select (array['ready', 'ready', 'ready', 'scheduled', 'running'])[1 + n % 5] as status) as status;
insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,
                               queue, task, args)
select n, now(), now(), now(), 0, 0, 1, 1, 'asked', 'queue ' || n % 5, 'task ' || n % 7, '{}'
from generate_series(100001, 105000) as n;
insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,
                                 outcome, queue, task, args)
select n, now(), now(), now() + n % 3 * interval '1 day', 0, 0, 1, 1, 'succeeded', 'queue ' || n % 5, 'task', '{}'
from generate_series(200001, 210000) as n;
insert into pgqueue.series_minutes (at, queue, task, whole)
select now() - n * interval '1 minute', 'queue', 'task', n % 9 = 0 from generate_series(1, 20000) as n;
insert into pgqueue.series_days (at, queue, task, whole)
select now() - n * interval '1 day', 'queue', 'task', n % 9 = 0 from generate_series(1, 20000) as n;
insert into pgqueue.series_hours (at, queue, task, whole)
select now() - n * interval '1 hour', 'queue', 'task', n % 9 = 0 from generate_series(1, 20000) as n;
insert into pgqueue.series_depths (at, queue, blocked, scheduled, ready, running, dead, estimated)
select now() - n / 9 * interval '1 minute', nullif('queue ' || n % 9, 'queue 0'), 0, 0, 1, 0, 0, false from generate_series(1, 20000) as n;
insert into pgqueue.series_depth_hours (at, queue, blocked, scheduled, ready, running, dead, estimated)
select now() - n / 9 * interval '1 hour', nullif('queue ' || n % 9, 'queue 0'), 0, 0, 1, 0, 0, false from generate_series(1, 20000) as n;
insert into pgqueue.queues (name) select 'queue ' || n from generate_series(1, 500) as n;
insert into pgqueue.audit (action, target) select 'pause', 'queue ' || n from generate_series(1, 5000) as n;
insert into pgqueue.waits (waits_for, job_id, until)
select 'job ' || n, n, case when n % 5 = 0 then now() + n * interval '1 second' end from generate_series(1, 5000) as n;
insert into pgqueue.signals (target, name, settled)
select 'job:' || n, 'approved', n % 100 > 0 from generate_series(1, 5000) as n;
insert into pgqueue.deadlines (job_id, waits_for, until)
select n, 'signal:job:' || n || ':approved', now() from generate_series(1, 5000) as n;
insert into pgqueue.limits (name, most, declared) select 'task ' || n, 3, '3' from generate_series(1, 5000) as n;
insert into pgqueue.rates (key, tat) select 'task ' || n, n from generate_series(1, 5000) as n;
insert into pgqueue.jobs (queue, task, status, lane, in_lane)
select 'queue ' || n % 5, 'task', case when n % 9 = 0 then 'running' else 'blocked' end, 'lane ' || n % 700,
       case when n % 9 <> 0 then true end
from generate_series(1, 10000) as n;
insert into pgqueue.unique_holds (unique_key, job_id, held_until)
select 'key ' || n, n, now() from generate_series(1, 5000) as n;
insert into pgqueue.notes (job_id, kind, name, value)
select n, case when n % 9 = 0 then 'progress' else 'step' end, case when n % 9 = 0 then '' else 'charge' end, '1'
from generate_series(1, 20000) as n;
insert into pgqueue.alerts (name, module, rule, task, argument) select 'alert ' || n, 'm', '{}', 't', 'a' from generate_series(1, 5000) as n;
insert into pgqueue.schedules (name, task, cron, module, next_at)
select 'schedule ' || n, 'task', '@daily', case when n % 9 = 0 then 'module ' || n end, now() + n * interval '1 second'
from generate_series(1, 10000) as n;
insert into pgqueue.schedule_ticks (schedule, at, fired_at, job_id, state)
select 'schedule ' || n % 5000, now() - n * interval '1 hour', now() - n * interval '1 minute', n,
       case when n % 500 = 0 then 'waiting' else 'fired' end
from generate_series(1, 50000) as n;
insert into pgqueue.flows (kind, name, key, ended_at)
select 'chain', 'chain', case when n % 3 = 0 then 'key ' || n end, case when n % 2 = 0 then now() end
from generate_series(1, 5000) as n;
insert into pgqueue.nodes (flow_id, parent_id, place, name, kind, job_id)
select n / 10 + 1, n - n % 10, n % 10, 'node ' || n, case n % 10 when 0 then 'workflow' else 'job' end, n
from generate_series(1, 20000) as n;
insert into pgqueue.edges (from_id, to_id, rule) select n, n + 1, 'cancel' from generate_series(1, 20000) as n;
insert into pgqueue.node_counts (node_id, portion, open) select n, 0, 9 from generate_series(10, 20000, 10) as n;
insert into pgqueue.stacks (job_id, worker_id) select n, gen_random_uuid() from generate_series(1, 5000) as n;
insert into pgqueue.flow_work (node_id, task) select n, 'follow' from generate_series(1, 5000) as n;
"""

POPULATE_PIPELINE = """
insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version)
select gen_random_uuid(), now() - n * interval '1 hour', now(), 1, 'host', '0' from generate_series(1, 5000) as n;
insert into pgqueue.deploys (deployed_at, version) select now() - n * interval '1 hour', n from generate_series(1, 500) as n;
insert into pgqueue.lake_days (day, history_rows, dead_rows, checksum, below, lake)
select current_date - n, 0, 0, 0, 0, '/lake' from generate_series(1, 2000) as n;
insert into pgqueue.rollup_made (day, made_from) select current_date - n, '' from generate_series(1, 2000) as n;
insert into pgqueue.rollup_hours (day, hour, queue, task, jobs, succeeded, cancelled, dead, attempts, retries, run_seconds,
                                  wait_seconds, busy_seconds)
select current_date - n / 24, date_trunc('day', now()) - n * interval '1 hour', 'queue', 'task', 1, 1, 0, 0, 1, 0, 0, 0, 0
from generate_series(1, 20000) as n;
insert into pgqueue.rollup_days (day, queue, task, jobs, succeeded, cancelled, dead, attempts, retries, run_seconds,
                                 wait_seconds, busy_seconds)
select current_date - n / 24, 'queue', 'task ' || n, 1, 1, 0, 0, 1, 0, 0, 0, 0 from generate_series(1, 20000) as n;
insert into pgqueue.rollup_failures (day, hour, queue, task, error_type, reason, failures, jobs, dead, sample)
select day, hour, queue, task, 'ValueError', 'no', 1, 1, 0, 'no' from pgqueue.rollup_hours;
insert into pgqueue.rollup_tenants (day, hour, queue, tenant, jobs, run_seconds, wait_seconds)
select day, hour, queue, 'shop', 1, 0, 0 from pgqueue.rollup_hours;
insert into pgqueue.rollup_workers (day, hour, worker_id, busy_seconds)
select day, hour, gen_random_uuid(), 0 from pgqueue.rollup_hours;
insert into pgqueue.sink_attempts (id, write_id, partition)
select gen_random_uuid(), gen_random_uuid(), n from generate_series(1, 2000) as n;
insert into pgqueue.sink_rows (attempt_id, place, priority, max_attempts, queue, unique_key, args)
select id, n, 0, 1, 'queue', 'key ' || partition || ' ' || n, '{}'
from pgqueue.sink_attempts, generate_series(1, 10) as n;
insert into pgqueue.sink_writes (id, task, run, query, batch, rows, enqueued, rejected, changed, written_at)
select gen_random_uuid(), 'task ' || n % 50, 'run ' || n, 'query ' || n, n, 1, 1, 0, 0, now() - n * interval '1 hour' from generate_series(1, 5000) as n;
insert into pgqueue.sink_rejected (write_id, job_id, partition, place, unique_key)
select id, n, 0, n, 'key' from pgqueue.sink_writes, generate_series(1, 3) as n;
insert into pgqueue.sink_refused (write_id, partition, place, reason, contents)
select id, 0, n, 'why', 'key' from pgqueue.sink_writes, generate_series(1, 3) as n;
"""


@pytest.mark.parametrize("name", sorted(SQL.keys() - UNPLANNED))
def test_the_planner_takes_the_indices_that_the_header_names(
    busy_database: psycopg.Connection[Any], name: str
) -> None:
    named = re.findall(r"\w+", header(name)["index"].partition(":")[0].partition("(")[0])
    known = {
        row[0]
        for row in busy_database.execute("select indexname from pg_indexes where schemaname = 'pgqueue'")
    }
    assert named == ["none"] or set(named) <= known

    plan = plan_of(busy_database, name)

    assert set(named) - {"none"} <= indices_of(busy_database, plan), json.dumps(plan, indent=1)


def test_no_index_but_the_keys_has_entries_of_running_jobs(busy_database: psycopg.Connection[Any]) -> None:
    """Each would be written at every claim, and kept for as long as a snapshot is held open.

    Only limited jobs are in one: they are counted.
    """
    statement = (
        "select indexname, indexdef from pg_indexes where schemaname = 'pgqueue' and tablename = 'jobs'"
    )
    indices = dict(busy_database.execute(statement).fetchall())
    assert "jobs_shard_key" in indices, "only shards have it, and only jobs with keys are in it"
    del indices["jobs_shard_key"]
    assert indices.keys() == {
        "jobs_pkey",
        "jobs_unique_key",
        "jobs_ready",
        "jobs_scheduled",
        "jobs_expires_at",
        "jobs_lanes",
        "jobs_running_in_lanes",
        "jobs_kept_places",
    }
    assert indices["jobs_lanes"].endswith("WHERE in_lane")
    assert indices["jobs_running_in_lanes"].endswith("AND (worker_id IS NOT NULL))")
    assert indices["jobs_kept_places"].endswith(
        "WHERE (place_at IS NOT NULL)"
    )  # the trigger clears it at the claim
    assert re.search(r"WHERE \(+status\)?(::text)? = 'ready'", indices["jobs_ready"])
    assert re.search(r"WHERE \(+status\)?(::text)? = 'scheduled'", indices["jobs_scheduled"])
    assert re.search(r"status\)?(::text)? <> 'running'", indices["jobs_expires_at"])


def plan_of(
    connection: psycopg.Connection[Any],
    name: str,
    settings: Iterable[str] | None = None,
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The plan that serves any parameters, or the given ones, in the session that runs it, or with these settings.

    PREPARE works on every PostgreSQL.
    """
    given = {**GIVEN.get(name, {}), **given}
    text = catalogue_of("pgqueue")[name].decode()
    places = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, place in enumerate(places, start=1):
        text = text.replace(f"%({place})s", f"${number}")
    values = ", ".join(given.get(place, "null") for place in places)
    with connection.transaction(force_rollback=True):
        for setting in settings_of(name) if settings is None else settings:
            connection.execute(f"set local {setting}")
        connection.execute(f"prepare planned as {text}".encode())
        explain = f"explain (format json) execute planned {f'({values})' if values else ''}"
        row = connection.execute(explain.encode()).fetchone()
        connection.execute("deallocate planned")
    assert row is not None
    return row[0][0]["Plan"]  # type: ignore[no-any-return]  # EXPLAIN's own JSON


def settings_of(name: str) -> Iterator[str]:
    """Workers leave the planner no choice; everybody else has the server's settings."""
    yield f"plan_cache_mode = force_{'custom' if name in GIVEN else 'generic'}_plan"
    if re.search("worker|beat", header(name)["run by"]):
        yield from (f"{setting} = {value}" for setting, value in PLANNER.items())


def indices_of(connection: psycopg.Connection[Any], plan: dict[str, Any]) -> set[str]:
    """The indices of a plan: scanned, or asked whether a row may be inserted; a partition's under its parent's name."""
    used = set()
    for node in _nodes(plan):
        used.update(node.get("Conflict Arbiter Indexes", ()))
        if "Index Name" in node:
            used.add(node["Index Name"])
        if node.get("Conflict Resolution") == "NOTHING" and "Conflict Arbiter Indexes" not in node:
            used.update(_unique_indices(connection, node["Relation Name"]))
    parents = dict(
        connection.execute(
            "select child.relname, parent.relname from pg_inherits "
            "join pg_class as child on child.oid = inhrelid join pg_class as parent on parent.oid = inhparent "
            "where child.relkind = 'i'"
        ).fetchall()
    )
    return {parents.get(index, index) for index in used}


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _unique_indices(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """What a plain ``on conflict do nothing`` asks."""
    rows = connection.execute(
        "select indexrelid::regclass::text from pg_index where indisunique and indrelid = %s::regclass",
        [f"pgqueue.{table}"],
    )
    return [row[0].removeprefix("pgqueue.") for row in rows]
