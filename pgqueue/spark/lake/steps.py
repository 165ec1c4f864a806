"""A step of the pipeline on a lake: one process at a time writes to a database's lake, and each run is logged.

The lock is an advisory lock on a connection of its own. The server holds it and drops it with the connection, so a process that
dies leaves nothing to clean up. If the connection is lost meanwhile, :meth:`WriterLock.require_held` raises before the write takes
effect.

The log is a Delta table, ``steps``, with one row for each run: its duration, CPU time and size. A run that fails is logged, too. A
log that cannot be written does not stop a step: what the step did counts. The same door tells of the run's start and end as events of
OpenLineage (:mod:`pgqueue.spark.lake.lineage`).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue.errors import ConfigurationError, LakeError, PipelineError
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.lineage import LineageRun
from pgqueue.spark.lake.table import LakeTable, errors
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import control
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.plan import run

log = logging.getLogger("pgqueue.pipeline")

STEPS = "steps"
SCHEMA = pa.schema(
    [
        ("step", pa.string()),
        ("started_at", pa.timestamp("us", "UTC")),
        ("seconds", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("days", pa.int64()),
        ("rows", pa.int64()),
        ("error", pa.string()),
    ]
)
LOCK_WAIT = 2.0
RETRY_AFTER = 0.05


@dataclass(slots=True)
class Size:
    """How much a step did; the step fills it in.

    Attributes:
        days: how many days it changed or compared.
        rows: how many rows these days have.
    """

    days: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A run of a step.

    Attributes:
        step: the verb, such as ``export``.
        started_at: the time, in UTC.
        seconds: how long it took.
        cpu_seconds: the CPU time of its own process, without Spark's and the database's.
        days: how many days it changed or compared.
        rows: how many rows these days have.
        error: the class of the error with which it ended; None: it was done.
    """

    step: str
    started_at: datetime
    seconds: float
    cpu_seconds: float
    days: int
    rows: int
    error: str | None


class WriterLock:
    """Proof that no other process writes to the lake."""

    def __init__(self, connection: psycopg.Connection[Any], database: Database) -> None:
        self._runs = StepRunner(connection, database.catalogue)

    def require_held(self) -> None:
        """Check that the lock is still held.

        Raises:
            PipelineError: the connection was lost, and the lock with it.
        """
        try:
            run(control.clock(), self._runs)
        except psycopg.OperationalError as error:
            raise PipelineError(
                f"the connection that held the lake's lock was lost ({str(error).strip()}), and another process may "
                "write by now: nothing more was changed; run it again"
            ) from error


@contextmanager
def writer_lock(database: Database) -> Iterator[WriterLock]:
    """Hold the lock of the database's lake for the length of the block.

    Args:
        database: the lake's database; behind a transaction pooler its direct DSN is used, because advisory locks do not
            work through a pooler.

    Raises:
        PipelineError: another process is writing; the message names the pid of its connection.
        ConfigurationError: there is only a pooler.
        ConnectionFailed: no connection could be made.
    """
    dsn = database.listen_dsn
    if dsn is None:
        raise ConfigurationError(
            "the lake is locked on a connection of its own, which a transaction pooler does not give: "
            "say --direct-dsn (or PGQUEUE_DIRECT_DSN) with the server's own address"
        )
    with database.connect(dsn) as connection:
        runs = StepRunner(connection, database.catalogue)
        if not _take_lock(runs):
            others = "; ".join(map(str, run(plans.holder(), runs))) or "it has just ended"
            raise PipelineError(
                f"another process is writing to this database's lake ({others}): wait for it to end, or end it "
                "with select pg_terminate_backend(pid)"
            )
        yield WriterLock(connection, database)


@contextmanager
def lake_step(database: Database, lake: Lake, step: str) -> Iterator[tuple[WriterLock, Size]]:
    """Hold the lock of the database's lake, and log the block as a run of a step.

    Raises:
        LakeError: there is no lake.
        LakeOfAnother: it is another database's.
        PipelineError, ConfigurationError, ConnectionFailed: as :func:`writer_lock`.
    """
    with writer_lock(database) as lock:
        lake.require(database.run(plans.origin(database.catalogue.schema)))
        with log_step(lake, step, database) as size:
            yield lock, size


@contextmanager
def log_step(lake: Lake, step: str, database: Database | None = None) -> Iterator[Size]:
    """Log the block as a run of a step, and tell of its lineage; the block fills in how much it did.

    Args:
        lake: the lake.
        step: the verb.
        database: which it reads or writes; None: none.
    """
    size = Size()
    told = LineageRun(lake, step, database)
    started_at, started, used = datetime.now(UTC), time.monotonic(), time.process_time()
    failed: BaseException | None = None
    try:
        yield size
    except BaseException as error:
        failed = error
        raise
    finally:
        row = {
            "step": step,
            "started_at": started_at,
            "seconds": time.monotonic() - started,
            "cpu_seconds": time.process_time() - used,
            "days": size.days,
            "rows": size.rows,
            "error": type(failed).__name__ if failed else None,
        }
        if failed or size.days:  # a run without work leaves nothing in the lake
            _append(lake, row)
        told.end(size.rows, failed)


def steps(lake: Lake) -> list[StepRun]:
    """All runs of steps, oldest first.

    Raises:
        LakeError: there is no lake, or the log cannot be read.
    """
    lake.marker()
    table = LakeTable(lake.folder, STEPS).latest()
    if table is None:
        return []
    with errors(f"{lake.uri}/{STEPS}"):
        rows = table.to_pyarrow_table().select(SCHEMA.names).sort_by("started_at").to_pylist()
    return [StepRun(**row) for row in rows]


def _append(lake: Lake, row: dict[str, object]) -> None:
    table = LakeTable(lake.folder, STEPS)
    try:
        table.append(pa.Table.from_pylist([row], SCHEMA))
        table.compact()
    except LakeError as error:
        log.warning("the run of %s is not in the lake's log: %s", row["step"], error)


def _take_lock(runs: StepRunner) -> bool:
    # The server may notice a closed or dead holder late.
    retried = Retrying(
        retry=retry_if_result(lambda free: not free),
        wait=wait_fixed(RETRY_AFTER),
        stop=stop_after_delay(LOCK_WAIT),
        retry_error_callback=lambda _: False,
    )
    taken: bool = retried(run, plans.lock(), runs)
    return taken
