"""``pgqueue pipeline prune``: drops from the database the history that is verified in the lake."""

from collections import Counter
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
    from pgqueue.spark.lake.prune import PrunedDay


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
    "--keep-lake",
    type=LENGTH,
    help="Drop older days from the lake, too, such as 730d; their roll-ups stay. [default: keep all]",
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
    keep_lake: timedelta | None,
    wait: timedelta,
    day: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Drop the days of the history that are verified in the lake, after comparing each once more.

    Dead jobs stay. The exit code is 1 if a verified day was refused, because it has changed or was in use.
    """
    where = place(lake, config)

    from pgqueue.spark.lake import drop as dropping  # noqa: PLC0415 - needs PyArrow
    from pgqueue.spark.lake import prune as pruning  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    days = together(day) or None
    found = pruning.prune(queue.database, Lake(where), keep=keep, days=days, lock_wait=wait, tell=_tell)
    if keep_lake is not None:
        found += dropping.drop(queue.database, Lake(where), keep=keep_lake, days=days, tell=_tell)
    if as_json:
        print_json(found)
    else:
        click.echo(_in_words(found))
    if any(one.fate in (pruning.Fate.REFUSED, pruning.Fate.BUSY) for one in found):
        click.get_current_context().exit(1)


def _in_words(found: "list[PrunedDay]") -> str:
    rows, days = Counter[str](), Counter[str]()
    for one in found:
        days[one.fate] += 1
        rows[one.fate] += one.rows
    pruned, dropped = days.pop("pruned", 0), days.pop("dropped", 0)
    said = f"{some(pruned, 'day')} pruned: {some(rows['pruned'], 'row')}"
    if dropped:
        said += f"; {some(dropped, 'day')} dropped from the lake: {some(rows['dropped'], 'row')}"
    return f"{said}; {some(days.total(), 'day')} kept"


def _tell(one: "PrunedDay") -> None:
    rows = f"; {some(one.rows, 'row')}" if one.rows else ""
    click.echo(f"{one.day}: {one.fate}{rows}" + (f"; {one.reason}" if one.reason else ""), err=True)
