"""Killed anywhere and run again, the pipeline ends in the same lake: nothing is lost, nothing is doubled.

Ctrl-C ends an export and a verify at once, though threads read for them; afterwards they can be run again.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from looking import ask, wait_until
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from spark.lake_history import DAY, NEXT, died, ended, history_ids, lake_ids, no_session

from pgqueue import PgQueue
from pgqueue.spark.lake import ahead, checksum, database_rows
from pgqueue.spark.lake import export as exporting
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import prune
from pgqueue.spark.lake.status import DayState, status
from pgqueue.spark.lake.steps import STEPS
from pgqueue.spark.lake.table import KEPT_HOURS, LakeTable
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COMMAND = """
import os, signal, sys
from pgqueue.cli.main import main
from pgqueue.spark.lake.lake import Lake

dies_at, seen = sys.argv[1], []

def passed(self, point):
    seen.append(point)
    if point == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

Lake.passed = passed
main(sys.argv[2:])
"""


class Killed(BaseException):
    """The process is no more."""


class Mortal(Lake):
    """A lake whose process dies after it has passed a point for the nth time."""

    def __init__(self, place: Path, point: str, nth: int) -> None:
        super().__init__(place)
        self.at = (point, nth)
        self.seen: Counter[str] = Counter()

    def passed(self, point: str) -> None:
        self.seen[point] += 1
        if (point, self.seen[point]) == self.at:
            raise Killed(point)


def _dies(place: Path, point: str, nth: int, work: Callable[[Lake], object]) -> None:
    with pytest.raises(Killed):
        work(Mortal(place, point, nth))


def _is_tidy(lake: Lake) -> int:
    """Only files that count are left, and the tables' logs; how many other files were swept."""
    swept = sum(len(lake.sweep(table, kept_hours=0)) for table in ("ended", "workers", "deploys"))
    tables = [lake.table(name) for name in ("ended", "workers", "deploys")]
    named = {file.path for table in tables for files in table.files().values() for file in files}
    others = ("_pgqueue/", f"{STEPS}/")
    there = {
        path for path in lake.folder.paths() if "_delta_log/" not in path and not path.startswith(others)
    }
    assert there == named
    return swept


@pytest.mark.timeout(400)
def test_an_export_that_is_killed_at_every_step_ends_in_the_same_lake(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "DAYS", 1)  # so that the first day is the first that is written
    monkeypatch.setattr(exporting, "TOGETHER", 1)  # and has a commit of its own
    first = [*ended(dsn, DAY, 6), *ended(dsn, DAY, 3, queue="other"), *died(dsn, DAY, 1)]
    ids = [*first, *ended(dsn, NEXT, 4)]
    for point, nth, there in (
        ("created", 1, []),
        ("written", 1, []),
        ("recorded", 1, []),
        ("committed", 1, first),
        ("written", 1, first),
        ("recorded", 1, first),
        ("committed", 1, ids),
        ("recorded", 1, ids),  # the workers
        ("committed", 2, ids),  # the deploys
    ):
        _dies(tmp_path / "lake", point, nth, lambda lake: export(spark, queue.database, lake))
        assert lake_ids(spark, Lake(tmp_path / "lake")) == sorted(there)

    lake = Lake(tmp_path / "lake")
    assert export(spark, queue.database, lake) == []
    assert lake_ids(spark, lake) == sorted(ids)
    assert [one.finding for one in verify(spark, queue.database, lake)] == [DayFinding.VERIFIED] * 2
    assert _is_tidy(lake) > 0, "what the killed exports wrote"


def test_a_verify_and_a_prune_that_are_killed_at_every_step_end_in_the_same_lake(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 3), *ended(dsn, NEXT, 2)]
    place = tmp_path / "lake"
    export(spark, queue.database, Lake(place))

    for point in ("noted in the lake", "noted"):
        _dies(place, point, 1, lambda lake: verify(spark, queue.database, lake))
    assert ask(dsn, "select day from pgqueue.lake_days") == [(DAY,)]
    assert len(verify(spark, queue.database, Lake(place))) == 1

    for point, left in (("held", 5), ("dropped", 5), ("pruned", 2)):
        _dies(place, point, 1, lambda lake: prune(queue.database, lake))
        assert len(history_ids(dsn)) == left
    prune(queue.database, Lake(place))

    assert [one.state for one in status(queue.database, Lake(place))] == [DayState.PRUNED] * 2
    assert lake_ids(spark, Lake(place)) == sorted(ids)
    assert export(spark, queue.database, Lake(place)) == []


