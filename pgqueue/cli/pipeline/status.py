"""``pgqueue pipeline status``, ``steps`` and ``check``: the state of each day, the runs of steps, the quality of the lake's jobs."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.pipeline.options import LakeOptions, days_option, in_lake, margin_option, size
from pgqueue.spark.config import Cost
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from datetime import datetime

    from pgqueue.spark.lake.steps import StepRun

DAY_HEADS = ("day", "state", "rows", "size", "files", "not in the lake", "generation", "verified")
RUN_HEADS = ("started", "step", "seconds", "cpu seconds", "days", "rows", "cost", "error")


@click.command()
@in_lake
@margin_option
@json_option
@with_queue
def status(queue: PgQueue, /, *, given: LakeOptions, margin: timedelta, as_json: bool) -> None:
    """Show each day: open, closed, exported, verified or pruned, and its rows in the lake."""
    from pgqueue.spark.lake import status as states  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    found = states.status(queue.database, given.lake(), margin=margin)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.day,
            one.state,
            one.rows,
            size(one.bytes) if one.generation else None,
            one.files,
            one.waiting,
            one.generation,
            one.verified_at,
        )
        for one in found
    ]
    print_table(DAY_HEADS, rows, empty="no day has ended jobs")


class PricedRun(msgspec.Struct):
    """A run of a step, and what it cost."""

    step: str
    started_at: "datetime"
    seconds: float
    cpu_seconds: float
    days: int
    rows: int
    cost: float | None
    error: str | None


@click.command()
@in_lake
@click.option(
    "--last", type=click.IntRange(min=1), default=20, show_default=True, help="Show this many runs."
)
@json_option
def steps(*, given: LakeOptions, last: int, as_json: bool) -> None:
    """Show the last runs of export, verify, rollup, report, prune and others: duration, CPU time, rows and cost.

    The cost is the duration times the price of a second in the file of --config.
    """
    from pgqueue.spark.lake.steps import steps as runs  # noqa: PLC0415 - needs PyArrow

    price = given.config.cost
    found = [_with_cost(one, price) for one in runs(given.lake())[-last:]]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.started_at,
            one.step,
            f"{one.seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            one.days,
            one.rows,
            None if one.cost is None or price is None else f"{one.cost:.4f} {price.currency}".rstrip(),
            one.error,
        )
        for one in found
    ]
    print_table(RUN_HEADS, rows, empty="no step was logged")


def _with_cost(one: "StepRun", price: Cost | None) -> PricedRun:
    cost = None if price is None else one.seconds * price.per_run_second
    return PricedRun(
        step=one.step,
        started_at=one.started_at,
        seconds=one.seconds,
        cpu_seconds=one.cpu_seconds,
        days=one.days,
        rows=one.rows,
        cost=cost,
        error=one.error,
    )


@click.command()
@in_lake
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all that changed]")
@json_option
@with_queue
def check(
    queue: PgQueue,
    /,
    *,
    given: LakeOptions,
    days: set[date],
    as_json: bool,
) -> None:
    """Check the quality of the lake's jobs: wrong times, rows twice, dead jobs without an error, and your own conditions.

    The results are rows of the lake's table checks. The exit code is 1 if a check failed.
    """
    from pgqueue.spark import checks  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    found = checks.check(queue.database, given.lake(), given.config.checks, days=days or None)
    failed = [one for one in found if not one.passed]
    if as_json:
        print_json(found)
    else:
        checked = len({one.day for one in found})
        click.echo(
            f"{some(checked, 'day')} checked: {some(len(found) - len(failed), 'check')} passed, {len(failed)} failed"
        )
        for one in failed:
            of = "" if one.task is None else f" of task {one.task}"
            allowed = f"; allowed are {one.most:.1%}" if one.most else ""
            click.echo(
                f"{one.day}: {one.name}: {one.found} of {some(one.jobs, 'job')}{of}, such as {one.example}{allowed}",
                err=True,
            )
    if failed:
        click.get_current_context().exit(1)
