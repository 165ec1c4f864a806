"""``pgqueue pipeline status`` and ``steps``: the state of each day, and the runs of steps."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.pipeline.options import (
    LakeOptions,
    in_lake,
    kept_for,
    margin_option,
    size,
    verified_lakes,
)
from pgqueue.cli.table import Column
from pgqueue.spark.config import Cost

if TYPE_CHECKING:
    from datetime import datetime

    from pgqueue.spark.lake.steps import StepRun

DAY_COLUMNS = (
    Column("day", least=0),
    Column("state", 0, least=0),
    Column("rows", 1),
    Column("size", 3),
    Column("files", 5),
    Column("not in the lake", 2, bad=True),
    Column("generation", 6),
    Column("verified", 4),
)
RUN_COLUMNS = (
    "started",
    Column("step", 0, least=0),
    Column("seconds", 1),
    Column("cpu seconds", 6),
    Column("days", 4),
    Column("rows", 3),
    Column("cost", 5, least=0),
    Column("error", 2, least=16),
)


@click.command()
@in_lake
@margin_option
@click.option(
    "--ddl",
    type=click.Choice(["spark", "unity", "glue", "trino", "duckdb"]),
    is_flag=False,
    flag_value="spark",
    help="Print the statements that register the lake's tables in a catalogue, and ask no database.",
)
@click.option(
    "--into",
    metavar="[CATALOG.]SCHEMA",
    help="Register them there.  [default: pgqueue]",
)
@json_option
@with_queue
def status(
    queue: PgQueue,
    /,
    *,
    given: LakeOptions,
    margin: timedelta,
    ddl: str | None,
    into: str | None,
    as_json: bool,
) -> None:
    """Show each day: open, closed, exported, verified or pruned, and its rows in the lake."""
    if ddl is not None:
        _print_ddl(given, ddl, into, as_json=as_json)
        return
    if into is not None:
        raise click.UsageError("--into says where --ddl registers the tables: give --ddl, too.")
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
    print_table(DAY_COLUMNS, rows, empty="no day has ended jobs")
    if lakes := verified_lakes(queue):
        say(kept_for(lakes), err=True)


def _print_ddl(given: LakeOptions, dialect: str, into: str | None, *, as_json: bool) -> None:
    from pgqueue.spark.lake.ddl import Dialect, statements  # noqa: PLC0415 - needs PyArrow

    made = statements(given.lake(), Dialect(dialect), into=into)
    if as_json:
        print_json(made)
        return
    for one in made:
        click.echo(f"{one};")


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
    print_table(RUN_COLUMNS, rows, empty="no step was logged")


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
