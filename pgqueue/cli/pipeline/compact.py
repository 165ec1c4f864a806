"""``pgqueue pipeline compact``: merges the small files of the lake's days."""

from datetime import date
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import days_option, in_lake, place, together
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from pgqueue.spark.lake.compact import CompactedDay


@click.command()
@in_lake
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The most rows of a merged file; as many are in memory at once.",
)
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all]")
@json_option
@with_queue
def compact(
    queue: PgQueue,
    /,
    *,
    lake: str | None,
    config: str | None,
    rows_per_file: int,
    days: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Merge the small files of each day into one. The rows stay the same, and verified days stay verified."""
    where = place(lake, config)

    from pgqueue.spark.lake import compact as compacting  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    found = compacting.compact(
        queue.database, Lake(where), rows_per_file=rows_per_file, days=together(days) or None, tell=_tell
    )
    if as_json:
        print_json(found)
    else:
        click.echo(f"{some(len(found), 'day')} compacted: {some(sum(one.rows for one in found), 'row')}")


def _tell(one: "CompactedDay") -> None:
    click.echo(f"{one.day}: {some(one.before, 'file')} became {one.after}; {some(one.rows, 'row')}", err=True)
