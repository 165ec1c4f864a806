"""``pgqueue pipeline check``: checks the quality of the lake's jobs."""

from datetime import date

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import days_option, in_lake, lake_of, together
from pgqueue.spark.config import load
from pgqueue.spark.report.words import some


@click.command()
@in_lake
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all that changed]")
@json_option
@with_queue
def check(
    queue: PgQueue,
    /,
    *,
    lake: str | None,
    config: str | None,
    days: tuple[list[date], ...],
    as_json: bool,
) -> None:
    """Check the quality of the lake's jobs: wrong times, rows twice, dead jobs without an error, and your own conditions.

    The results are rows of the lake's table checks. The exit code is 1 if a check failed.
    """
    told = load(config)
    place = lake_of(lake, told)

    from pgqueue.spark import checks  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    found = checks.check(queue.database, Lake(place), told.checks, days=together(days) or None)
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
