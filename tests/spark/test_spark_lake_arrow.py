"""Small days are exported by this process, large ones by Spark: the same rows in the same order."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pytest
from looking import ask, wait_until
from psycopg import sql
from pyarrow import dataset
from spark.lake_history import DAY, NEXT, died, ended, lake_ids, no_session

from pgqueue import PgQueue
from pgqueue.errors import ConnectionFailed, PipelineError
from pgqueue.spark.lake import database_rows
from pgqueue.spark.lake import export as exports
from pgqueue.spark.lake.ahead import DAYS
from pgqueue.spark.lake.columns import DEPLOY_SCHEMA, ENDED, ENDED_SCHEMA, ENDED_TABLE, WORKER_SCHEMA
from pgqueue.spark.lake.database_rows import final_below
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.reading.fetching import connect
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline.lake import barrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = ("mail", "Mail", "邮", "é", "e\u0301", "a\tb", "~", "🎉", "z", "mail ")
"""Names that collations sort in other ways than bytes are."""
ODD: LiteralString = """
update pgqueue.job_history set meta = case when id % 2 = 0 then '{"trace": "\\u2028"}'::jsonb end,
    run_at = case when id % 3 = 0 then timestamptz '0001-01-01 00:00+00' else '9999-12-31 23:59:59.999999+00' end,
    args = case when id % 4 = 0 then '{"n": 1e400, "s": "\\ud83c\\udf89"}' else '[]' end::json,
    finished_at = case when id % 5 = 0 then date_trunc('day', finished_at, 'UTC') else finished_at end"""


def test_both_engines_write_the_same_rows_in_the_same_order(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in QUEUES:
        ended(dsn, DAY, 20, queue=name)
        died(dsn, DAY, 3, queue=name)
    ended(dsn, DAY, 5, partition=False)
    ask(dsn, ODD)
    here, there = Lake(tmp_path / "here"), Lake(tmp_path / "there")
    (by_arrow,) = export(no_session, queue.database, here)
    monkeypatch.setattr(database_rows, "MOST_ROWS", -1)
    (by_spark,) = export(spark, queue.database, there)

    assert (
        (by_arrow.history, by_arrow.dead, by_arrow.files)
        == (by_spark.history, by_spark.dead, 1)
        == (205, 30, 1)
    )
    assert here.table(ENDED).schema() == there.table(ENDED).schema()
    (one,), (other,) = (
        [dataset.dataset(tmp_path / place / file.path).to_table() for file in lake.days()[0].files]
        for place, lake in (("here", here), ("there", there))
    )
    assert one.schema.remove_metadata() == other.schema.remove_metadata() == ENDED_SCHEMA
    assert one.to_pylist() == other.to_pylist()
    assert [found.finding for found in verify(no_session, queue.database, here)] == [DayFinding.VERIFIED]


def test_a_small_export_needs_no_session_for_workers_and_deploys_either(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = ended(dsn, DAY, 3)
    ask(dsn, "insert into pgqueue.deploys (deployed_at, version) values ('2026-01-20 08:00+00', '1.4.0')")
    lake = Lake(tmp_path / "lake")

    assert [one.day for one in export(no_session, queue.database, lake)] == [DAY]

    assert lake.rows("deploys", DEPLOY_SCHEMA).to_pylist() == [
        {"deployed_at": datetime(2026, 1, 20, 8, tzinfo=UTC), "version": "1.4.0"}
    ]
    assert lake.rows("workers", WORKER_SCHEMA).num_rows == 0
    assert lake.days()[0].rows == len(ids)


@pytest.mark.parametrize(("limit", "most"), [("MOST_ROWS", 8), ("MOST_BYTES", 100), ("rows_per_file", 8)])
def test_a_day_with_more_rows_or_bytes_is_left_to_spark(
    spark: "SparkSession",
    queue: PgQueue,
    dsn: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: int,
) -> None:
    ids = ended(dsn, DAY, 9)
    options = ExportOptions()
    if limit == "rows_per_file":
        options = ExportOptions(rows_per_file=most)
    else:
        monkeypatch.setattr(database_rows, limit, most)
    lake = Lake(tmp_path / "lake")

    with pytest.raises(AssertionError, match="a session was started"):
        export(no_session, queue.database, lake, options=options)
    assert lake.days() == []
    export(lambda: spark, queue.database, lake, options=options)
    assert lake_ids(spark, lake) == ids


def test_a_dead_job_that_is_committed_after_the_export_has_looked_for_days_is_exported(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*ended(dsn, DAY, 2), *died(dsn, DAY, 2)]
    ids += died(dsn, NEXT, 3)

    def die_meanwhile(database: Database, _: int, wait: timedelta) -> Any:
        ids.extend(died(dsn, DAY, 1))
        # The server's other databases have transactions, too: the job is final once those that began before its death ended.
        return final_below(database, database.run(barrier()), wait)

    monkeypatch.setattr(exports, "final_below", die_meanwhile)
    lake = Lake(tmp_path / "lake")
    export(no_session, queue.database, lake)
    assert sorted(lake.dataset(ENDED, ENDED_TABLE).to_table()["id"].to_pylist()) == sorted(ids)
    assert {one.finding for one in verify(no_session, queue.database, lake)} == {DayFinding.VERIFIED}


def test_a_day_whose_rows_another_server_numbered_is_not_exported_without_them(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ended(dsn, DAY, 2)
    (ahead, _) = ended(dsn, NEXT, 2)
    ask(dsn, "update pgqueue.job_history set ended_in = 4000000000000 where id = %(id)s", id=ahead)

    with pytest.raises(PipelineError, match="they came with a dump from another server"):
        export(no_session, queue.database, Lake(tmp_path / "lake"))


def test_days_are_read_over_one_connection_of_each_thread_and_after_an_error_over_another(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        ended(dsn, DAY + timedelta(days=number), 2)
    made: list[object] = []

    def counted(dsn: str) -> object:
        made.append(connect(dsn))
        return made[-1]

    monkeypatch.setattr(database_rows, "connect", counted)
    assert len(export(no_session, queue.database, Lake(tmp_path / "lake"))) == 6
    assert len(made) <= DAYS

    monkeypatch.setattr(database_rows, "MOST_BYTES", 1)
    with pytest.raises(AssertionError, match="a session was started"):
        export(no_session, queue.database, Lake(tmp_path / "other"))
    monkeypatch.setattr(database_rows, "MOST_BYTES", 1 << 20)
    made.clear()
    reader = database_rows.DayReader(queue.database)
    with reader:
        reader.ended(DAY, since=0, below=2**40, dead=sql.SQL("true"))
        ask(
            dsn,
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()",
        )
        with pytest.raises(ConnectionFailed):
            reader.ended(DAY, since=0, below=2**40, dead=sql.SQL("true"))
        rows = reader.ended(DAY, since=0, below=2**40, dead=sql.SQL("true"))
    assert len(made) == 2
    assert rows is not None
    assert rows.num_rows == 2


def test_an_interrupt_of_a_read_whose_server_is_gone_is_no_error(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = database_rows.DayReader(queue.database)
    tried: list[object] = []

    def cancel(connection: object) -> None:
        tried.append(connection)
        raise adbc.OperationalError("connect() failed", status_code=adbc_driver_manager.AdbcStatusCode.IO)

    ended(dsn, DAY, 1)
    with reader, psycopg.connect(dsn) as blocking, ThreadPoolExecutor(1) as thread:
        blocking.execute("lock table pgqueue.job_history in access exclusive mode")
        reading = thread.submit(reader.ended, DAY, since=0, below=2**40, dead=sql.SQL("true"))
        wait_until(lambda: ask(dsn, "select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
        monkeypatch.setattr(adbc.Connection, "adbc_cancel", cancel)
        reader.interrupt()
        blocking.rollback()
        assert reading.result(60) is not None
    assert len(tried) == 1
