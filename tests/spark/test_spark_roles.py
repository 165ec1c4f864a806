"""The roles of the guide: one runs the pipeline without owning the tables, one only reads."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from docs.pages import DOCS, blocks
from looking import ask
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from spark.lake_history import DAY, NEXT, died, ended, history_ids, no_session
from spark.sinking import batch, written

import pgqueue.spark
from pgqueue import PgQueue
from pgqueue.errors import NotGranted
from pgqueue.spark.checks import check
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import erase_everywhere, of_key
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, drop, prune
from pgqueue.spark.lake.status import DayState, status
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.writing.log import refused_rows, rejected_rows
from pgqueue.store.pipeline.rollups import note_deploy
from pgqueue.store.schema.grants import Role, grant_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROLES = ("app_pipeline", "app_reader")


@pytest.fixture
def granted(dsn: str) -> str:
    """A database with the page's grants; its DSN."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for role in ROLES:
            if not connection.execute("select from pg_roles where rolname = %s", [role]).fetchall():
                connection.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        for block in blocks(DOCS / "pipeline" / "cluster.md"):
            if block.language == "sql":
                connection.execute(block.code.encode())
    return dsn


def as_role(dsn: str, role: str) -> str:
    """The DSN of a session that has another role's rights."""
    return make_conninfo(dsn, options=f"-c role={role}")


def test_a_role_that_does_not_own_the_tables_runs_every_step_but_prune(granted: str, tmp_path: Path) -> None:
    for day in (DAY, NEXT):
        ended(granted, day, 6)
    ended(granted, DAY, 1, partition=False)
    died(granted, DAY, 2)
    ask(granted, "update pgqueue.job_history set attempts = 1 where outcome = 'succeeded'")
    lake = Lake(tmp_path / "lake")
    with closing(PgQueue(as_role(granted, "app_pipeline"))) as queue:
        for version in ("1.4.0", "1.4.1"):
            queue.database.run(note_deploy(version, at=datetime(2026, 1, 20, 8, tzinfo=UTC)))
        assert len(export(no_session, queue.database, lake)) == 2
        assert {one.finding for one in verify(no_session, queue.database, lake)} == {DayFinding.VERIFIED}
        assert rollup(no_session, queue.database, lake, Config()) == [DAY, NEXT]
        assert all(one.passed for one in check(queue.database, lake))
        found, _ = erase_everywhere(no_session, queue.database, lake, Config(), of_key("key 3"))
        assert [one.database for one in found] == [1, 1]
        with pytest.raises(InsufficientPrivilege):
            prune(queue.database, lake)
        with closing(PgQueue(granted)) as owner:
            assert {one.fate for one in prune(owner.database, lake)} == {Fate.PRUNED}
        assert {one.state for one in status(queue.database, lake)} == {DayState.PRUNED}
        fates = [one.fate for one in drop(queue.database, lake, keep=0)]
        assert fates == [Fate.WAITING, Fate.DROPPED], "a day with dead jobs stays"
    assert history_ids(granted) == []


def test_a_role_that_reads_reads_and_changes_nothing(spark: "SparkSession", granted: str) -> None:
    ids = ended(granted, DAY, 3)
    dsn = as_role(granted, "app_reader")
    for table in ("history", "ended", "jobs", "dead", "workers"):
        spark.read.format("pgqueue").options(dsn=dsn, table=table).load().count()
    written(granted, batch(order_id=[1, 2], unique_key=["a", "a"]), run="r1", key="order_id")
    results = spark.read.format("pgqueue").options(dsn=dsn, results="r1").load().select("state")
    assert sorted(row.state for row in results.collect()) == ["ready", "rejected"]
    rows = spark.read.format("pgqueue").options(dsn=dsn, table="history").load().select("id").collect()
    assert sorted(row["id"] for row in rows) == ids
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (
            "delete from pgqueue.job_history",
            "update pgqueue.jobs set priority = 1",
            "insert into pgqueue.jobs (task) values ('t')",
            "insert into pgqueue.lake_days (day) values ('2026-01-20')",
            "select pgqueue.drop_history_day('2026-01-20')",
            "select pgqueue.enqueue('t')",
        ):
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement.encode())
    assert history_ids(granted) == ids


def login(dsn: str, name: str, *given: tuple[Role, dict[str, Any]]) -> str:
    """The DSN of a role's own login, with rights by `pgqueue grants`."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        if not owner.execute("select from pg_roles where rolname = %s", [name]).fetchall():
            owner.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        for role, options in given:
            for statement in grant_statements(role, name, **options):
                owner.execute(statement.encode())
    return make_conninfo(dsn, user=name)


def test_a_producer_that_uses_spark_writes_and_reads_no_jobs(dsn: str) -> None:
    own = login(dsn, "writes by spark", ("producer", {"also": ["spark"]}))
    made = written(own, batch(order_id=[1, 2]), batch(order_id=[3]), run="r1", key="order_id")
    assert (made.enqueued, made.rejected) == (3, 0)
    assert written(own, batch(order_id=[1, 2]), run="r1", key="order_id").repeats == made.id
    assert [*refused_rows(made.id, own), *rejected_rows(made.id, own)] == []
    with psycopg.connect(own, autocommit=True) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute("select args from pgqueue.jobs")
    with pytest.raises(NotGranted, match="`pgqueue grants producer --also spark,unique` gives this right"):
        written(own, batch(order_id=[1], unique_key=["a"]))
    keyed = login(dsn, "writes keys by spark", ("producer", {"also": ["spark", "unique"]}))
    made = written(keyed, batch(order_id=[1, 2], unique_key=["a", "a"]))
    assert (made.enqueued, made.rejected) == (1, 1)
    assert written(keyed, batch(order_id=[9], unique_key=["a"]), unique_period="60").rejected == 1


def test_without_the_right_to_write_by_spark_the_error_names_the_grant(dsn: str) -> None:
    own = login(dsn, "writes by python", ("producer", {}))
    with pytest.raises(NotGranted, match="`pgqueue grants producer --also spark` gives this right"):
        written(own, batch(order_id=[1]))


def test_a_producer_that_uses_spark_and_reads_calls_apply(spark: "SparkSession", dsn: str) -> None:
    own = login(dsn, "applies", ("producer", {"also": ["spark"]}), ("reader", {}))
    rows = spark.range(4, numPartitions=1).selectExpr(
        "id as order_id", "if(id = 2, double('nan'), 1.5D) as value"
    )
    found = pgqueue.spark.apply(
        rows, "bill", key="order_id", run="r1", dsn=own, wait=False, options={"onBadRow": "divert"}
    )
    assert [row.state for row in found.orderBy("order_id").collect()] == [
        "ready",
        "ready",
        "refused",
        "ready",
    ]
    reader = login(dsn, "reads results", ("reader", {}))
    assert pgqueue.spark.results(spark, "r1", dsn=reader).where("state = 'refused'").count() == 1
