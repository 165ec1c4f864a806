"""The lake in a catalogue: the statements that register its tables, and what the tables' logs say of their columns."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended, no_session

from pgqueue import PgQueue
from pgqueue.cli.main import main
from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.checks import check
from pgqueue.spark.config import Config
from pgqueue.spark.lake import comments
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.compact import compact
from pgqueue.spark.lake.ddl import Dialect, statements, table_name
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

OURS = Origin("1", 2, "pgqueue")
PARSED_AS = {"spark": "spark", "unity": "databricks", "glue": "athena", "trino": "trino", "duckdb": "duckdb"}
"""The dialects, as sqlglot names them."""


@pytest.fixture
def lake(queue: PgQueue, dsn: str, tmp_path: Path) -> Lake:
    """A lake with every table."""
    made = Lake(tmp_path / "O'Hara" / "lake")
    for day in (DAY, NEXT):
        ended(dsn, day, 6)
    died(dsn, DAY, 2)
    ask(dsn, "insert into pgqueue.deploys values (now(), '1.0')")
    export(no_session, queue.database, made)
    rollup(no_session, queue.database, made, Config())
    check(queue.database, made)
    return made


def fields(lake: Lake, table: str) -> dict[str, dict[str, Any]]:
    """The columns as the table's log has them."""
    schema = json.loads(DeltaTable(f"{lake.uri}/{table}").schema().to_json())
    return {one["name"]: one for one in schema["fields"]}


def test_each_table_and_column_has_a_comment_in_the_log(lake: Lake) -> None:
    for name, text in comments.texts().items():
        assert DeltaTable(f"{lake.uri}/{name}").metadata().description == text.comment != ""
        for field in fields(lake, name).values():
            assert field["metadata"]["comment"].strip(". "), (name, field["name"])
            assert not field["metadata"]["comment"].startswith("As in"), (name, field["name"])
    found = fields(lake, "ended")
    assert (
        found["created_at"]["metadata"]["comment"] == "When it was enqueued: the start of that transaction."
    )
    assert found["outcome"]["metadata"]["comment"] == "succeeded, cancelled or dead."


def test_columns_that_are_never_null_say_so_and_no_others(lake: Lake) -> None:
    for name in comments.texts():
        rows = DeltaTable(f"{lake.uri}/{name}").to_pyarrow_table()
        for field in fields(lake, name).values():
            assert field["nullable"] or rows[field["name"]].null_count == 0, (name, field["name"])
    required = {name for name, field in fields(lake, "ended").items() if not field["nullable"]}
    assert required == {
        *("id", "queue", "task", "outcome", "priority", "run_at", "created_at", "ended_at", "day"),
        *("attempts", "max_attempts", "collisions", "ended_in"),
    }


def test_no_comment_is_said_of_a_column_that_is_not_there(lake: Lake) -> None:
    for name, text in comments.texts().items():
        assert text.columns.keys() - fields(lake, name).keys() <= {"utilisation", "slo_attained", "slo_burn"}
        assert text.required <= fields(lake, name).keys()


