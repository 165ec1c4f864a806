"""The databases of the tests: one that a test has used, and that the next one gets, is as a new one."""

from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest
from databases import AHEAD, Copies, dsn_of

from pgqueue import PgQueue

RELATIONS = """
select oid::regclass::text, relkind, pg_relation_size(oid),
    case when relkind = 'r' then relpages end, case when relkind = 'r' then reltuples end from pg_class
where relnamespace = 'pgqueue'::regnamespace and relkind in ('r', 'i', 'S') order by oid
"""
HARMLESS = (
    "insert into pgqueue.queues (name) values ('mail')",
    "select pgqueue.enqueue('a', '{}')",
    "select nextval('pgqueue.idle_workers')",
    "vacuum pgqueue.edges",
    "analyze pgqueue.nodes",
    "delete from pgqueue.retention",
    "update pgqueue.compatibility set oldest_code = 9",
)
CHANGES = (
    "create table public.mine (number int)",
    "alter table pgqueue.jobs disable trigger all",
    "alter table pgqueue.jobs alter column priority set default 7",
    "grant select on pgqueue.jobs to public",
    "insert into pgqueue.queues (name) values ('mail'); analyze pgqueue.queues",
    "create function public.mine() returns int language sql return 1",
    "create schema mine",
    "drop table pgqueue.series_hours cascade",
    "drop index pgqueue.jobs_unique_key",
    "truncate pgqueue.queues",
    "comment on table pgqueue.jobs is 'mine'",
    "select lo_create(0)",
    "insert into pgqueue.queues (name) values ('mail'); select pg_stat_force_next_flush(), pg_stat_reset()",
    "create temporary table mine (number int)",
    "alter sequence pgqueue.idle_workers increment by 2",
    "do $$ begin execute 'alter database ' || quote_ident(current_database()) || ' set work_mem = ''1MB'''; end $$",
    "do $$ begin execute 'alter database ' || quote_ident(current_database()) || ' connection limit 50'; end $$",
)


@pytest.fixture
def own(migrated_server: Any) -> Iterator[Copies]:
    made = Copies(
        dsn_of(migrated_server, "postgres"), migrated_server.template_dbname, _forget, "pgqueue_test_copies"
    )
    yield made
    made.stop()


def _forget(_: str) -> None:
    """No one looks at these copies before they are dropped."""


def _identity(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(
        "select oid::bigint from pg_database where datname = current_database()"
    ).fetchone()
    return cast("int", row[0]) if row else 0


def _contents(connection: psycopg.Connection[Any]) -> list[list[Any]]:
    """All rows, all sequences, the size of each relation, and what the planner knows of it."""
    relations = connection.execute(RELATIONS).fetchall()
    rows = [
        connection.execute(
            f"select {'*' if kind == 'r' else 'last_value, is_called'} from {name}".encode()
        ).fetchall()
        for name, kind, *_ in relations
        if kind != "i"
    ]
    return [relations, rows]


def _uses(
    own: Copies, server: Any, statements: tuple[str, ...], times: int
) -> list[tuple[int, list[list[Any]]]]:
    """Use databases one after the other; of each its identity, and what was in it at the start."""
    seen = []
    for _ in range(times):
        with own.one() as name, psycopg.connect(dsn_of(server, name), autocommit=True) as connection:
            seen.append((_identity(connection), _contents(connection)))
            for statement in statements:
                connection.execute(statement.encode())
    return seen


def test_a_database_that_was_used_is_as_a_new_one(own: Copies, migrated_server: Any) -> None:
    """Rows, those of the template, sequences and sizes."""
    seen = _uses(own, migrated_server, HARMLESS, 4 * AHEAD)

    assert len({identity for identity, _ in seen}) <= AHEAD + 2  # all are used again, and again
    assert all(contents == seen[0][1] for _, contents in seen)


@pytest.mark.parametrize("change", CHANGES)
def test_a_database_whose_schema_or_settings_a_test_has_changed_is_not_used_again(
    own: Copies, migrated_server: Any, change: str
) -> None:
    """It is dropped."""
    seen = _uses(own, migrated_server, (change,), 2 * AHEAD + 2)

    assert len({identity for identity, _ in seen}) == len(seen)


def test_a_program_that_goes_on_after_its_test_does_not_reach_the_next_ones(
    own: Copies, migrated_server: Any
) -> None:
    """Its sessions are ended, and the database has another name."""
    with own.one() as name:
        left = PgQueue(dsn_of(migrated_server, name))
        session = psycopg.connect(dsn_of(migrated_server, name), autocommit=True)
        session.execute("select 1")
    names = set()
    for _ in range(2 * AHEAD):
        with own.one() as other:
            names.add(other)

    assert name not in names
    assert len(names) == 2 * AHEAD
    with pytest.raises(psycopg.OperationalError):
        session.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn_of(migrated_server, name))
    session.close()
    left.close()


def test_what_a_session_that_is_left_has_locked_and_not_committed_is_gone(
    own: Copies, migrated_server: Any
) -> None:
    """The rows of its transaction, and its advisory lock."""
    left, seen = [], []
    for _ in range(2 * AHEAD + 2):
        with own.one() as name:
            session = psycopg.connect(dsn_of(migrated_server, name))
            left.append(session)
            seen.append((_identity(session), _contents(session)))
            assert session.execute("select pg_try_advisory_lock(7)").fetchone() == (True,)
            session.execute("insert into pgqueue.queues (name) values ('mail')")
    for session in left:
        session.close()

    assert len({identity for identity, _ in seen}) < len(seen)  # some were used again
    assert all(contents == seen[0][1] for _, contents in seen)
