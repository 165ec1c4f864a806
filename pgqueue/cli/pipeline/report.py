"""``pgqueue pipeline report``: reports on a week, on a page and in tables."""

from datetime import date

import click

from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import Spark, in_lake, lake_of, on_spark
from pgqueue.cli.values import day
from pgqueue.spark.config import load

MARKS = {"look": "!", "ok": " ", "unknown": "?", "info": " "}
"""The mark before each answer: ``!`` for findings, ``?`` for too little data."""


@click.command()
@in_lake
@on_spark
@click.option(
    "--until", type=day, metavar="DAY", help="The last day of the week to report on. [default: the newest]"
)
@click.option(
    "--weeks",
    type=click.IntRange(1, 52),
    default=8,
    show_default=True,
    help="How many earlier weeks to compare with.",
)
@click.option("--out", metavar="FILE", help="The page's file. [default: report/report-DAY.html in the lake]")
@json_option
def report(
    *,
    spark: Spark,
    lake: str | None,
    config: str | None,
    until: date | None,
    weeks: int,
    out: str | None,
    as_json: bool,
) -> None:
    """Report on the week up to a day: unusual hours, tasks that a deploy slowed, and when workers will be too few.

    Reads only the roll-ups in the lake, and no database. Writes one HTML file, and the same answers as Parquet under report/.
    """
    told = load(config)
    place = lake_of(lake, told)

    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PySpark is slow to import, so other errors come first
    from pgqueue.spark.lake.steps import log_step  # noqa: PLC0415 - as above
    from pgqueue.spark.report.rendering import require  # noqa: PLC0415 - as above

    opened = Lake(place)
    opened.marker()
    require()
    started = spark()
    from pgqueue.spark.report.report import answers, check_out, write  # noqa: PLC0415 - after spark(), which checks for PySpark

    check_out(out)
    with log_step(opened, "report"):
        found = write(answers(started, opened, told, until=until, weeks=weeks), opened, out=out)
    if as_json:
        print_json(found)
        return
    for section in found.sections.values():
        click.echo(f"{MARKS[section.state]} {section.title} {section.answer}")
    click.echo(f"The page: {found.html}")
