"""``pgqueue pipeline run``: runs all steps, as jobs of the queue ``pipeline``, in this process."""

import asyncio
from datetime import timedelta
from typing import NamedTuple

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import logs
from pgqueue.cli.app import with_queue
from pgqueue.cli.pipeline.options import LakeOptions, Spark, in_lake, lasting_secrets, on_spark
from pgqueue.cli.values import LENGTH
from pgqueue.cli.worker import handle_signals
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.worker.worker import Worker

LIVE = [JobState.BLOCKED, JobState.SCHEDULED, JobState.READY, JobState.RUNNING]
LOOK = 0.5


class ChainResult(NamedTuple):
    """How a chain ended: with a dead step, or unfinished because the process was told to stop."""

    dead: Job | None
    finished: bool


@click.command()
@in_lake
@on_spark
@click.option(
    "--keep",
    type=LENGTH,
    default="7d",
    show_default=True,
    help="Keep the history of the last days, such as 7d.",
)
@click.option(
    "--enqueue-only", is_flag=True, help="Only enqueue; workers whose app registers the steps run them."
)
@with_queue
def run(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    given: LakeOptions,
    keep: timedelta,
    enqueue_only: bool,
) -> None:
    """Export, verify, roll up, report and prune: each step is a job that enqueues the next as it completes.

    If a killed process left an unfinished chain, this command continues it. The exit code is 1 if a step failed for
    good.
    """
    from pgqueue.spark import pipeline_jobs  # noqa: PLC0415 - slow to import, so other errors come first
    from pgqueue.spark.report.rendering import check_out  # noqa: PLC0415

    # A separate queue object in the same database: it has no other tasks, and does not change the history's retention.
    chain = PgQueue(redact=lasting_secrets(queue))
    chain.database = queue.database
    tasks = pipeline_jobs.register(
        chain, given.config, lake=given.place, keep=keep, session=spark, tell=_tell
    )
    queue.database.verify()
    if not enqueue_only:
        check_out(None, "week.html")  # the report is a step, and prune comes after it
    first = pipeline_jobs.start(tasks)
    if not first.accepted:
        _tell(f"a chain is running already, as job {first.id}")
    if enqueue_only:
        click.echo(first.id)
        return
    logs.configure("error")
    dead, finished = asyncio.run(run_chain(chain, pipeline_jobs.QUEUE, pipeline_jobs.KEY, first.id))
    if dead is not None:
        _tell(f"{dead.task} failed for good; `pgqueue jobs show {dead.id}` has its errors")
    if dead is not None or not finished:
        click.get_current_context().exit(1)


async def run_chain(chain: PgQueue, queue_name: str, key: str, first: int) -> ChainResult:
    """Run jobs until no job has the chain's key, or until told to stop."""
    worker = Worker(chain, queues=[queue_name], concurrency=1)
    worker.drops_history = False  # prune drops history, and this command does not know the retention
    handle_signals(worker.stop, supervised=False)
    working = asyncio.create_task(worker.run())
    try:
        while not working.done() and (await chain.insight.asearch(unique_key=key, state=LIVE, limit=1)).jobs:
            await asyncio.wait([working], timeout=LOOK)
        finished = not working.done()
    finally:
        worker.stop()
        await working
        live = (await chain.insight.asearch(unique_key=key, state=LIVE, limit=1)).jobs
        dead = (await chain.insight.asearch(unique_key=key, state=JobState.DEAD, limit=1)).jobs
        await chain.aclose()
    newest = dead[0] if dead and dead[0].id >= first else None
    return ChainResult(newest, finished and not live)


def _tell(words: str) -> None:
    click.echo(words, err=True)
