"""The pipeline as jobs of the queue: export, verify, rollup, report, prune. Each step enqueues the next.

A step does its work. Then, in one transaction, it completes and enqueues the next step (:func:`_complete_and_enqueue`).
So a chain does not stop between two steps, and does not run one step twice at the same time. All steps share one unique
key, so there is at most one chain. A worker of the queue runs a killed step again from its beginning; each step looks
for the work that is left, and does nothing where the work was done.

Steps are plain functions: they wait for Spark in a thread, and the worker renews its lease meanwhile. They have no
timeout, because a Spark stage may run for hours.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tenacity import retry_if_not_exception_type, stop_after_attempt, wait_exponential, wait_random

from pgqueue.app.context import Context
from pgqueue.app.handle import JobHandle
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import (
    ConfigurationError,
    Duration,
    LakeOfAnother,
    LakeTooNew,
    NotGranted,
    NotVerified,
    PipelineError,
    SchemaError,
    SparkMissing,
    as_delay,
)
from pgqueue.spark.config import Config
from pgqueue.spark.lake.lake import Lake
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.redaction import Redaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "pipeline"
KEY = "pgqueue.pipeline"
PREFIX = "pgqueue.pipeline."
KEEP = timedelta(days=7)
NOT_RETRIED = (
    ConfigurationError,
    LakeOfAnother,
    LakeTooNew,
    NotGranted,
    NotVerified,
    SchemaError,
    SparkMissing,
)
"""Errors that another attempt would meet again."""
SLOW_RETRY = Retry(
    wait=wait_exponential(multiplier=30, max=1_800) + wait_random(0, 10),
    stop=stop_after_attempt(8),
    retry=retry_if_not_exception_type(NOT_RETRIED),
)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a step works with.

    Attributes:
        database: where the jobs are.
        lake: where they go.
        config: the contents of the pipeline's file.
        keep: how much of the history, counted back from now, the database keeps.
        session: makes or finds the Spark session.
        redaction: hides the secrets in the messages of failures.
        check: raises if the attempt was told to stop; called between two days.
    """

    database: Database
    lake: Lake
    config: Config
    keep: timedelta
    session: "Callable[[], SparkSession]"
    redaction: Redaction
    check: Callable[[object], None]


Work = Callable[[Surroundings], str]
"""Does a step's work, and returns one line that says what it did."""


def register(
    queue: PgQueue,
    config: Config,
    *,
    lake: str | None = None,
    keep: Duration = KEEP,
    retry: Retry = SLOW_RETRY,
    work: Mapping[str, Work] | None = None,
    session: "Callable[[], SparkSession] | None" = None,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Task[[], None]]:
    """Add the pipeline's tasks to a queue, on which your workers then run them.

    Args:
        queue: the queue whose history is exported, and which runs the steps.
        config: the contents of the pipeline's file.
        lake: where the lake is, if the file does not name it.
        keep: how much of the history, counted back from now, the database keeps, in seconds or as a timedelta.
        retry: when a step that failed is run again.
        work: the steps in their order, each with what it does; all five by default.
        session: makes or finds the Spark session; :func:`pgqueue.spark.session.session` by default.
        tell: called with one line for each step that begins, ends or fails.

    Returns:
        The tasks by the names of their steps, in order; :func:`start` takes them.

    Raises:
        ConfigurationError: no lake is named.
        DuplicateTask: they are registered already.
        UnknownQueue: the queue declares its queues, and ``pipeline`` is not among them.
    """
    where = lake or config.lake
    if where is None:
        raise ConfigurationError('no lake: say register(lake=...), or write lake = "..." into the file')
    chain = _PipelineChain(
        queue=queue,
        lake=Lake(where),
        config=config,
        keep=as_delay("keep", keep),
        session=session or _session,
        tell=tell,
    )
    steps = dict(work or WORK)
    names = [*steps, None]
    return {
        step: queue.task(name=f"{PREFIX}{step}", queue=QUEUE, retry=retry)(
            chain.step(step, steps[step], names[number])
        )
        for number, step in enumerate(steps, start=1)
    }