def test_what_is_replaced_is_there_as_it_was_or_as_it_is_to_be(spark: "SparkSession", tmp_path: Path) -> None:
    place = tmp_path / "lake"
    lake = Lake(place)
    lake.create(plans.Origin("1", 2, "pgqueue"))
    days = [DAY, NEXT]
    rows = [(day, number) for day in days for number in range(3)]
    first = spark.createDataFrame(rows, "day date, n int")
    lake.replace_days("rollup/hours", days, first)
    second = first.selectExpr("day", "n + 10 as n")

    for point, nth, sums in (("written", 1, [3, 3]), ("recorded", 1, [3, 3]), ("committed", 1, [33, 33])):
        _dies(place, point, nth, lambda one: one.replace_days("rollup/hours", days, second))
        found = lake.day_table(spark, "rollup/hours").groupBy("day").sum("n").orderBy("day").collect()
        assert [row[1] for row in found] == sums
    lake.replace_days("rollup/hours", days, second)

    table = lake.day_table(spark, "rollup/hours", days)
    assert sorted(row["n"] for row in table.collect()) == [10, 10, 11, 11, 12, 12]
    lake.sweep("rollup/hours", kept_hours=0)
    files = [path for path in lake.folder.paths("rollup") if path.endswith(".parquet")]
    assert len(files) == sum(len(entry.files) for entry in lake.entries("rollup/hours"))


