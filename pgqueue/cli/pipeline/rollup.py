"""``pgqueue pipeline rollup``: sums up the lake's days, for plots and for the report."""

from collections.abc import Iterable
from datetime import date

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import Spark, days_option, in_lake, lake_of, on_spark, together
from pgqueue.spark.config import load

SHOWN = 5


class RollupResult(msgspec.Struct):
    """The days that a roll-up wrote."""

    days: list[date]
    lake: str
    postgres: bool


@click.command()
@in_lake
@on_spark
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all that changed]")
@click.option("--no-postgres", is_flag=True, help="Write to the lake only.")
@json_option
@with_queue
def rollup(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    lake: str | None,
    config: str | None,
    days: tuple[list[date], ...],
    no_postgres: bool,
    as_json: bool,
) -> None:
    """Sum up the lake's days by hour, task, tenant and worker: into the lake, and into tables to plot from.

    Only days that changed since the last run are read: late rows, a new promise, a new day.
    """
    told = load(config)
    place = lake_of(lake, told)
    chosen = sorted(together(days)) or None

    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PySpark
    from pgqueue.spark.rollup import rollup as rollups  # noqa: PLC0415 - PySpark is slow to import, so other errors come first

    written = rollups.rollup(spark, None if no_postgres else queue.database, Lake(place), told, days=chosen)
    done = RollupResult(written, place, not no_postgres)
    if as_json:
        print_json(done)
    else:
        click.echo(in_words(done.days))


def in_words(days: Iterable[date]) -> str:
    """One line that says what was done."""
    done = [str(day) for day in days]
    if not done:
        return "nothing to do: every day is up to date"
    named = ", ".join(done if len(done) <= SHOWN else [*done[: SHOWN - 1], f"... {done[-1]}"])
    return f"{len(done)} {'day' if len(done) == 1 else 'days'} rolled up: {named}"
