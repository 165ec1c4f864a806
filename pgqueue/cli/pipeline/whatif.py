"""``pgqueue pipeline whatif``: replays the lake's recorded jobs under other settings, and shows the waits beside what was."""

from datetime import date, timedelta

import click

from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.pipeline.options import in_lake, place, span_of_days
from pgqueue.cli.values import LENGTH, names
from pgqueue.values.queues.served_queues import parse_served

SHOWN = 20
"""Rows of the table; ``--json`` has all."""


@click.command()
@in_lake
@click.option(
    "--days", type=span_of_days, required=True, metavar="DAY", help="The UTC day to replay (or FIRST..LAST)."
)
@click.option("--workers", type=int, required=True, metavar="N", help="How many worker processes.")
@click.option(
    "--concurrency",
    type=int,
    default=20,
    show_default=True,
    metavar="N",
    help="How many jobs each runs at a time.",
)
@click.option(
    "--queues",
    type=names,
    metavar="QUEUE[:WEIGHT],...",
    help="The queues that all of them serve. [default: all]",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="At most N jobs of a key at once: customer_id=5, task:send=5, task:send:customer_id=5, queue:mail=50. Can be given "
    "several times.",
)
@click.option(
    "--schedule",
    "moves",
    multiple=True,
    metavar="TASK=CRON",
    help="Let a task's jobs be ready at these times (UTC): as many a day as were. Can be given several times.",
)
@click.option("--late", type=LENGTH, default="1m", show_default=True, help="A job that waits longer is late.")
@click.option("--out", metavar="FILE", help="Write a page with pictures to this file.")
@json_option
def whatif(
    *,
    lake: str | None,
    config: str | None,
    days: list[date],
    workers: int,
    concurrency: int,
    queues: list[str] | None,
    limits: tuple[str, ...],
    moves: tuple[str, ...],
    late: timedelta,
    out: str | None,
    as_json: bool,
) -> None:
    """Replay recorded jobs under other settings: how long would they have waited?

    Reads only the lake, and needs neither a database nor Spark. Each job is ready when it was, and runs as long as it did.
    Limits that your tasks have are not in the lake: give them, too.
    """
    where = place(lake, config)

    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.whatif import page, whatif_text  # noqa: PLC0415 - needs PyArrow
    from pgqueue.spark.whatif.settings import ReplaySettings, read_limit, read_move  # noqa: PLC0415 - needs NumPy
    from pgqueue.spark.whatif.whatif import whatif as compared  # noqa: PLC0415 - needs PyArrow

    settings = ReplaySettings(
        workers=workers,
        concurrency=concurrency,
        serving=parse_served(queues),
        limits=tuple(map(read_limit, limits)),
        moved=tuple(map(read_move, moves)),
        late=late,
    )
    page.check_out(out)
    found = compared(Lake(where), days, settings)
    written = None if out is None else page.write(found, out)
    if as_json:
        print_json(found)
        return
    for line in whatif_text.answer(found):
        click.echo(line)
    rows = [(row.queue, row.task, *whatif_text.cells(row)) for row in found.tasks[:SHOWN]]
    print_table(whatif_text.HEADS, rows, empty="")
    if len(found.tasks) > SHOWN:
        click.echo(f"The first {SHOWN} of {len(found.tasks):,} tasks; --json has all.")
    for line in whatif_text.not_known(found):
        click.echo(line)
    if written is not None:
        click.echo(f"The page: {written}")