def start(tasks: Mapping[str, Task[[], None]], *, connection: object = None) -> JobHandle[None]:
    """Enqueue the chain's first step.

    Args:
        tasks: as :func:`register` returned them.
        connection: enqueue on this connection, in its transaction.

    Returns:
        A handle of the first job. If a chain already runs: a handle of its job, not ``accepted``.
    """
    first = next(iter(tasks.values()))
    return first.using(connection=connection, unique_key=KEY).enqueue()


@dataclass(frozen=True, kw_only=True)
class _PipelineChain:
    queue: PgQueue
    lake: Lake
    config: Config
    keep: timedelta
    session: "Callable[[], SparkSession]"
    tell: Callable[[str], object]

    def step(self, name: str, work: Work, following: str | None) -> Callable[[Context], None]:
        def run(ctx: Context) -> None:
            self.tell(f"{name}: begun" if ctx.attempt == 1 else f"{name}: begun, attempt {ctx.attempt}")
            try:
                done = work(self._surroundings(ctx))
            except Exception as error:
                self.tell(f"{name}: failed: {error}")
                raise
            _complete_and_enqueue(self.queue, ctx, following)
            self.tell(f"{name}: {done} ({ctx.seconds:.1f} s)")

        return run

    def _surroundings(self, ctx: Context) -> Surroundings:
        def check(_: object) -> None:
            if ctx.cancelled:
                raise asyncio.CancelledError

        return Surroundings(
            database=self.queue.database,
            lake=self.lake,
            config=self.config,
            keep=self.keep,
            session=self.session,
            redaction=self.queue.redaction,
            check=check,
        )


def _complete_and_enqueue(queue: PgQueue, ctx: Context, following: str | None) -> None:
    """Complete a step and enqueue the next one with the same unique key: both, or neither."""
    with ctx.transaction() as connection:
        queue.database.run(plans.pass_key(ctx.job.id), connection)
        if following is not None:
            task: Task[..., Any] = queue.find_task(f"{PREFIX}{following}")
            task.using(connection=connection, unique_key=KEY).enqueue()


def _session() -> "SparkSession":
    from pgqueue.spark.session import session  # noqa: PLC0415 - needs PySpark

    return session()


def _export(given: Surroundings) -> str:
    from pgqueue.spark.lake.export import ExportOptions, export  # noqa: PLC0415 - needs PySpark

    options = ExportOptions(hide=given.config.hide)
    done = export(given.session, given.database, given.lake, options=options, tell=given.check)
    return f"{len(done)} days, {sum(one.history + one.dead for one in done):,} rows"


def _verify(given: Surroundings) -> str:
    from pgqueue.spark.lake.verify import require_verified, verify  # noqa: PLC0415 - needs PySpark

    found = verify(given.session, given.database, given.lake, tell=given.check)
    require_verified(found)
    return f"{len(found)} days agree with the database"


def _rollup(given: Surroundings) -> str:
    from pgqueue.spark.rollup.rollup import rollup  # noqa: PLC0415 - needs PySpark

    done = rollup(given.session, given.database, given.lake, given.config, redaction=given.redaction)
    return f"{len(done)} days"


def _report(given: Surroundings) -> str:
    from pgqueue.spark.lake.steps import log_step  # noqa: PLC0415 - needs PyArrow
    from pgqueue.spark.report.report import report  # noqa: PLC0415 - needs DuckDB
    from pgqueue.spark.report.rollups import WEEK_DAYS  # noqa: PLC0415 - needs DuckDB

    with log_step(given.lake, "report") as size:
        size.days = WEEK_DAYS
        return report(given.lake, given.config)


def _prune(given: Surroundings) -> str:
    from pgqueue.spark.lake.prune import Fate, prune  # noqa: PLC0415 - needs PySpark

    found = prune(given.database, given.lake, keep=given.keep, tell=given.check)
    for fate, error in ((Fate.REFUSED, NotVerified), (Fate.BUSY, PipelineError)):
        if kept := [f"day {one.day}: {one.reason}" for one in found if one.fate is fate]:
            raise error("; ".join(kept))
    gone = [one for one in found if one.fate is Fate.PRUNED]
    return f"{len(gone)} days, {sum(one.rows for one in gone):,} rows"


WORK: Mapping[str, Work] = {
    "export": _export,
    "verify": _verify,
    "rollup": _rollup,
    "report": _report,
    "prune": _prune,
}
