"""The schema: up, down, twice, at once, by hand, under another name, and of another release."""

import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from programs import Program
from psycopg.conninfo import make_conninfo
from schema.migrating import begun, consists_of
from store.crowd import until_statements_wait
from store.samples import LEASE, NOON, adding, new_job, worker_info

from pgqueue import PgQueue
from pgqueue.errors import (
    ConfigurationError,
    DatabaseError,
    InvalidOption,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
)
from pgqueue.store import catalogue
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import control
from pgqueue.store.plan import run
from pgqueue.store.schema import schema
from pgqueue.store.workers import leases

LATER = f"{int(schema.REVISION) + 1:04}"


def test_up_down_and_up_again_ends_where_it_began(empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    first = consists_of(empty_dsn)

    schema.migrate(empty_dsn, revision="base")
    below = consists_of(empty_dsn)
    schema.migrate(empty_dsn)

    assert [kind for kind in ("functions", "triggers", "views") if below[kind]] == []
    assert {row.split("'")[1] for row in below["columns"]} == {"alembic_version"}
    assert consists_of(empty_dsn) == first


def test_down_removes_what_was_added_since(empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        blocking = StepRunner(connection, catalogue_of("pgqueue"))
        run(adding(new_job()), blocking)
        connection.execute("select pgqueue.ensure_history_days('2031-05-04', '2031-05-09')")

    schema.migrate(empty_dsn, revision="base")

    assert not any("job" in row for row in consists_of(empty_dsn)["partitions"])


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
def test_a_database_that_cannot_hold_all_texts_is_refused_before_anything_is_made(
    empty_dsn: str, encoding: str
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as server:
        server.execute(
            f"create database other_texts encoding '{encoding}' template template0 locale 'C'".encode()
        )
        try:
            other = make_conninfo(empty_dsn, dbname="other_texts")
            with pytest.raises(DatabaseError, match=f'"other_texts" has the encoding {encoding}.*UTF8'):
                schema.migrate(other)
            with psycopg.connect(other) as inside:
                assert inside.execute("select to_regnamespace('pgqueue') is null").fetchall() == [(True,)]
        finally:
            server.execute("drop database other_texts with (force)")


def test_migrating_twice_changes_nothing(empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    first = consists_of(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        run(adding(new_job()), StepRunner(connection, catalogue_of("pgqueue")))

    schema.migrate(empty_dsn)

    assert consists_of(empty_dsn) == first
    queue = PgQueue(empty_dsn)
    assert len(queue.database.run(control.newest())) == 1
    queue.close()


def test_two_who_migrate_at_once_both_succeed(empty_dsn: str) -> None:
    program = f"from pgqueue.store.schema.schema import migrate; migrate({empty_dsn!r})"
    with psycopg.connect(empty_dsn) as gate:
        gate.execute("select pg_advisory_xact_lock(hashtext('pgqueue.migrate'))")
        both = [
            Program(["-c", program], libraries=("alembic", "sqlalchemy"), stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        until_statements_wait(empty_dsn, count=2)
        gate.commit()
        ended = [(one.communicate(timeout=60)[1], one.returncode) for one in both]

    assert [code for _, code in ended] == [0, 0], ended
    with psycopg.connect(empty_dsn) as connection:
        assert (
            run(schema.verify("pgqueue"), StepRunner(connection, catalogue_of("pgqueue"))) == schema.REVISION
        )


def test_the_script_for_somebody_else_to_run_makes_the_same_schema(
    empty_dsn: str, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schema.upgrade_script()
    script = capsys.readouterr().out
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(script.encode())
        assert (
            run(schema.verify("pgqueue"), StepRunner(connection, catalogue_of("pgqueue"))) == schema.REVISION
        )

    assert consists_of(empty_dsn) == consists_of(dsn)
    schema.migrate(empty_dsn)
    assert consists_of(empty_dsn) == consists_of(dsn)


def test_under_another_name_it_is_the_same_schema(empty_dsn: str, dsn: str) -> None:
    schema.migrate(empty_dsn, schema="shop_jobs")

    assert consists_of(empty_dsn) == {}
    assert consists_of(empty_dsn, "shop_jobs") == consists_of(dsn)


def test_the_last_revision_is_the_one_that_the_code_is_written_for(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select version_num from pgqueue.alembic_version").fetchall()

    assert rows == [(schema.REVISION,)]


def test_an_unknown_revision_is_refused_and_nothing_is_left_behind(empty_dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="9999"):
        schema.migrate(empty_dsn, revision="9999")

    assert consists_of(empty_dsn) == {}


@pytest.mark.parametrize("name", ["Shop", "my-jobs", "jobs;drop", "", "1st", 'q"', "a" * 64])
def test_a_schema_name_that_needs_quoting_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="lower-case letters, digits and underscores"):
        PgQueue("postgresql://nobody@nowhere/none", schema=name)
    with pytest.raises(InvalidOption, match="lower-case letters, digits and underscores"):
        schema.upgrade_script(schema=name)


@pytest.mark.parametrize("name", ["user", "order", "int", "time", "left", "pg_jobs"])
def test_a_schema_name_that_postgresql_keeps_for_itself_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"schema='{name}': PostgreSQL keeps this name for itself; use another"
    ):
        PgQueue("postgresql://nobody@nowhere/none", schema=name)


def test_every_word_that_this_server_keeps_for_itself_is_known(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        kept = connection.execute("select word from pg_get_keywords() where catcode <> 'U'").fetchall()

    assert {word for (word,) in kept} <= catalogue.RESERVED


def test_the_longest_schema_name_can_be_listened_to(empty_dsn: str) -> None:
    name = "s" * catalogue.LONGEST
    schema.migrate(empty_dsn, schema=name)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        blocking = StepRunner(connection, catalogue_of(name))
        connection.execute(f'listen "{catalogue_of(name).wake_channel}"'.encode())
        run(leases.register(worker_info(), LEASE, now=NOON), blocking)
        run(adding(new_job()), blocking)

        assert len(list(connection.notifies(timeout=5, stop_after=1))) == 1
    with pytest.raises(InvalidOption, match="at most 58"):
        catalogue_of(name + "s")


def test_a_migration_lives_and_dies_with_its_callers_transaction(empty_dsn: str) -> None:
    with begun(empty_dsn) as connection:
        schema.upgrade(connection)
        connection.rollback()

    assert consists_of(empty_dsn) == {}


@pytest.fixture
def twins(empty_dsn: str) -> Iterator[tuple[psycopg.Connection[Any], StepRunner, StepRunner]]:
    """A connection to a database with two schemas, and the two on it."""
    for name in ("left_jobs", "right_jobs"):
        schema.migrate(empty_dsn, schema=name)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        left, right = (StepRunner(connection, catalogue_of(name)) for name in ("left_jobs", "right_jobs"))
        yield connection, left, right


def test_two_schemas_in_one_database_do_not_see_each_others_jobs(
    twins: tuple[psycopg.Connection[Any], StepRunner, StepRunner],
) -> None:
    connection, left, right = twins
    run(adding(new_job("bill", unique_key="key")), left)
    run(adding(new_job("send", unique_key="key")), right)
    connection.execute("select left_jobs.enqueue('third')")

    assert [job.task for job in run(control.newest(), left)] == ["third", "bill"]
    assert [job.task for job in run(control.newest(), right)] == ["send"]


def test_two_schemas_in_one_database_do_not_wake_each_others_workers(
    twins: tuple[psycopg.Connection[Any], StepRunner, StepRunner],
) -> None:
    connection, left, right = twins
    for name in ("left_jobs", "right_jobs"):
        connection.execute(f'listen "{catalogue_of(name).wake_channel}"'.encode())
    run(leases.register(worker_info(), LEASE, now=NOON), left)

    run(adding(new_job()), right)
    connection.execute("select right_jobs.enqueue('bill')")
    assert [note.channel for note in connection.notifies(timeout=0)] == []
    run(adding(new_job()), left)
    assert [note.channel for note in connection.notifies(timeout=0)] == ["left_jobs.wake"]


def test_one_of_two_schemas_goes_without_the_other(
    twins: tuple[psycopg.Connection[Any], StepRunner, StepRunner], empty_dsn: str
) -> None:
    _, _, right = twins
    run(adding(new_job()), right)

    schema.migrate(empty_dsn, schema="left_jobs", revision="base")

    assert len(run(control.newest(), right)) == 1


def test_a_missing_schema_is_named_with_the_remedy(empty_dsn: str) -> None:
    with pytest.raises(SchemaMissing, match=r'schema "pgqueue" has no tables yet; run `pgqueue migrate`'):
        PgQueue(empty_dsn).insight.search()


def test_a_schema_taken_down_is_missing_too(empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    schema.migrate(empty_dsn, revision="base")

    with pytest.raises(SchemaMissing, match="run `pgqueue migrate`"):
        PgQueue(empty_dsn).insight.search()


def test_an_older_schema_is_named_with_the_remedy(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.alembic_version set version_num = '0000'")

    with pytest.raises(SchemaTooOld, match=r"at revision 0000, this code needs .* run `pgqueue migrate`"):
        PgQueue(dsn).insight.search()


def test_a_newer_schema_is_refused_only_if_it_says_so(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.alembic_version set version_num = %s", [LATER])
    queue = PgQueue(dsn)
    assert queue.insight.search().jobs == ()
    queue.close()

    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.compatibility set oldest_code = %s", [LATER])
    with pytest.raises(SchemaTooNew, match=rf"needs code written for {LATER} or later; .* upgrade pgqueue"):
        PgQueue(dsn).insight.search()


def test_a_former_release_neither_undoes_a_newer_schema_nor_fails_where_the_schema_allows_it(
    dsn: str,
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.alembic_version set version_num = %s", [LATER])
    before = consists_of(dsn)

    schema.migrate(dsn)
    for revision in ("base", "0000", schema.REVISION):
        with pytest.raises(
            SchemaTooNew, match=rf"at revision {LATER}, and this release knows .* Nothing was changed"
        ):
            schema.migrate(dsn, revision=revision)
    with psycopg.connect(dsn) as connection:
        connection.execute("update pgqueue.compatibility set oldest_code = %s", [LATER])
    with pytest.raises(SchemaTooNew, match="Nothing was changed"):
        schema.migrate(dsn)
    assert consists_of(dsn) == before


async def test_an_awaited_queue_checks_the_schema_as_well(empty_dsn: str) -> None:
    with pytest.raises(SchemaMissing, match="run `pgqueue migrate`"):
        await PgQueue(empty_dsn).insight.asearch()
