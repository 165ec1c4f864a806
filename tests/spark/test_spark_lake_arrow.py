"""Small days are exported by this process, large ones by Spark: the same rows in the same order.

Days are read ahead in threads, a few at a time, and their results come in order.
Small days are verified by DuckDB in this process, large ones by Spark, with the same figures.
"""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import pytest
from looking import ask, wait_until
from psycopg import sql
from pyarrow import dataset
from spark.lake_history import DAY, NEXT, died, ended, lake_ids, no_session

from pgqueue import PgQueue
from pgqueue.errors import ConnectionFailed, LakeError, PipelineError
from pgqueue.spark.lake import checksum, database_rows, files
from pgqueue.spark.lake import export as exports
from pgqueue.spark.lake import verify as verifying
from pgqueue.spark.lake.ahead import DAYS, ahead
from pgqueue.spark.lake.checksum import InFiles
from pgqueue.spark.lake.columns import (
    DEPLOY_SCHEMA,
    ENDED,
    ENDED_COLUMNS,
    ENDED_SCHEMA,
    ENDED_TABLE,
    WORKER_SCHEMA,
)
from pgqueue.spark.lake.database_rows import final_below
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.files import written_file
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.reading.fetching import connect
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline.lake import barrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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


class Reads:
    """Reads that each wait until the test releases them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.released = {number: threading.Event() for number in range(9)}
        self._changed = threading.Condition()

    def __call__(self, number: int) -> int:
        with self._changed:
            self.begun.append(number)
            self._changed.notify_all()
        assert self.released[number].wait(60)
        return number * 10

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= count, 60)


def press_ctrl_c(reads: Reads, found: Iterator[tuple[int, Callable[[], int]]]) -> None:
    """An interrupt in the main thread, while all threads read."""
    next(found)
    reads.wait_for(DAYS)
    raise KeyboardInterrupt


@pytest.fixture
def reads() -> Iterator[Reads]:
    made = Reads()
    yield made
    for event in made.released.values():
        event.set()


def test_results_come_in_order_though_the_first_is_read_last(reads: Reads) -> None:
    with ahead(reads, [0, 1, 2, 3]) as found:
        one, first = next(found)
        reads.wait_for(DAYS)
        assert sorted(reads.begun) == [0, 1]
        for number in (1, 2, 3, 0):
            reads.released[number].set()
        assert (one, first()) == (0, 0)
        assert [(one, result()) for one, result in found] == [(1, 10), (2, 20), (3, 30)]


def test_no_more_is_read_than_the_caller_has_taken_and_the_days_ahead(reads: Reads) -> None:
    for event in reads.released.values():
        event.set()
    with ahead(reads, range(9)) as found:
        for number, result in found:
            assert result() == number * 10
            assert max(reads.begun) <= number + DAYS
    assert len(reads.begun) == 9


def test_an_error_is_raised_at_its_turn_and_the_others_go_on() -> None:
    def read(number: int) -> int:
        if number == 1:
            raise OSError("unreadable")
        return number

    found: list[object] = []
    with ahead(read, [0, 1, 2]) as results:
        for _, result in results:
            try:
                found.append(result())
            except OSError as error:
                found.append(str(error))
    assert found == [0, "unreadable", 2]


def test_after_an_error_of_the_caller_running_reads_are_interrupted_and_no_other_begins(reads: Reads) -> None:
    def interrupt() -> None:
        for event in reads.released.values():
            event.set()

    with pytest.raises(KeyboardInterrupt), ahead(reads, range(9), interrupt) as found:
        press_ctrl_c(reads, found)
    assert sorted(reads.begun) == [0, 1]


def test_ctrl_c_again_and_again_does_not_leave_a_read_without_an_interrupt(reads: Reads) -> None:
    """The first interrupts come to nothing: a read was between two statements, or the user pressed Ctrl-C meanwhile."""
    tries: list[int] = []

    def interrupt() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise KeyboardInterrupt
        for event in reads.released.values():
            event.set()

    with pytest.raises(KeyboardInterrupt), ahead(reads, range(9), interrupt) as found:
        press_ctrl_c(reads, found)
    assert len(tries) == 4


TEXTS = ["", "\x1e", "\x1f", "a\x1fb", "é 🎉  \n\t\\", "null", "{}", '{"n": 1e400}', "x" * 5000, "'; drop"]


def hostile(seed: int, count: int) -> pa.Table:
    """Ended jobs with every kind of value."""
    chance = random.Random(seed)  # noqa: S311 - made-up rows
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    def value(field: pa.Field) -> Any:
        if field.name == "outcome":
            return chance.choice(["succeeded", "cancelled", "dead"])
        if chance.random() < 0.2:
            return None
        if pa.types.is_timestamp(field.type):
            return epoch + timedelta(microseconds=chance.randrange(-(10**16), 10**17))
        if pa.types.is_integer(field.type):
            most = 2 ** (field.type.bit_width - 1)
            return chance.choice([0, -1, most - 1, -most, chance.randrange(-most, most)])
        return chance.choice(TEXTS)

    rows = [{field.name: value(field) for field in ENDED_SCHEMA} for _ in range(count)]
    return pa.Table.from_pylist(rows, ENDED_SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "my lake é, 100 %"))


def test_both_engines_have_the_same_sums_of_every_kind_of_value(
    spark: "SparkSession", folder: Folder
) -> None:
    at = folder.at("ended")
    whole = [written_file(at, DAY, hostile(seed, 400)) for seed in range(3)]
    older = written_file(at, DAY, hostile(9, 50).drop_columns(["meta", "result"]))
    named = [one.path for one in (*whole, older)]

    rows = files.read(spark, at, dict.fromkeys(named, DAY), ENDED_COLUMNS)
    for pruned_below in (0, 10**12):
        found = checksum.in_files(at, named, ENDED_SCHEMA, pruned_below)
        assert found == checksum.of_frame(rows, pruned_below)
        assert sum(share.rows for share in found) == 1250
        assert found.history.rows > found.dead.rows > 0
        assert found.pruned.rows > 0
        assert found.standing.rows > 0


def test_a_day_without_files_has_no_rows(folder: Folder) -> None:
    assert checksum.in_files(folder.at("ended"), [], ENDED_SCHEMA, 0) == InFiles()


def test_a_small_day_is_verified_without_a_session_and_a_large_one_by_spark(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 9)
    died(dsn, DAY, 3)
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)

    (small,) = verify(no_session, queue.database, lake)
    assert (small.finding, small.history, small.dead) == (DayFinding.VERIFIED, 9, 3)
    monkeypatch.setattr(checksum, "MOST_ROWS", 11)
    with pytest.raises(AssertionError, match="a session was started"):
        verify(no_session, queue.database, lake, everything=True)
    assert verify(lambda: spark, queue.database, lake, everything=True) == [small]


@pytest.mark.parametrize("most", [0, checksum.MOST_ROWS])
def test_a_file_that_is_gone_or_no_parquet_is_said_in_one_line(
    spark: "SparkSession",
    queue: PgQueue,
    dsn: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(checksum, "MOST_ROWS", most)
    ended(dsn, DAY, 4)
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)
    (file,) = lake.days()[0].files
    path = tmp_path / "lake" / file.path
    for damage in (lambda: path.write_bytes(b"no Parquet, and long enough for a footer"), path.unlink):
        damage()
        (found,) = verify(spark, queue.database, lake)
        assert found.finding is DayFinding.DIFFERS
        assert found.reason.startswith("a file cannot be read: ")
        assert found.reason.endswith(f"`pgqueue pipeline export --again {DAY}`")
        assert "\n" not in found.reason


def test_a_file_that_cannot_be_read_is_a_lake_error(folder: Folder) -> None:
    with pytest.raises(LakeError, match="a file cannot be read"):
        checksum.in_files(folder.at("ended"), ["day=2026-01-20/gone.parquet"], ENDED_SCHEMA, 0)


def test_a_verify_needs_no_more_connections_of_the_pool_than_before_it_read_ahead(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = PgQueue(dsn, pool_size=1)
    queue.database.pools.hurry(1.0)
    for day in (DAY, NEXT):
        ended(dsn, day, 1)
    lake = Lake(tmp_path / "lake")
    export(no_session, queue.database, lake)
    with psycopg.connect(dsn) as other:
        other.execute(f"lock table pgqueue.job_history_{NEXT:%Y%m%d}".encode())

        def passed(_: Lake, point: str) -> None:
            if point == "noted":  # the first day; a thread waits for the second one
                other.rollback()

        monkeypatch.setattr(Lake, "passed", passed)
        monkeypatch.setattr(verifying, "NOTE_EVERY", -1.0)  # each day by itself
        assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    queue.close()