def test_replaced_files_of_a_roll_up_are_deleted_after_a_week(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create(plans.Origin("1", 2, "pgqueue"))
    rows = spark.createDataFrame([(DAY, 1)], "day date, n int")
    week_ago = time.time() - KEPT_HOURS * 3600 - 60
    with monkeypatch.context() as at:
        at.setattr("pgqueue.spark.lake.table.time", SimpleNamespace(time=lambda: week_ago))
        for _ in range(2):
            lake.replace_days("rollup/hours", [DAY], rows)
    paths = list((tmp_path / "lake" / "rollup").rglob("*.parquet"))
    for path in paths:
        os.utime(path, (week_ago, week_ago))
    assert len(paths) == 2

    lake.replace_days("rollup/hours", [DAY], rows)

    left = set((tmp_path / "lake" / "rollup").rglob("*.parquet"))
    assert len(left & set(paths)) == 1, "the file that counted until now stays for a week"
    assert len(left) == 2


def _command(dsn: str, dies_at: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command as a process of its own, which kills itself where it is told to."""
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", COMMAND, dies_at, "--dsn", dsn, "pipeline", *words],
        env=os.environ | {"MASTER": "local[2]"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(400)
def test_processes_that_are_killed_outright_leave_the_next_ones_nothing_to_clear_up(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 3), *ended(dsn, DAY, 2, queue="other"), *died(dsn, DAY, 1)]
    lake = Lake(tmp_path / "lake")

    again: dict[str, Callable[[], object]] = {
        "export": lambda: export(spark, queue.database, lake),
        "prune": lambda: prune(queue.database, lake),
    }
    for verb, point in (("export", "recorded"), ("prune", "dropped")):
        killed = _command(dsn, point, verb, "--lake", lake.uri)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        wait_until(lambda: not queue.database.run(plans.holder()))
        again[verb]()
        verify(spark, queue.database, lake)

    assert lake_ids(spark, lake) == sorted(ids)
    assert [one.state for one in status(queue.database, lake)] == [DayState.PRUNED]
    _is_tidy(lake)


LOCKED = "select 1 from pg_locks where mode = 'AccessExclusiveLock' and granted and database = {}".format(
    "(select oid from pg_database where datname = current_database())"
)
WAITS = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@contextmanager
def interrupted_at_a_lock(
    dsn: str, interrupt_this: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGINT)
) -> Iterator[Callable[..., None]]:
    """What locks the history, and interrupts this process once another session waits for that lock."""
    with psycopg.connect(dsn) as blocking, ThreadPoolExecutor(1) as beside:

        def interrupt() -> None:
            while not ask(dsn, WAITS):
                pass
            interrupt_this()

        def lock(*_: object, **__: object) -> None:
            blocking.execute("lock table pgqueue.job_history in access exclusive mode")
            beside.submit(interrupt)

        yield lock
        assert ask(dsn, LOCKED), "nothing waited for the end of the lock"


def before(calls: Callable[..., Any], lock: Callable[..., None]) -> Callable[..., Any]:
    """A function that locks the history first, when it is called for the first time."""
    waiting = [lock]

    def locked(*given: object, **named: object) -> object:
        if waiting:
            waiting.pop()()
        return calls(*given, **named)

    return locked


@pytest.mark.parametrize("engine", ["Arrow", "Spark"])
def test_an_export_that_waits_for_a_lock(
    spark: "SparkSession",
    queue: PgQueue,
    dsn: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    ended(dsn, DAY, 2)
    ended(dsn, NEXT, 2)
    lake = Lake(tmp_path / "lake")
    with interrupted_at_a_lock(dsn) as lock:
        if engine == "Arrow":
            monkeypatch.setattr(LakeTable, "require", before(LakeTable.require, lock))
        else:
            monkeypatch.setattr(database_rows, "MOST_ROWS", -1)
            monkeypatch.setattr(database_rows, "arrange_rows", before(database_rows.arrange_rows, lock))
        with pytest.raises(KeyboardInterrupt):
            export(spark, queue.database, lake)
    monkeypatch.undo()
    assert [one.day for one in export(spark, queue.database, lake)] == [DAY, NEXT]


def test_an_interrupt_that_ends_a_call_of_java_as_a_network_error_ends_the_export(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for the failure of one day: the export asked why, behind the lock for which Spark had waited."""

    def interrupted(*_: object, **__: object) -> None:
        error = Py4JNetworkError("Answer from Java side is empty")
        error.__context__ = KeyboardInterrupt()
        raise error

    ended(dsn, DAY, 2)
    monkeypatch.setattr(database_rows, "MOST_ROWS", -1)
    monkeypatch.setattr(database_rows, "arrange_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(spark, queue.database, Lake(tmp_path / "lake"))


def interrupt_another_thread() -> None:
    """Send Ctrl-C's signal to this thread: the system may choose any, and only the main thread can raise KeyboardInterrupt."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_a_verify_is_ended_though_the_system_hands_the_signal_to_another_thread(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 2)
    lake = Lake(tmp_path / "lake")
    export(no_session, queue.database, lake)
    with interrupted_at_a_lock(dsn, interrupt_another_thread) as lock:
        monkeypatch.setattr(Lake, "days", before(Lake.days, lock))
        with pytest.raises(KeyboardInterrupt):
            verify(no_session, queue.database, lake)


@pytest.mark.parametrize("engine", ["DuckDB", "Spark"])
def test_a_verify_that_waits_for_a_lock(
    spark: "SparkSession",
    queue: PgQueue,
    dsn: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    ended(dsn, DAY, 2)
    ended(dsn, NEXT, 2)
    lake = Lake(tmp_path / "lake")
    export(spark, queue.database, lake)
    with interrupted_at_a_lock(dsn) as lock:
        monkeypatch.setattr(checksum, "MOST_ROWS", -1 if engine == "Spark" else checksum.MOST_ROWS)
        monkeypatch.setattr(Lake, "days", before(Lake.days, lock))
        with pytest.raises(KeyboardInterrupt):
            verify(spark, queue.database, lake)
    monkeypatch.undo()
    assert {one.finding for one in verify(spark, queue.database, lake)} == {DayFinding.VERIFIED}
