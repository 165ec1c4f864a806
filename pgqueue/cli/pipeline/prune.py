"""``pgqueue pipeline prune``: drops from the database the history that is verified in the lake."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import days_option, in_lake, place, together
from pgqueue.cli.values import LENGTH
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from pgqueue.spark.lake.prune import Pruned


@click.command()
@in_lake
@click.option(
    "--keep",
    type=LENGTH,
    default="7d",
    show_default=True,
    help="Keep the history of the last days, such as 7d.",
)
@click.option(
    "--wait",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="Wait this long, for each day, until nothing else uses the history.",
)
@days_option("--day", "Only this UTC day (or FIRST..LAST).")
@json_option
@with_queue
def prune(
    queue: PgQueue,
    /,
    *,
    lake: str | None,
    config: str | None,
    keep: timedelta,
    wait: timedelta,
    day: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Drop the days of the history that are verified in the lake, after comparing each once more.

    Dead jobs stay. The exit code is 1 if a verified day was refused, because it has changed or was in use.
    """
    where = place(lake, config)

    from pgqueue.spark.lake import prune as pruning  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    found = pruning.prune(
        queue.database, Lake(where), keep=keep, days=together(day) or None, lock_wait=wait, tell=_tell
    )
    if as_json:
        print_json(found)
    else:
        gone = [one for one in found if one.fate is pruning.Fate.PRUNED]
        rows = some(sum(one.rows for one in gone), "row")
        click.echo(f"{some(len(gone), 'day')} pruned: {rows}; {some(len(found) - len(gone), 'day')} kept")
    if any(one.fate in (pruning.Fate.REFUSED, pruning.Fate.BUSY) for one in found):
        click.get_current_context().exit(1)


def _tell(one: "Pruned") -> None:
    rows = f"; {some(one.rows, 'row')}" if one.rows else ""
    click.echo(f"{one.day}: {one.fate}{rows}" + (f"; {one.reason}" if one.reason else ""), err=True)
