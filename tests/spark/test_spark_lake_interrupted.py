"""Ctrl-C ends an export and a verify at once, though threads read for them; afterwards they can be run again."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from looking import ask
from spark.lake_history import DAY, NEXT, ended, no_session

from pgqueue import PgQueue
from pgqueue.spark.lake import checksum, database_rows
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.table import LakeTable
from pgqueue.spark.lake.verify import DayFinding, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
