"""``pgqueue pipeline verify``: compares the lake with the database."""

from datetime import date
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import Spark, days_option, in_lake, on_spark, place, together
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from pgqueue.spark.lake.verify import VerifyResult


@click.command()
@in_lake
@on_spark
@click.option("--all", "everything", is_flag=True, help="Verify the days that are verified already, too.")
@days_option("--day", "Only this UTC day (or FIRST..LAST), verified already or not.")
@json_option
@with_queue
def verify(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    lake: str | None,
    config: str | None,
    everything: bool,
    day: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Compare the exported days with the database, row by row: counts, and checksums of every column.

    Only days that are verified can be pruned. The exit code is 1 if a day differs.
    """
    where = place(lake, config)

    from pgqueue.spark.lake import verify as verifying  # noqa: PLC0415 - PySpark is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PySpark

    queue.database.verify()
    found = verifying.verify(
        spark, queue.database, Lake(where), days=together(day) or None, everything=everything, tell=_tell
    )
    differing = [one for one in found if one.reason]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("nothing to verify: every day in the lake is verified")
    else:
        agreeing = sum(one.finding is verifying.DayFinding.VERIFIED for one in found)
        click.echo(f"{some(agreeing, 'day')} verified, {some(len(differing), 'day')} differing")
    if differing:
        click.get_current_context().exit(1)


def _tell(one: "VerifyResult") -> None:
    rows = f"{some(one.history, 'row')} of the history, {some(one.dead, 'dead job')}"
    if one.standing != one.dead:
        rows += f" ({some(one.standing, 'is', 'are')} still in the database)"
    click.echo(f"{one.day}: {one.finding}; {rows}" + (f"; {one.reason}" if one.reason else ""), err=True)
