"""``pgqueue pipeline export``: writes closed days of ended jobs to the lake."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import (
    Spark,
    days_option,
    in_lake,
    lake_of,
    margin_option,
    on_spark,
    size,
    together,
)
from pgqueue.cli.values import LENGTH
from pgqueue.errors import DaysNotExported
from pgqueue.spark.config import load
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgqueue.spark.lake.export import ExportedDay
    from pgqueue.store.pipeline.lake import Session


@click.command()
@in_lake
@on_spark
@margin_option
@click.option(
    "--wait",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="Wait this long for transactions that may still add to a closed day; what they add later is left to the next export.",
)
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The most rows of a file; a queue with more rows on a day has several files.",
)
@days_option(
    "--again",
    "Write this UTC day (or FIRST..LAST) again from the database, in place of the lake's rows. Dead jobs "
    "that were revived or purged since are then not in it.",
)
@json_option
@with_queue
def export(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    lake: str | None,
    config: str | None,
    margin: timedelta,
    wait: timedelta,
    rows_per_file: int,
    again: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Write every closed day that is not in the lake yet, and late rows of the days that are.

    A day is closed when it is over. Where a transaction stays open that may add rows to it, what is final is written, and
    the rest is left to the next export. The exit code is 1 if a day could not be exported; the others were.
    """
    told = load(config)
    where = lake_of(lake, told)

    from pgqueue.spark.lake import export as exports  # noqa: PLC0415 - PySpark is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PySpark

    options = exports.ExportOptions(
        margin=margin, wait=wait, rows_per_file=rows_per_file, again=together(again), hide=told.hide
    )
    queue.database.verify()
    left: list[Session] = []
    try:
        done = exports.export(
            spark, queue.database, Lake(where), options=options, tell=_tell, tell_open=left.extend
        )
    except DaysNotExported as error:
        click.echo(f"pgqueue: {error}", err=True)
        click.get_current_context().exit(1)
    if left:
        click.echo(_of_open(left), err=True)
    if as_json:
        print_json(done)
    elif done or not left:
        click.echo(_in_words(done))


def _tell(one: "ExportedDay") -> None:
    rows = f"{some(one.history, 'row')} of the history, {some(one.dead, 'dead job')}"
    files = f"{some(one.files, 'file')}, {size(one.bytes)}"
    click.echo(f"{one.day}: {rows}; {files}; {one.seconds:.1f} s", err=True)


def _of_open(left: "Sequence[Session]") -> str:
    named = "; ".join(map(str, left))
    return f"rows that open transactions may add to closed days are left to the next export: {named}"


def _in_words(done: "Sequence[ExportedDay]") -> str:
    if not done:
        return "nothing to export: every closed day is in the lake"
    rows = sum(one.history + one.dead for one in done)
    return f"{some(len(done), 'day')} exported: {some(rows, 'row')}, {size(sum(one.bytes for one in done))}"