def test_an_earlier_table_gets_its_comments_with_its_next_rows_and_keeps_its_files(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    ended(dsn, DAY, 3)
    with monkeypatch.context() as before:
        before.setattr("pgqueue.spark.lake.table.texts", dict)
        before.setattr("pgqueue.spark.lake.table.described", lambda _, schema, **__: schema)
        export(no_session, queue.database, lake)
        assert not fields(lake, ENDED)["id"]["metadata"]
        files = set(DeltaTable(f"{lake.uri}/{ENDED}").file_uris())
    ended(dsn, NEXT, 3)
    export(no_session, queue.database, Lake(tmp_path))
    table = DeltaTable(f"{lake.uri}/{ENDED}")
    assert files < set(table.file_uris())
    assert table.metadata().description == comments.texts()[ENDED].comment
    assert all(field["metadata"]["comment"] for field in fields(lake, ENDED).values())
    version = table.version()
    ended(dsn, NEXT, 1)
    export(no_session, queue.database, Lake(tmp_path))
    assert DeltaTable(f"{lake.uri}/{ENDED}").version() == version + 1, "only once"


def test_a_column_that_a_later_release_adds_may_be_null_in_rows_that_are_there(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    lake.create(OURS)
    columns = [("day", pa.date32()), ("queue", pa.string()), ("jobs", pa.int64())]
    for number in (2, 3):
        lake.table("rollup/hours").feed_changes(pa.schema(columns[:number]))
    assert not fields(lake, "rollup/hours")["queue"]["nullable"]
    assert fields(lake, "rollup/hours")["jobs"]["nullable"]
    assert fields(lake, "rollup/hours")["jobs"]["metadata"]["comment"] == "How many jobs ended."


class Duck:
    """DuckDB, whose extension ``delta`` cannot be had here: a macro in its place reads what the log of a table says."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.connection = duckdb.connect()
        self.connection.execute(
            "create macro delta_scan(place) as table from query_table('scan_' || replace(place, $uri, ''))".replace(
                "$uri", "'" + f"{lake.uri}/".replace("'", "''") + "'"
            )
        )
        self.look()

    def look(self) -> None:
        for name in comments.texts():
            table = DeltaTable(f"{self.lake.uri}/{name}").to_pyarrow_dataset()
            self.connection.register(f"scan_{name}", table)

    def asked(self, statement: str) -> list[Any]:
        return self.connection.execute(statement).fetchall()


def registered(duck: Duck) -> list[str]:
    """Run the statements; the tables."""
    for one in statements(duck.lake, Dialect.DUCKDB):
        if one not in {"install delta", "load delta"}:
            duck.asked(one)
    found = duck.asked("select view_name from duckdb_views() where schema_name = 'pgqueue'")
    return sorted(row[0] for row in found)


def test_duckdb_registers_every_table_with_its_comments_and_reads_it_after_a_compaction(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    duck = Duck(lake)
    assert registered(duck) == sorted(map(table_name, comments.texts()))
    assert registered(duck), "a second time"
    counted = "select count(*), sum(id) from pgqueue.ended"
    before = duck.asked(counted)[0]
    rows = DeltaTable(f"{lake.uri}/ended").to_pyarrow_table()
    assert before == (rows.num_rows, sum(rows["id"].to_pylist()))
    ended(dsn, DAY, 3)
    export(no_session, queue.database, lake)
    assert compact(queue.database, lake)
    duck.look()
    assert duck.asked(counted)[0][0] == rows.num_rows + 3
    said = dict(
        duck.asked(
            "select column_name, comment from duckdb_columns() where schema_name = 'pgqueue' and table_name = 'ended'"
        )
    )
    assert said == {name: one["metadata"]["comment"] for name, one in fields(lake, "ended").items()}
    about = "select comment from duckdb_views() where schema_name = 'pgqueue' and view_name = 'rollup_hours'"
    assert duck.asked(about) == [(comments.texts()["rollup/hours"].comment,)]


@pytest.mark.parametrize("dialect", [*Dialect])
def test_each_statement_is_one_of_its_dialect_and_names_the_place_and_no_file(
    lake: Lake, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake.folder, "uri", "s3://bucket/O'Hara")
    monkeypatch.setattr(type(lake), "table", lambda *_: _There())
    found = statements(lake, dialect)
    quoted = r"O\'Hara" if dialect in {"spark", "unity", "glue"} else "O''Hara"
    for name in comments.texts():
        (made,) = [one for one in found if f"{quoted}/{name}'" in one or f"{quoted}/{name}/'" in one]
        assert ("s3a://" in made) == (dialect == "spark")
        assert "parquet" not in made
    for one in found:
        parsed = sqlglot.parse(one, dialect=PARSED_AS[dialect])
        assert len(parsed) == 1
        if not one.startswith(("call ", "install ", "load ")):  # sqlglot takes these for text
            assert not isinstance(parsed[0], sqlglot.exp.Command), one


class _There:
    """A table that exists."""

    @staticmethod
    def exists() -> bool:
        return True

    @staticmethod
    def schema() -> pa.Schema:
        return comments.described(ENDED, ENDED_TABLE)


def test_the_lakes_place_and_the_name_must_suit_the_engine(lake: Lake) -> None:
    for dialect in (Dialect.UNITY, Dialect.GLUE):
        with pytest.raises(InvalidOption, match=rf"{dialect} reads s3://"):
            statements(lake, dialect)
    for name in ("jobs; drop table x", "a..b", "", "ü"):
        with pytest.raises(InvalidOption, match=r"main\.jobs"):
            statements(lake, Dialect.SPARK, into=name or ".")
    assert any("main.jobs.ended" in one for one in statements(lake, Dialect.SPARK, into="main.jobs"))
    with pytest.raises(LakeError):
        statements(Lake(lake.uri + "/none"), Dialect.SPARK)


def test_a_table_that_is_not_there_is_not_registered(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(OURS)
    assert statements(lake, Dialect.SPARK) == ["create schema if not exists pgqueue"]
    write_deltalake(f"{lake.uri}/steps", pa.table({"step": ["export"]}))
    assert len(statements(Lake(tmp_path), Dialect.SPARK)) == 2


def test_the_command_prints_them_and_asks_no_database(lake: Lake) -> None:
    run = CliRunner()
    given = ["--dsn", "postgresql://nobody@localhost:1/none", "pipeline", "status", "--lake", lake.uri]
    told = run.invoke(main, [*given, "--ddl"])
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines() == [f"{one};" for one in statements(lake, Dialect.SPARK)]
    told = run.invoke(main, [*given, "--ddl", "duckdb", "--into", "jobs", "--json"])
    assert json.loads(told.stdout) == statements(lake, Dialect.DUCKDB, into="jobs")
    assert run.invoke(main, [*given, "--into", "jobs"]).exit_code == 2


def delta_source() -> "type[DataSource]":
    """A source ``delta`` in place of that of Delta's jar, which cannot be had here: its columns are what a table's log says.

    It reads no rows: Spark does not tell a source in Python where a table of the catalogue is.
    """
    from pyspark.sql.datasource import DataSource  # noqa: PLC0415 - heavy
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - heavy

    class Delta(DataSource):
        @classmethod
        def name(cls) -> str:
            return "delta"

        def schema(self) -> Any:
            return from_arrow_schema(pa.schema(DeltaTable(self.options["path"]).schema()))

    return Delta


@pytest.mark.timeout(300)
def test_spark_registers_every_table_with_the_columns_of_its_log(spark: "SparkSession", lake: Lake) -> None:
    spark.dataSource.register(delta_source())
    try:
        for one in statements(lake, Dialect.SPARK) * 2:
            spark.sql(one)
        found = {row["tableName"] for row in spark.sql("show tables in pgqueue").collect()}
        assert found == set(map(table_name, comments.texts()))
        for name in comments.texts():
            assert spark.table(f"pgqueue.{table_name(name)}").columns == [*fields(lake, name)]
    finally:
        spark.sql("drop schema if exists pgqueue cascade")


@pytest.mark.timeout(300)
def test_sparks_own_parser_takes_the_statements_of_databricks(
    spark: "SparkSession", lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake.folder, "uri", "s3://bucket/O'Hara")
    monkeypatch.setattr(type(lake), "table", lambda *_: _There())
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - Python has no parser
    for one in statements(lake, Dialect.UNITY, into="main.jobs"):
        assert parser.parsePlan(one) is not None
