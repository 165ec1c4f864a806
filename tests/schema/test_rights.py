"""Who may do what, by the catalogue: what the headers of functions and ``pgqueue grants`` say, and no more."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import psycopg
import pytest
from docs.pages import DOCS
from psycopg import sql
from psycopg.errors import InsufficientPrivilege
from store.sqlfiles import SQL

from pgqueue.store.catalogue import catalogue_of, missing_grant
from pgqueue.store.connections.asyncpg import copy_target, rewritten
from pgqueue.store.schema import grants, schema
from pgqueue.store.schema.grants import EXTRAS, GIVEN_BACK, RIGHTS, TAKEN, Role, grant_statements


class Holder(NamedTuple):
    """A PostgreSQL role, which `pgqueue grants` gives a role of pgqueue."""

    name: str
    role: Role
    options: dict[str, Any]


HOLDERS = (
    Holder("has_worker", "worker", {}),
    Holder("has_operator", "operator", {}),
    Holder("has_reader", "reader", {}),
    Holder("has_monitor", "monitor", {}),
    Holder("has_producer", "producer", {}),
    Holder("has_signals", "producer", {"also": ["signals"]}),
    Holder("has_unique", "producer", {"also": ["unique"]}),
    Holder("has_flows", "producer", {"also": ["flows"]}),
    Holder("has_when_full", "producer", {"also": ["when_full"]}),
    Holder("has_spark", "producer", {"also": ["spark"]}),
    Holder("has_spark_unique", "producer", {"also": ["spark", "unique"]}),
    Holder("has_sql_alone", "producer", {"sql_alone": True}),
)
CALLS = {
    "has_signals": {"producer", "producer:signals"},
    "has_spark": {"producer", "producer:spark"},
    "has_spark_unique": {"producer", "producer:spark"},
    "has_sql_alone": {"producer"},
}
"""Which words of the headers are said of it; its own role, where nothing is said here."""

MAY_CALL = """
select proname from pg_proc
where pronamespace = %(schema)s::regnamespace and has_function_privilege(%(role)s, oid, 'execute')
"""
GIVEN = """
select kind, name, grantee::regrole::text, privilege_type
from (
    select 'function' as kind, proname::text as name, (aclexplode(coalesce(proacl, acldefault('f', proowner)))).*
    from pg_proc where pronamespace = %(schema)s::regnamespace
    union all
    select case relkind when 'S' then 'sequence' else 'table' end, relname,
           (aclexplode(coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner)))).*
    from pg_class where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'S')
    union all
    select 'column', relname || '.' || attname, (aclexplode(attacl)).*
    from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = %(schema)s::regnamespace
) as given
where grantee <> (select relowner from pg_class where oid = %(jobs)s::regclass)
"""
"""Every right to a function, table, sequence or column that a role other than the owner has; the grantee ``-`` is everybody."""
NAMES = """
select case relkind when 'S' then 'sequence' else 'table' end, relname::text
from pg_class where relnamespace = %(schema)s::regnamespace and relkind in ('r', 'p', 'v', 'S')
"""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to a database that is a shard, too."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(schema.statements("shard_guard", "pgqueue").encode())
        yield connection


@pytest.fixture
def granted(own: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """The same, with a role for each way in which `pgqueue grants` gives rights."""
    for name, role, options in HOLDERS:
        if not own.execute("select from pg_roles where rolname = %s", [name]).fetchall():
            own.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        for statement in grant_statements(role, name, **options):
            own.execute(statement.encode())
    return own


GRANTED = {
    "has_producer": "producer",
    "has_unique": "producer --also unique",
    "has_when_full": "producer --also when_full",
    "has_flows": "producer --also flows",
    "has_signals": "producer --also signals",
    "has_spark": "producer --also spark",
    "has_spark_unique": "producer --also spark,unique",
    "has_monitor": "monitor",
    "has_reader": "reader",
    "has_operator": "operator",
    "has_worker": "worker",
}
"""What the headers of statements call them."""
MORE = {
    "producer": {name for name in GRANTED.values() if name.startswith("producer --also")}
    | {"operator", "worker"},
    "monitor": {"reader", "operator", "worker"},
    "reader": {"operator", "worker"},
    "producer --also spark": {"producer --also spark,unique", "operator", "worker"},
}
"""The grants that have all the rights of one, and more."""
OF_ITS_OWN = re.compile("pipeline/(?!sink_)|adopt/")
"""Statements of other grants: those of the pages of the pipeline, and of a migration."""


BEFORE_MORE = {
    "insight/search_floor": {"monitor"},
    "alerts/put_in_lane": {"producer --also spark", "producer --also spark,unique"},
}
"""Statements before which or behind which each of their plans has one that these may not run: the error names what is enough for both."""


def said() -> dict[str, frozenset[str]]:
    return {**grants.callers(), **grants.callers(of_shards=True)}


def given(connection: psycopg.Connection[Any], name: str = "pgqueue") -> set[tuple[str, ...]]:
    """Each right that a role other than the owner has."""
    return {tuple(row) for row in connection.execute(GIVEN, {"schema": name, "jobs": f"{name}.jobs"})}


def test_every_function_says_in_front_who_may_call_it(own: psycopg.Connection[Any]) -> None:
    made = own.execute(
        "select proname, count(*) from pg_proc where pronamespace = 'pgqueue'::regnamespace group by 1"
    )

    assert dict(made.fetchall()) == dict.fromkeys(said(), 1)
    assert all(words <= grants.WORDS for words in said().values())
    assert all(len(words) == 1 for words in said().values() if words & {grants.PUBLIC, "owner", "trigger"})


@pytest.mark.parametrize("name", ["pgqueue", "public"])
def test_without_grants_nobody_has_a_right_but_to_call_what_says_that_it_is_for_everybody(
    empty_dsn: str, name: str
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as own:
        own.execute("create function public.of_a_user() returns integer language sql as 'select 1'")
        own.execute("create function public.enqueue(integer) returns integer language sql as 'select 1'")
        theirs = (
            {("function", one, "-", "EXECUTE") for one in ("of_a_user", "enqueue")}
            if name == "public"
            else set()
        )
        schema.migrate(empty_dsn, schema=name)
        own.execute(schema.statements("shard_guard", name).encode())

        public = {one for one, words in said().items() if words == {grants.PUBLIC}}
        assert given(own, name) == theirs | {("function", one, "-", "EXECUTE") for one in public}


def test_what_everybody_may_call_reads_and_writes_no_table_and_has_no_rights_of_the_owner(
    own: psycopg.Connection[Any],
) -> None:
    public = [one for one, words in said().items() if words == {grants.PUBLIC}]
    rows = own.execute(
        "select proname, provolatile, prosecdef from pg_proc where pronamespace = 'pgqueue'::regnamespace and proname = any(%s)",
        [public],
    ).fetchall()
    assert [row for row in rows if row[1:] != ("i", False)] == []


@pytest.mark.parametrize("holder", HOLDERS, ids=[one.name for one in HOLDERS])
def test_a_role_may_call_what_the_headers_say_and_nothing_else(
    granted: psycopg.Connection[Any], holder: Holder
) -> None:
    words = CALLS.get(holder.name, {holder.role}) | {grants.PUBLIC}
    # Where it enqueues by SQL alone, it asks for no key: the guard of the shard refuses the job.
    words_of_shards = {grants.PUBLIC} if holder.options.get("sql_alone") else words

    may = {row[0] for row in granted.execute(MAY_CALL, {"schema": "pgqueue", "role": holder.name})}

    every = {name for name, allowed in grants.callers().items() if allowed & words}
    of_shards = {
        name for name, allowed in grants.callers(of_shards=True).items() if allowed & words_of_shards
    }
    assert may == every | of_shards


@pytest.mark.parametrize("holder", HOLDERS, ids=[one.name for one in HOLDERS])
def test_a_role_has_the_rights_to_tables_sequences_and_columns_that_the_grants_say_and_no_others(
    granted: psycopg.Connection[Any], holder: Holder
) -> None:
    names = [tuple(row) for row in granted.execute(NAMES, {"schema": "pgqueue"})]
    rights = [*((RIGHTS[holder.role]) if not holder.options.get("sql_alone") else ())]
    rights += chain.from_iterable(EXTRAS[one] for one in holder.options.get("also", ()))
    expected = set(chain.from_iterable(_meant(right, names) for right in rights))
    if not holder.options.get("sql_alone"):
        expected.add(("table", "shard", "SELECT"))
    expected -= set(chain.from_iterable(_meant(right, names) for right in TAKEN.get(holder.role, ())))
    expected |= set(chain.from_iterable(_meant(right, names) for right in GIVEN_BACK.get(holder.role, ())))

    found = {
        (kind, name, privilege)
        for kind, name, grantee, privilege in given(granted)
        if grantee == holder.name and kind != "function"
    }
    assert found == expected


def _meant(right: str, names: list[tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """What a line of the grants says: the kind, the name, and one privilege of each."""
    privileges, where = right.split(" on ", 1)
    if where.startswith("function"):
        return
    if where.startswith("all "):
        kind = where.split()[1].removesuffix("s")
        chosen = [name for one, name in names if one == kind]
    else:
        kind = "sequence" if where.startswith("sequence ") else "table"
        chosen = [one.removeprefix("pgqueue.") for one in where.removeprefix("sequence ").split(", ")]
    every = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN")
    for verb, columns in re.findall(r"(\w+)(?: \(([^)]*)\))?", privileges):
        for name in chosen:
            for privilege in every if verb == "all" else (verb.upper(),):
                for column in columns.split(", ") if columns else [""]:
                    yield ("column", f"{name}.{column}", privilege) if column else (kind, name, privilege)


def test_a_producer_writes_the_columns_that_an_enqueue_writes_and_no_other() -> None:
    written = {
        column
        for name in ("enqueue", "enqueue_now", "enqueue_few", "enqueue_unique")
        for columns in re.findall(r"insert into pgqueue.jobs \(([^)]*)\)", SQL[f"jobs/{name}"])
        for column in re.split(r",\s*", columns)
    }
    (granted,) = [right for right in RIGHTS["producer"] if "insert" in right]
    inserted = re.match(r"insert \(([^)]*)\)", granted)
    assert inserted is not None
    assert set(inserted[1].split(", ")) == written


def test_the_pipelines_page_grants_what_the_headers_say_of_the_pipeline() -> None:
    page = (DOCS / "pipeline" / "cluster.md").read_text()
    named = re.search(r"grant execute on function ([^;]+) to app_pipeline;", page)
    assert named is not None
    assert set(re.findall(r"pgqueue\.(\w+)", named[1])) == set(grants.functions_for("pipeline"))


def test_the_header_of_a_statement_names_the_least_grants_with_which_it_runs(
    granted: psycopg.Connection[Any],
) -> None:
    granted.execute(
        "drop role if exists has_nothing; create role has_nothing; set plan_cache_mode = force_generic_plan"
    )
    granted.execute("grant usage on schema pgqueue to has_nothing")
    wrong = {}
    for name in sorted(SQL):
        if OF_ITS_OWN.match(name) or _runs(granted, name, "has_nothing"):
            continue
        enough = {said for role, said in GRANTED.items() if _runs(granted, name, role)}
        found = re.search("^-- rights: (.+)$", SQL[name], re.MULTILINE)
        named = {"operator", "worker"} if found is None else set(found[1].split(", "))
        if named == {"ROLE"}:
            named = {"producer", "monitor"}
        least = enough - BEFORE_MORE.get(name, set())
        if not named <= enough or any(named & MORE.get(one, set()) for one in least):
            wrong[name] = (sorted(named), sorted(enough))
    granted.execute("drop owned by has_nothing; drop role has_nothing")
    assert wrong == {}
    assert missing_grant("pipeline/lake_drop").startswith("the owner of the tables has this right")
    assert (
        missing_grant("jobs/cancel")
        == "`pgqueue grants operator` or `pgqueue grants worker` gives this right"
    )


def _runs(connection: psycopg.Connection[Any], name: str, role: str) -> bool:
    """Whether a role may run a statement, by EXPLAIN; COPY has no plan, and DO needs no right."""
    text = catalogue_of("pgqueue")[name]
    if text.lstrip().startswith(b"copy"):
        target = copy_target(text)
        asked = "select bool_and(has_column_privilege(%s, %s::regclass, one, 'insert')) from unnest(%s::text[]) as one"
        row = connection.execute(
            asked, [role, f"{target.schema}.{target.table}", [*target.columns]]
        ).fetchone()
        assert row is not None
        return bool(row[0])
    if text.lstrip().startswith(b"do"):
        return True
    query, places = rewritten(text)
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(sql.SQL("set local role {}").format(sql.Identifier(role)))
            connection.execute(f"prepare asked as {query}".encode())
            values = f"({', '.join(['null'] * len(places))})" if places else ""
            connection.execute(f"explain execute asked {values}".encode())
    except InsufficientPrivilege:
        return False
    finally:
        connection.execute("deallocate all")
    return True
