"""The pipeline as jobs of the queue itself: export, verify, rollup, report, prune, each of which enqueues the next.

A step does its work, and then, in one transaction, completes and hands over to the next step (:func:`_hand_over`): so a
chain neither stops between two steps nor runs one of them twice at a time. All steps share one unique key, which goes
from hand to hand, so there is one chain at most. A step that was killed is run again from its beginning, by whoever
serves the queue; each of them looks for itself what is left to do, and finds nothing more where it was done.

Steps are plain functions: they wait for Spark in a thread of their own, and the worker goes on renewing its lease. They
have no timeout, for a Spark stage may take its time.
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
    LakeOfAnother,
    LakeTooNew,
    NotVerified,
    PipelineError,
    SchemaError,
    SparkMissing,
)
from pgqueue.spark.config import Config
from pgqueue.spark.lake.lake import Lake
from pgqueue.store.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.values.retry import Retry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "pipeline"
KEY = "pgqueue.pipeline"
PREFIX = "pgqueue.pipeline."
KEEP = timedelta(days=7)
HOPELESS = (ConfigurationError, LakeOfAnother, LakeTooNew, NotVerified, SchemaError, SparkMissing)
"""What another attempt would not mend."""
PATIENT = Retry(
    wait=wait_exponential(multiplier=30, max=1_800) + wait_random(0, 10),
    stop=stop_after_attempt(8),
    retry=retry_if_not_exception_type(HOPELESS),
)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a step works in.

    Attributes:
        database: where the jobs are.
        lake: where they go.
        config: what the pipeline's file says.
        keep: which days of the history the database keeps, the newest.
        session: makes or finds the Spark session.
        check: raises if the attempt was told to stop; for the moments between two days.
    """

    database: Database
    lake: Lake
    config: Config
    keep: timedelta
    session: "Callable[[], SparkSession]"
    check: Callable[[object], None]


Work = Callable[[Surroundings], str]
"""Does a step, and says in a line what it did."""


def register(
    queue: PgQueue,
    config: Config,
    *,
    lake: str | None = None,
    keep: timedelta = KEEP,
    retry: Retry = PATIENT,
    work: Mapping[str, Work] | None = None,
    session: "Callable[[], SparkSession] | None" = None,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Task[[], None]]:
    """Add the pipeline's tasks to a queue, on which your workers then run them.

    Args:
        queue: whose history it is about, and which runs the steps.
        config: what the pipeline's file says.
        lake: where the lake is, if the file does not say so.
        keep: which days of the history the database keeps, the newest.
        retry: when a step that failed is run again.
        work: the steps in their order, each with what it does; all five by default.
        session: makes or finds the Spark session; :func:`pgqueue.spark.session.session` by default.
        tell: told of each step that begins, ends or fails.

    Returns:
        The tasks by the names of their steps, in order; :func:`start` takes them.

    Raises:
        ConfigurationError: nothing says where the lake is.
        DuplicateTask: they are registered already.
        UnknownQueue: the queue declares its queues, and ``pipeline`` is not among them.
    """
    where = lake or config.lake
    if where is None:
        raise ConfigurationError('no lake: say register(lake=...), or write lake = "..." into the file')
    chain = _Chain(
        queue=queue, lake=Lake(where), config=config, keep=keep, session=session or _session, tell=tell
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
        A handle of the first job; not ``accepted``, and of the job that is there, if a chain is under way.
    """
    first = next(iter(tasks.values()))
    return first.using(connection=connection, unique_key=KEY).enqueue()


@dataclass(frozen=True, kw_only=True)
class _Chain:
    """What the steps share."""

    queue: PgQueue
    lake: Lake
    config: Config
    keep: timedelta
    session: "Callable[[], SparkSession]"
    tell: Callable[[str], object]

    def step(self, name: str, work: Work, following: str | None) -> Callable[[Context], None]:
        """The function of a step."""

        def run(ctx: Context) -> None:
            self.tell(f"{name}: begun" if ctx.attempt == 1 else f"{name}: begun, attempt {ctx.attempt}")
            try:
                done = work(self._surroundings(ctx))
            except Exception as error:
                self.tell(f"{name}: failed: {error}")
                raise
            _hand_over(self.queue, ctx, following)
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
            check=check,
        )


def _hand_over(queue: PgQueue, ctx: Context, following: str | None) -> None:
    """Complete a step and enqueue the following one, both or neither. The unique key goes from one to the other."""
    with ctx.transaction() as connection:
        queue.database.run(plans.pass_key(ctx.job.id), connection)
        if following is not None:
            task: Task[..., Any] = queue.find_task(f"{PREFIX}{following}")
            task.using(connection=connection, unique_key=KEY).enqueue()


def _session() -> "SparkSession":
    from pgqueue.spark.session import session  # noqa: PLC0415 - PySpark, when there is something to do

    return session()


def _export(given: Surroundings) -> str:
    from pgqueue.spark.lake.export import export  # noqa: PLC0415 - as above

    done = export(given.session(), given.database, given.lake, tell=given.check)
    return f"{len(done)} days, {sum(one.history + one.dead for one in done):,} rows"


def _verify(given: Surroundings) -> str:
    from pgqueue.spark.lake.verify import require_verified, verify  # noqa: PLC0415 - as above

    found = verify(given.session(), given.database, given.lake, tell=given.check)
    require_verified(found)
    return f"{len(found)} days agree with the database"


def _rollup(given: Surroundings) -> str:
    from pgqueue.spark.rollup.rollup import rollup  # noqa: PLC0415 - as above

    done = rollup(given.session(), given.database, given.lake, given.config)
    return f"{len(done)} days"


def _report(given: Surroundings) -> str:
    from pgqueue.spark.report.report import report  # noqa: PLC0415 - as above

    return report(given.session(), given.lake, given.config)


def _prune(given: Surroundings) -> str:
    from pgqueue.spark.lake.prune import Fate, prune  # noqa: PLC0415 - as above

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
