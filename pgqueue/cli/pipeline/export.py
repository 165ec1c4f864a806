"""``pgqueue pipeline export``: writes closed days of ended jobs to the lake."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import days_option, in_lake, margin_option, place, size, together
from pgqueue.cli.values import LENGTH
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgqueue.spark.lake.export import Exported


@click.command()
@in_lake
@margin_option
@click.option(
    "--wait",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="Wait this long for transactions that may still add to a closed day.",
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
    lake: str | None,
    config: str | None,
    margin: timedelta,
    wait: timedelta,
    rows_per_file: int,
    again: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Write every closed day that is not in the lake yet, and late rows of the days that are.

    A day is closed when it is over, and no open transaction can add rows to it.
    """
    where = place(lake, config)

    from pgqueue.spark.lake import export as exports  # noqa: PLC0415 - PySpark is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PySpark
    from pgqueue.spark.session import session  # noqa: PLC0415 - needs PySpark

    options = exports.ExportOptions(
        margin=margin, wait=wait, rows_per_file=rows_per_file, again=together(again)
    )
    queue.database.verify()
    done = exports.export(session(), queue.database, Lake(where), options=options, tell=_tell)
    if as_json:
        print_json(done)
    else:
        click.echo(_in_words(done))


def _tell(one: "Exported") -> None:
    rows = f"{some(one.history, 'row')} of the history, {some(one.dead, 'dead job')}"
    files = f"{some(one.files, 'file')}, {size(one.bytes)}"
    click.echo(f"{one.day}: {rows}; {files}; {one.seconds:.1f} s", err=True)


def _in_words(done: "Sequence[Exported]") -> str:
    if not done:
        return "nothing to export: every closed day is in the lake"
    rows = sum(one.history + one.dead for one in done)
    return f"{some(len(done), 'day')} exported: {some(rows, 'row')}, {size(sum(one.bytes for one in done))}"
